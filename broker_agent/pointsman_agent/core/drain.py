"""How a broker is taken out of service: which steps, in which order, how long each may take, and what undoes them.

RocketMQ's way is the operator's: ``wipeWritePerm``, wait, shut down. Here the agent does it, so that each step is
bounded and a drain that is aborted leaves nothing behind.

Only a master takes writes, so wiping is a master's step: the permission belongs to the broker *name*, and a replica
that wiped it would stop the writes of its own master.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pointsman_agent.core.drain_lag import GroupLag, LagReport

UNKNOWN_LAG = "how far consumers are behind is not known now"
QUIET_RATE = 0.0
"""Messages a second that count as nobody writing."""


class DrainStep(Enum):
    """The steps, in their order."""

    WIPE_WRITE_PERM = "wipe_write_perm"
    WAIT_FOR_PRODUCERS = "wait_for_producers"
    WAIT_FOR_CONSUMERS = "wait_for_consumers"
    STOP_GROUPS = "stop_groups"
    UNREGISTER = "unregister"
    UNDO = "undo"
    """Not planned: what an abort does."""


class StepState(Enum):
    """How a step is."""

    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    TIMED_OUT = "timed_out"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one name server said."""

    done: bool
    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """One piece of news of a drain."""

    step: DrainStep
    state: StepState
    detail: str = ""
    name_servers: Mapping[str, Answer] = field(default_factory=dict)
    groups: tuple[GroupLag, ...] = ()
    """Consumer groups that are behind, those that are waited for first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions:
    """What the caller of a drain chooses, in seconds."""

    quiet_seconds: float = 3.0
    """How long nobody must have written before producers count as gone."""
    producers_seconds: float = 60.0
    """How long to wait for that."""
    consumers_seconds: float = 600.0
    """How long to wait until consumer groups have read everything; 0: the drain only reports what is unread."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan."""

    step: DrainStep
    skipped_because: str = ""
    """Empty: it is done."""


def plan(*, is_master: bool, knows_put_rate: bool, knows_lag: bool, serves_groups: bool) -> tuple[PlannedStep, ...]:
    """Return the steps of a drain of this broker."""
    replica = "" if is_master else "this broker is a replica: nobody writes to it"
    reads = "" if is_master else "this broker is a replica: consumers continue at its master"
    rate = "" if knows_put_rate else "how much is written is not known"
    lag = "" if knows_lag else "how far consumers are behind is not known"
    groups = "" if serves_groups else "this agent serves no consumer groups"
    return (
        PlannedStep(DrainStep.WIPE_WRITE_PERM, replica),
        PlannedStep(DrainStep.WAIT_FOR_PRODUCERS, replica or rate),
        PlannedStep(DrainStep.WAIT_FOR_CONSUMERS, reads or groups or lag),
        PlannedStep(DrainStep.STOP_GROUPS, groups),
        PlannedStep(DrainStep.UNREGISTER),
    )


def wipe_outcome(answers: Mapping[str, Answer]) -> Progress:
    """Judge what the name servers said to the wipe."""
    refused = sorted(addr for addr, answer in answers.items() if not answer.done)
    if not refused:
        return Progress(DrainStep.WIPE_WRITE_PERM, StepState.DONE, "", answers)
    if len(refused) == len(answers):
        return Progress(DrainStep.WIPE_WRITE_PERM, StepState.FAILED, "no name server took it: aborted", answers)
    detail = f"producers that ask {', '.join(refused)} still write; going on"
    return Progress(DrainStep.WIPE_WRITE_PERM, StepState.FAILED, detail, answers)


def unregister_outcome(answers: Mapping[str, Answer]) -> Progress:
    """Judge what the name servers said to the leave."""
    silent = sorted(addr for addr, answer in answers.items() if not answer.done)
    if not silent:
        return Progress(DrainStep.UNREGISTER, StepState.DONE, "", answers)
    detail = f"{', '.join(silent)} did not take it, and will miss the beats"
    return Progress(DrainStep.UNREGISTER, StepState.FAILED, detail, answers)


def lag_progress(report: LagReport | None, *, seconds_left: float) -> Progress:
    """Return what a drain that waits for consumers reports of one measurement; None: it failed."""
    text = UNKNOWN_LAG if report is None else report.text
    detail = "; ".join(filter(None, (text, f"at most {seconds_left:.0f} s more")))
    return Progress(DrainStep.WAIT_FOR_CONSUMERS, StepState.RUNNING, detail, groups=_groups_of(report))


def lag_outcome(report: LagReport | None, *, is_over: bool) -> Progress:
    """Judge the last measurement. ``is_over``: the time to wait was over before the groups had read everything.

    What groups without a member have not read is a failure of the step: these messages stay unread.
    """
    is_unread = report is None or report.group_count > 0 or report.unmeasured_queue_count > 0
    if is_over and (report is None or report.awaited_group_count):
        state = StepState.TIMED_OUT
    else:
        state = StepState.FAILED if is_unread else StepState.DONE
    text = UNKNOWN_LAG if report is None else report.text
    detail = f"{text}; going on" if state is not StepState.DONE else text
    return Progress(DrainStep.WAIT_FOR_CONSUMERS, state, detail, groups=_groups_of(report))


def _groups_of(report: LagReport | None) -> tuple[GroupLag, ...]:
    return () if report is None else report.groups


def may_be_aborted(step: DrainStep | None) -> bool:
    """Whether a drain that has come to ``step`` can still be undone."""
    return step is not DrainStep.UNREGISTER


@dataclass(frozen=True, slots=True)
class Undo:
    """What puts an aborted drain back."""

    serve_groups: bool
    give_back_at: tuple[str, ...]
    """Name servers that may have wiped at our word."""


def undo_of(begun: Collection[DrainStep], wiped: Collection[str]) -> Undo:
    """Say what to undo, the last step first. ``wiped``: where a wipe of ours may stand."""
    return Undo(DrainStep.STOP_GROUPS in begun, tuple(sorted(wiped)))


class QuietWatch:
    """Decides when a wait is over: when nothing was written, or nothing was unread, for ``quiet_seconds``."""

    def __init__(self, *, quiet_seconds: float) -> None:
        self._quiet_seconds = quiet_seconds
        self._quiet_since: float | None = None

    def take(self, rate: float | None, *, now: float) -> bool:
        """Record messages per second, or unread ones (None: unknown now); return whether the wait is over."""
        if rate is None or rate > QUIET_RATE:
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since >= self._quiet_seconds
