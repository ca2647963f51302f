"""Values of consumer group membership: what members register, and what watchers and operators are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from pointsman_agent.core.group_rules import GroupLimitReached
from pointsman_agent.core.queue_pins import QueuePin

BY_CONFIG = "CONFIG"
"""Name of the strategy whose queues only their members know (RocketMQ ``AllocateMessageQueueByConfig``)."""


class ConsumeType(Enum):
    """How a consumer receives messages."""

    PULL = "pull"
    PUSH = "push"


class MessageModel(Enum):
    """How the members of a group share messages."""

    CLUSTERING = "clustering"
    BROADCASTING = "broadcasting"


class GroupState(Enum):
    """Whether member lists are reliable."""

    WARMING = "warming"
    """Some members may not have sent a heartbeat yet."""
    RECOVERED = "recovered"
    """Still warming up, but no member of the group from before the start is missing. Of a group, never of the agent."""
    READY = "ready"
    DRAINING = "draining"
    """This agent is stopping."""


class MembershipStatus(Enum):
    """Outcome of a heartbeat."""

    OK = "ok"
    TAKEN_OVER = "taken_over"
    """A later stream holds the client id."""


class Cause(Enum):
    """Why a client was removed from its groups."""

    LEFT = "left"
    STREAM_ENDED = "stream_ended"
    SILENCE = "silence"
    LIMIT = "limit"
    """Its peer had the most streams or subscriptions when a limit of the agent was reached."""


class Subscription(NamedTuple):
    """One topic that a group consumes."""

    topic: str
    expression: str


class Difference(Enum):
    """In what a member differs from what holds in its group. The values are labels of a metric."""

    MESSAGE_MODEL = "message_model"
    CONSUME_TYPE = "consume_type"
    """A listener beside polling: only the former consumes the group's retry topic."""
    SUBSCRIPTIONS = "subscriptions"
    ORDERED = "ordered"
    STRATEGY = "strategy"
    ZONE = "zone"
    """The strategy that holds needs a zone in each client id."""


class AllocationSetting(NamedTuple):
    """An allocation strategy by value; the agent compares digests and computes no shares."""

    name: str
    settings: str
    """JSON; empty: too long to be stated."""
    digest: bytes
    """Of name and settings."""
    buildable_from: int
    """The lowest ``known_strategies`` of a client that can build it; 0: none can."""
    needs_zone: bool

    @property
    def text(self) -> str:
        """For people: the name, and the settings if there are any."""
        return self.name if self.settings in {"", "{}"} else f"{self.name} {self.settings}"


class MemberSettings(NamedTuple):
    """What the members of a group must have in common, besides model, consume type and subscriptions."""

    strategy: AllocationSetting
    is_ordered: bool
    known_strategies: int
    """The set of built-in strategies that the client can build."""
    started_at_ms: int
    """When the consumer was started, by its own clock; milliseconds since 1970."""
    follows_queue_pins: bool = False
    follows_resets: bool = False
    """Whether the client follows an operator's reset of offsets."""


@dataclass(frozen=True, slots=True)
class GroupSubscription:
    """A client's registration in one group."""

    group: str
    consume_type: ConsumeType
    message_model: MessageModel
    subscriptions: tuple[Subscription, ...]
    """Sorted, each topic once."""
    settings: MemberSettings | None = None
    """None: the client is too old to state them."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a member differs from what holds."""

    differences: tuple[Difference, ...]
    """At least one."""
    stands_aside: bool
    strategy: str = ""
    """Its strategy, for people; empty unless the strategy differs."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What holds in a group."""

    holder: str = ""
    """The member whose settings hold: the oldest one that states its settings and has the model, type and subscriptions
    of the oldest one; else the oldest one. Empty: no member states its settings, and none differs."""
    settings: MemberSettings | None = None
    """Those of the holder; None: it states none, or every member receives all messages."""
    differing: Mapping[str, Standing] = field(default_factory=lambda: MappingProxyType({}))
    """By client id, sorted."""
    not_following_queue_pins: tuple[str, ...] = ()
    """The first members, sorted, that divide queues and do not follow pins of these."""

    @property
    def is_configured(self) -> bool:
        """Whether each member knows its queues from its own configuration."""
        return self.settings is not None and self.settings.strategy.name == BY_CONFIG

    @property
    def follows_queue_pins(self) -> bool:
        """Whether all members that divide queues follow pins of these; otherwise no such pin has an effect."""
        return not self.not_following_queue_pins and not self.is_configured

    def stands_aside(self, client_id: str) -> bool:
        """Whether a member holds no queues."""
        standing = self.differing.get(client_id)
        return standing is not None and standing.stands_aside


@dataclass(frozen=True, slots=True, eq=False)
class MembershipBeat:
    """A client and all groups that it is in. The same object again is known to change nothing."""

    client_id: str
    groups: tuple[GroupSubscription, ...]
    """Each group once."""


@dataclass(frozen=True, slots=True)
class Membership:
    """A group as its members are sent it. Times are monotonic seconds."""

    group: str
    counter: int
    """Rises with every change of this membership."""
    state: GroupState
    client_ids: tuple[str, ...]
    """Those that divide the queues: without those that stand aside."""
    pinned_client_ids: tuple[str, ...]
    pinned_until: float | None
    message_model: MessageModel | None
    """None: the group has no members."""
    agreement: Agreement
    """Among the shown members."""
    queue_pins: tuple[QueuePin, ...] = ()

    def owner_of(self, pin: QueuePin) -> str:
        """Return the member that is assigned the queue of a pin; empty: none."""
        divides = self.message_model is not MessageModel.BROADCASTING and self.agreement.follows_queue_pins
        return pin.owner(self.client_ids) if divides else ""


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """One member as shown to operators. Times are monotonic seconds."""

    client_id: str
    peer: str
    subscription: GroupSubscription
    joined_at: float
    last_beat_at: float
    is_connected: bool
    standing: Standing | None
    """None: it does not differ from what holds in the group."""

    @property
    def is_conflicting(self) -> bool:
        """Whether it differs from what holds in the group."""
        return self.standing is not None


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group in a list."""

    group: str
    members: int
    message_model: MessageModel
    topics: tuple[str, ...]
    """Topics that its members consume, sorted."""
    is_conflicting: bool
    is_pinned: bool


@dataclass(frozen=True, slots=True)
class Removal:
    """A client that was removed from groups."""

    client_id: str
    cause: Cause
    groups: tuple[str, ...]
    """The groups that it was in, sorted."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a call changed."""

    groups: frozenset[str] = frozenset()
    """Groups whose members must be sent the new membership."""
    removals: tuple[Removal, ...] = ()
    is_state: bool = False
    """Whether this agent's own state changed, which affects every group."""


NOTHING = Changes()


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """Outcome of a heartbeat."""

    status: MembershipStatus
    """TAKEN_OVER: later streams hold the client in all groups that the beat named."""
    conflicting: tuple[str, ...] = ()
    """Groups of the stream whose members differ in model, type or subscriptions, sorted."""
    taken_over: tuple[str, ...] = ()
    """Groups that the beat named and in which a later stream holds the client, sorted; empty where all are."""
    own_differences: tuple[OwnDifference, ...] = ()
    """Groups of the stream in which its client differs from what holds, sorted by group."""
    changes: Changes = NOTHING
    took_over: tuple[Takeover, ...] = ()
    """Open streams that lost groups to this beat's stream, sorted by number."""
    refused: tuple[tuple[int, GroupLimitReached], ...] = ()
    """Open streams that were removed because their peer held most when a bound was reached, and the bound."""
    reset_groups: tuple[str, ...] = ()
    """Groups whose offsets an operator has just reset, sorted."""


class OwnDifference(NamedTuple):
    """How the client of a heartbeat differs in one group."""

    group: str
    standing: Standing
    holder: str


class Takeover(NamedTuple):
    """An open stream that lost groups to a later stream of the same client."""

    stream: int
    answer: BeatAnswer
    """Its state now."""


HELD = BeatAnswer(MembershipStatus.OK)
TAKEN_OVER = BeatAnswer(MembershipStatus.TAKEN_OVER)
