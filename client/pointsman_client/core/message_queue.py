"""The queues of a route that producers write and consumers read, or the reason why none can be written.

The rules are RocketMQ's (``MQClientInstance.topicRouteData2TopicPublishInfo`` and ``...SubscribeInfo``), with the
cluster in every key: the same broker name in two clusters is two brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pointsman.names import MAX_QUEUES, name_problem
from pointsman_client.core.route import BrokerKey, TopicRoute
from pointsman_client.errors import MAX_SHOWN, OrderTopicConfError


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic; sorts by the fields in this order."""

    topic: str
    cluster: str
    broker_name: str
    queue_id: int

    @property
    def broker_key(self) -> BrokerKey:
        """The replica group that has the queue."""
        return self.cluster, self.broker_name

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} on {self.cluster}/{self.broker_name}"


STATIC_TOPIC = "it is a static topic, which this client does not support"
"""Why a static topic cannot be used: its logical queues are not those of the route (RocketMQ
``TopicQueueMappingInfo``)."""
MAX_ORDER_QUEUES = 128 * 1024
"""Maximum number of queues in an order-topic configuration, also of brokers that are in no route."""
QueueOrder = Callable[[MessageQueue], tuple[str, str, int]]


def rocketmq_order(queue: MessageQueue) -> tuple[str, str, int]:
    """Sort as RocketMQ's clients do (``MessageQueue.compareTo``): they do not know clusters."""
    return queue.topic, queue.broker_name, queue.queue_id


def to_publish_queues(route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues that producers may write.

    With an order-topic configuration these are the configured queues in their order, regardless of permissions and of
    brokers that are down, so that a key's queue does not change during an outage. Queues that a broker in the route
    does not have are excluded. Otherwise these are the writable queues of each group with a master, sorted. A static
    topic has none. Raises :class:`OrderTopicConfError`.
    """
    if route.is_static:
        return ()
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
    """Return the queues that consumers may read, sorted; regardless of masters and the order-topic configuration.

    A static topic has none.
    """
    if route.is_static:
        return ()
    return tuple(
        sorted(
            MessageQueue(route.topic, data.cluster, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.is_readable
            for queue_id in range(data.read_queue_nums)
        )
    )


def write_queue_counts(route: TopicRoute) -> dict[BrokerKey, int]:
    """Return the number of write queues of each replica group in the route."""
    return {data.broker_key: data.write_queue_nums for data in route.queue_datas}


def to_order_queues(route: TopicRoute, existing: Mapping[BrokerKey, int]) -> tuple[MessageQueue, ...]:
    """Return the queues of the order-topic configuration, in its order, without those that a broker does not have.

    ``existing``: number of write queues of known replica groups; no consumer reads a queue beyond it. For other groups
    the configured number applies, so that a broker that is down retains its queues. Raises
    :class:`OrderTopicConfError`.
    """
    return tuple(
        MessageQueue(route.topic, cluster, broker_name, queue_id)
        for (cluster, broker_name), count in _order_topic_counts(route)
        for queue_id in range(min(count, existing.get((cluster, broker_name), count)))
    )


def order_topic_surplus(route: TopicRoute) -> str:
    """Return the brokers with more configured order-topic queues than write queues, with both numbers; empty: none."""
    existing = write_queue_counts(route)
    return ", ".join(
        f"{key[1]}: {count} configured, {existing[key]} available"
        for key, count in (_order_topic_counts(route) if route.order_topic_conf else ())
        if count > existing.get(key, count)
    )


def why_not_writable(route: TopicRoute, queue: MessageQueue) -> str | None:
    """Return the reason why a queue cannot be written; None: it can."""
    data = next((data for data in route.queue_datas if data.broker_key == queue.broker_key), None)
    if data is None:
        return f"broker {queue.broker_name} is not in the route"
    if not data.is_writable:
        return f"broker {queue.broker_name} has no write permission for the topic"
    group = next((group for group in route.broker_datas if group.key == queue.broker_key), None)
    if group is None or group.master is None:
        return f"broker {queue.broker_name} has no master"
    if not 0 <= queue.queue_id < data.write_queue_nums:
        return f"broker {queue.broker_name} has {data.write_queue_nums} write queues of the topic"
    return None


def why_without_queue(route: TopicRoute, *, zone: str = "") -> str:
    """Return the reason why a route has no writable queue; ``zone``: the zone it is limited to, empty: none."""
    if route.is_static:
        return STATIC_TOPIC
    if route.order_topic_conf:
        conf = route.order_topic_conf[:MAX_SHOWN]
        return f"its brokers have none of the queues in its order-topic configuration {conf!r}"
    if not route.queue_datas:
        return f"no broker of zone {zone} has the topic" if zone else "the route has no queues"
    queues = [MessageQueue(route.topic, data.cluster, data.broker_name, 0) for data in route.queue_datas]
    return "; ".join(why for queue in queues if (why := why_not_writable(route, queue)) is not None)


def _order_topic_counts(route: TopicRoute) -> Iterator[tuple[BrokerKey, int]]:
    """Yield the configured number of queues by replica group; the cluster is empty where it is unknown."""
    clusters_of: dict[str, set[str]] = {}
    keys = [data.broker_key for data in route.queue_datas] + [data.key for data in route.broker_datas]
    keys += [(broker.cluster, broker.broker_name) for broker in route.absent_brokers]
    for cluster, broker_name in keys:
        clusters_of.setdefault(broker_name, set()).add(cluster)
    all_clusters = set().union(*clusters_of.values())
    for broker_name, count in _parse_order_topic_conf(route).items():
        clusters = clusters_of.get(broker_name, all_clusters)
        if broker_name in clusters_of and len(clusters) > 1:
            problem = f"{broker_name} is ambiguous: it is in clusters {', '.join(sorted(clusters))}"
            raise OrderTopicConfError(route.topic, route.order_topic_conf, problem)
        # A broker that is down retains its queues; its cluster is unknown if the route has several clusters.
        cluster = next(iter(clusters)) if len(clusters) == 1 else ""
        yield (cluster, broker_name), count


def _parse_order_topic_conf(route: TopicRoute) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in route.order_topic_conf.removesuffix(";").split(";"):
        broker_name, _, count = item.partition(":")
        problem = name_problem(broker_name)
        if problem:
            problem = f"in {item[:MAX_SHOWN]!r} the broker name {problem}"
        elif not (count.isascii() and count.isdigit() and len(count) <= 5 and int(count) <= MAX_QUEUES):
            problem = f"{item[:MAX_SHOWN]!r} must be brokerName:queues with 0 to {MAX_QUEUES} queues"
        elif broker_name in counts:
            problem = f"it names {broker_name} twice"
        if problem:
            raise OrderTopicConfError(route.topic, route.order_topic_conf, problem)
        counts[broker_name] = int(count)
    if sum(counts.values()) > MAX_ORDER_QUEUES:
        problem = f"it has {sum(counts.values())} queues, at most {MAX_ORDER_QUEUES} are allowed"
        raise OrderTopicConfError(route.topic, route.order_topic_conf, problem)
    return counts
