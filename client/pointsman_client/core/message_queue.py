"""From a route to the queues that producers write and consumers read, or why there are none to write.

The rules are RocketMQ's (``MQClientInstance.topicRouteData2TopicPublishInfo`` and ``...SubscribeInfo``), with the
cluster in every key: the same broker name in two clusters is two brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pointsman.wire.names import MAX_QUEUES, name_problem
from pointsman_client.core.route import BrokerKey, TopicRoute
from pointsman_client.errors import OrderTopicConfError


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic; sorts by the fields as they stand."""

    topic: str
    cluster: str
    broker_name: str
    queue_id: int

    @property
    def broker_key(self) -> BrokerKey:
        """The replica group that it is on."""
        return self.cluster, self.broker_name

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} on {self.cluster}/{self.broker_name}"


QueueOrder = Callable[[MessageQueue], tuple[str, str, int]]


def rocketmq_order(queue: MessageQueue) -> tuple[str, str, int]:
    """Sort as RocketMQ's clients do (``MessageQueue.compareTo``): they do not know clusters."""
    return queue.topic, queue.broker_name, queue.queue_id


def to_publish_queues(route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues that producers may write.

    With an order-topic configuration these are its queues in its own order, whatever permissions or brokers the route
    has, without those that a broker in the route does not have: the queue of a key must not move because a broker is
    away. Otherwise the writable queues of each group that
    has its master, sorted. Raises :class:`OrderTopicConfError`.
    """
    if route.order_topic_conf:
        return to_order_queues(route, write_queue_counts(route))
    with_master = {data.key for data in route.broker_datas if data.master is not None}
    return tuple(
        sorted(
            MessageQueue(route.topic, data.cluster, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.is_writable and data.broker_key in with_master
            for queue_id in range(data.write_queue_nums)
        )
    )


def to_subscribe_queues(route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues that consumers may read, sorted; neither a master nor the order configuration matters."""
    return tuple(
        sorted(
            MessageQueue(route.topic, data.cluster, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.is_readable
            for queue_id in range(data.read_queue_nums)
        )
    )


def write_queue_counts(route: TopicRoute) -> dict[BrokerKey, int]:
    """Return the write queues of each replica group in the route."""
    return {data.broker_key: data.write_queue_nums for data in route.queue_datas}


def to_order_queues(route: TopicRoute, existing: Mapping[BrokerKey, int]) -> tuple[MessageQueue, ...]:
    """Return the queues of the order configuration, in its order, without those that a broker does not have.

    ``existing``: write queues of the replica groups that are known; of others the configuration is taken as it is, so
    that a broker that is away keeps its queues. No consumer reads a queue beyond them. Raises
    :class:`OrderTopicConfError`.
    """
    return tuple(
        MessageQueue(route.topic, cluster, broker_name, queue_id)
        for (cluster, broker_name), count in _order_topic_counts(route)
        for queue_id in range(min(count, existing.get((cluster, broker_name), count)))
    )


def order_topic_surplus(route: TopicRoute) -> str:
    """Name the brokers that the order configuration gives more queues than the route has, with both numbers."""
    existing = write_queue_counts(route)
    return ", ".join(
        f"{key[1]}: {count} configured, {existing[key]} there"
        for key, count in (_order_topic_counts(route) if route.order_topic_conf else ())
        if count > existing.get(key, count)
    )


def why_not_writable(route: TopicRoute, queue: MessageQueue) -> str | None:
    """Say what keeps a queue from being written, as a sentence without its subject; None: nothing does."""
    data = next((data for data in route.queue_datas if data.broker_key == queue.broker_key), None)
    if data is None:
        return f"broker {queue.broker_name} is not in the route"
    if not data.is_writable:
        return f"broker {queue.broker_name} has no write permission for the topic"
    group = next((group for group in route.broker_datas if group.key == queue.broker_key), None)
    if group is None or group.master is None:
        return f"broker {queue.broker_name} has no master now"
    if not 0 <= queue.queue_id < data.write_queue_nums:
        return f"broker {queue.broker_name} has {data.write_queue_nums} write queues of the topic"
    return None


def why_without_queue(route: TopicRoute, *, zone: str = "") -> str:
    """Say why a route, limited to ``zone`` unless that is empty, has no queue to write."""
    if route.order_topic_conf:
        return f"its order configuration {route.order_topic_conf!r} names none that its brokers have"
    if not route.queue_datas:
        return f"no broker of zone {zone} has it" if zone else "the route has no queues"
    queues = [MessageQueue(route.topic, data.cluster, data.broker_name, 0) for data in route.queue_datas]
    return "; ".join(why for queue in queues if (why := why_not_writable(route, queue)) is not None)


def _order_topic_counts(route: TopicRoute) -> Iterator[tuple[BrokerKey, int]]:
    """Queues by replica group as configured; the cluster is empty where it is unknown."""
    clusters_of: dict[str, set[str]] = {}
    keys = [data.broker_key for data in route.queue_datas] + [data.key for data in route.broker_datas]
    keys += [(broker.cluster, broker.broker_name) for broker in route.absent_brokers]
    for cluster, broker_name in keys:
        clusters_of.setdefault(broker_name, set()).add(cluster)
    all_clusters = set().union(*clusters_of.values())
    for broker_name, count in _parse_order_topic_conf(route).items():
        clusters = clusters_of.get(broker_name, all_clusters)
        if broker_name in clusters_of and len(clusters) > 1:
            problem = f"{broker_name} is in clusters {', '.join(sorted(clusters))}"
            raise OrderTopicConfError(route.topic, route.order_topic_conf, problem)
        # A broker that is away keeps its queues; only where clusters mix is it unknown whose it was.
        cluster = next(iter(clusters)) if len(clusters) == 1 else ""
        yield (cluster, broker_name), count


def _parse_order_topic_conf(route: TopicRoute) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in route.order_topic_conf.removesuffix(";").split(";"):
        broker_name, _, count = item.partition(":")
        problem = name_problem(broker_name)
        if problem:
            problem = f"in {item!r} the broker name {problem}"
        elif not (count.isascii() and count.isdigit() and len(count) <= 5 and int(count) <= MAX_QUEUES):
            problem = f"{item!r} must be brokerName:queues with 0 to {MAX_QUEUES} queues"
        elif broker_name in counts:
            problem = f"it names {broker_name} twice"
        if problem:
            raise OrderTopicConfError(route.topic, route.order_topic_conf, problem)
        counts[broker_name] = int(count)
    return counts
