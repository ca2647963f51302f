"""From a route to the queues that producers write and consumers read. Pure.

The rules are RocketMQ's (``MQClientInstance.topicRouteData2TopicPublishInfo`` and ``...SubscribeInfo``), with the
cluster in every key: the same broker name in two clusters is two brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pointsman.wire.names import MAX_QUEUES, name_problem
from pointsman_client.errors import OrderTopicConfError
from pointsman_client.route import BrokerKey, TopicRoute


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


def to_publish_queues(route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues that producers may write.

    With an order-topic configuration these are its queues in its own order, whatever permissions or brokers the route
    has: the queue of a key must not move because a broker is away. Otherwise the writable queues of each group that
    has its master, sorted. Raises :class:`OrderTopicConfError`.
    """
    if route.order_topic_conf:
        return tuple(_order_topic_queues(route))
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


def _order_topic_queues(route: TopicRoute) -> Iterator[MessageQueue]:
    clusters_of: dict[str, set[str]] = {}
    keys = [data.broker_key for data in route.queue_datas] + [data.key for data in route.broker_datas]
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
        for queue_id in range(count):
            yield MessageQueue(route.topic, cluster, broker_name, queue_id)


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
