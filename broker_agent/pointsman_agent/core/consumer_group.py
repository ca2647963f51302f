"""One consumer group: its members, the list that its members were sent, and how its members differ.

``shown`` lags behind ``members`` while a hold-down delays changes. Only their difference is stored, so a change costs
the same in a group of ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pointsman.client_id import address_of
from pointsman_agent.core.group_agreement import Shape, age_of, agree, may_differ
from pointsman_agent.core.group_membership import Agreement, GroupSubscription, GroupSummary, MessageModel


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
    number: int
    """In the order of joining."""


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
    """As shown: that of the oldest member."""
    _oldest: str = ""
    """Empty: not known, or there is no member."""
    _shown: set[str] = field(default_factory=set)
    _unshown: set[str] = field(default_factory=set)
    """Clients whose joining or leaving is not shown yet."""
    _departed: dict[str, Member] = field(default_factory=dict)
    """Shown clients that have left, as they were last."""
    _number: int = 0
    """Of the last member that joined."""
    _agreed_before: Agreement | None = None
    """What held among the shown members before one of them changed; None: none has since that was shown."""
    _shapes: dict[Shape, int] = field(default_factory=dict)
    _agreement: Agreement | None = None
    _shown_agreement: Agreement | None = None
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
        """Whether members differ in message model, consume type or subscriptions."""
        return len({shape[:3] for shape in self._shapes}) > 1 if len(self._shapes) > 1 else False

    @property
    def may_differ(self) -> bool:
        """Whether members may differ in what must be equal; False: they certainly do not."""
        return may_differ(self._shapes)

    @property
    def agreement(self) -> Agreement:
        """What holds among the members."""
        if self._agreement is None:
            self._agreement = agree({client_id: each.subscription for client_id, each in self.members.items()})
        return self._agreement

    @property
    def shown_agreement(self) -> Agreement:
        """What holds among the shown members; a member that has left counts until that is shown."""
        if not self._unshown:
            return self.agreement
        if self._shown_agreement is None:
            self._shown_agreement = agree(self._shown_subscriptions())
        return self._shown_agreement

    @property
    def client_ids(self) -> tuple[str, ...]:
        """The shown members that divide the queues, sorted."""
        if self._sorted is None:
            is_aside = self.shown_agreement.stands_aside
            self._sorted = tuple(sorted(each for each in self._shown if not is_aside(each)))
        return self._sorted

    @property
    def pinned_client_ids(self) -> tuple[str, ...]:
        """Those of the shown members that the pin names."""
        return self.pin.members(self.client_ids) if self.pin is not None else ()

    @property
    def pinned_until(self) -> float | None:
        """When the pin ends; None without a pin."""
        return self.pin.until if self.pin is not None else None

    def put(self, client_id: str, subscription: GroupSubscription, *, stream: int, now: float) -> None:
        """Add a client, or change a member's subscription or stream; a member keeps its position."""
        member = self.members.get(client_id)
        shape = Shape.of(subscription)
        if client_id in self._shown and (member is None or member.subscription != subscription):
            self._agreed_before = self._agreed_before or self.shown_agreement
        if member is None:
            self._number += 1
            self.members[client_id] = Member(subscription, shape, now, stream, self._number)
            self._departed.pop(client_id, None)
            self._toggle(client_id)
            oldest = self.members.get(self._oldest)
            if oldest is not None and age_of(client_id, subscription) < age_of(self._oldest, oldest.subscription):
                self._oldest = client_id
        else:
            self._forget_shape(member.shape)
            member.subscription, member.shape, member.stream = subscription, shape, stream
            self._oldest = ""
        self._shapes[shape] = self._shapes.get(shape, 0) + 1
        self._forget_agreements()

    def remove(self, client_id: str) -> None:
        """Remove a member."""
        member = self.members.pop(client_id)
        self._forget_shape(member.shape)
        if client_id in self._shown:
            self._departed[client_id] = member
        if client_id == self._oldest:
            self._oldest = ""
        self._toggle(client_id)
        self._forget_agreements()

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
                return self._settle_settings()
        is_news = bool(self._unshown)
        if is_news:
            self._shown ^= self._unshown
            self._unshown.clear()
            self._departed.clear()
            self._sorted = None
            self.held_until = None
        return self._settle_settings() or is_news

    def summary(self) -> GroupSummary:
        """Return the group's row in a list; it must have members."""
        topics = {each.topic for member in self.members.values() for each in member.subscription.subscriptions}
        return GroupSummary(
            group=self.name,
            members=len(self.members),
            message_model=self._oldest_member().subscription.message_model,
            topics=tuple(sorted(topics)),
            is_conflicting=self.may_differ and bool(self.agreement.differing),
            is_pinned=self.pin is not None,
        )

    def check_invariants(self) -> None:
        """Compare the stored state with what it is derived from; for tests."""
        assert self._shown ^ self._unshown == self.members.keys()
        assert (self.held_until is None) == (not self._unshown)
        counted = [member.shape for member in self.members.values()]
        assert self._shapes == {shape: counted.count(shape) for shape in counted}
        assert self._departed.keys() == self._shown - self.members.keys()
        current = {client_id: each.subscription for client_id, each in self.members.items()}
        assert self.agreement == agree(current)
        assert self.may_differ or not self.agreement.differing
        shown = self._shown_subscriptions()
        agreement = agree(shown)
        assert self.shown_agreement == agreement
        assert self.client_ids == tuple(sorted(each for each in shown if not agreement.stands_aside(each)))
        if current:
            assert self._oldest_member() is self.members[min(current, key=lambda each: age_of(each, current[each]))]

    def _toggle(self, client_id: str) -> None:
        # A client that left and came back in between never left, as far as the other members can see.
        if client_id in self._unshown:
            self._unshown.discard(client_id)
        else:
            self._unshown.add(client_id)

    def _settle_settings(self) -> bool:
        """Show other settings of shown members, immediately: a member acts on its own from then on."""
        old = self.message_model
        if self.members:
            self.message_model = self._oldest_member().subscription.message_model
        elif not self._shown:
            self.message_model = None
        before, self._agreed_before = self._agreed_before, None
        return self.message_model is not old or (before is not None and before != self.shown_agreement)

    def _shown_subscriptions(self) -> dict[str, GroupSubscription]:
        """Return those of the shown members, in the order of joining."""
        shown = [(each.number, client_id, each) for client_id, each in self.members.items() if client_id in self._shown]
        shown += [(each.number, client_id, each) for client_id, each in self._departed.items()]
        return {client_id: each.subscription for _, client_id, each in sorted(shown, key=lambda each: each[:2])}

    def _oldest_member(self) -> Member:
        if not self._oldest:
            self._oldest = min(self.members, key=lambda each: age_of(each, self.members[each].subscription))
        return self.members[self._oldest]

    def _forget_agreements(self) -> None:
        self._agreement = self._shown_agreement = self._sorted = None

    def _forget_shape(self, shape: Shape) -> None:
        self._shapes[shape] -= 1
        if not self._shapes[shape]:
            del self._shapes[shape]
