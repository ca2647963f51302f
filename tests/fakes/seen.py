"""A listener that remembers what it was given."""

from __future__ import annotations

from collections.abc import Callable

from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.retry_rules import ConsumeResult


class Seen:
    """Answers as it is told; by default with success."""

    def __init__(self, answer: Callable[[ReceivedMessage], ConsumeResult | None] = lambda _: None) -> None:
        self.messages: list[ReceivedMessage] = []
        self._answer = answer

    async def __call__(self, message: ReceivedMessage) -> ConsumeResult | None:
        self.messages.append(message)
        return self._answer(message)

    @property
    def bodies(self) -> list[str]:
        """In the order of the calls."""
        return [message.body.decode() for message in self.messages]
