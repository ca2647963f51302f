"""The topic source of a configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_agent.config import TOPIC_SOURCES, AgentConfig, ProbeSection, TopicsSection
from pointsman_agent.topic_source import TopicSource
from pointsman_agent.topic_source.build import READ_TIMEOUT_SECONDS, build_topic_source
from pointsman_agent.topic_source.redis_topics import RedisTopicSource
from pointsman_agent.topic_source.rocketmq import RocketmqTopicSource
from pointsman_agent.topic_source.toml import TomlTopicSource
from tests.kit.agent.in_process import BROKER_ADDR, agent_config


def built(config: AgentConfig) -> TopicSource:
    return build_topic_source(config, clock=ManualClock(), file=Path("agent.toml"), environment={})


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (TopicsSection(), TomlTopicSource),
        (TopicsSection(source="rocketmq", store_path="store"), RocketmqTopicSource),
        (TopicsSection(source="redis"), RedisTopicSource),
    ],
)
def test_each_source_is_built_and_has_a_deadline(topics: TopicsSection, expected: type) -> None:
    config = replace(agent_config(["127.0.0.1:9876"]), topics=topics)

    assert type(built(config)) is expected
    assert READ_TIMEOUT_SECONDS[topics.source] > 0


def test_every_source_of_the_configuration_has_a_deadline() -> None:
    assert set(READ_TIMEOUT_SECONDS) == set(TOPIC_SOURCES)


@pytest.mark.parametrize(
    ("probe", "target", "login"),
    [
        (ProbeSection(), BROKER_ADDR, (None, None)),
        (ProbeSection(kind="tcp", target="10.9.9.9:1"), BROKER_ADDR, (None, None)),
        (ProbeSection(kind="redis"), BROKER_ADDR, (None, None)),
        (ProbeSection(kind="redis", target="10.9.9.9:1", username="u", password="p"), "10.9.9.9:1", ("u", "p")),
    ],
)
def test_redis_is_found_and_entered_as_by_its_probe(
    probe: ProbeSection, target: str, login: tuple[str | None, str | None]
) -> None:
    source = built(replace(agent_config(["127.0.0.1:9876"]), topics=TopicsSection(source="redis"), probe=probe))

    assert isinstance(source, RedisTopicSource)
    assert source._target == target
    assert (source._username, source._password) == login
