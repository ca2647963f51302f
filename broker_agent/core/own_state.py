"""What this agent wants every name server to hold: the state that is "mine".

Each registration loop compares it with what its server was told. Nothing is queued, so a loop that was away for an
hour acts on the present state and not on an hour of events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from broker_agent.core.probe_verdict import MAX_DETAIL_LENGTH, ProbeStatus, Role, Verdict, role_conflict
from broker_agent.core.topic_set import DataVersion, TopicSet


class Leave(Enum):
    """How the agent takes its leave when it stops."""

    HAND_OVER = "hand_over"
    """The broker goes on: its registration shall stay for the next agent."""
    UNREGISTER = "unregister"
    """The broker is gone too."""


@dataclass(frozen=True, slots=True)
class RegistrationKey:
    """What only a registration carries; a server that was told another one must be told again."""

    data_version: DataVersion
    incarnation: str
    role: Role


@dataclass(frozen=True, slots=True)
class OwnState:
    """The broker as it is now."""

    broker_id: int
    topics: TopicSet
    verdict: Verdict = field(default_factory=Verdict)
    leave: Leave | None = None
    """Set once, when the agent stops."""

    @property
    def registration_key(self) -> RegistrationKey:
        """What a server must have been told by a registration."""
        return RegistrationKey(self.topics.data_version, self.verdict.incarnation, self.verdict.role)

    @property
    def status(self) -> ProbeStatus:
        """What a server must have been told by a beat."""
        return self.verdict.status

    @property
    def role_conflict(self) -> str | None:
        """How the broker's role contradicts the configured id, as a sentence; None when it does not."""
        return role_conflict(self.broker_id, self.verdict.role)

    @property
    def health_detail(self) -> str:
        """For people: what the probe met, and a role that contradicts the configured id."""
        return "; ".join(filter(None, (self.role_conflict, self.verdict.detail)))[:MAX_DETAIL_LENGTH]


def decide_leave(*, broker_answers: bool | None, unprobed: Leave) -> Leave:
    """Choose how to leave. ``broker_answers`` is None without a probe; then ``unprobed``, from the configuration."""
    if broker_answers is None:
        return unprobed
    return Leave.HAND_OVER if broker_answers else Leave.UNREGISTER
