"""One consumer group: its members, the list that its members were sent, and subscription conflicts.

``shown`` lags behind ``members`` while a hold-down delays changes. Only their difference is stored, so a change costs
the same in a group of ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pointsman.wire.client_id import address_of
from pointsman_agent.core.group_membership import GroupSubscription, GroupSummary, MessageModel, Shape


@dataclass(frozen=True, slots=True)
class Pin:
    """``targets`` are client ids, or addresses that stand for every client at them."""

    targets: frozenset[str]
    until: float
    """Monotonic seconds at which the pin ends."""

    def members(self, client_ids: Iterable[str]) -> tuple[str, ...]:
        """Return those of the clients that the pin names, in their order; possibly none."""
        return tuple(each for each in client_ids if each in self.targets or address_of(each) in self.targets)


@dataclass(slots=True)
class Member:
    """One client in one group."""

    subscription: GroupSubscription
    shape: Shape
    joined_at: float
    stream: int
    """Number of the stream that holds it."""


@dataclass(slots=True)
class ConsumerGroup:
    """Exists while it has members, shows any, or is pinned."""

    name: str
    hold_down: float
    """Delay after a first change, in seconds, that merges several changes."""
    notify: bool
    counter: int = 0
    """Number of the last change of the shown membership."""
    members: dict[str, Member] = field(default_factory=dict)
    """By client id, in the order of joining."""
    pin: Pin | None = None
    held_until: float | None = None
    """When delayed changes are shown; None: none is delayed."""
    message_model: MessageModel | None = None
    """As shown: that of the member that joined first."""
    _shown: set[str] = field(default_factory=set)
    _unshown: set[str] = field(default_factory=set)
    """Clients whose joining or leaving is not shown yet."""
    _shapes: dict[Shape, int] = field(default_factory=dict)
    _sorted: tuple[str, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the group can be dropped."""
        return not self.members and not self._shown and self.pin is None

    @property
    def notifies(self) -> bool:
        """Whether members are notified of changes."""
        return self.notify and self.message_model is not MessageModel.BROADCASTING

    @property
    def is_conflicting(self) -> bool:
        """Whether members differ in subscriptions or message model."""
        return len(self._shapes) > 1

    @property
    def client_ids(self) -> tuple[str, ...]:
        """The shown members, sorted."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self._shown))
        return self._sorted

    @property
    def pinned_client_ids(self) -> tuple[str, ...]:
        """Those of the shown members that the pin names."""
        return self.pin.members(self.client_ids) if self.pin is not None else ()

    @property
    def pinned_until(self) -> float | None:
        """When the pin ends; None without a pin."""
        return self.pin.until if self.pin is not None else None

    def conflicting(self) -> Iterator[tuple[str, bool]]:
        """Each member, in the order of joining, and whether it differs from the one that joined first."""
        first = next(iter(self.members.values())).shape if self.members else None
        return ((client_id, member.shape != first) for client_id, member in self.members.items())

    def put(self, client_id: str, subscription: GroupSubscription, *, stream: int, now: float) -> None:
        """Add a client, or change a member's subscription or stream; a member keeps its position."""
        member = self.members.get(client_id)
        shape = Shape.of(subscription)
        if member is None:
            self.members[client_id] = Member(subscription, shape, now, stream)
            self._toggle(client_id)
        else:
            self._forget_shape(member.shape)
            member.subscription, member.shape, member.stream = subscription, shape, stream
        self._shapes[shape] = self._shapes.get(shape, 0) + 1

    def remove(self, client_id: str) -> None:
        """Remove a member."""
        self._forget_shape(self.members.pop(client_id).shape)
        self._toggle(client_id)

    def settle(self, *, now: float, may_hold: bool) -> bool:
        """Show what is due; return whether the shown membership changed. Call it after every change.

        Changes are shown immediately in a group that shows no member: a delay would spare no one a rebalance.
        """
        if not self._unshown:
            self.held_until = None
        elif may_hold and self.hold_down > 0 and self._shown:
            if self.held_until is None:
                self.held_until = now + self.hold_down
            if now < self.held_until:
                return self._settle_model()
        is_news = bool(self._unshown)
        if is_news:
            self._shown ^= self._unshown
            self._unshown.clear()
            self._sorted = None
            self.held_until = None
        return self._settle_model() or is_news

    def summary(self) -> GroupSummary:
        """Return the group's row in a list; it must have members."""
        first = next(iter(self.members.values()))
        topics = {each.topic for member in self.members.values() for each in member.subscription.subscriptions}
        return GroupSummary(
            group=self.name,
            members=len(self.members),
            message_model=first.subscription.message_model,
            topics=tuple(sorted(topics)),
            is_conflicting=self.is_conflicting,
            is_pinned=self.pin is not None,
        )

    def check_invariants(self) -> None:
        """Compare the stored state with what it is derived from; for tests."""
        assert self._shown ^ self._unshown == self.members.keys()
        assert (self.held_until is None) == (not self._unshown)
        counted = [member.shape for member in self.members.values()]
        assert self._shapes == {shape: counted.count(shape) for shape in counted}
        assert self.client_ids == tuple(sorted(self._shown))

    def _toggle(self, client_id: str) -> None:
        # A client that left and came back in between never left, as far as the other members can see.
        if client_id in self._unshown:
            self._unshown.discard(client_id)
        else:
            self._unshown.add(client_id)

    def _settle_model(self) -> bool:
        old = self.message_model
        if self.members:
            self.message_model = next(iter(self.members.values())).subscription.message_model
        elif not self._shown:
            self.message_model = None
        return self.message_model is not old

    def _forget_shape(self, shape: Shape) -> None:
        self._shapes[shape] -= 1
        if not self._shapes[shape]:
            del self._shapes[shape]
