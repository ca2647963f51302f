"""Topics from the agent's own configuration file."""

from __future__ import annotations

from broker_agent.config import PERMS, AgentConfig
from broker_agent.core.topic_set import TopicConfig, TopicSet


class TomlTopicSource:
    """The ``[[topics.topic]]`` tables of a configuration. Their version follows from their content."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config

    async def read(self) -> TopicSet:
        """See :meth:`broker_agent.topic_source.TopicSource.read`."""
        rows = self._config.topics.topic
        return TopicSet.from_content(
            (
                TopicConfig(
                    topic=row.name,
                    read_queue_nums=row.read_queues,
                    write_queue_nums=row.write_queues,
                    perm=PERMS[row.perm],
                    topic_sys_flag=row.topic_sys_flag,
                )
                for row in rows
            ),
            state_version=self._config.broker.state_version,
        )
