"""Questions of brokers about transactions that have not ended, put to the application."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

from pointsman.clock import Clock
from pointsman_client.aio import done_within, end_tasks, start_task
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.transactions import HalfMessage, TransactionState
from pointsman_client.errors import PointsmanError
from pointsman_client.listener_threads import ListenerThreads, is_plain
from pointsman_client.ports.producer_group import ProducerGroup, ReadMessage

CheckTransaction = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
"""Returns how the transaction of a message ended (RocketMQ ``TransactionListener.checkLocalTransaction``)."""

MAX_CHECKS = 2_000
"""Unanswered questions (``checkRequestHoldMax``); further ones are dropped, and the broker asks again."""
END_SECONDS = 0.5
SETTLED_SECONDS = 10.0
"""How long questions about a transaction are ignored whose end the broker has confirmed. Brokers of 5.x note ends after
up to 3 s (``transactionOpBatchInterval``); a second commit would be a second message."""
MAX_SETTLED = 100_000
"""Ends that are kept in mind."""

logger = logging.getLogger(__name__)


class TransactionChecks:
    """The transactions of this process that have not ended, and the questions about others."""

    def __init__(
        self,
        check: CheckTransaction,
        *,
        concurrency: int,
        timeout_seconds: float,
        on_end: Callable[[HalfMessage, TransactionState, Message | None], None],
        clock: Clock,
    ) -> None:
        """``on_end``: called with each transaction that a check ended, its state, and its message if that was read."""
        self._check = check
        self._is_plain = is_plain(check)
        self._threads: ListenerThreads[Any] = ListenerThreads(concurrency)
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout_seconds = timeout_seconds
        self._on_end = on_end
        self._clock = clock
        self._own: dict[str, HalfMessage] = {}
        """By message id: transactions whose block runs in this process."""
        self._asked: dict[tuple[str, str], HalfMessage] = {}
        """By broker address and message id: where the message is by the latest question."""
        self._settled: dict[tuple[str, str], float] = {}
        """When the broker confirmed the end, the earliest first."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.dropped = 0
        """Number of questions that were dropped."""

    def began(self, half: HalfMessage) -> None:
        """Note that the local work of a transaction runs here: a broker's question about it is not answered."""
        self._own[half.message_id] = half

    def ended(self, half: HalfMessage) -> HalfMessage:
        """Note the end of the local work; return where the message is now: a broker that asks moves it."""
        return self._own.pop(half.message_id, half)

    def settled(self, half: HalfMessage) -> None:
        """Note that the broker has confirmed the end of a transaction."""
        now = self._clock.monotonic()
        self._settled[half.addr, half.message_id] = now
        while len(self._settled) > MAX_SETTLED or now - next(iter(self._settled.values())) > SETTLED_SECONDS:
            del self._settled[next(iter(self._settled))]

    def ask(self, half: HalfMessage, read: ReadMessage, group: ProducerGroup) -> None:
        """Ask the application how a transaction ended, and report it; in the background."""
        own = self._own.get(half.message_id)
        if own is not None:
            if own.addr == half.addr:
                self._own[half.message_id] = half
            return
        key = half.addr, half.message_id
        if self._clock.monotonic() - self._settled.get(key, -math.inf) <= SETTLED_SECONDS:
            return
        if key not in self._asked and len(self._asked) >= MAX_CHECKS:
            self.dropped += 1
            logger.warning("a check of a transaction was dropped: %d checks run or wait", MAX_CHECKS)
            return
        is_new = key not in self._asked
        self._asked[key] = half
        if is_new:
            task = start_task(self._answer(key, read, group), name="pointsman-transaction-check")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End the checks; brokers ask another producer."""
        await end_tasks(self._tasks, timeout_seconds=END_SECONDS)
        self._threads.close()

    async def _answer(self, key: tuple[str, str], read: ReadMessage, group: ProducerGroup) -> None:
        found: list[ReceivedMessage] = []

        def read_once() -> ReceivedMessage:
            found.append(read())
            return found[0]

        try:
            async with self._slots:
                state = await self._state(key, read_once)
            half = self._asked[key]
            if state is not TransactionState.UNKNOWN:
                await group.end(half, state, is_checked=True, timeout_seconds=self._timeout_seconds)
                self.settled(half)
            self._on_end(half, state, found[0].message if found else None)
        except PointsmanError as error:
            logger.warning("the end of the transaction of message %s was not accepted: %s", key[1], error)
        finally:
            del self._asked[key]

    async def _state(self, key: tuple[str, str], read: ReadMessage) -> TransactionState:
        call = asyncio.ensure_future(self._call(read))
        try:
            if await done_within(call, self._timeout_seconds, clock=self._clock):
                state: object = call.result()
                if isinstance(state, TransactionState):
                    return state
                problem = f"returned {state!r}, which is not a TransactionState"
                logger.error("the check of the transaction of message %s %s", key[1], problem)
                return TransactionState.UNKNOWN
            self._threads.abandon_one()
            seconds = self._timeout_seconds
            logger.error("the check of the transaction of message %s took longer than %g s", key[1], seconds)
        except Exception:  # of the application: the state is unknown
            logger.exception("the check of the transaction of message %s failed", key[1])
        finally:
            call.cancel()
        return TransactionState.UNKNOWN

    async def _call(self, read: ReadMessage) -> object:
        message: ReceivedMessage = await self._threads.run(read)
        if self._is_plain:
            returned = await self._threads.run(lambda: self._check(message))
            return await returned if isinstance(returned, Awaitable) else returned
        return await self._check(message)  # type: ignore[misc]  # a coroutine function
