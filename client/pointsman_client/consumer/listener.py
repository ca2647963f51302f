"""The border to the application's listener: calls it, and turns whatever happens into a result."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from pointsman_client.consumer.listener_threads import ListenerThreads
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.retry_rules import ConsumeResult

Answer = ConsumeResult | None
Listener = Callable[[ReceivedMessage], Answer | Awaitable[Answer]]


class Outcome(StrEnum):
    """How a call of a listener ended, as metrics name it."""

    SUCCESS = "success"
    LATER = "later"
    RAISED = "raised"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How one call of a listener ended."""

    outcome: Outcome
    error: str = ""
    """What the listener did in place of succeeding, for logs and dead letters."""
    exception: BaseException | None = None
    """What it raised."""


SUCCEEDED = CallEnd(Outcome.SUCCESS)


def raised(error: BaseException) -> CallEnd:
    """The end of a call that raised."""
    return CallEnd(Outcome.RAISED, f"{type(error).__name__}: {error}", error)


class ListenerCaller:
    """Calls one listener; a plain function runs in a pool of threads that are started when first needed."""

    def __init__(self, listener: Listener, *, threads: int) -> None:
        self._listener = listener
        self._threads: ListenerThreads[Answer | Awaitable[Answer]] = ListenerThreads(threads)
        self.is_plain = not (
            inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(getattr(listener, "__call__", None))  # noqa: B004
        )

    async def call(self, message: ReceivedMessage) -> CallEnd:
        """Call the listener and wait for its end. Raises nothing but CancelledError, and logs nothing."""
        try:
            if self.is_plain:
                answer = await self._threads.run(lambda: self._listener(message))
            else:
                answer = self._listener(message)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:  # noqa: BLE001  # the application's: its failure is a result
            return raised(error)
        if answer is None or answer is ConsumeResult.SUCCESS:
            return SUCCEEDED
        if not isinstance(answer, ConsumeResult):
            return CallEnd(Outcome.RAISED, f"returned {answer!r}, which is neither a ConsumeResult nor None")
        return CallEnd(Outcome.LATER, f"returned {answer.value}")

    def give_up_on_thread(self) -> None:
        """Let another thread take the place of one whose listener does not return."""
        self._threads.give_up_on_one()

    def close(self) -> None:
        """Start no more calls in threads. A running one cannot be stopped."""
        self._threads.close()
