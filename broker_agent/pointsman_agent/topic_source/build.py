"""Build the configured topic source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pointsman.clock import Clock
from pointsman_agent.config import AgentConfig
from pointsman_agent.topic_source import TopicSource
from pointsman_agent.topic_source.rocketmq import RocketmqTopicSource
from pointsman_agent.topic_source.toml import TomlTopicSource
from pointsman_agent.topic_source.with_group_topics import WithGroupTopics

READ_TIMEOUT_SECONDS: Mapping[str, float] = {"toml": 120.0, "rocketmq": 30.0, "redis": 10.0}
"""Deadline of a read of each source. Files need processor time, on a thread: half a minute on a busy core for 100,000
tables of TOML, a second for as many topics of RocketMQ."""


def build_topic_source(
    config: AgentConfig,
    *,
    clock: Clock,
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    on_skipped: Callable[[int], None] | None = None,
) -> TopicSource:
    """Build the source. ``config`` was loaded from ``file``, ``environment`` and ``flags``.

    Raises TopicSourceNotInstalledError.
    """
    topics = config.topics
    if topics.source == "rocketmq":
        return RocketmqTopicSource(
            store_path=topics.store_path,
            broker_conf=topics.broker_conf,
            max_topics=topics.max_topics,
            clock=clock,
            environment=environment,
            on_skipped=on_skipped,
        )
    if not config.is_redis:
        return TomlTopicSource(config, file=file, environment=environment, flags=flags, clock=clock)
    from pointsman_agent.topic_source import redis_topics  # noqa: PLC0415  # needs the extra `redis`

    target, username, password = config.redis_login
    state_version = config.broker.state_version

    def at_redis(pattern: str, on_skipped: Callable[[int], None] | None) -> TopicSource:
        return redis_topics.RedisTopicSource(
            target,
            max_topics=topics.max_topics,
            state_version=state_version,
            username=username,
            password=password,
            pattern=pattern,
            on_skipped=on_skipped,
        )

    if topics.source == "redis":
        return at_redis(redis_topics.PATTERN, on_skipped)
    return WithGroupTopics(
        TomlTopicSource(config, file=file, environment=environment, flags=flags, clock=clock),
        at_redis(redis_topics.GROUP_PATTERN, None),
        state_version=state_version,
        clock=clock,
    )
