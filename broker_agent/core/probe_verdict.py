"""What to believe of the broker after a row of probe results.

One state machine with one counter: a verdict turns only after ``fall`` failures, or ``rise`` passes, in a row. The
first result decides alone: before it there is no verdict that a single odd result could overturn, and a dead broker
must not be registered as one that nobody probed. So does a result that says of itself that it is no flicker.
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


class VerdictKeeper:
    """Turns results into a verdict."""

    def __init__(self, *, rise: int, fall: int) -> None:
        self._rise = rise
        self._fall = fall
        self._against = 0
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
        self._verdict = Verdict(
            status=seen if turned else old.status,
            detail=_printable(result.detail) if agrees else old.detail,
            incarnation=(result.incarnation or old.incarnation) if result.passed else old.incarnation,
            role=result.role if says_role else old.role,
            master_epoch=result.master_epoch if says_role else old.master_epoch,
            warnings=tuple(map(_printable, result.warnings)) if agrees else old.warnings,
        )
        return self._verdict


def role_conflict(broker_id: int, role: Role) -> str | None:
    """Say how the broker's own role differs from the configured id (0 is the master), if it does."""
    if role is Role.SLAVE and broker_id == 0:
        return "configured as broker id 0 (master), but the broker says it is a replica"
    if role is Role.MASTER and broker_id != 0:
        return f"configured as broker id {broker_id} (replica), but the broker says it is a master"
    return None


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_DETAIL_LENGTH]
