"""The state of a replica: one table from the facts to whether clients are sent to it, and why.

The table is the specification; the README of the name server quotes it, and ``pointsmanctl why`` names the row.
:class:`~pointsman_namesrv.core.name_server.NameServer` collects the facts, applies the result in one place and reports
the change.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from pointsman_namesrv.core.model import Evidence, Reason


class Phase(StrEnum):
    """Where a replica is between its registration and its end."""

    PROVISIONAL = "PROVISIONAL"
    """Known from the snapshot, no heartbeat since the restart; still routed."""
    UP = "UP"
    SUSPECT = "SUSPECT"
    """Heartbeats are missing or the stream broke; still routed."""
    PROTECTED = "PROTECTED"
    """Would not be routed, but the guard protects it; still routed."""
    OUT = "OUT"
    """Registered, not routed: its probe fails. The first heartbeat with a probe that passes routes it again."""
    GONE = "GONE"
    """No longer registered; only as the end of a transition."""


ROUTED = frozenset({Phase.PROVISIONAL, Phase.UP, Phase.SUSPECT, Phase.PROTECTED})
"""Phases in which clients are sent to a replica."""


class ReplicaState(NamedTuple):
    """A phase, why a replica is in it (None while it is UP), and whether its absence is planned (OUT and GONE only)."""

    phase: Phase
    reason: Reason | None = None
    planned: bool = False


UP = ReplicaState(Phase.UP)


class Facts(NamedTuple):
    """The facts that determine the state of a replica at one moment."""

    unregistered: Reason | None = None
    """Why the registration ended: by the agent, an operator, or another registration at its address."""
    expired: Reason | None = None
    """Why it expires (:meth:`pointsman_namesrv.core.liveness.Pulse.why_expired`)."""
    failing: Evidence | None = None
    """The evidence on which its probe fails; None: it does not fail."""
    is_provisional: bool = False
    """From the snapshot, without a heartbeat yet."""
    suspect: Reason | None = None
    """Why heartbeats are missed (:meth:`pointsman_namesrv.core.liveness.Pulse.why_suspect`)."""
    in_window: bool = False
    """Whether a maintenance window covers it."""
    is_kept: bool = False
    """Whether the guard protects it (``core/guard.py``): never on strong evidence or in a window."""


class Rule(NamedTuple):
    """One row of the table."""

    when: str
    """The condition, for operators."""
    applies: Callable[[Facts], bool]
    phase: Phase
    reasons: tuple[Reason | None, ...]
    """The reason of the state; if there are several, the facts name it."""
    planned: bool = False

    def state(self, facts: Facts) -> ReplicaState:
        """Return the state of this row."""
        reason = self.reasons[0] if len(self.reasons) == 1 else facts.unregistered or facts.expired
        return ReplicaState(self.phase, reason, self.planned)


_ENDS = (Reason.SHUTDOWN, Reason.DRAIN, Reason.REMOVED_FROM_CONFIG, Reason.ADMIN, Reason.SUPERSEDED)
_EXPIRES = (Reason.SILENCE, Reason.STREAM_BROKEN)
_WEAK, _STRONG = Evidence.WEAK, Evidence.STRONG

# fmt: off
RULES = (
    Rule("it unregistered, was evicted, or another identity registered its address",
         lambda f: f.unregistered is not None, Phase.GONE, _ENDS, planned=True),
    Rule("expired in a maintenance window",
         lambda f: f.expired is not None and f.in_window, Phase.GONE, _EXPIRES, planned=True),
    Rule("expired, but the guard protects it",
         lambda f: f.expired is not None and f.is_kept, Phase.PROTECTED, _EXPIRES),
    Rule("expired",
         lambda f: f.expired is not None, Phase.GONE, _EXPIRES),
    Rule("the probe fails on strong evidence, in a maintenance window",
         lambda f: f.failing is _STRONG and f.in_window, Phase.OUT, (Reason.REFUSED,), planned=True),
    Rule("the probe fails on strong evidence",
         lambda f: f.failing is _STRONG, Phase.OUT, (Reason.REFUSED,)),
    Rule("the probe fails on weak evidence, in a maintenance window",
         lambda f: f.failing is _WEAK and f.in_window, Phase.OUT, (Reason.PROBE,), planned=True),
    Rule("the probe fails on weak evidence, but the guard protects it",
         lambda f: f.failing is _WEAK and f.is_kept, Phase.PROTECTED, (Reason.PROBE,)),
    Rule("the probe fails on weak evidence",
         lambda f: f.failing is _WEAK, Phase.OUT, (Reason.PROBE,)),
    Rule("from the snapshot, no heartbeat yet",
         lambda f: f.is_provisional, Phase.PROVISIONAL, (Reason.SNAPSHOT,)),
    Rule("its stream broke",
         lambda f: f.suspect is Reason.STREAM_BROKEN, Phase.SUSPECT, (Reason.STREAM_BROKEN,)),
    Rule("silent for more than 2.5 intervals",
         lambda f: f.suspect is Reason.SILENCE, Phase.SUSPECT, (Reason.SILENCE,)),
    Rule("heartbeats arrive in time and the probe does not fail",
         lambda _: True, Phase.UP, (None,)),
)
# fmt: on
"""The first row that applies gives the state. Each state comes from one row alone."""


@cache
def replica_state(facts: Facts) -> ReplicaState:
    """Return the state by the table. There are a few hundred different facts, so each result is cached."""
    return next(rule.state(facts) for rule in RULES if rule.applies(facts))


def rule_of(state: ReplicaState) -> Rule:
    """Return the row that a state comes from."""
    return next(
        rule
        for rule in RULES
        if (rule.phase, rule.planned) == (state.phase, state.planned) and state.reason in rule.reasons
    )
