"""Numbered messages through the brokers of the demo while they are killed: a producer, and a group of two consumers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from deploy.demo.processes import patience
from pointsman_client import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage, SendError
from pointsman_client.redis_streams import RedisStreamsTransport

SECONDS_BETWEEN = 0.02
CONSUMERS = 2
POLL_SECONDS = 0.05


class Traffic:
    """What was sent and what arrived."""

    def __init__(self) -> None:
        self._sent: set[str] = set()
        self._failed: list[SendError] = []
        self._arrived: Counter[str] = Counter()

    async def listener(self, message: ReceivedMessage) -> None:
        """Count one message."""
        self._arrived[message.body.decode()] += 1

    async def send(self, producer: Producer, topic: str) -> None:
        """Send until cancelled."""
        number = 0
        while True:
            number += 1
            try:
                await producer.send(Message(topic, str(number).encode()))
            except SendError as error:
                self._failed.append(error)
            else:
                self._sent.add(str(number))
            await asyncio.sleep(SECONDS_BETWEEN)

    async def settled(self, *, seconds: float) -> str:
        """Wait until everything sent has arrived, and return the counts. Raises ProcessFailed."""
        async with patience(seconds, "every acknowledged message to arrive"):
            while not self._sent <= self._arrived.keys():  # noqa: ASYNC110  # other processes hold the messages
                await asyncio.sleep(POLL_SECONDS)
        twice = sum(times - 1 for times in self._arrived.values())
        return (
            f"{len(self._sent):,} messages were acknowledged during all this, {len(self._failed)} were not; "
            f"every one arrived, {twice} of them twice"
        )


@asynccontextmanager
async def traffic(name_servers: Sequence[str], topic: str) -> AsyncIterator[Traffic]:
    """Produce and consume for the length of the block."""
    running = Traffic()
    async with AsyncExitStack() as stack:
        for _ in range(CONSUMERS):
            consumer = PushConsumer(
                name_servers,
                group="billing",
                subscriptions={topic: "*"},
                listener=running.listener,
                transport=RedisStreamsTransport,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            )
            await stack.enter_async_context(consumer)
        producer = await stack.enter_async_context(Producer(name_servers, transport=RedisStreamsTransport))
        sending = asyncio.create_task(running.send(producer, topic))
        try:
            yield running
        finally:
            sending.cancel()
            await asyncio.wait([sending])
