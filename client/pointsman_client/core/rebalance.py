"""When a consumer rebalances, and from a topic's queues and a group's members to what it takes up and lets go.

The rules are RocketMQ's (``RebalanceImpl``, ``RebalanceService``). What cannot be known changes nothing: without a
route, or without a list of members that can be relied on, a member keeps the queues that it has.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from pointsman_client.core.allocation import AllocationRequest, AllocationStrategy, Pinned, Zones
from pointsman_client.core.message_queue import MessageQueue, QueueOrder


class MessageModel(StrEnum):
    """How many members of a group get a message (RocketMQ ``MessageModel``)."""

    CLUSTERING = "CLUSTERING"
    """One: the members share the queues."""
    BROADCASTING = "BROADCASTING"
    """Each: every member reads all queues, keeps its offsets itself, and a failed message is not tried again."""


@dataclass(frozen=True, slots=True)
class Members:
    """A list of a group's members that can be relied on."""

    client_ids: tuple[str, ...]
    """Sorted."""
    pinned: tuple[str, ...] = ()
    """Members that get all queues for now; empty: no pin."""


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
    """The one before left the member with other queues than it is to hold."""


class RebalanceTiming:
    """When the next rebalance is due and what for (RocketMQ's ``RebalanceService``).

    ``wake`` when something happened, run when ``delay`` is 0, ``begin`` before the run and ``end`` after it: what wakes
    it during a run is due after that.
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
        """Note that something happened. The first reason since the last run is the one that is told."""
        if self._trigger is None:
            self._trigger = trigger

    def delay(self, *, now: float) -> float:
        """Seconds until the next run; 0: now."""
        if self._ended_at is None:
            return 0.0
        is_soon = self._trigger is not None or not self._balanced
        return max(0.0, self._ended_at + (self._min if is_soon else self._wait) - now)

    def is_refresh_due(self, *, now: float) -> bool:
        """Return whether a run queries the members first: once in ``wait_interval_seconds``, whatever it runs for.

        True counts as done.
        """
        if self._refreshed_at is not None and now - self._refreshed_at < self._wait:
            return False
        self._refreshed_at = now
        return True

    def begin(self) -> RebalanceTrigger:
        """Say what the run that begins is for."""
        trigger, self._trigger = self._trigger, None
        if trigger is not None:
            return trigger
        return RebalanceTrigger.PERIOD if self._balanced else RebalanceTrigger.RETRY

    def end(self, *, balanced: bool, now: float) -> None:
        """Note the end of a run, and whether the member now works on exactly what it is to hold."""
        self._balanced = balanced
        self._ended_at = now


class IdleReason(StrEnum):
    """Why a member has no queue: an operator should know whether that is a surplus, a pin or chance."""

    MORE_MEMBERS_THAN_QUEUES = "more members than queues"
    PINNED_ELSEWHERE = "the group's queues are pinned to other members"
    STRATEGY = "the allocation strategy gives this member none"


@dataclass(frozen=True, slots=True)
class Share:
    """What a member is to hold of a topic."""

    queues: frozenset[MessageQueue]
    idle: IdleReason | None = None
    """Why it has none; None: it has some, or nobody has any."""


NOTHING = Share(frozenset())


def share_of_topic(
    topic: str,
    *,
    model: MessageModel,
    group: str,
    client_id: str,
    queues: Collection[MessageQueue] | None,
    members: Members | None,
    strategy: AllocationStrategy,
    zones: Zones,
    queue_order: QueueOrder | None = None,
) -> Share | None:
    """Return what the member is to hold; None: not known, it keeps what it has.

    ``queues`` are the topic's readable ones: None while its route is not known, empty when it has none any more (a
    route that loses queues is believed only when it is sure). Raises :class:`AllocationError`, and whatever a user's
    strategy raises: the member then keeps what it has and tries again.
    """
    if queues is None:
        return None
    if not queues:
        return NOTHING
    if model is MessageModel.BROADCASTING:
        return Share(frozenset(queues))
    if members is None:
        return None
    if not members.client_ids:
        # The only member, and its client id is another process's now. A strategy refuses an empty list.
        return NOTHING
    # Names and client ids are ASCII, so Python's order is that of Java's String.compareTo.
    request = AllocationRequest(
        group, client_id, tuple(sorted(queues, key=queue_order)), tuple(sorted(members.client_ids)), zones
    )
    given = Pinned(strategy, members.pinned).allocate(request)
    # A configured list may hold queues of other topics: they are meant when those are shared out.
    share = frozenset(queue for queue in given if queue.topic == topic)
    return Share(share, idle_reason(request, share, pinned=members.pinned))


def idle_reason(
    request: AllocationRequest, share: Collection[MessageQueue], *, pinned: Collection[str] = ()
) -> IdleReason | None:
    """Say why a member's share is empty; None: it is not, or the client is no member."""
    if share or request.client_id not in request.client_ids:
        return None
    chosen = [client_id for client_id in request.client_ids if client_id in pinned] or request.client_ids
    if request.client_id not in chosen:
        return IdleReason.PINNED_ELSEWHERE
    if len(chosen) > len(request.queues):
        return IdleReason.MORE_MEMBERS_THAN_QUEUES
    return IdleReason.STRATEGY


def idle_warning(request: AllocationRequest, reason: IdleReason) -> str:
    """Say it in a sentence for the log, with the numbers and what to do."""
    topic = request.queues[0].topic if request.queues else "?"
    cure = {
        IdleReason.MORE_MEMBERS_THAN_QUEUES: "stop members or add queues",
        IdleReason.PINNED_ELSEWHERE: "it gets queues again when the pin ends (pointsmanctl unpin)",
        IdleReason.STRATEGY: "averagely spreads queues evenly",
    }[reason]
    return (
        f"{request.client_id} of group {request.group} has no queue of topic {topic}: {reason} "
        f"({len(request.client_ids)} members, {len(request.queues)} queues); {cure}"
    )


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """What to do with one topic's queues, each sorted. First drop, then add: a queue may be in both."""

    keep: tuple[MessageQueue, ...]
    drop: tuple[MessageQueue, ...]
    """Not this member's any more, or stuck: nothing was pulled for too long."""
    add: tuple[MessageQueue, ...]
    wait: tuple[MessageQueue, ...]
    """This member's again while it still lets go of them: to be added when that is over."""

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to do now."""
        return bool(self.drop or self.add)


def plan_topic(
    topic: str,
    *,
    target: Collection[MessageQueue],
    held: Collection[MessageQueue],
    dropping: Collection[MessageQueue] = (),
    pull_expired: Collection[MessageQueue] = (),
) -> RebalancePlan:
    """Compare what a member is to hold with what it holds (RocketMQ ``updateProcessQueueTableInRebalance``).

    ``held`` and ``dropping`` may hold other topics' queues, which are left alone. ``dropping``: let go before, and what
    is in flight is not finished or its lock not given back. ``pull_expired``: nothing was pulled for longer than the
    limit; such a queue is dropped and taken up again in one pass.
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
    """Held queues of topics that are no longer subscribed, sorted: to be dropped at the end of a rebalance."""
    return tuple(sorted(queue for queue in held if queue.topic not in topics))


def is_balanced(
    *,
    target: Collection[MessageQueue],
    held: Collection[MessageQueue],
    dropping: Collection[MessageQueue] = (),
) -> bool:
    """Whether a member works on exactly what it is to hold. What it still lets go of counts as not held."""
    return set(target) == set(held).difference(dropping)
