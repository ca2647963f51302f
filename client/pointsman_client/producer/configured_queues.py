"""The queues that keys are spread over: those that a topic has, not those that can be written this minute. Pure.

Were they the writable ones, a broker that is away for a minute would move keys to other queues and back, and the order
of a key's messages would be lost twice. So:

- With an order-topic configuration the queues are its own, in its order, whatever brokers there are, without those that
  a broker was seen not to have. It is the one way to have the same queues in every process, whenever each was started.
- Otherwise they are the write queues of every replica group in the route, whether or not it has a master or write
  permission now, and also of groups seen before that are in no route at present, with the numbers they had. They change
  when a group comes for the first time, or its number of write queues changes, also to 0.
- A group that was taken away for good is remembered all the same: nothing tells it from one that is dead. Whoever took
  it away says so with :meth:`ConfiguredQueues.forget`, or starts the producers anew.
"""

from __future__ import annotations

from pointsman_client.message_queue import MessageQueue, to_order_queues, write_queue_counts
from pointsman_client.route import BrokerKey, TopicRoute


class ConfiguredQueues:
    """What was seen of one topic."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._numbers: dict[BrokerKey, int] = {}
        self._route: TopicRoute | None = None
        self._queues: tuple[MessageQueue, ...] = ()

    def see(self, route: TopicRoute) -> tuple[MessageQueue, ...]:
        """Take the route as it is now; return the queues: the same object for as long as they are the same.

        Raises :class:`OrderTopicConfError`.
        """
        if route is self._route:
            return self._queues
        self._numbers.update(write_queue_counts(route))
        if route.order_topic_conf:
            queues = to_order_queues(route, self._numbers)
        else:
            queues = tuple(
                MessageQueue(self._topic, cluster, broker_name, queue_id)
                for (cluster, broker_name), number in sorted(self._numbers.items())
                for queue_id in range(number)
            )
        self._route = route
        if queues != self._queues:
            self._queues = queues
        return self._queues

    def forget(self) -> None:
        """Forget groups that are in no route: the next route that is seen says what there is."""
        self._numbers.clear()
        self._route = None
