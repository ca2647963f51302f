"""The verdict on the broker's health from a sequence of probe results.

The verdict changes only after ``fall`` failures, or ``rise`` passes, in a row. The first result decides alone: there is
no verdict yet that one outlier could overturn, and a dead broker must not be registered as one without a probe. So does
a result marked as certain.

A failing verdict has the strength of its evidence. It is strong if the broker itself refused to serve. It is also
strong if this machine refused the connection ``fall`` times in a row after the probe had passed before: a probe that
never passed may have a wrong port. Everything else is weak. Strong evidence remains until the verdict is passing again,
so all name servers, a restarted one included, receive the same evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MAX_DETAIL_LENGTH = 1_024
"""Limit of ``BrokerHealth.detail`` on the wire; a longer one makes the name server refuse the heartbeat."""


class ProbeStatus(Enum):
    """The verdict."""

    UNSPECIFIED = "unspecified"
    """No probe has run."""
    PASSING = "passing"
    FAILING = "failing"


class ProbeFailure(Enum):
    """Why a probe failed."""

    REFUSED_TO_SERVE = "refused_to_serve"
    """The broker itself responded that it does not serve."""
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
    """The role that the broker reports."""

    UNKNOWN = "unknown"
    MASTER = "master"
    SLAVE = "slave"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of one probe."""

    passed: bool
    detail: str
    """For operators. It must not vary while nothing changes: no durations, no counters."""
    incarnation: str = ""
    """The broker's process, opaque; empty if the probe does not report it."""
    role: Role = Role.UNKNOWN
    master_epoch: int = 0
    """Grows with each promotion of a master that may be promoted and demoted; 0 if the probe does not report it."""
    warnings: tuple[str, ...] = ()
    """Problems of a broker that serves nevertheless. Stable like ``detail``."""
    is_certain: bool = False
    """Whether this result changes the verdict alone: the broker responded, and the cause is not transient."""
    failure: ProbeFailure = ProbeFailure.OTHER
    """Undefined for a result that passed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The current verdict."""

    status: ProbeStatus = ProbeStatus.UNSPECIFIED
    detail: str = ""
    incarnation: str = ""
    """Of the process that last passed a probe; it remains while the broker is down."""
    role: Role = Role.UNKNOWN
    """As last reported by a broker that passed."""
    master_epoch: int = 0
    """Belongs to ``role``."""
    warnings: tuple[str, ...] = ()
    evidence: Evidence = Evidence.UNSPECIFIED
    """Set only while ``status`` is FAILING."""
    ever_passed: bool | None = None
    """Whether a probe has passed since the agent started; None: no probe has run."""


class VerdictKeeper:
    """Derives the verdict from results."""

    def __init__(self, *, rise: int, fall: int) -> None:
        self._rise = rise
        self._fall = fall
        self._against = 0
        self._refused_connections = 0
        """In a row, including the last result."""
        self._has_strong_evidence = False
        """Collected since the last pass that left the verdict passing."""
        self._verdict = Verdict()

    @property
    def verdict(self) -> Verdict:
        """The verdict after the last result."""
        return self._verdict

    def record(self, result: ProbeResult) -> Verdict:
        """Record one result and return the verdict."""
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
        """Record the evidence of one result."""
        if result.passed:
            self._refused_connections = 0
            # A pass that does not change a failing verdict yet leaves its evidence unchanged.
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
    """Return how the broker's role differs from the configured id (0 is the master), or None."""
    if role is Role.SLAVE and broker_id == 0:
        return "configured as broker id 0 (master), but the broker reports that it is a replica"
    if role is Role.MASTER and broker_id != 0:
        return f"configured as broker id {broker_id} (replica), but the broker reports that it is a master"
    return None


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_DETAIL_LENGTH]
