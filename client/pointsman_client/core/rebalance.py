"""Timing of rebalances, and computation of the queues that a member adds and releases.

The rules are RocketMQ's (``RebalanceImpl``, ``RebalanceService``). Without a route or a reliable list of members the
assignment does not change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pointsman_client.core.allocation import AllocationRequest, AllocationStrategy, ByConfig, Pinned, Zones
from pointsman_client.core.message_queue import MessageQueue, QueueOrder
from pointsman_client.core.stated_strategy import StatedStrategy, built_from, stated


class MessageModel(StrEnum):
    """How messages are distributed to the members of a group (RocketMQ ``MessageModel``)."""

    CLUSTERING = "CLUSTERING"
    """The members share the queues; one member gets each message."""
    BROADCASTING = "BROADCASTING"
    """Every member reads all queues and stores its own offsets; a failed message is not retried."""


class ConsumeFrom(StrEnum):
    """Where a group starts a queue without a committed offset (RocketMQ ``ConsumeFromWhere``)."""

    LAST_OFFSET = "LAST_OFFSET"
    """With messages sent from now on, if the group is new to the topic. Otherwise, in a queue that was added or is
    available again, with the first message born since the group first consumed the topic. One minute is subtracted for
    clock differences."""
    FIRST_OFFSET = "FIRST_OFFSET"
    """At the first message that is still stored."""
    TIMESTAMP = "TIMESTAMP"
    """At the first message born at or after ``consume_timestamp``."""


@dataclass(frozen=True, slots=True)
class DifferingMember:
    """A member whose settings differ from those that hold in its group."""

    client_id: str
    differences: tuple[str, ...]
    """In what, for people, such as ``subscriptions``."""
    stands_aside: bool
    """Whether it holds no queue; otherwise it uses the settings that hold."""
    strategy: str = ""
    """Its strategy, for people; empty unless the strategy differs."""

    def __str__(self) -> str:
        strategy = f" ({self.strategy})" if self.strategy else ""
        consequence = ", holds no queues" if self.stands_aside else ""
        return f"{self.client_id}: {', '.join(self.differences)}{strategy}{consequence}"


@dataclass(frozen=True, slots=True)
class Members:
    """A reliable list of a group's members, and what holds in the group with it."""

    client_ids: tuple[str, ...]
    """Those that divide the queues, sorted."""
    pinned: tuple[str, ...] = ()
    """Members to which the queues are pinned; empty: no pin."""
    strategy: StatedStrategy | None = None
    """By which the members divide the queues; None: each uses its own."""
    is_ordered: bool | None = None
    """Whether the members process the messages of a queue one at a time; None: not stated."""
    holder: str = ""
    """The oldest member, whose settings hold; empty: not stated."""
    differing: tuple[DifferingMember, ...] = ()
    queue_pins: tuple[tuple[MessageQueue, str], ...] = ()
    """Queues that are pinned to one member each, sorted by queue, with that member."""

    def standing_of(self, client_id: str) -> DifferingMember | None:
        """Return how a member differs; None: it does not."""
        return next((each for each in self.differing if each.client_id == client_id), None)

    def stands_aside(self, client_id: str) -> bool:
        """Whether a member holds no queue because of its settings."""
        standing = self.standing_of(client_id)
        return standing is not None and standing.stands_aside

    def has(self, client_id: str) -> bool:
        """Whether a client is a member, standing aside or not."""
        return client_id in self.client_ids or self.stands_aside(client_id)


REBALANCE_WAIT_INTERVAL_SECONDS = 20.0
REBALANCE_MIN_INTERVAL_SECONDS = 1.0
"""RocketMQ's ``rocketmq.client.rebalance.waitInterval`` and ``minInterval``."""


class RebalanceTrigger(StrEnum):
    """Why a rebalance ran; the values are the metric's labels."""

    START = "start"
    MEMBERS = "members"
    ROUTE = "route"
    SUBSCRIPTION = "subscription"
    PERIOD = "period"
    RETRY = "retry"
    """The previous rebalance did not reach the target assignment."""


class RebalanceTiming:
    """When the next rebalance is due, and its trigger (RocketMQ's ``RebalanceService``).

    Call ``wake`` for a trigger, run when ``delay`` is 0, call ``begin`` before the run and ``end`` after it. A trigger
    during a run causes another run.
    """

    def __init__(
        self,
        *,
        wait_interval_seconds: float = REBALANCE_WAIT_INTERVAL_SECONDS,
        min_interval_seconds: float = REBALANCE_MIN_INTERVAL_SECONDS,
    ) -> None:

        self._wait = wait_interval_seconds
        self._min = min_interval_seconds
        self._trigger: RebalanceTrigger | None = RebalanceTrigger.START
        self._ended_at: float | None = None
        self._balanced = True
        self._refreshed_at: float | None = None

    def wake(self, trigger: RebalanceTrigger) -> None:
        """Record a trigger. The first one since the last run is reported."""
        if self._trigger is None:
            self._trigger = trigger

    def delay(self, *, now: float) -> float:
        """Seconds until the next run; 0: now."""
        if self._ended_at is None:
            return 0.0
        is_soon = self._trigger is not None or not self._balanced
        return max(0.0, self._ended_at + (self._min if is_soon else self._wait) - now)

    def is_refresh_due(self, *, now: float) -> bool:
        """Return whether the run must query the members first: once per ``wait_interval_seconds``, for any trigger.

        If True, the query counts as done.
        """
        if self._refreshed_at is not None and now - self._refreshed_at < self._wait:
            return False
        self._refreshed_at = now
        return True

    def begin(self) -> RebalanceTrigger:
        """Return the trigger of the run that starts."""
        trigger, self._trigger = self._trigger, None
        if trigger is not None:
            return trigger
        return RebalanceTrigger.PERIOD if self._balanced else RebalanceTrigger.RETRY

    def end(self, *, balanced: bool, now: float) -> None:
        """Record the end of a run, and whether the member now has exactly its target assignment."""
        self._balanced = balanced
        self._ended_at = now


class IdleReason(StrEnum):
    """Why a member has no queue."""

    MORE_MEMBERS_THAN_QUEUES = "more members than queues"
    PINNED_ELSEWHERE = "queues of the group are pinned to other members"
    STRATEGY = "the allocation strategy gives this member none"
    SETTINGS_DIFFER = "its settings differ from those of the group's oldest member"


@dataclass(frozen=True, slots=True)
class Share:
    """The target assignment of a member for one topic."""

    queues: frozenset[MessageQueue]
    idle: IdleReason | None = None
    """Why it is empty; None: it is not, or the topic has no queues."""


NOTHING = Share(frozenset())


class StrategyInForce:
    """The strategy by which one member divides queues: its own, or the stated one if that differs."""

    def __init__(self, own: AllocationStrategy) -> None:
        self._own = own
        self._own_digest = self._digest = stated(own).digest
        self._strategy: AllocationStrategy | None = own

    def given(self, members: Members | None) -> AllocationStrategy | None:
        """Return the strategy for a list of members; None: the stated one cannot be built here."""
        setting = members.strategy if members is not None else None
        digest = self._own_digest if setting is None else setting.digest
        if digest != self._digest:
            self._digest = digest
            self._strategy = self._own if setting is None or digest == self._own_digest else built_from(setting)
        return self._strategy


def share_of_topic(
    topic: str,
    *,
    model: MessageModel,
    group: str,
    client_id: str,
    queues: Collection[MessageQueue] | None,
    members: Members | None,
    strategy: AllocationStrategy | None,
    zones: Zones,
    queue_order: QueueOrder | None = None,
) -> Share | None:
    """Return the member's target assignment; None: unknown, the current assignment does not change.

    ``strategy``: None if this member has not the one that holds; it takes no queues then.

    ``queues``: the topic's readable queues; None while its route is unknown, empty if the topic has none (the removal
    of queues was confirmed). Raises :class:`AllocationError` and any exception of a user's strategy; the assignment
    then does not change, and the rebalance is retried.
    """
    if queues is None:
        return None
    if not queues:
        return NOTHING
    if strategy is None or (members is not None and members.stands_aside(client_id)):
        return Share(frozenset(), IdleReason.SETTINGS_DIFFER)
    if model is MessageModel.BROADCASTING:
        return Share(frozenset(queues))
    if members is None:
        return None
    if not members.client_ids:
        # The client id of the only member now belongs to another process. A strategy rejects an empty list.
        return NOTHING
    # Names and client ids are ASCII, so Python's order is that of Java's String.compareTo.
    request = AllocationRequest(
        group, client_id, tuple(sorted(queues, key=queue_order)), tuple(sorted(members.client_ids)), zones
    )
    pinned, queue_pins = ((), ()) if isinstance(strategy, ByConfig) else (members.pinned, members.queue_pins)
    given = Pinned(strategy, pinned).allocate(request)
    # A configured list may have queues of other topics, which are allocated with those topics.
    usual = frozenset(queue for queue in given if queue.topic == topic)
    owners = owners_by_pins(request, queue_pins, pinned=pinned)
    share = frozenset(queue for queue in usual if owners.get(queue, client_id) == client_id)
    share |= {queue for queue, owner in owners.items() if owner == client_id}
    return Share(share, idle_reason(request, share, pinned=pinned, usual=usual))


def owners_by_pins(
    request: AllocationRequest, queue_pins: Collection[tuple[MessageQueue, str]], *, pinned: Collection[str] = ()
) -> Mapping[MessageQueue, str]:
    """Return the readable queues of the request that a pin assigns to a member, with the member.

    A pin to a client that takes no part has no effect, so that the queue has a reader: it is not a member, or the group
    is pinned to others.
    """
    chosen = chosen_members(request, pinned)
    queues = frozenset(request.queues)
    return {queue: owner for queue, owner in queue_pins if queue in queues and owner in chosen}


def chosen_members(request: AllocationRequest, pinned: Collection[str]) -> Collection[str]:
    """Return the members that take part: those that the group is pinned to, or all if none of them is present."""
    return [client_id for client_id in request.client_ids if client_id in pinned] or request.client_ids


def idle_reason(
    request: AllocationRequest,
    share: Collection[MessageQueue],
    *,
    pinned: Collection[str] = (),
    usual: Collection[MessageQueue] = (),
) -> IdleReason | None:
    """Return the reason why a member's share is empty; None: it is not, or the client is not a member.

    ``usual``: its share without pins of queues.
    """
    if share or request.client_id not in request.client_ids:
        return None
    chosen = chosen_members(request, pinned)
    if usual or request.client_id not in chosen:
        return IdleReason.PINNED_ELSEWHERE
    if len(chosen) > len(request.queues):
        return IdleReason.MORE_MEMBERS_THAN_QUEUES
    return IdleReason.STRATEGY


def idle_warning(request: AllocationRequest, reason: IdleReason) -> str:
    """Return the log message for an idle member, with the numbers and what to do."""
    topic = request.queues[0].topic if request.queues else "?"
    hint = {
        IdleReason.MORE_MEMBERS_THAN_QUEUES: "stop members or add queues",
        IdleReason.PINNED_ELSEWHERE: "it gets queues again when the pin ends (pointsmanctl unpin)",
        IdleReason.STRATEGY: "the strategy averagely distributes queues evenly",
        IdleReason.SETTINGS_DIFFER: "give all members the same settings (pointsmanctl group)",
    }[reason]
    return (
        f"{request.client_id} of group {request.group} has no queue of topic {topic}: {reason} "
        f"({len(request.client_ids)} members, {len(request.queues)} queues); {hint}"
    )


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """Changes to one topic's queues, each sorted. Drop before add: a queue may be in both."""

    keep: tuple[MessageQueue, ...]
    drop: tuple[MessageQueue, ...]
    """No longer assigned, or stuck: not pulled for too long."""
    add: tuple[MessageQueue, ...]
    wait: tuple[MessageQueue, ...]
    """Assigned again while their release is not complete; to be added after it."""

    @property
    def has_changes(self) -> bool:
        """Whether there are queues to drop or add now."""
        return bool(self.drop or self.add)


def plan_topic(
    topic: str,
    *,
    target: Collection[MessageQueue],
    held: Collection[MessageQueue],
    dropping: Collection[MessageQueue] = (),
    pull_expired: Collection[MessageQueue] = (),
) -> RebalancePlan:
    """Compare the target assignment with the current one (RocketMQ ``updateProcessQueueTableInRebalance``).

    Queues of other topics in ``held`` and ``dropping`` are ignored. ``dropping``: being released, with messages in
    flight or the lock not returned yet. ``pull_expired``: not pulled for longer than the limit; such a queue is dropped
    and added again.
    """
    wanted = {queue for queue in target if queue.topic == topic}
    leaving = {queue for queue in dropping if queue.topic == topic}
    has = {queue for queue in held if queue.topic == topic} - leaving
    stuck = has.intersection(pull_expired)
    return RebalancePlan(
        keep=tuple(sorted((has & wanted) - stuck)),
        drop=tuple(sorted((has - wanted) | stuck)),
        add=tuple(sorted((wanted - has - leaving) | (stuck & wanted))),
        wait=tuple(sorted(wanted & leaving)),
    )


def queues_of_other_topics(topics: Collection[str], held: Collection[MessageQueue]) -> tuple[MessageQueue, ...]:
    """Return the held queues of topics that are no longer subscribed, sorted; dropped at the end of a rebalance."""
    return tuple(sorted(queue for queue in held if queue.topic not in topics))


def is_balanced(
    *,
    target: Collection[MessageQueue],
    held: Collection[MessageQueue],
    dropping: Collection[MessageQueue] = (),
) -> bool:
    """Whether a member has exactly its target assignment. A queue that is being released counts as not held."""
    return set(target) == set(held).difference(dropping)
