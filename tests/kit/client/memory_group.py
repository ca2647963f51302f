"""Consumer groups without agents: members, locks and offsets in this process, and routes that a test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from pointsman.clock import Clock
from pointsman.manual_clock import ManualClock
from pointsman_client.client import NameServerClient
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue, to_publish_queues
from pointsman_client.core.rebalance import Members, MessageModel
from pointsman_client.core.route import (
    BrokerData,
    BrokerReplica,
    BrokerState,
    QueueData,
    Revision,
    RouteChange,
    TopicRoute,
)
from pointsman_client.errors import (
    BrokerUnreachableError,
    NameServersUnavailableError,
    OffsetResetError,
    PointsmanError,
    TopicNotFoundError,
)
from pointsman_client.memory import MemoryTransport
from pointsman_client.ports.coordination import (
    BegunTopics,
    Coordination,
    CoordinationRequest,
    LoadedOffsets,
    RunningConsumer,
)

CLUSTER = "c1"
LOCK_SECONDS = 60.0
PERM_WRITE = 2
PERM_READ = 4
PERM_READ_WRITE = 6


def addr_of(broker_name: str, broker_id: int = 0) -> str:
    return f"{broker_name}-{broker_id}:10911"


def queue_of(queue_id: int, *, topic: str = "orders", broker_name: str = "a") -> MessageQueue:
    return MessageQueue(topic, CLUSTER, broker_name, queue_id)


def route_of(
    topic: str, brokers: Mapping[str, int], *, ids: Iterable[int] = (0,), perm: int = PERM_READ_WRITE
) -> TopicRoute:
    """A route with this number of queues on each broker."""
    return TopicRoute(
        topic,
        Revision(1, 1, b""),
        tuple(QueueData(CLUSTER, name, queues, queues, perm, 0) for name, queues in brokers.items()),
        tuple(
            BrokerData(
                CLUSTER,
                name,
                tuple(BrokerReplica(at, addr_of(name, at), "", "", BrokerState.UP) for at in ids),
                zone="",
                acting_master=True,
            )
            for name in brokers
        ),
    )


class RoutesInMemory(NameServerClient):
    """A client whose routes the test sets."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("127.0.0.1:9876", clock=clock)
        self.routes: dict[str, TopicRoute] = {}
        self.is_reachable = True
        self._callbacks: list[Callable[[RouteChange], None]] = []

    def set(self, route: TopicRoute) -> None:
        """Change a route, as if a name server had sent it."""
        change = RouteChange(route.topic, self.routes.get(route.topic), route)
        self.routes[route.topic] = route
        for callback in list(self._callbacks):
            callback(change)

    async def topic_route(self, topic: str) -> TopicRoute:
        if topic in self.routes:
            return self.routes[topic]
        if not self.is_reachable:
            raise NameServersUnavailableError([])
        raise TopicNotFoundError(topic)

    def cached_route(self, topic: str) -> None:
        """None: each look-up is answered by the test."""

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return to_publish_queues(await self.topic_route(topic))

    async def refresh(self, topic: str) -> TopicRoute:
        return await self.topic_route(topic)

    def broker(self, cluster: str, broker_name: str) -> BrokerData | None:
        for route in self.routes.values():
            for data in route.broker_datas:
                if (data.cluster, data.broker_name) == (cluster, broker_name):
                    return data
        return None

    def brokers_of(self, topics: Iterable[str]) -> tuple[BrokerData, ...]:
        found = {
            (data.cluster, data.broker_name): data
            for topic in topics
            if topic in self.routes
            for data in self.routes[topic].broker_datas
        }
        return tuple(found[key] for key in sorted(found))

    def on_route_change(self, callback: Callable[[RouteChange], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)


class MemoryGroup:
    """What the agents know of one group, and faults that a test switches on."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.members: dict[str, Callable[[], None]] = {}
        self.pinned: tuple[str, ...] = ()
        self.queue_pins: tuple[tuple[MessageQueue, str], ...] = ()
        self.is_known = True
        """Whether an agent can be relied on for the list of members."""
        self.locks: dict[MessageQueue, tuple[str, float]] = {}
        self.locks_answer = True
        self.offsets: dict[MessageQueue, int] = {}
        self.epochs: dict[MessageQueue, int] = {}
        """Of offsets that :meth:`reset` has set."""
        self.consumers: list[Callable[[], RunningConsumer | None]] = []
        self.lower: dict[MessageQueue, int] = {}
        """What the master's agent has where a slave's has more."""
        self.offsets_answer = True
        self.begins_answer = True
        self.begins: dict[str, datetime] = {}
        self.commits_pass = asyncio.Event()
        """Cleared, a commit waits on its way."""
        self.commits_pass.set()
        self.loads_pass = asyncio.Event()
        """Cleared, what a load has read waits on its way."""
        self.loads_pass.set()
        self.commits = 0
        self.unlocks = 0
        self.queries = 0
        """How often members were queried."""
        self.log: list[str] = []

    def coordinate(self, request: CoordinationRequest) -> Coordination:
        """As ``make_coordination``."""
        self.consumers.append(request.consumer)
        locks = None if request.message_model is MessageModel.BROADCASTING else _Locks(self, request.client_id)
        return Coordination(_Membership(self, request), locks, _Offsets(self), self._close)

    def changed(self) -> None:
        """Notify every member."""
        for on_change in list(self.members.values()):
            on_change()

    def reset(self, queue: MessageQueue, offset: int, *, notifies: bool = True) -> None:
        """As an operator; ``notifies``: the members learn of it immediately."""
        self.offsets[queue] = offset
        self.epochs[queue] = self.epochs.get(queue, 0) + 1
        for consumer in self.consumers if notifies else ():
            if (running := consumer()) is not None:
                running.follow_resets(lambda each: each == queue)

    def vanish(self, client_id: str) -> None:
        """A member's process crashed and its stream's grace is over; its locks remain."""
        del self.members[client_id]
        self.changed()

    async def _close(self) -> None:
        self.log.append("closed")


class _Membership:
    def __init__(self, group: MemoryGroup, request: CoordinationRequest) -> None:
        self._group = group
        self._request = request

    async def start(self) -> None:
        self._group.members[self._request.client_id] = self._request.on_change
        self._group.changed()

    @property
    def members(self) -> Members | None:
        if not self._group.is_known:
            return None
        group = self._group
        return Members(tuple(sorted(group.members)), group.pinned, queue_pins=group.queue_pins)

    async def refresh_members(self) -> None:
        self._group.queries += 1

    def subscriptions_changed(self) -> None:
        self._group.log.append(f"subscriptions {dict(self._request.subscriptions())}")

    def routes_changed(self) -> None:
        self._group.log.append("routes")

    def problems(self) -> Sequence[str]:
        return [] if self._group.is_known else ["no list of members"]

    def describe(self) -> Mapping[str, object]:
        members = self.members
        return {"members": None if members is None else list(members.client_ids)}

    async def leave(self) -> None:
        self._group.log.append("left")
        self._group.members.pop(self._request.client_id, None)
        self._group.changed()


class _Locks:
    def __init__(self, group: MemoryGroup, client_id: str) -> None:
        self._group = group
        self._client_id = client_id

    async def lock(self, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        granted = set()
        for queue in queues if self._group.locks_answer else ():
            holder, until = self._group.locks.get(queue, ("", 0.0))
            if holder == self._client_id or until < self._group.clock.monotonic():
                self._group.locks[queue] = (self._client_id, self._group.clock.monotonic() + LOCK_SECONDS)
                granted.add(queue)
        return frozenset(granted)

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        self._group.unlocks += 1
        for queue in queues:
            if self._group.locks.get(queue, ("", 0.0))[0] == self._client_id:
                self._group.log.append(f"unlocked {queue.topic} {queue.queue_id}")
                del self._group.locks[queue]

    async def holders(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, str]:
        if not self._group.locks_answer:
            return {}
        now = self._group.clock.monotonic()
        return {q: self._group.locks[q][0] for q in queues if q in self._group.locks and self._group.locks[q][1] >= now}


class _Offsets:
    def __init__(self, group: MemoryGroup) -> None:
        self._group = group

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        if not self._group.offsets_answer:
            return LoadedOffsets({}, dict.fromkeys(queues, _away()))
        offsets = {q: self._group.offsets[q] for q in queues if q in self._group.offsets}
        lower = {q: self._group.lower[q] for q in queues if q in self._group.lower}
        epochs = {q: self._group.epochs[q] for q in queues if q in self._group.epochs}
        await self._group.loads_pass.wait()
        return LoadedOffsets(offsets, {}, lower, epochs)

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        if not (self._group.offsets_answer and self._group.begins_answer):
            return BegunTopics({}, dict.fromkeys(moments, _away()))
        for topic, moment in moments.items():
            self._group.begins[topic] = min(moment, self._group.begins.get(topic, moment))
        return BegunTopics({topic: self._group.begins[topic] for topic in moments}, {})

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        reset: bool = False,
        epochs: Mapping[MessageQueue, int] | None = None,
    ) -> Mapping[MessageQueue, PointsmanError]:
        if not self._group.offsets_answer:
            return dict.fromkeys(offsets, _away())
        await self._group.commits_pass.wait()
        self._group.commits += 1
        failed = dict[MessageQueue, PointsmanError]()
        for queue, offset in offsets.items():
            epoch = self._group.epochs.get(queue, 0)
            if (epochs or {}).get(queue, 0) < epoch:
                failed[queue] = OffsetResetError(str(queue), offset=self._group.offsets[queue], epoch=epoch)
                continue
            self._group.offsets[queue] = offset if reset else max(offset, self._group.offsets.get(queue, 0))
        return failed


def _away() -> PointsmanError:
    return BrokerUnreachableError("agent", "it is away")


class MemoryBrokers:
    """A transport, and messages put into it in order."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.transport = MemoryTransport(clock=clock)

    async def put(
        self,
        queue: MessageQueue,
        bodies: Iterable[str],
        *,
        tags: str = "",
        age_seconds: float = 0.0,
        broker_id: int = 0,
    ) -> None:
        """Append one message for each body."""
        for body in bodies:
            message = OutgoingMessage(
                Message(queue.topic, body.encode(), tags=tags),
                message_id=f"id-{body}",
                born_at=self.clock.utc_now() - timedelta(seconds=age_seconds),
            )
            await self.transport.send(addr_of(queue.broker_name, broker_id), queue, [message], timeout_seconds=1.0)
