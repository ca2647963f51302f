"""How long a broker is isolated, when it may be used again, and the two generations of the rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_client.core.fault_strategy import (
    NEWER_FAULT_RULES,
    OLDER_FAULT_RULES,
    FaultRules,
    LatencyFaultTolerance,
)

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
    return faults.update(
        broker, topic="orders", latency_seconds=seconds, isolation=failed, reachable=reachable, now=now
    )


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
        for each in (A, B):
            assert faults.is_available(each, now=now) == naive.is_available(each, now=now)
