"""The steps that take a broker out of service: their order, their time limits, and how they are undone.

In RocketMQ an operator does this by hand: ``wipeWritePerm``, wait, shut down. Here the agent does it, so each step has
a time limit and an aborted drain leaves no change behind.

Only masters accept writes, so the write permission is wiped for masters only: it belongs to the broker *name*, and a
replica that wiped it would stop writes to its own master.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pointsman_agent.core.drain_lag import GroupLag, LagReport

UNKNOWN_LAG = "the lag of consumer groups is unknown"
QUIET_RATE = 0.0
"""Messages per second up to which producers count as idle."""


class DrainStep(Enum):
    """The steps in their order."""

    WIPE_WRITE_PERM = "wipe_write_perm"
    WAIT_FOR_PRODUCERS = "wait_for_producers"
    WAIT_FOR_CONSUMERS = "wait_for_consumers"
    STOP_GROUPS = "stop_groups"
    UNREGISTER = "unregister"
    UNDO = "undo"
    """Not planned: what an abort does."""


class StepState(Enum):
    """State of a step."""

    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    TIMED_OUT = "timed_out"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """Response of one name server."""

    done: bool
    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """One progress report of a drain."""

    step: DrainStep
    state: StepState
    detail: str = ""
    name_servers: Mapping[str, Answer] = field(default_factory=dict)
    groups: tuple[GroupLag, ...] = ()
    """Consumer groups with unread messages, those that are waited for first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions:
    """Options of a drain, in seconds."""

    quiet_seconds: float = 3.0
    """Time without a write after which producers count as stopped."""
    producers_seconds: float = 60.0
    """Longest wait for that."""
    consumers_seconds: float = 600.0
    """Longest wait until consumer groups have read everything; 0: unread messages are only reported."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan."""

    step: DrainStep
    skipped_because: str = ""
    """Empty: the step is executed."""


def plan(*, is_master: bool, knows_put_rate: bool, knows_lag: bool, serves_groups: bool) -> tuple[PlannedStep, ...]:
    """Return the steps of a drain of this broker."""
    replica = "" if is_master else "this broker is a replica and accepts no writes"
    reads = "" if is_master else "this broker is a replica: consumers continue at its master"
    rate = "" if knows_put_rate else "the put rate is unknown"
    lag = "" if knows_lag else UNKNOWN_LAG
    groups = "" if serves_groups else "this agent serves no consumer groups"
    return (
        PlannedStep(DrainStep.WIPE_WRITE_PERM, replica),
        PlannedStep(DrainStep.WAIT_FOR_PRODUCERS, replica or rate),
        PlannedStep(DrainStep.WAIT_FOR_CONSUMERS, reads or groups or lag),
        PlannedStep(DrainStep.STOP_GROUPS, groups),
        PlannedStep(DrainStep.UNREGISTER),
    )


def wipe_outcome(answers: Mapping[str, Answer]) -> Progress:
    """Return the outcome of the wipe from the name servers' responses."""
    refused = sorted(addr for addr, answer in answers.items() if not answer.done)
    if not refused:
        return Progress(DrainStep.WIPE_WRITE_PERM, StepState.DONE, "", answers)
    if len(refused) == len(answers):
        return Progress(DrainStep.WIPE_WRITE_PERM, StepState.FAILED, "no name server accepted it: aborted", answers)
    detail = f"producers that use {', '.join(refused)} still write; continuing"
    return Progress(DrainStep.WIPE_WRITE_PERM, StepState.FAILED, detail, answers)


def unregister_outcome(answers: Mapping[str, Answer]) -> Progress:
    """Return the outcome of unregistering from the name servers' responses."""
    silent = sorted(addr for addr, answer in answers.items() if not answer.done)
    if not silent:
        return Progress(DrainStep.UNREGISTER, StepState.DONE, "", answers)
    detail = f"{', '.join(silent)} did not confirm; the broker expires there"
    return Progress(DrainStep.UNREGISTER, StepState.FAILED, detail, answers)


def lag_progress(report: LagReport | None, *, seconds_left: float) -> Progress:
    """Return the progress of the wait for consumers after one measurement; None: the measurement failed."""
    text = UNKNOWN_LAG if report is None else report.text
    detail = "; ".join(filter(None, (text, f"at most {seconds_left:.0f} s more")))
    return Progress(DrainStep.WAIT_FOR_CONSUMERS, StepState.RUNNING, detail, groups=_groups_of(report))


def lag_outcome(report: LagReport | None, *, is_over: bool) -> Progress:
    """Return the outcome of the wait. ``is_over``: it timed out before the groups had read everything.

    Unread messages of groups without a member make the step FAILED: they stay unread.
    """
    is_unread = report is None or report.group_count > 0 or report.unmeasured_queue_count > 0
    if is_over and (report is None or report.awaited_group_count):
        state = StepState.TIMED_OUT
    else:
        state = StepState.FAILED if is_unread else StepState.DONE
    text = UNKNOWN_LAG if report is None else report.text
    detail = f"{text}; continuing" if state is not StepState.DONE else text
    return Progress(DrainStep.WAIT_FOR_CONSUMERS, state, detail, groups=_groups_of(report))


def _groups_of(report: LagReport | None) -> tuple[GroupLag, ...]:
    return () if report is None else report.groups


def may_be_aborted(step: DrainStep | None) -> bool:
    """Return whether a drain that has reached ``step`` can still be undone."""
    return step is not DrainStep.UNREGISTER


@dataclass(frozen=True, slots=True)
class Undo:
    """What undoes an aborted drain."""

    serve_groups: bool
    give_back_at: tuple[str, ...]
    """Name servers on which this drain may have wiped the write permission."""


def undo_of(begun: Collection[DrainStep], wiped: Collection[str]) -> Undo:
    """Return what to undo. ``wiped``: name servers on which the permission may be wiped."""
    return Undo(DrainStep.STOP_GROUPS in begun, tuple(sorted(wiped)))


class QuietWatch:
    """Decides when a wait is over: no message written, or none unread, for ``quiet_seconds``."""

    def __init__(self, *, quiet_seconds: float) -> None:
        self._quiet_seconds = quiet_seconds
        self._quiet_since: float | None = None

    def take(self, rate: float | None, *, now: float) -> bool:
        """Record messages per second, or unread messages (None: unknown); return whether the wait is over."""
        if rate is None or rate > QUIET_RATE:
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since >= self._quiet_seconds
