"""Choice of the replica that a consumer reads from: the master, else the slave with the lowest id.

A broker that failed is skipped for a while. So reads continue at a slave before the route drops the master, and return
to the master after it recovers.
"""

from __future__ import annotations

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerData
from pointsman_client.errors import BrokerRefusedError, PointsmanError, ResponseCode, UnreadableMessageError

SKIP_SECONDS = 10.0
"""How long a failed broker is skipped; a producer isolates it for the same time."""


class ReadChoice:
    """Recently failed brokers, by address."""

    def __init__(self) -> None:
        self._skipped_until: dict[str, float] = {}

    def choose(self, broker: BrokerData | None, *, now: float) -> str | None:
        """Return the address to read from; the master's if all have failed; None: the group is in no route."""
        if broker is None or not broker.replicas:
            return None
        replicas = sorted(broker.replicas, key=lambda replica: replica.broker_id)
        healthy = [each for each in replicas if self._skipped_until.get(each.addr, now) <= now]
        return (healthy or replicas)[0].addr

    def failed(self, addr: str, *, now: float) -> None:
        """Record a failed read."""
        self._skipped_until = {each: until for each, until in self._skipped_until.items() if until > now}
        self._skipped_until[addr] = now + SKIP_SECONDS

    def succeeded(self, addr: str) -> None:
        """Record a successful read."""
        self._skipped_until.pop(addr, None)


Subject = MessageQueue | tuple[str, ...]
"""A queue, a broker by its key, or a topic of a broker."""
RECOVERED_SECONDS = 10.0
"""Time without a failure after which a success is a recovery: of an overloaded broker every second call may fail."""
_OF_THE_QUEUE = {ResponseCode.SYSTEM_ERROR, 29}
"""Also INVALID_PARAMETER (29) of RocketMQ 5, for a queue that the topic no longer has."""
_OF_THE_TOPIC = {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION}


class QueueFailures:
    """Brokers and queues that currently fail, to log each broker once, not once per assigned queue."""

    def __init__(self) -> None:
        self._failing: dict[Subject, float] = {}
        """With the time of the last failure."""

    def failed(self, queue: MessageQueue, error: PointsmanError, *, now: float) -> str | None:
        """Record a failure; return the name to log it for, None if it was already logged."""
        code = error.response_code if isinstance(error, BrokerRefusedError) else None
        subject: Subject = queue.broker_key
        if isinstance(error, UnreadableMessageError) or code in _OF_THE_QUEUE:
            subject = queue
        elif code in _OF_THE_TOPIC:
            subject = (*queue.broker_key, queue.topic)
        is_known = subject in self._failing
        self._failing[subject] = now
        return None if is_known else _name(subject)

    def succeeded(self, queue: MessageQueue, *, now: float) -> list[str]:
        """Record a success; return the names that recovered."""
        subjects: list[Subject] = []
        if self._failing:
            subjects = [queue.broker_key, (*queue.broker_key, queue.topic), queue]
        recovered = [each for each in subjects if now - self._failing.get(each, now) >= RECOVERED_SECONDS]
        for subject in recovered:
            del self._failing[subject]
        return [_name(subject) for subject in recovered]


def _name(subject: Subject) -> str:
    if isinstance(subject, MessageQueue):
        return str(subject)
    cluster, broker_name, *topics = subject
    broker = f"broker {cluster}/{broker_name}"
    return f"topic {topics[0]} of {broker}" if topics else broker
