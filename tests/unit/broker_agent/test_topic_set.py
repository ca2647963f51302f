"""The version of a topic set follows from its content, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_agent.core.topic_set import DataVersion, TopicConfig, TopicSet

TOPICS = [TopicConfig("orders", 4, 4, 6), TopicConfig("bills", 2, 3, 4, 1)]


def version(topics: list[TopicConfig], state_version: int = 0) -> DataVersion:
    return TopicSet.from_content(topics, state_version=state_version).data_version


@given(st.permutations([TopicConfig(f"t{i}", i, i, 6) for i in range(8)]))
def test_order_does_not_matter(shuffled: list[TopicConfig]) -> None:
    built = TopicSet.from_content(shuffled, state_version=3)

    assert built == TopicSet.from_content(sorted(shuffled), state_version=3)


@pytest.mark.parametrize(
    "other",
    [
        replace(TOPICS[1], topic="bill"),
        replace(TOPICS[1], read_queue_nums=3),
        replace(TOPICS[1], write_queue_nums=2),
        replace(TOPICS[1], perm=6),
        replace(TOPICS[1], topic_sys_flag=0),
    ],
)
def test_every_part_of_a_topic_counts(other: TopicConfig) -> None:
    assert version([TOPICS[0], other]) != version(TOPICS)


def test_a_missing_topic_counts() -> None:
    assert len({version([]), version(TOPICS[:1]), version(TOPICS)}) == 3


def test_the_counter_is_what_other_builds_will_compute() -> None:
    # An agent of another version must find the same number, or every upgrade would send all topics again.
    assert version(TOPICS, 9) == DataVersion(state_version=9, timestamp_millis=0, counter=8_021_799_461_627_685_289)
