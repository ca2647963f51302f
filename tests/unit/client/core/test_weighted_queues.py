"""Sends without a key or queue by the weights of brokers."""

from __future__ import annotations

import random
from collections import Counter
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_client.core.fault_strategy import (
    NEWER_FAULT_RULES,
    OLDER_FAULT_RULES,
    FaultRules,
    LatencyFaultTolerance,
    PublishInfo,
    QueueSelector,
)
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import QueueData, Revision, TopicRoute
from pointsman_client.core.weighted_queues import WeightedPublishInfo, new_publish_info, to_queue_weights

A, B, C = (("c1", name) for name in "abc")
Broker = tuple[str, str]


def queues_of(counts: dict[Broker, int]) -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue("orders", *broker, number) for broker, count in counts.items() for number in range(count))


def info_of(counts: dict[Broker, int], weights: dict[Broker, int], *, seed: int = 1) -> PublishInfo:
    return new_publish_info(queues_of(counts), weights, rng=random.Random(seed))


def route(*weights: int) -> TopicRoute:
    datas = tuple(QueueData("c1", name, 4, 4, 6, 0, weight) for name, weight in zip("abc", weights, strict=False))
    return TopicRoute("orders", Revision(1, 1, b""), datas, ())


def test_equal_weights_are_none() -> None:
    assert to_queue_weights(route(1, 1)) == to_queue_weights(route(7, 7, 7)) == {}
    assert to_queue_weights(route(3, 1)) == {A: 3, B: 1}


def test_without_weights_the_rotation_is_the_plain_one() -> None:
    assert type(info_of({A: 2, B: 2}, {})) is PublishInfo
    assert type(info_of({A: 2, B: 2}, {A: 2, B: 1})) is WeightedPublishInfo


@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1),
    st.integers(0, 50),
)
def test_each_queue_gets_its_weight_in_every_round(sizes: dict[Broker, tuple[int, int]], seed: int) -> None:
    info = WeightedPublishInfo(
        queues_of({broker: count for broker, (count, _) in sizes.items()}),
        {broker: weight for broker, (_, weight) in sizes.items()},
        rng=random.Random(seed),
    )
    turns = sum(count * weight for count, weight in sizes.values())
    rounds = 40

    got = Counter(info.next() for _ in range(rounds * turns))

    assert all(abs(got[queue] - rounds * sizes[queue.broker_key][1]) <= 2 for queue in info.queues)


def test_the_turns_of_a_heavy_broker_are_spread() -> None:
    info = info_of({A: 1, B: 1, C: 1}, {A: 5})

    brokers = [info.next().broker_name for _ in range(700)]

    assert max(len(list(run)) for name, run in groupby(brokers) if name == "a") <= 4
    assert max(len(list(run)) for name, run in groupby(brokers) if name != "a") == 1


def test_a_broker_without_a_weight_has_weight_1() -> None:
    info = info_of({A: 2, B: 2}, {A: 3})

    got = Counter(info.next().broker_key for _ in range(4_000))

    assert got[A] == pytest.approx(3_000, abs=4)


def test_the_first_send_of_many_producers_follows_the_weights() -> None:
    got = Counter(info_of({A: 2, B: 2}, {A: 9, B: 1}, seed=seed).next().broker_key for seed in range(1_000))

    assert 850 < got[A] < 950


def test_a_skipped_brokers_turns_are_divided_by_weight_and_it_comes_back_without_a_burst() -> None:
    info = info_of({A: 1, B: 1, C: 1}, {A: 90, B: 2, C: 1})

    without_a = Counter[Broker]()
    skips = 0
    for _ in range(9_300):
        queue, skipped = info.next_of(lambda broker: broker != A)
        assert queue is not None
        without_a[queue.broker_key] += 1
        skips += skipped == (A,)
    back = Counter(info.next().broker_key for _ in range(93))

    assert without_a[B] == pytest.approx(6_200, abs=4)
    assert without_a[C] == pytest.approx(3_100, abs=4)
    assert skips == pytest.approx(9_000, abs=4)
    assert back[A] == pytest.approx(90, abs=1)


def test_after_a_failure_the_rotation_continues_anywhere_by_weight() -> None:
    info = info_of({A: 1, B: 1, C: 1}, {A: 5})
    brokers = []
    for _ in range(1_400):
        info.start_anywhere()
        brokers.append(info.next().broker_key)

    assert 900 < brokers.count(A) < 1_100
    assert (B, B) in pairwise(brokers), "in turn it would never come twice"


def test_with_no_wanted_broker_there_is_no_queue_and_all_were_skipped() -> None:
    assert info_of({A: 2, B: 2}, {A: 3}).next_of(lambda _: False) == (None, (A, B))


@pytest.mark.parametrize("rules", [NEWER_FAULT_RULES, OLDER_FAULT_RULES], ids=["newer", "older"])
def test_an_isolated_broker_is_avoided_whatever_its_weight(rules: FaultRules) -> None:
    faults = LatencyFaultTolerance(rules)
    faults.update(A, topic="orders", latency_seconds=0.1, isolation=True, reachable=False, now=0.0)
    selector, info = QueueSelector(faults), info_of({A: 1, B: 1}, {A: 100})

    choices = [selector.select(info, last_broker=None, now=1.0) for _ in range(50)]

    assert {queue.broker_key for queue, _ in choices} == {B}
    assert sum(skipped == (A,) for _, skipped in choices) >= 48


def test_a_failed_attempt_is_followed_by_one_at_another_broker() -> None:
    for faults in (None, LatencyFaultTolerance()):
        selector, info = QueueSelector(faults), info_of({A: 4, B: 1}, {A: 100})

        assert {selector.select(info, last_broker=A, now=0.0)[0].broker_key for _ in range(20)} == {B}


def test_there_is_a_queue_when_all_brokers_are_isolated() -> None:
    faults = LatencyFaultTolerance()
    for broker in (A, B):
        faults.update(broker, topic="orders", latency_seconds=0.1, isolation=True, reachable=False, now=0.0)

    info = info_of({A: 1, B: 1}, {A: 100})

    assert QueueSelector(faults).select(info, last_broker=None, now=1.0)[0] in info.queues
