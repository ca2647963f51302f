"""What to believe of the broker after a row of probe results.

One state machine with one counter: a verdict turns only after ``fall`` failures, or ``rise`` passes, in a row. The
first result decides alone: before it there is no verdict that a single odd result could overturn, and a dead broker
must not be registered as one that nobody probed. So does a result that says of itself that it is no flicker.

A failing verdict has the strength of its evidence. It is strong if the broker itself refused to serve, or if this
machine refused the connection ``fall`` times in a row and the probe has passed before: a probe that never passed may
have a wrong port. Everything else is weak. Strong evidence stays strong until the verdict turns to passing, whatever
weaker evidence follows: all name servers, a restarted one too, then receive the same evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MAX_DETAIL_LENGTH = 1_024
"""Bound of ``BrokerHealth.detail`` on the wire; a longer one would have the whole beat refused."""


class ProbeStatus(Enum):
    """The verdict."""

    UNSPECIFIED = "unspecified"
    """Nothing was probed."""
    PASSING = "passing"
    FAILING = "failing"


class ProbeFailure(Enum):
    """The kind of failure that a probe met."""

    REFUSED_TO_SERVE = "refused_to_serve"
    """The broker itself answered that it does not serve."""
    CONNECTION_REFUSED_LOCALLY = "connection_refused_locally"
    """The connection was refused, and the probed address belongs to the agent's own machine."""
    OTHER = "other"
    """Anything else; the cause may be the probe, its settings or the network."""


class Evidence(Enum):
    """How much a failing verdict proves."""

    UNSPECIFIED = "unspecified"
    """The verdict is not failing."""
    WEAK = "weak"
    STRONG = "strong"


class Role(Enum):
    """What the broker says it is."""

    UNKNOWN = "unknown"
    MASTER = "master"
    SLAVE = "slave"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One look at the broker."""

    passed: bool
    detail: str
    """For people. Stable while nothing changes: no durations, no counters."""
    incarnation: str = ""
    """The broker's process, opaque; empty when the probe cannot tell."""
    role: Role = Role.UNKNOWN
    master_epoch: int = 0
    """Of a master that may be promoted and demoted: it grows with each promotion; 0 when the probe cannot tell."""
    warnings: tuple[str, ...] = ()
    """What is wrong with a broker that serves all the same. Stable as ``detail`` is."""
    is_certain: bool = False
    """Whether it turns the verdict alone: the broker answered, and what it answered is no flicker."""
    failure: ProbeFailure = ProbeFailure.OTHER
    """Without meaning for a result that passed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is believed now."""

    status: ProbeStatus = ProbeStatus.UNSPECIFIED
    detail: str = ""
    incarnation: str = ""
    """Of the process that last passed a probe: a broker that is down is still that process."""
    role: Role = Role.UNKNOWN
    """As last said by a broker that passed."""
    master_epoch: int = 0
    """Belongs to ``role``."""
    warnings: tuple[str, ...] = ()
    evidence: Evidence = Evidence.UNSPECIFIED
    """Stated exactly while ``status`` is FAILING."""
    ever_passed: bool | None = None
    """Whether a result has passed since the agent started; None: nothing was probed."""


class VerdictKeeper:
    """Turns results into a verdict."""

    def __init__(self, *, rise: int, fall: int) -> None:
        self._rise = rise
        self._fall = fall
        self._against = 0
        self._refused_connections = 0
        """In a row, up to the last result."""
        self._has_strong_evidence = False
        """Met since the last pass that left the verdict passing."""
        self._verdict = Verdict()

    @property
    def verdict(self) -> Verdict:
        """The verdict after the last result."""
        return self._verdict

    def record(self, result: ProbeResult) -> Verdict:
        """Take in one result and return the verdict."""
        old = self._verdict
        seen = ProbeStatus.PASSING if result.passed else ProbeStatus.FAILING
        self._against = 0 if seen is old.status else self._against + 1
        needed = self._rise if result.passed else self._fall
        turned = old.status is ProbeStatus.UNSPECIFIED or self._against >= needed or result.is_certain
        if turned:
            self._against = 0
        agrees = turned or seen is old.status
        says_role = result.passed and result.role is not Role.UNKNOWN
        status = seen if turned else old.status
        ever_passed = result.passed or bool(old.ever_passed)
        self._weigh(result, status, ever_passed=ever_passed)
        self._verdict = Verdict(
            status=status,
            detail=_printable(result.detail) if agrees else old.detail,
            incarnation=(result.incarnation or old.incarnation) if result.passed else old.incarnation,
            role=result.role if says_role else old.role,
            master_epoch=result.master_epoch if says_role else old.master_epoch,
            warnings=tuple(map(_printable, result.warnings)) if agrees else old.warnings,
            evidence=self._evidence(status),
            ever_passed=ever_passed,
        )
        return self._verdict

    def _weigh(self, result: ProbeResult, status: ProbeStatus, *, ever_passed: bool) -> None:
        """Record what one result proves."""
        if result.passed:
            self._refused_connections = 0
            # A pass that does not turn a failing verdict yet leaves its evidence as it is.
            self._has_strong_evidence &= status is ProbeStatus.FAILING
            return
        is_refused = result.failure is ProbeFailure.CONNECTION_REFUSED_LOCALLY
        self._refused_connections = self._refused_connections + 1 if is_refused else 0
        self._has_strong_evidence |= result.failure is ProbeFailure.REFUSED_TO_SERVE or (
            ever_passed and self._refused_connections >= self._fall
        )

    def _evidence(self, status: ProbeStatus) -> Evidence:
        if status is not ProbeStatus.FAILING:
            return Evidence.UNSPECIFIED
        return Evidence.STRONG if self._has_strong_evidence else Evidence.WEAK


def role_conflict(broker_id: int, role: Role) -> str | None:
    """Say how the broker's own role differs from the configured id (0 is the master), if it does."""
    if role is Role.SLAVE and broker_id == 0:
        return "configured as broker id 0 (master), but the broker says it is a replica"
    if role is Role.MASTER and broker_id != 0:
        return f"configured as broker id {broker_id} (replica), but the broker says it is a master"
    return None


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_DETAIL_LENGTH]
