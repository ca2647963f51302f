"""One stream of a client: the groups in which it holds the client, and the response to its heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pointsman_agent.core.consumer_group import ConsumerGroup, Member
from pointsman_agent.core.group_membership import (
    HELD,
    NOTHING,
    BeatAnswer,
    Changes,
    GroupSubscription,
    MembershipBeat,
    MembershipStatus,
    OwnDifference,
    Takeover,
)
from pointsman_agent.core.group_rules import GroupLimitReached


@dataclass(slots=True, eq=False)
class ClientStream:
    """Exists while it holds a group, or has sent a heartbeat and is open."""

    client_id: str
    number: int
    peer: str
    beat: MembershipBeat | None
    """None: the stream does not hold all groups that it named."""
    last_beat_at: float
    is_connected: bool = True
    identity: str = ""
    """The authenticated caller."""
    groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    """Those in which this stream holds the client."""
    subscriptions: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Its client and number."""
        return self.client_id, self.number

    def holdings(self) -> Iterator[Member]:
        """Its client in each of its groups."""
        return (group.members[self.client_id] for group in self.groups.values())


@dataclass(slots=True, eq=False)
class StreamsOfPeer:
    """The streams of one connection."""

    streams: dict[tuple[str, int], ClientStream] = field(default_factory=dict)
    subscriptions: int = 0


def answer_of(
    stream: ClientStream,
    *,
    lost: tuple[str, ...] = (),
    changes: Changes = NOTHING,
    took_over: tuple[Takeover, ...] = (),
    refused: tuple[tuple[int, GroupLimitReached], ...] = (),
) -> BeatAnswer:
    """Return the response to a heartbeat of a stream; if there is nothing to report, always the object ``HELD``."""
    conflicting: tuple[str, ...] = ()
    own: tuple[OwnDifference, ...] = ()
    for group in stream.groups.values():
        if group.may_differ:
            conflicting, own = _differences_of(stream)
            break
    if not (conflicting or own or lost or took_over or refused) and changes is NOTHING:
        return HELD
    return BeatAnswer(MembershipStatus.OK, conflicting, lost, own, changes, took_over, refused)


def _differences_of(stream: ClientStream) -> tuple[tuple[str, ...], tuple[OwnDifference, ...]]:
    conflicting, own = [], []
    for name, group in sorted(stream.groups.items()):
        if group.is_conflicting:
            conflicting.append(name)
        agreement = group.agreement
        standing = agreement.differing.get(stream.client_id)
        if standing is not None:
            own.append(OwnDifference(name, standing, agreement.holder))
    return tuple(conflicting), tuple(own)


def weight(subscription: GroupSubscription) -> int:
    """Return what a member counts in the limits: one without subscriptions uses memory as well."""
    return max(1, len(subscription.subscriptions))


def weight_of(member: Member) -> int:
    """Return what a member counts in the limits."""
    return weight(member.subscription)
