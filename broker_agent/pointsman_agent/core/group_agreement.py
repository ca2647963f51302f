"""What holds in a group whose members' settings differ, and which members divide its queues.

The settings of the oldest member hold. A member that differs in its strategy only, and can build the one that holds,
divides the queues by that one. Every other member that differs stands aside and holds no queue. So all members that a
list names as dividing the queues compute with one strategy, and each queue is read.

A member that does not state its settings, since its client is older than they are, cannot stand aside either: it counts
as older than all that do, and as dividing the queues by the strategy that holds. A client older than pins of queues
cannot follow these: while it divides queues they have no effect, else two members would read one queue, or none.

RocketMQ compares nothing: there, members with different strategies leave queues unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pointsman.client_id import zone_of
from pointsman_agent.core.group_membership import (
    Agreement,
    ConsumeType,
    Difference,
    GroupSubscription,
    MemberSettings,
    MessageModel,
    Standing,
    Subscription,
)

MAX_NOT_FOLLOWING = 16
"""Members that do not follow pins of queues and are named."""


class Shape(NamedTuple):
    """What decides whether members differ, without their age: members of one shape and zone do not."""

    message_model: MessageModel
    consume_type: ConsumeType | None
    """None, as all that follows, where every member receives all messages: such members may differ."""
    subscriptions: tuple[Subscription, ...]
    is_ordered: bool | None
    digest: bytes
    known_strategies: int
    needs_zone: bool

    @classmethod
    def of(cls, subscription: GroupSubscription) -> Shape:
        """Return the shape of a member's subscription."""
        model, settings = subscription.message_model, subscription.settings
        if model is MessageModel.BROADCASTING:
            return cls(model, None, (), None, b"", 0, needs_zone=False)
        common = model, subscription.consume_type, subscription.subscriptions
        if settings is None:
            return cls(*common, None, b"", 0, needs_zone=False)
        strategy = settings.strategy
        return cls(
            *common, settings.is_ordered, strategy.digest, settings.known_strategies, needs_zone=strategy.needs_zone
        )


def age_of(client_id: str, subscription: GroupSubscription) -> tuple[int, str]:
    """Return the key by which members are sorted, the oldest first; those without settings keep their order.

    The start is the member's own time, so that the order is the same at every agent, and after a restart of one.
    """
    settings = subscription.settings
    return (-1, "") if settings is None else (settings.started_at_ms, client_id)


def agree(members: Mapping[str, GroupSubscription]) -> Agreement:
    """Return what holds among members, given in the order in which they joined."""
    by_age = sorted(members.items(), key=lambda each: age_of(*each))
    if not by_age:
        return Agreement()
    oldest, first = by_age[0]
    holder, settings = _holder(first, by_age) or (oldest, None)
    differing: dict[str, Standing] = {}
    not_following: list[str] = []
    for client_id, subscription in sorted(by_age):
        own = subscription.settings
        differences = _common_differences(first, subscription)
        follows, strategy = not differences, ""
        if own is not None and settings is not None and first.message_model is subscription.message_model:
            if own.is_ordered is not settings.is_ordered:
                differences.append(Difference.ORDERED)
                follows = False
            if own.strategy.digest != settings.strategy.digest:
                differences.append(Difference.STRATEGY)
                strategy = own.strategy.text
                follows &= 0 < settings.strategy.buildable_from <= own.known_strategies
            if settings.strategy.needs_zone and zone_of(holder) and not zone_of(client_id):
                differences.append(Difference.ZONE)
                follows = False
        if differences:
            differing[client_id] = Standing(tuple(differences), own is not None and not follows, strategy)
        divides = own is None or follows
        if divides and not (own is not None and own.follows_queue_pins) and len(not_following) < MAX_NOT_FOLLOWING:
            not_following.append(client_id)
    is_stated = settings is not None or bool(differing)
    return Agreement(holder if is_stated else "", settings, MappingProxyType(differing), tuple(not_following))


def may_differ(shapes: Iterable[Shape]) -> bool:
    """Whether members of these shapes, each given once, may differ; False: they certainly do not."""
    several = list(shapes)
    stated = [each for each in several if each.digest]
    common = {each[:3] for each in several}
    return len(common) > 1 or len(stated) > 1 or any(each.needs_zone for each in stated)


def _holder(
    first: GroupSubscription, by_age: Iterable[tuple[str, GroupSubscription]]
) -> tuple[str, MemberSettings | None] | None:
    """Return the member whose strategy holds, preferably one that has the zone that its strategy needs."""
    stating = [
        (client_id, each.settings)
        for client_id, each in by_age
        if each.settings is not None and not _common_differences(first, each)
    ]
    if not stating:
        return None
    able = (each for each in stating if not each[1].strategy.needs_zone or zone_of(each[0]))
    holder, settings = next(able, stating[0])
    return holder, settings if first.message_model is MessageModel.CLUSTERING else None


def _common_differences(first: GroupSubscription, other: GroupSubscription) -> list[Difference]:
    """Return the differences that are known of every member, with or without settings."""
    if other.message_model is not first.message_model:
        return [Difference.MESSAGE_MODEL]
    if first.message_model is MessageModel.BROADCASTING:
        return []
    differences = []
    if other.consume_type is not first.consume_type:
        differences.append(Difference.CONSUME_TYPE)
    if other.subscriptions != first.subscriptions:
        differences.append(Difference.SUBSCRIPTIONS)
    return differences
