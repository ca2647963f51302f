"""Retry topics and dead letters beside the topics of a file: found at a real Redis, kept while it is down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman_agent.config import AgentConfig, BrokerSection, NameServersSection, ProbeSection, TopicRow, TopicsSection
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.build import build_topic_source
from pointsman_agent.topic_source.with_group_topics import FIND_SECONDS, WithGroupTopics
from tests.kit.broker.redis.process import redis_process

ORDERS = TopicConfig("orders", 4, 4, 6)
LETTERS = TopicConfig("%DLQ%billing", 1, 0, 4)


def topics(*each: TopicConfig) -> TopicSet:
    return TopicSet.from_content(each, state_version=0)


class Scripted:
    """A source that returns or raises what the test sets; None: it hangs."""

    def __init__(self, outcome: TopicSet | TopicSourceError | None) -> None:
        self.outcome = outcome

    async def read(self) -> TopicSet:
        if self.outcome is None:
            await asyncio.Event().wait()
        if isinstance(self.outcome, TopicSourceError):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome


@pytest.mark.redis
async def test_dead_letters_get_a_route_as_soon_as_they_exist(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        config = AgentConfig(
            broker=BrokerSection(cluster="c1", name="a", addr=redis.addr),
            name_servers=NameServersSection(addrs=("127.0.0.1:9876",)),
            probe=ProbeSection(kind="redis"),
            topics=TopicsSection(
                topic=(
                    TopicRow(name="orders", read_queues=4, write_queues=4),
                    TopicRow(name="%DLQ%audit", read_queues=1, write_queues=1),
                )
            ),
        )
        source = build_topic_source(config, clock=SystemClock(), file=None, environment={})
        before = await source.read()
        await redis.command("XADD", "orders:queue:9", "0-*", "k", "v")
        assert await source.read() is before
        for key in ("%DLQ%billing:queue:0", "%DLQ%audit:queue:0", "%RETRY%billing:queue:3", "%Rest:queue:0"):
            await redis.command("XADD", key, "0-*", "k", "v")
        after = await source.read()
        assert await source.read() is after

    assert [each.topic for each in before.topics] == ["%DLQ%audit", "orders"]
    assert {each.topic: each for each in after.topics} == {
        "orders": ORDERS,
        "%DLQ%audit": TopicConfig("%DLQ%audit", 1, 1, 6),
        "%DLQ%billing": LETTERS,
        "%RETRY%billing": TopicConfig("%RETRY%billing", 4, 0, 4),
    }
    assert len(after.topics) == 4
    assert after.data_version != before.data_version


async def test_a_broker_that_cannot_be_searched_keeps_what_was_found_and_holds_nothing_up(clock: ManualClock) -> None:
    own, groups = Scripted(topics(ORDERS)), Scripted(TopicSourceError("redis h:1: refused"))
    source = WithGroupTopics(own, groups, state_version=0, clock=clock)
    assert (await source.read()).topics == (ORDERS,)
    groups.outcome = topics(LETTERS)
    found = await source.read()
    assert {each.topic for each in found.topics} == {"orders", "%DLQ%billing"}

    groups.outcome = None
    late = asyncio.create_task(source.read())
    await clock.advance(FIND_SECONDS)
    assert await late is found
    own.outcome = topics(ORDERS, TopicConfig("bills", 1, 1, 6))
    groups.outcome = TopicSourceError("redis h:1: refused")
    assert {each.topic for each in (await source.read()).topics} == {"orders", "bills", "%DLQ%billing"}
    groups.outcome = topics()
    assert {each.topic for each in (await source.read()).topics} == {"orders", "bills"}


async def test_topics_without_groups_stay_the_same_set(clock: ManualClock) -> None:
    own = Scripted(topics(ORDERS))
    source = WithGroupTopics(own, Scripted(topics()), state_version=0, clock=clock)
    assert await source.read() is own.outcome


async def test_a_file_that_cannot_be_read_is_a_failed_read(clock: ManualClock) -> None:
    source = WithGroupTopics(
        Scripted(TopicSourceError("agent.toml: broken")), Scripted(topics(LETTERS)), state_version=0, clock=clock
    )
    with pytest.raises(TopicSourceError, match="broken"):
        await source.read()
