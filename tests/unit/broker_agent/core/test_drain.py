"""The plan of a drain: which steps, what their outcomes mean, what is undone, and when producers have stopped."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_agent.core.drain import (
    Answer,
    DrainStep,
    QuietWatch,
    StepState,
    Undo,
    lag_outcome,
    lag_progress,
    may_be_aborted,
    plan,
    undo_of,
    unregister_outcome,
    wipe_outcome,
)
from pointsman_agent.core.drain_lag import GroupLag, LagReport

TOOK = Answer(True, "4 topics")
REFUSED = Answer(False, "UNAVAILABLE: refused")
ORDER = [
    DrainStep.WIPE_WRITE_PERM,
    DrainStep.WAIT_FOR_PRODUCERS,
    DrainStep.WAIT_FOR_CONSUMERS,
    DrainStep.STOP_GROUPS,
    DrainStep.UNREGISTER,
]


def done(**facts: bool) -> list[DrainStep]:
    planned = plan(**{"is_master": True, "knows_put_rate": True, "knows_lag": True, "serves_groups": True, **facts})
    return [each.step for each in planned if not each.skipped_because]


@pytest.mark.parametrize("facts", list(itertools.product([True, False], repeat=4)))
def test_every_step_is_planned_in_its_order_and_done_or_skipped_with_a_reason(
    facts: tuple[bool, bool, bool, bool],
) -> None:
    planned = plan(is_master=facts[0], knows_put_rate=facts[1], knows_lag=facts[2], serves_groups=facts[3])

    assert [each.step for each in planned] == ORDER


def test_a_master_with_a_put_rate_does_every_step() -> None:
    assert done() == ORDER


def test_a_replica_never_wipes_the_permission_of_its_master() -> None:
    assert done(is_master=False) == [DrainStep.STOP_GROUPS, DrainStep.UNREGISTER]


def test_without_a_put_rate_the_drain_does_not_wait_for_producers() -> None:
    assert DrainStep.WAIT_FOR_PRODUCERS not in done(knows_put_rate=False)
    assert DrainStep.WIPE_WRITE_PERM in done(knows_put_rate=False)


def test_consumers_are_waited_for_only_where_this_broker_is_read_and_their_lag_is_known() -> None:
    assert DrainStep.WAIT_FOR_CONSUMERS not in done(knows_lag=False)
    assert DrainStep.WAIT_FOR_CONSUMERS not in done(serves_groups=False)
    assert DrainStep.WAIT_FOR_CONSUMERS not in done(is_master=False)


def test_only_the_last_step_cannot_be_aborted() -> None:
    assert [step for step in (None, *ORDER) if not may_be_aborted(step)] == [DrainStep.UNREGISTER]


@pytest.mark.parametrize(
    ("answers", "state", "detail"),
    [
        ({"ns-1:1": TOOK, "ns-2:1": TOOK}, StepState.DONE, ""),
        ({}, StepState.DONE, ""),
        ({"ns-1:1": TOOK, "ns-2:1": REFUSED}, StepState.FAILED, "producers that use ns-2:1 still write; continuing"),
        ({"ns-1:1": REFUSED, "ns-2:1": REFUSED}, StepState.FAILED, "no name server accepted it: aborted"),
    ],
)
def test_the_outcome_of_a_wipe_names_the_servers_that_did_not_accept_it(
    answers: dict[str, Answer], state: StepState, detail: str
) -> None:
    outcome = wipe_outcome(answers)

    assert (outcome.step, outcome.state, outcome.detail) == (DrainStep.WIPE_WRITE_PERM, state, detail)
    assert outcome.name_servers == answers


def test_the_outcome_of_an_unregister_names_the_servers_that_did_not_accept_it() -> None:
    assert unregister_outcome({"ns-1:1": TOOK}).state is StepState.DONE
    assert unregister_outcome({"ns-1:1": TOOK, "ns-2:1": REFUSED}).detail.startswith("ns-2:1 did not confirm")


def test_only_steps_that_were_begun_are_undone() -> None:
    assert undo_of([], []) == Undo(serve_groups=False, give_back_at=())
    assert undo_of([DrainStep.WIPE_WRITE_PERM], {"b:1", "a:1"}) == Undo(False, ("a:1", "b:1"))
    assert undo_of([DrainStep.WIPE_WRITE_PERM, DrainStep.STOP_GROUPS], ["a:1"]) == Undo(True, ("a:1",))


BEHIND = LagReport((GroupLag("a", 7, 2, 1),), 1, 7, 1, 7)
ALONE = LagReport((GroupLag("old", 9, 0, 0),), 1, 9, 0, 0)
BOTH = LagReport((*BEHIND.groups, *ALONE.groups), 2, 16, 1, 7)


@pytest.mark.parametrize(
    ("report", "is_over", "state", "detail"),
    [
        (LagReport(), False, StepState.DONE, ""),
        (LagReport(), True, StepState.DONE, ""),
        (BEHIND, True, StepState.TIMED_OUT, "7 unread messages of 1 group; continuing"),
        (
            ALONE,
            False,
            StepState.FAILED,
            "9 unread messages of 1 group; 9 of 1 group without a member, not waited for; continuing",
        ),
        (
            BOTH,
            True,
            StepState.TIMED_OUT,
            "16 unread messages of 2 groups; 9 of 1 group without a member, not waited for; continuing",
        ),
        (None, True, StepState.TIMED_OUT, "the lag of consumer groups is unknown; continuing"),
        (LagReport(unmeasured_queue_count=3), False, StepState.FAILED, "3 queues not measured; continuing"),
    ],
)
def test_a_drain_that_leaves_messages_unread_is_not_done_and_has_the_numbers(
    report: LagReport | None, is_over: bool, state: StepState, detail: str
) -> None:
    outcome = lag_outcome(report, is_over=is_over)

    assert (outcome.step, outcome.state, outcome.detail) == (DrainStep.WAIT_FOR_CONSUMERS, state, detail)
    assert outcome.groups == (report.groups if report is not None else ())


def test_a_wait_for_consumers_shows_its_remaining_time() -> None:
    assert lag_progress(BEHIND, seconds_left=590.2).detail == "7 unread messages of 1 group; at most 590 s more"
    assert lag_progress(None, seconds_left=1.0).state is StepState.RUNNING


def test_producers_count_as_stopped_after_the_quiet_time_and_not_before() -> None:
    watch = QuietWatch(quiet_seconds=3.0)

    assert not watch.take(5.0, now=0.0)
    assert not watch.take(0.0, now=1.0)
    assert not watch.take(0.0, now=3.999)
    assert watch.take(0.0, now=4.0)


def test_a_quiet_time_of_zero_ends_with_the_first_poll() -> None:
    assert QuietWatch(quiet_seconds=0.0).take(0.0, now=0.0)


@given(
    looks=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, None])), max_size=30),
    quiet_seconds=st.integers(0, 5),
)
def test_producers_count_as_stopped_only_when_every_poll_of_the_quiet_time_saw_none(
    looks: list[tuple[int, float | None]], quiet_seconds: int
) -> None:
    watch = QuietWatch(quiet_seconds=float(quiet_seconds))
    seen: list[tuple[float, float | None]] = []
    now = 0.0
    for passed, rate in looks:
        now += passed
        seen.append((now, rate))
        has_stopped = watch.take(rate, now=now)

        silence = list(itertools.takewhile(lambda look: look[1] == 0.0, reversed(seen)))
        assert has_stopped == (bool(silence) and now - silence[-1][0] >= quiet_seconds)
