"""What a consumer needs besides messages: the members of its group, queue locks and offsets."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from pointsman.clock import Clock
from pointsman_client.core.allocation import AllocationStrategy
from pointsman_client.core.consumer_reading import ConsumerReading
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import ConsumeFrom, Members, MessageModel
from pointsman_client.core.retry_rules import CallEnd
from pointsman_client.core.route import BrokerData, RouteChange, TopicRoute
from pointsman_client.errors import PointsmanError


class RoutedBrokers(Protocol):
    """What is needed of the routes; ``NameServerClient`` has it."""

    def broker(self, cluster: str, broker_name: str, /) -> BrokerData | None:
        """Return a replica group of a cached route; None: no route has it."""
        ...

    def brokers_of(self, topics: Iterable[str], /) -> tuple[BrokerData, ...]:
        """Return the replica groups of the cached routes of these topics."""
        ...


class Routes(RoutedBrokers, Protocol):
    """The methods of ``NameServerClient`` that a consumer uses."""

    async def topic_route(self, topic: str) -> TopicRoute:
        """Return the topic's route, from the cache if possible."""
        ...

    def on_route_change(self, callback: Callable[[RouteChange], None]) -> Callable[[], None]:
        """Call ``callback`` for each change; return the function that removes it."""
        ...


class GroupMembership(Protocol):
    """Membership of one consumer in its group."""

    async def start(self) -> None:
        """Start joining at every agent of the subscribed topics, without waiting for any."""
        ...

    @property
    def members(self) -> Members | None:
        """The latest list; None until a reliable agent has sent one (do not rebalance)."""
        ...

    async def refresh_members(self) -> None:
        """Query the watched agent for :attr:`members`; takes at most 1 s. They are unchanged if it fails."""
        ...

    def subscriptions_changed(self) -> None:
        """Send the current subscriptions to the agents immediately."""
        ...

    def routes_changed(self) -> None:
        """Check the routes for agents immediately."""
        ...

    def problems(self) -> Sequence[str]:
        """Return why this client gets no queues, each in a sentence; empty: it is a member like the others."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Return members and agents, as JSON values."""
        ...

    async def leave(self) -> None:
        """Leave the group, so that the other members rebalance immediately; takes at most 2 s."""
        ...


class QueueLocks(Protocol):
    """Locks of queues at the agents of their brokers. Times are monotonic seconds of the client's clock."""

    async def lock(self, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        """Lock or renew; return the queues that this client has locked. Without a response a queue is not locked."""
        ...

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Unlock, as far as agents respond; takes at most 1 s."""
        ...

    async def holders(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, str]:
        """Return the client id of each lock's holder. Queues without a valid lock or a response are left out."""
        ...


class OffsetStore(Protocol):
    """Storage of a group's offsets, and of when it first consumed each topic."""

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """Return committed offsets."""
        ...

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """Record when the group consumed topics. The earliest time wins and is returned."""
        ...

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        reset: bool = False,
        epochs: Mapping[MessageQueue, int] | None = None,
    ) -> Mapping[MessageQueue, PointsmanError]:
        """Commit; return the failed queues with their errors. Offsets go backwards only with ``reset``.

        ``epochs``: those under which the offsets were loaded, 0 where absent. A queue that an operator has reset since
        fails with OffsetResetError. A store without epochs ignores them.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoadedOffsets:
    """Result of loading offsets."""

    offsets: Mapping[MessageQueue, int]
    """Queues with a committed offset."""
    unknown: Mapping[MessageQueue, PointsmanError]
    """Queues whose query failed: do not start them. A queue in neither has no committed offset."""
    lower: Mapping[MessageQueue, int] = field(default_factory=dict)
    """The master's lower offsets of queues where ``offsets`` has a slave's; used if the master lacks messages."""
    epochs: Mapping[MessageQueue, int] = field(default_factory=dict)
    """When an operator reset these offsets; a queue without one was not reset. A queue without an offset may have one:
    its offset was removed since."""


@dataclass(frozen=True, slots=True)
class BegunTopics:
    """When a group first consumed topics; each topic is in one of the two fields."""

    moments: Mapping[str, datetime]
    """Topics with the time of first consumption."""
    unknown: Mapping[str, PointsmanError]
    """Topics for which a required query failed: do not start their queues."""


class RunningConsumer(Protocol):
    """What a broker's operator may ask of a consumer."""

    def describe(self) -> dict[str, Any]:
        """Queues, positions and members as JSON values."""
        ...

    def reading(self, is_wanted: Callable[[MessageQueue], bool]) -> ConsumerReading:
        """How the queues are read that are wanted."""
        ...

    def follow_resets(self, is_wanted: Callable[[MessageQueue], bool]) -> None:
        """Load the offsets of the held queues that are wanted, and continue at those that an operator has reset."""
        ...

    def reset_offsets(self, offsets: Mapping[tuple[str, str, int], int]) -> None:
        """Continue at other offsets, by topic, broker name and queue id; queues of other members are ignored."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationRequest:
    """What a coordination is built from."""

    routes: Routes
    name_servers: Callable[[], Sequence[str]]
    group: str
    client_id: str
    message_model: MessageModel
    is_ordered: bool
    strategy: AllocationStrategy
    """Of this consumer; agents state which one holds in the group."""
    retries: bool
    """Whether the group's retry topic is read, too."""
    consume_from: ConsumeFrom
    subscriptions: Callable[[], Mapping[str, str]]
    """Returns the current subscriptions: topic to tag expression."""
    on_change: Callable[[], None]
    """To be called when the members may have changed."""
    on_joined: Callable[[], None]
    """To be called when an agent or broker accepts this client, also again: it may have lost its state."""
    consumer: Callable[[], RunningConsumer | None]
    """The consumer itself; None before it has started."""
    call_listener: Callable[[ReceivedMessage], Awaitable[CallEnd]] | None
    """Calls the listener once (RocketMQ CONSUME_PASSIVELY); None: the application pulls (CONSUME_ACTIVELY)."""
    own_offsets: OffsetStore | None
    """Of a broadcasting consumer, which closes it; None: the members share the offsets that the coordination stores."""
    clock: Clock
    rng: random.Random


@dataclass(frozen=True, slots=True)
class Coordination:
    """Membership, locks and offsets of one consumer."""

    membership: GroupMembership
    locks: QueueLocks | None
    """None: queues are not locked, as on RocketMQ brokers, where concurrent consumers take over a queue without waiting
    for its owner. A broadcasting consumer, which reads all queues, does not use them."""
    offsets: OffsetStore
    close: Callable[[], Awaitable[None]]
    """Called last."""
    is_rocketmq: bool = False
    """Whether RocketMQ brokers coordinate. Members may use RocketMQ's own client then: queues are sorted as it does,
    and the queues of the retry topic are those of its route."""


MakeCoordination = Callable[[CoordinationRequest], Coordination]
