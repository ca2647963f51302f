"""Why a queue, or a whole topic, cannot be written by the route as it is. Pure."""

from __future__ import annotations

from pointsman_client.message_queue import MessageQueue
from pointsman_client.route import TopicRoute


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
