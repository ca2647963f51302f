"""Listeners that remember what they were given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.retry_rules import ConsumeResult


class Seen:
    """A listener that records its messages and returns what ``answer`` gives; by default success."""

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


class Held:
    """A listener that blocks until ``go`` is set."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.running = 0
        self.most = 0
        self.go = asyncio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.bodies.append(message.body.decode())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1
