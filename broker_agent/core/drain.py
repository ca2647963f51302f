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

QUIET_RATE = 0.0
"""Messages a second that count as nobody writing."""


class DrainStep(Enum):
    """The steps, in their order."""

    WIPE_WRITE_PERM = "wipe_write_perm"
    WAIT_FOR_PRODUCERS = "wait_for_producers"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions:
    """What the caller of a drain chooses, in seconds."""

    quiet_seconds: float = 3.0
    """How long nobody must have written before producers count as gone."""
    producers_seconds: float = 60.0
    """How long to wait for that."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan."""

    step: DrainStep
    skipped_because: str = ""
    """Empty: it is done."""


def plan(*, is_master: bool, knows_put_rate: bool, serves_groups: bool) -> tuple[PlannedStep, ...]:
    """Say which steps a drain of this broker takes."""
    replica = "" if is_master else "this broker is a replica: nobody writes to it"
    rate = "" if knows_put_rate else "how much is written is not known"
    return (
        PlannedStep(DrainStep.WIPE_WRITE_PERM, replica),
        PlannedStep(DrainStep.WAIT_FOR_PRODUCERS, replica or rate),
        PlannedStep(DrainStep.STOP_GROUPS, "" if serves_groups else "this agent serves no consumer groups"),
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
    """Decides when producers are gone: when nothing was written for ``quiet_seconds``."""

    def __init__(self, *, quiet_seconds: float) -> None:
        self._quiet_seconds = quiet_seconds
        self._quiet_since: float | None = None

    def take(self, rate: float | None, *, now: float) -> bool:
        """Take in messages a second (None: not known now), and say whether producers are gone."""
        if rate is None or rate > QUIET_RATE:
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since >= self._quiet_seconds
