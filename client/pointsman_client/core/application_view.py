"""What an application sees of messages: names without its namespace, and bodies as values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.namespace import with_namespace, without_namespace
from pointsman_client.core.send_outcome import SendResult
from pointsman_client.core.serializer import Serializer, decoded

QueueT = TypeVar("QueueT", bound=MessageQueue)
MessageHook = Callable[[ReceivedMessage, str], object]
"""A function of the application for a message and its error."""


class ApplicationView:
    """Applies the ``namespace`` and the ``serializer`` of a producer or consumer where names and messages enter or
    leave it; everything inside, and the brokers, have full names and bytes."""

    def __init__(self, namespace: str, serializer: Serializer | None) -> None:
        self.namespace = namespace
        self.serializer = serializer
        self.opens = bool(namespace) or serializer is not None
        """Whether :meth:`opened` changes anything."""

    def full(self, name: str) -> str:
        """Return a topic or group with the namespace."""
        return with_namespace(self.namespace, name)

    def full_queue(self, queue: QueueT) -> QueueT:
        """Return a queue whose topic has the namespace; anything else, from a function of the application, as it is."""
        if not self.namespace or not isinstance(queue, MessageQueue):
            return queue
        return replace(queue, topic=self.full(queue.topic))

    def short_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue whose topic is as the application knows it."""
        return replace(queue, topic=without_namespace(self.namespace, queue.topic)) if self.namespace else queue

    def short_queues(self, queues: tuple[MessageQueue, ...]) -> tuple[MessageQueue, ...]:
        """Return queues whose topics are as the application knows them."""
        return tuple(map(self.short_queue, queues)) if self.namespace else queues

    def full_message(self, message: Message) -> Message:
        """Return a message to send whose topic has the namespace. Raises :class:`InvalidNameError`."""
        topic = self.full(message.topic)
        return message if topic == message.topic else replace(message, topic=topic)

    def short_result(self, result: SendResult) -> SendResult:
        """Return a result whose queue is as the application knows it."""
        return result._replace(queue=self.short_queue(result.queue))

    def opened(self, message: ReceivedMessage) -> ReceivedMessage:
        """Return a received message as the application gets it."""
        if self.namespace:
            inner = message.message
            topic = without_namespace(self.namespace, inner.topic)
            message = message._replace(
                message=Message.unchecked(topic, inner.body, inner.tags, inner.keys, inner.properties),
                queue=self.short_queue(message.queue),
            )
        if self.serializer is not None:
            message = message._replace(decoded=decoded(self.serializer, message.body, message_id=message.message_id))
        return message

    def opened_all(self, messages: tuple[ReceivedMessage, ...]) -> tuple[ReceivedMessage, ...]:
        """Return received messages as the application gets them."""
        return tuple(map(self.opened, messages)) if self.opens else messages

    def opening(self, hook: MessageHook | None) -> MessageHook | None:
        """Return the hook for messages inside: it gets them opened."""
        if hook is None or not self.opens:
            return hook
        return lambda message, error: hook(self.opened(message), error)
