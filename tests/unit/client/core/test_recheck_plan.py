"""When disputed topics are queried again."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pointsman_client.core.recheck_plan import (
    MAX_BACKOFF_SECONDS,
    MAX_RECHECKS,
    WANTED_TTL_SECONDS,
    RecheckPlan,
    WantedTopics,
)


def plan() -> RecheckPlan:
    return RecheckPlan(lambda _low, high: high)


def test_a_dispute_is_rechecked_with_backoff_and_a_limit() -> None:
    rechecks, now, waits = plan(), 0.0, []
    rechecks.disputed("orders", now=now)
    while (due_at := rechecks.next_due_at()) is not None:
        waits.append(round(due_at - now, 3))
        now = due_at
        assert rechecks.take_due(now=now) == ["orders"]
        rechecks.disputed("orders", now=now)

    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert len(waits) == MAX_RECHECKS
    rechecks.disputed("orders", now=now)
    assert rechecks.next_due_at() is None


def test_a_settled_dispute_is_not_rechecked_and_a_new_one_starts_over() -> None:
    rechecks = plan()
    rechecks.disputed("orders", now=0.0)
    rechecks.settled("orders")
    assert rechecks.next_due_at() is None

    rechecks.disputed("orders", now=9.0)
    assert rechecks.next_due_at() == 9.2


def test_a_doubt_is_due_immediately_and_reported_once() -> None:
    rechecks = plan()
    rechecks.doubted("orders", now=5.0)

    assert rechecks.take_due(now=4.9) == []
    assert rechecks.take_due(now=5.0) == ["orders"]
    assert rechecks.take_due(now=6.0) == []


@given(seed=st.integers(0, 1_000), steps=st.lists(st.sampled_from(["doubted", "disputed", "settled", "due"])))
def test_no_topic_waits_longer_than_the_longest_wait(seed: int, steps: list[str]) -> None:
    rechecks, now = RecheckPlan(random.Random(seed).uniform), 0.0
    for step in steps:
        now += 0.5
        if step == "due":
            rechecks.take_due(now=now)
        elif step == "settled":
            rechecks.settled("orders")
        else:
            {"doubted": rechecks.doubted, "disputed": rechecks.disputed}[step]("orders", now=now)
        due_at = rechecks.next_due_at()
        assert due_at is None or due_at <= now + MAX_BACKOFF_SECONDS


def test_a_wanted_topic_is_kept_in_mind_until_it_is_found_or_unwanted_for_long() -> None:
    wanted = WantedTopics(10)
    assert wanted.want("a", now=0.0)
    assert wanted.want("b", now=1.0)
    assert not wanted.want("a", now=2.0)
    assert wanted.topics(now=2.0) == ["b", "a"]

    wanted.found("b")
    assert wanted.topics(now=2.0 + WANTED_TTL_SECONDS) == ["a"]
    assert wanted.topics(now=2.1 + WANTED_TTL_SECONDS) == []


def test_wanted_topics_are_bounded_and_the_oldest_makes_room() -> None:
    wanted = WantedTopics(2)
    for now, topic in enumerate("abc"):
        wanted.want(topic, now=float(now))

    assert wanted.topics(now=3.0) == ["b", "c"]
