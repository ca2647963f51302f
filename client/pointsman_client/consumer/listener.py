"""Calls the application's listener and converts its return value or exception to a result."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.retry_rules import CallEnd, ConsumeResult, Outcome, Reject
from pointsman_client.listener_threads import ListenerThreads, is_plain
from pointsman_client.tracing_hook import TracingHook

ListenerResult = ConsumeResult | None
Listener = Callable[[ReceivedMessage], ListenerResult | Awaitable[ListenerResult]]
BatchListener = Callable[[Sequence[ReceivedMessage]], ListenerResult | Awaitable[ListenerResult]]

SUCCEEDED = CallEnd(Outcome.SUCCESS)
"""The result of every successful call, so that it can be compared by identity."""


def raised(error: BaseException) -> CallEnd:
    """Return the result of a call that raised."""
    return CallEnd(Outcome.RAISED, f"{type(error).__name__}: {error}", error)


def of_decoded(listener: Listener | BatchListener) -> Listener | BatchListener:
    """Return a listener that raises, instead of the call, why a message was not decoded; in a batch it is alone."""

    def check(given: ReceivedMessage | Sequence[ReceivedMessage]) -> None:
        first = given if isinstance(given, ReceivedMessage) else given[0]
        if first.decode_error is not None:
            raise first.decode_error

    if is_plain(listener):

        def plain(given: Any) -> ListenerResult | Awaitable[ListenerResult]:  # noqa: ANN401  # as the listener takes
            check(given)
            return listener(given)

        return plain

    async def waiting(given: Any) -> ListenerResult:  # noqa: ANN401  # as the listener takes
        check(given)
        return await cast("Awaitable[ListenerResult]", listener(given))

    return waiting


class ListenerCaller:
    """Calls one listener; a plain function runs in a pool of threads that are started when first needed."""

    def __init__(self, listener: Listener | BatchListener, *, threads: int) -> None:
        self._listener = listener
        self._threads: ListenerThreads[ListenerResult | Awaitable[ListenerResult]] = ListenerThreads(threads)
        self.is_plain = is_plain(listener)

    async def call(self, message: Any) -> CallEnd:  # noqa: ANN401  # as the listener takes
        """Call the listener with a message, or with a batch, and wait for its end.

        Raises only CancelledError, and logs nothing.
        """
        try:
            if not self.is_plain:
                result = await cast("Awaitable[ListenerResult]", self._listener(message))
            else:
                returned = await self._threads.run(lambda: self._listener(message))
                result = await returned if inspect.isawaitable(returned) else returned
        except Reject as rejection:
            return CallEnd(Outcome.REJECTED, rejection.reason)
        except Exception as error:  # noqa: BLE001  # of the application: a failure is a result
            return raised(error)
        if result is None or result is ConsumeResult.SUCCESS:
            return SUCCEEDED
        if not isinstance(result, ConsumeResult):
            return CallEnd(Outcome.RAISED, f"returned {result!r}, which is neither a ConsumeResult nor None")
        if result is ConsumeResult.DEAD_LETTER:
            return CallEnd(Outcome.REJECTED, f"returned {result.value}")
        return CallEnd(Outcome.LATER, f"returned {result.value}")

    def abandon_thread(self) -> None:
        """Replace a thread whose listener does not return."""
        self._threads.abandon_one()

    def close(self) -> None:
        """Start no further calls in threads. A running one cannot be stopped."""
        self._threads.close()


class TracedCaller(ListenerCaller):
    """Calls one listener, each time inside a span of each message."""

    def __init__(
        self, listener: Listener | BatchListener, *, threads: int, group: str, tracing_hook: TracingHook
    ) -> None:
        super().__init__(listener, threads=threads)
        self._group = group
        self._tracing_hook = tracing_hook

    async def call(self, message: ReceivedMessage | Sequence[ReceivedMessage]) -> CallEnd:
        """See :meth:`ListenerCaller.call`."""
        messages = (message,) if isinstance(message, ReceivedMessage) else message
        with ExitStack() as spans:
            open_span = partial(self._tracing_hook.processing, group=self._group)
            notes = [spans.enter_context(open_span(each)) for each in messages]
            end = await super().call(message)
            for note_end in notes:
                note_end(end.outcome.value, end.error, end.exception)
            return end
