"""The border to the application's listener: calls it, and turns whatever happens into a result."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum

from pointsman_client.consumer.consume_result import ConsumeResult
from pointsman_client.consumer.listener_threads import ListenerThreads
from pointsman_client.message import ReceivedMessage

logger = logging.getLogger(__name__)

Answer = ConsumeResult | None
Listener = Callable[[ReceivedMessage], Answer | Awaitable[Answer]]


class Outcome(StrEnum):
    """How a call of a listener ended, as metrics name it."""

    SUCCESS = "success"
    LATER = "later"
    RAISED = "raised"
    TIMEOUT = "timeout"


class ListenerCaller:
    """Calls one listener; a plain function runs in a pool of threads that are started when first needed."""

    def __init__(self, listener: Listener, *, threads: int) -> None:
        self._listener = listener
        self._threads: ListenerThreads[Answer | Awaitable[Answer]] = ListenerThreads(threads)
        self.is_plain = not (
            inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(getattr(listener, "__call__", None))  # noqa: B004
        )

    async def call(self, message: ReceivedMessage) -> Outcome:
        """Call the listener and wait for its end. Raises nothing but CancelledError."""
        try:
            if self.is_plain:
                answer = await self._threads.run(lambda: self._listener(message))
            else:
                answer = self._listener(message)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception:  # the border to the application's listener: its failure is a result
            logger.warning("the listener raised on message %s of %s", message.message_id, message.queue, exc_info=True)
            return Outcome.RAISED
        if answer is None or answer is ConsumeResult.SUCCESS:
            return Outcome.SUCCESS
        if not isinstance(answer, ConsumeResult):
            logger.warning(
                "the listener answered %r: a ConsumeResult or None is expected, it counts as a failure", answer
            )
            return Outcome.RAISED
        return Outcome.LATER

    def give_up_on_thread(self) -> None:
        """Let another thread take the place of one whose listener does not return."""
        self._threads.give_up_on_one()

    def close(self) -> None:
        """Start no more calls in threads. A running one cannot be stopped."""
        self._threads.close()
