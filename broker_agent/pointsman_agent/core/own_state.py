"""What this agent wants every name server to hold: the state that is "mine".

Each registration loop compares it with what its server was told. Nothing is queued, so a loop that was away for an
hour acts on the present state and not on an hour of events.

A broker with a ``replica_id`` may be promoted and demoted while its agent runs: it is broker id 0 while it says that it
is a master and ``replica_id`` while it says that it is a replica. Without one the configured id stands, and a role that
contradicts it is only reported: Redis itself refuses the writes, and a failing probe would record a false outage.
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
    """How the agent takes its leave when it stops."""

    HAND_OVER = "hand_over"
    """The broker goes on: its registration shall stay for the next agent."""
    UNREGISTER = "unregister"
    """The broker is gone too."""
    DRAIN = "drain"
    """The broker goes on for now, but its clients were sent elsewhere first."""


@dataclass(frozen=True, slots=True)
class RegistrationKey:
    """What only a registration carries; a server that was told another one must be told again."""

    data_version: DataVersion
    incarnation: str
    role: Role
    broker_id: int = MASTER_ID


@dataclass(frozen=True, slots=True)
class OwnState:
    """The broker as it is now."""

    configured_id: int
    topics: TopicSet
    verdict: Verdict = field(default_factory=Verdict)
    leave: Leave | None = None
    """Set once, when the agent stops or the broker is drained."""
    replica_id: int | None = None
    """Position in the group while it is a replica; None: it is never promoted, and the configured id stands."""

    @property
    def broker_id(self) -> int:
        """The position that is claimed now; without meaning while :attr:`may_claim` is False."""
        if self.replica_id is None:
            return self.configured_id
        return MASTER_ID if self.verdict.role is Role.MASTER else self.replica_id

    @property
    def may_claim(self) -> bool:
        """Whether the position is known: a broker that may be either, and has not said which, claims nothing."""
        return self.replica_id is None or self.verdict.role is not Role.UNKNOWN

    @property
    def data_version(self) -> DataVersion:
        """The version of the topics as it is claimed: a master's state version is raised by its epoch.

        So a promoted master displaces the one before it, and the one before it, when it comes back and does not know
        yet, does not displace the promoted one.
        """
        version = self.topics.data_version
        if self.replica_id is None or self.verdict.role is not Role.MASTER:
            return version
        return replace(version, state_version=min(MAX_STATE_VERSION, version.state_version + self.verdict.master_epoch))

    @property
    def registration_key(self) -> RegistrationKey:
        """What a server must have been told by a registration."""
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
        """How the broker's role contradicts the configured id, as a sentence; None when it does not."""
        return role_conflict(self.configured_id, self.verdict.role) if self.replica_id is None else None

    @property
    def health_detail(self) -> str:
        """For people: a role that contradicts the configured id, what the probe met, and what it warns of."""
        return "; ".join(filter(None, (self.role_conflict, self.verdict.detail, *self.verdict.warnings)))[
            :MAX_DETAIL_LENGTH
        ]


def decide_leave(*, broker_answers: bool | None, unprobed: Leave) -> Leave:
    """Choose how to leave. ``broker_answers`` is None without a probe; then ``unprobed``, from the configuration.

    Its default is HAND_OVER: a dead broker that is routed for a minute does less harm than an upgrade of the agent that
    removes a broker that runs.
    """
    if broker_answers is None:
        return unprobed
    return Leave.HAND_OVER if broker_answers else Leave.UNREGISTER
