"""The state that this agent registers with every name server.

Each registration loop compares it with what its name server last received. Nothing is queued: after an hour without a
connection a loop sends the current state, not an hour of events.

A broker with a ``replica_id`` may be promoted and demoted while its agent runs: it has broker id 0 while it reports
that it is a master, and ``replica_id`` while it reports that it is a replica. Without ``replica_id`` the configured id
applies, and a contradicting role is only reported: Redis itself refuses the writes, and a failing probe would record a
false outage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from pointsman_agent.core.probe_verdict import MAX_DETAIL_LENGTH, Evidence, ProbeStatus, Role, Verdict, role_conflict
from pointsman_agent.core.topic_set import DataVersion, TopicSet

MASTER_ID = 0
MAX_STATE_VERSION = 2**64 - 1
"""It is a uint64 on the wire."""


class Leave(Enum):
    """What happens to the registration when the agent stops."""

    HAND_OVER = "hand_over"
    """The broker is up: the registration remains for the next agent."""
    UNREGISTER = "unregister"
    """The broker is down."""
    DRAIN = "drain"
    """The broker is still up, but its clients were moved to other brokers first."""


@dataclass(frozen=True, slots=True)
class RegistrationKey:
    """What only a full registration carries; a change of it requires another one."""

    data_version: DataVersion
    incarnation: str
    role: Role
    broker_id: int = MASTER_ID


@dataclass(frozen=True, slots=True)
class OwnState:
    """Current state of the broker."""

    configured_id: int
    topics: TopicSet
    verdict: Verdict = field(default_factory=Verdict)
    leave: Leave | None = None
    """Set once, when the agent stops or the broker is drained."""
    replica_id: int | None = None
    """Broker id while it is a replica; None: it is never promoted, and the configured id applies."""

    @property
    def broker_id(self) -> int:
        """The broker id that is claimed now; undefined while :attr:`may_claim` is False."""
        if self.replica_id is None:
            return self.configured_id
        return MASTER_ID if self.verdict.role is Role.MASTER else self.replica_id

    @property
    def may_claim(self) -> bool:
        """Whether the role is known: a broker that may have either role claims nothing until it has reported one."""
        return self.replica_id is None or self.verdict.role is not Role.UNKNOWN

    @property
    def data_version(self) -> DataVersion:
        """The version of the topics as registered: a master's state version is raised by its epoch.

        So a promoted master displaces the one before it. That one, when it returns and is not demoted yet, does not
        displace the promoted one.
        """
        version = self.topics.data_version
        if self.replica_id is None or self.verdict.role is not Role.MASTER:
            return version
        return replace(version, state_version=min(MAX_STATE_VERSION, version.state_version + self.verdict.master_epoch))

    @property
    def registration_key(self) -> RegistrationKey:
        """What a name server must have received by a full registration."""
        return RegistrationKey(self.data_version, self.verdict.incarnation, self.verdict.role, self.broker_id)

    @property
    def status(self) -> ProbeStatus:
        """The probe's verdict."""
        return self.verdict.status

    @property
    def probe_outcome(self) -> tuple[ProbeStatus, Evidence]:
        """The part of the health whose change is sent immediately; the rest follows with the next heartbeat."""
        return self.verdict.status, self.verdict.evidence

    @property
    def role_conflict(self) -> str | None:
        """How the broker's role contradicts the configured id, as a sentence; None if it does not."""
        return role_conflict(self.configured_id, self.verdict.role) if self.replica_id is None else None

    @property
    def health_detail(self) -> str:
        """For operators: a role conflict, the probe's detail, and its warnings."""
        return "; ".join(filter(None, (self.role_conflict, self.verdict.detail, *self.verdict.warnings)))[
            :MAX_DETAIL_LENGTH
        ]


def decide_leave(*, broker_answers: bool | None, unprobed: Leave) -> Leave:
    """Return what to do at a stop. ``broker_answers`` is None without a probe; then ``unprobed`` from the settings.

    Its default is HAND_OVER: a dead broker in the routes for a minute does less harm than an upgrade of the agent that
    removes a live broker.
    """
    if broker_answers is None:
        return unprobed
    return Leave.HAND_OVER if broker_answers else Leave.UNREGISTER
