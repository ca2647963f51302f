"""Choice of the replica that a consumer reads from: the master, else the slave with the lowest id.

A broker that failed is skipped for a while. So reads continue at a slave before the route drops the master, and return
to the master after it recovers.
"""

from __future__ import annotations

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerData, BrokerKey
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


Subject = MessageQueue | BrokerKey


class QueueFailures:
    """Brokers and queues that currently fail, to log each broker once, not once per assigned queue."""

    def __init__(self) -> None:
        self._failing: set[Subject] = set()

    def failed(self, queue: MessageQueue, error: PointsmanError) -> str | None:
        """Record a failure; return the name to log it for, None if it was already logged."""
        is_of_the_queue = isinstance(error, UnreadableMessageError) or (
            isinstance(error, BrokerRefusedError) and error.response_code == ResponseCode.SYSTEM_ERROR
        )
        subject: Subject = queue if is_of_the_queue else queue.broker_key
        return self._named(subject, is_failing=True)

    def succeeded(self, queue: MessageQueue) -> list[str]:
        """Record a success; return the names that recovered."""
        subjects: list[Subject] = [queue.broker_key, queue] if self._failing else []
        return [name for subject in subjects if (name := self._named(subject, is_failing=False)) is not None]

    def _named(self, subject: Subject, *, is_failing: bool) -> str | None:
        if (subject in self._failing) is is_failing:
            return None
        (self._failing.add if is_failing else self._failing.discard)(subject)
        return str(subject) if isinstance(subject, MessageQueue) else f"broker {'/'.join(subject)}"
