"""Which brokers are isolated for how long, and which queue a send takes."""

from __future__ import annotations

import random
from collections import Counter

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

A, B, C, D = (("c1", name) for name in "abcd")


def note(
    faults: LatencyFaultTolerance,
    broker: tuple[str, str],
    *,
    now: float,
    seconds: float = 0.01,
    failed: bool = False,
    reachable: bool = True,
) -> float:
    isolation = faults.update(
        broker, topic="orders", latency_seconds=seconds, isolation=failed, reachable=reachable, now=now
    )
    return 0.0 if isolation is None else isolation.seconds


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [
        (0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 2), (1799, 2), (1800, 5), (2999, 5), (3000, 6), (4999, 6),
        (5000, 10), (14999, 10), (15000, 30), (60000, 30),
    ],
)  # fmt: skip
def test_the_newer_rules_exclude_a_broker_by_its_latency(milliseconds: int, seconds: float) -> None:
    assert NEWER_FAULT_RULES.not_available_for(milliseconds / 1000) == seconds


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [(40, 0), (60, 0), (560, 30), (1100, 60), (2500, 120), (3500, 180), (16000, 600)],
)
def test_w8_older_fault_preset(milliseconds: int, seconds: float) -> None:
    faults = LatencyFaultTolerance(OLDER_FAULT_RULES)

    note(faults, A, now=100.0, seconds=milliseconds / 1000)

    assert faults.is_available(A, now=100.0 + seconds)
    assert seconds == 0 or not faults.is_available(A, now=100.0 + seconds - 0.001)


def test_w8_older_fault_preset_counts_a_failure_as_thirty_seconds_of_latency() -> None:
    faults = LatencyFaultTolerance(OLDER_FAULT_RULES)

    assert note(faults, A, now=100.0, failed=True) == 600.0
    assert not faults.is_available(A, now=699.9)
    assert faults.is_available(A, now=700.0)


def test_a_failure_counts_as_ten_seconds_by_the_newer_rules() -> None:
    faults = LatencyFaultTolerance()

    assert note(faults, A, now=100.0, failed=True, seconds=0.001) == 10.0
    assert not faults.is_available(A, now=109.9)
    assert faults.is_available(A, now=110.0)


def test_a_broker_without_a_fault_item_is_available_and_reachable() -> None:
    faults = LatencyFaultTolerance()

    assert faults.is_available(A, now=0.0)
    assert faults.is_reachable(A)


@pytest.mark.parametrize(("rules", "cleared"), [(NEWER_FAULT_RULES, False), (OLDER_FAULT_RULES, True)])
def test_a_later_fast_success_clears_only_by_the_older_rules(rules: FaultRules, cleared: bool) -> None:
    faults = LatencyFaultTolerance(rules)
    note(faults, A, now=100.0, failed=True)

    note(faults, A, now=101.0)

    assert faults.is_available(A, now=101.0) is cleared


def test_a_shorter_time_out_does_not_replace_a_longer_one() -> None:
    faults = LatencyFaultTolerance()
    note(faults, A, now=100.0, failed=True)

    assert note(faults, A, now=101.0, seconds=0.6) == 0.0

    assert not faults.is_available(A, now=109.0)
    assert note(faults, A, now=105.0, failed=True) == 10.0
    assert not faults.is_available(A, now=114.0)


def test_the_same_broker_name_in_two_clusters_is_two_brokers() -> None:
    faults = LatencyFaultTolerance()
    note(faults, ("c1", "a"), now=100.0, failed=True, reachable=False)

    assert faults.is_available(("c2", "a"), now=100.0)
    assert faults.is_reachable(("c2", "a"))


def test_a_probe_makes_a_broker_reachable_and_does_not_change_its_isolation() -> None:
    faults = LatencyFaultTolerance()
    note(faults, A, now=100.0, failed=True, reachable=False)
    assert not faults.is_reachable(A)

    faults.mark_reachable(A)
    faults.mark_reachable(B)

    assert faults.is_reachable(A)
    assert not faults.is_available(A, now=109.0)


def test_only_unreachable_brokers_are_probed_and_none_twice_within_the_interval() -> None:
    faults = LatencyFaultTolerance()
    note(faults, A, now=100.0, failed=True, reachable=False)
    note(faults, B, now=100.0)

    assert faults.due_probes(now=100.0, interval_seconds=2.0) == ((A, "orders"),)
    assert faults.due_probes(now=101.9, interval_seconds=2.0) == ()
    assert faults.due_probes(now=102.0, interval_seconds=2.0) == ((A, "orders"),)


def test_a_broker_that_left_the_routes_is_dropped() -> None:
    faults = LatencyFaultTolerance()
    note(faults, A, now=100.0, failed=True, reachable=False)
    note(faults, B, now=100.0, failed=True)

    faults.retain(lambda broker: broker == B)

    assert faults.is_available(A, now=100.0)
    assert [each.broker_name for each in faults.describe(now=101.0)] == ["b"]
    assert faults.describe(now=101.0)[0].seconds_left == 9.0


def test_at_least_one_is_picked_of_the_better_half() -> None:
    faults = LatencyFaultTolerance(OLDER_FAULT_RULES)
    note(faults, A, now=100.0, failed=True, seconds=3.0)
    note(faults, B, now=100.0, seconds=0.6)
    note(faults, C, now=100.0, seconds=1.5)
    note(faults, D, now=100.0, seconds=2.5)

    assert [faults.pick_at_least_one([A, B, C, D], turn=turn, now=101.0) for turn in range(3)] == [B, C, B]
    assert faults.pick_at_least_one([A], turn=7, now=101.0) == A
    assert faults.pick_at_least_one([], turn=0, now=101.0) is None


class NaiveFaults:
    """The documented rules, as a list of facts that is evaluated again for each query."""

    def __init__(self, rules: FaultRules) -> None:
        self.rules = rules
        self.diary: list[tuple[float, tuple[str, str], float]] = []

    def update(self, broker: tuple[str, str], *, latency: float, isolation: bool, now: float) -> None:
        counted = self.rules.isolation_latency_seconds if isolation else latency
        table = zip(self.rules.latency_max_seconds, self.rules.not_available_seconds, strict=True)
        seconds = max((pause for least, pause in table if counted >= least), default=0.0)
        self.diary.append((now, broker, now + seconds))

    def is_available(self, broker: tuple[str, str], *, now: float) -> bool:
        ends = [end for _, each, end in self.diary if each == broker]
        if self.rules.later_success_clears:
            ends = ends[-1:]
        return all(now >= end for end in ends)


@given(
    rules=st.sampled_from([NEWER_FAULT_RULES, OLDER_FAULT_RULES]),
    steps=st.lists(
        st.tuples(
            st.sampled_from([A, B]), st.sampled_from([0.0, 0.55, 0.6, 1.0, 2.0, 6.0, 20.0]), st.booleans(),
            st.integers(0, 15),
        ),
        max_size=30,
    ),
)  # fmt: skip
def test_availability_agrees_with_the_record_of_sends(
    rules: FaultRules, steps: list[tuple[tuple[str, str], float, bool, int]]
) -> None:
    faults, naive, now = LatencyFaultTolerance(rules), NaiveFaults(rules), 1_000.0
    for broker, latency, isolation, pause in steps:
        note(faults, broker, now=now, seconds=latency, failed=isolation)
        naive.update(broker, latency=latency, isolation=isolation, now=now)
        now += pause
        available = [faults.is_available(each, now=now) for each in (A, B)]
        assert available == [naive.is_available(each, now=now) for each in (A, B)]
        assert all(available) or not faults.are_all_available(now=now)


def test_when_the_last_isolation_has_ended_all_are_available() -> None:
    faults = LatencyFaultTolerance()
    assert faults.are_all_available(now=0.0)
    note(faults, A, now=100.0, failed=True)
    note(faults, B, now=101.0, seconds=0.6)
    assert [faults.are_all_available(now=now) for now in (101.0, 109.9, 110.0)] == [False, False, True]


NOW = 100.0


class FromTheStart(random.Random):
    """A random source that always returns 0."""

    def randrange(self, *_: object, **__: object) -> int:
        return 0


def queues(*places: str) -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue("orders", "c1", place[0], int(place[2:])) for place in places)


def names(*chosen: MessageQueue) -> list[str]:
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in chosen]


def info(*places: str, rng: random.Random | None = None) -> PublishInfo:
    return PublishInfo(queues(*places), rng=rng or FromTheStart())


def isolated(*brokers: str, reachable: bool = True, older: bool = False) -> LatencyFaultTolerance:
    faults = LatencyFaultTolerance(OLDER_FAULT_RULES if older else NEWER_FAULT_RULES)
    for name in brokers:
        faults.update(("c1", name), topic="orders", latency_seconds=1.0, isolation=True, reachable=reachable, now=NOW)
    return faults


def choose(selector: QueueSelector, where: PublishInfo, *, last: str | None = None, now: float = NOW) -> str:
    last_broker = None if last is None else ("c1", last)
    return names(selector.select(where, last_broker=last_broker, now=now)[0])[0]


def test_queues_are_chosen_in_turn_in_the_flattened_order() -> None:
    where, selector = info("a:0", "a:1", "b:0", "b:1"), QueueSelector(LatencyFaultTolerance())

    assert [choose(selector, where) for _ in range(5)] == ["a:0", "a:1", "b:0", "b:1", "a:0"]


def test_the_first_queue_is_any() -> None:
    rng = random.Random(7)
    firsts = {choose(QueueSelector(None), info("a:0", "a:1", "b:0", "b:1", rng=rng)) for _ in range(100)}

    assert firsts == {"a:0", "a:1", "b:0", "b:1"}


def test_w6_the_choice_after_a_failure_skips_all_queues_of_the_broker() -> None:
    where, selector = info("A:1", "A:2", "B:1", "B:2", "C:1", "C:2"), QueueSelector(None)

    assert choose(selector, where) == "A:1"
    assert choose(selector, where, last="A") == "B:1"


def test_w6_with_fault_tolerance_the_choice_after_a_failure_is_anywhere_but_on_the_broker() -> None:
    for seed in range(20):
        where = info("A:1", "A:2", "B:1", "B:2", "C:1", "C:2", rng=random.Random(seed))
        assert choose(QueueSelector(LatencyFaultTolerance()), where, last="A")[0] in "BC"


def test_w7_without_fault_tolerance_a_later_message_may_choose_the_dead_broker_again() -> None:
    where, selector = info("a:0", "a:1", "b:0", "b:1"), QueueSelector(None)
    assert choose(selector, where) == "a:0"

    assert choose(selector, where) == "a:1"


def test_w7_with_fault_tolerance_a_dead_broker_is_skipped_until_its_isolation_ends() -> None:
    faults = LatencyFaultTolerance()
    where, selector = info("a:0", "a:1", "b:0", "b:1"), QueueSelector(faults)
    assert choose(selector, where) == "a:0"
    faults.update(("c1", "a"), topic="orders", latency_seconds=0.0, isolation=True, reachable=False, now=NOW)

    assert [choose(selector, where, now=NOW + 9.9) for _ in range(4)] == ["b:0", "b:1", "b:0", "b:1"]
    assert choose(selector, where, now=NOW + 10.0) == "a:0"


def test_w9_with_every_broker_isolated_one_is_still_chosen() -> None:
    for older in (False, True):
        for reachable in (False, True):
            selector = QueueSelector(isolated("a", "b", reachable=reachable, older=older))
            where = info("a:0", "b:0")
            assert {choose(selector, where, last=last) for last in (None, "a", "b")} <= {"a:0", "b:0"}


def test_an_isolated_broker_that_is_reachable_comes_before_the_one_that_failed_last() -> None:
    selector = QueueSelector(isolated("a"))

    assert choose(selector, info("a:0", "b:0"), last="b") == "a:0"


def test_an_unreachable_broker_and_the_last_failed_one_are_used_in_plain_rotation() -> None:
    where, selector = info("a:0", "b:0"), QueueSelector(isolated("a", reachable=False))

    chosen = [choose(selector, where, last="b") for _ in range(2)]

    assert sorted(chosen) != ["b:0", "b:0"]


def test_the_only_broker_is_chosen_though_it_failed_last() -> None:
    assert choose(QueueSelector(None), info("a:0"), last="a") == "a:0"
    assert choose(QueueSelector(isolated("a")), info("a:0"), last="a") == "a:0"


def test_each_broker_skipped_by_a_choice_is_reported_once() -> None:
    queue, skipped = QueueSelector(isolated("a")).select(info("a:0", "a:1", "b:0"), last_broker=None, now=NOW)

    assert names(queue) == ["b:0"]
    assert skipped == (("c1", "a"),)


def test_the_broker_that_failed_last_is_not_called_isolated() -> None:
    queue, skipped = QueueSelector(LatencyFaultTolerance()).select(info("a:0", "b:0"), last_broker=("c1", "a"), now=NOW)

    assert names(queue) == ["b:0"]
    assert skipped == ()


def test_the_older_rules_do_not_avoid_the_broker_that_failed_last() -> None:
    faults = LatencyFaultTolerance(OLDER_FAULT_RULES)

    assert choose(QueueSelector(faults), info("a:0", "b:0"), last="a") == "a:0"


def test_the_older_rules_pick_from_the_better_half_when_all_are_isolated() -> None:
    faults = LatencyFaultTolerance(OLDER_FAULT_RULES)
    for name, seconds in (("a", 16.0), ("b", 0.6), ("c", 3.0), ("d", 1.1)):
        faults.update(("c1", name), topic="orders", latency_seconds=seconds, isolation=False, reachable=True, now=NOW)
    where, selector = info("a:0", "b:0", "b:1", "c:0", "d:0"), QueueSelector(faults)

    assert [choose(selector, where) for _ in range(4)] == ["b:0", "d:0", "b:0", "d:0"]


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    isolated_brokers=st.sets(st.integers(0, 4)),
    unreachable=st.sets(st.integers(0, 4)),
    last=st.none() | st.integers(0, 4),
    older=st.booleans(),
    seed=st.integers(0, 1_000),
)
def test_a_choice_is_of_the_best_available_kind(
    sizes: list[int], isolated_brokers: set[int], unreachable: set[int], last: int | None, older: bool, seed: int
) -> None:
    """In order: available and not last; reachable and not last; any."""
    where = PublishInfo(
        tuple(MessageQueue("orders", "c1", str(b), q) for b, size in enumerate(sizes) for q in range(size)),
        rng=random.Random(seed),
    )
    faults = LatencyFaultTolerance(OLDER_FAULT_RULES if older else NEWER_FAULT_RULES)
    for b in isolated_brokers | unreachable:
        faults.update(
            ("c1", str(b)), topic="orders", latency_seconds=0.0, isolation=b in isolated_brokers,
            reachable=b not in unreachable, now=NOW,
        )  # fmt: skip
    last_broker = None if last is None else ("c1", str(last))

    chosen = QueueSelector(faults).select(where, last_broker=last_broker, now=NOW)[0].broker_key

    def kind(broker: tuple[str, str]) -> int:
        avoided = not older and broker == last_broker
        if faults.is_available(broker, now=NOW) and not avoided:
            return 0
        return 1 if not older and faults.is_reachable(broker) and not avoided else 2

    assert kind(chosen) == min(kind(broker) for broker in where.brokers)


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), rounds=st.integers(1, 5))
def test_without_failures_every_queue_gets_the_same_number(sizes: list[int], rounds: int) -> None:
    all_queues = tuple(MessageQueue("orders", "c1", str(b), q) for b, size in enumerate(sizes) for q in range(size))
    where, selector = PublishInfo(all_queues, rng=random.Random(1)), QueueSelector(LatencyFaultTolerance())

    chosen = Counter(selector.select(where, last_broker=None, now=NOW)[0] for _ in range(rounds * len(all_queues)))

    assert chosen == dict.fromkeys(all_queues, rounds)
