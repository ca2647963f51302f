"""What is said of queues that fail: once for a broker, however many of its queues are held. Pure."""

from __future__ import annotations

from pointsman_client.errors import BrokerRefusedError, PointsmanError, ResponseCode
from pointsman_client.message_queue import MessageQueue
from pointsman_client.route import BrokerKey

Subject = MessageQueue | BrokerKey


class QueueFailures:
    """Which brokers and queues fail now."""

    def __init__(self) -> None:
        self._failing: set[Subject] = set()

    def failed(self, queue: MessageQueue, error: PointsmanError) -> str | None:
        """Note a failure; return of what to say it, None if it was said."""
        is_of_the_queue = isinstance(error, BrokerRefusedError) and error.response_code == ResponseCode.SYSTEM_ERROR
        subject: Subject = queue if is_of_the_queue else queue.broker_key
        return self._named(subject, is_failing=True)

    def succeeded(self, queue: MessageQueue) -> list[str]:
        """Note a success; return what works again."""
        subjects: list[Subject] = [queue.broker_key, queue] if self._failing else []
        return [name for subject in subjects if (name := self._named(subject, is_failing=False)) is not None]

    def _named(self, subject: Subject, *, is_failing: bool) -> str | None:
        if (subject in self._failing) is is_failing:
            return None
        (self._failing.add if is_failing else self._failing.discard)(subject)
        return str(subject) if isinstance(subject, MessageQueue) else f"broker {'/'.join(subject)}"
