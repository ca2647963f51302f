"""The version of a topic set follows from its content, and from nothing else."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_agent.core.topic_set import AMENDED_BIT, DataVersion, TopicConfig, TopicSet, by_name

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
        replace(TOPICS[1], queue_weight=2),
    ],
)
def test_every_part_of_a_topic_counts(other: TopicConfig) -> None:
    assert version([TOPICS[0], other]) != version(TOPICS)


def test_a_missing_topic_counts() -> None:
    assert len({version([]), version(TOPICS[:1]), version(TOPICS)}) == 3


def test_the_counter_is_stable_across_releases() -> None:
    # An agent of another version must find the same number, or every upgrade would send all topics again.
    assert version(TOPICS, 9) == DataVersion(state_version=9, timestamp_millis=0, counter=8_021_799_461_627_685_289)


@given(st.integers(0, 3), st.randoms())
def test_sorting_in_parts_is_sorting(extra: int, random: Random) -> None:
    topics = [TopicConfig(f"t{random.randrange(100)}", random.randrange(3), 1, 6) for _ in range(9 + extra)]

    with patch("pointsman_agent.core.topic_set.SORT_BATCH", 3):
        assert by_name(topics) == tuple(sorted(topics))


def test_sorting_nothing_gives_nothing() -> None:
    assert by_name([]) == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 2**63 - 1), st.sampled_from([TOPICS, TOPICS[:1], TOPICS[1:]])), min_size=2, max_size=2
    )
)
def test_an_amended_version_is_that_of_no_source_and_follows_from_version_and_content(
    both: list[tuple[int, list[TopicConfig]]],
) -> None:
    versions = [DataVersion(2, 5, counter) for counter, _ in both]
    first, second = (
        TopicSet.amended(by_name(topics), of=of).data_version for (_, topics), of in zip(both, versions, strict=True)
    )

    assert (first.state_version, first.timestamp_millis) == (2, 5)
    assert AMENDED_BIT <= first.counter < 2**64
    assert (first == second) is (both[0] == both[1])


def test_sets_are_equal_when_version_and_topics_are() -> None:
    topics = by_name(TOPICS)
    whole = TopicSet(topics, DataVersion(1, 2, 3))

    assert whole == TopicSet(by_name(list(TOPICS)), DataVersion(1, 2, 3))
    assert hash(whole) == hash(TopicSet(by_name(list(TOPICS)), DataVersion(1, 2, 3)))
    assert whole != TopicSet(topics, DataVersion(1, 2, 4))
    assert whole != TopicSet(topics[:1], DataVersion(1, 2, 3))
    assert whole != "a set"
