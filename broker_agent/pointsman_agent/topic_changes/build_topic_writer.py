"""Build what changes the topics of the configured source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.clock import Clock
from pointsman_agent.config import AgentConfig
from pointsman_agent.topic_changes.toml_topic_writer import TomlTopicWriter
from pointsman_agent.topic_changes.topic_writer import TopicWriter, UnwritableTopics

if TYPE_CHECKING:
    from pointsman_agent.topic_changes.redis_streams import RedisStreams

STREAMS_SECONDS = 2.0


def build_streams(config: AgentConfig, *, clock: Clock) -> RedisStreams | None:
    """Build what creates and removes queues; None: the broker is not a Redis server."""
    if not config.is_redis:
        return None
    from pointsman_agent.topic_changes.redis_streams import RedisStreams  # noqa: PLC0415  # needs the extra `redis`

    target, username, password = config.redis_login
    return RedisStreams(target, clock=clock, timeout=STREAMS_SECONDS, username=username, password=password)


def build_topic_writer(
    config: AgentConfig,
    streams: RedisStreams | None,
    *,
    clock: Clock,
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
) -> TopicWriter:
    """Build the writer. ``config`` was loaded from ``file``, ``environment`` and ``flags``."""
    source = config.topics.source
    if source == "rocketmq":
        why = "its topics are those of a RocketMQ broker's files: change them at the broker, with mqadmin updateTopic"
        return UnwritableTopics(source, why)
    if source == "redis" and streams is not None:
        from pointsman_agent.topic_changes.redis_streams import RedisTopicWriter  # noqa: PLC0415  # as above

        return RedisTopicWriter(streams)
    return TomlTopicWriter(config, file=file, environment=environment, flags=flags, clock=clock)
