"""Streams that have nothing to do until something changes.

A method that streams sends its first responses as any other, and then may return a :class:`Subscription` in place of
waiting for changes itself. The listener asks it for the next response whenever the client accepts one. So a slow
client receives the newest state only, and a listener that can (:class:`TasklessContext`) keeps such a stream open
without a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable


class OpenStream(Protocol):
    """An open stream, for its subscription."""

    def wake(self) -> None:
        """Note that there is a next response; the listener asks for it soon, once for many calls of this."""

    def end(self, why: Exception) -> None:
        """End the stream with the status of ``why``. Its subscription is closed."""


@runtime_checkable
class Subscription(Protocol):
    """What a stream sends from now on. It must be closed."""

    def attach(self, stream: OpenStream) -> None:
        """Begin. There may be a first response already."""

    def next_response(self) -> bytes | None:
        """Return the next response; None: :meth:`OpenStream.wake` is called when there is one.

        Called when the client has accepted all earlier responses.
        """

    def close(self) -> None:
        """Release everything: the stream has ended."""


class KeptStream(OpenStream, Protocol):
    """An open stream, for the listener that keeps it without a task."""

    @property
    def subscription(self) -> Subscription:
        """What it sends. An error of it must end the stream."""

    def abandon(self) -> None:
        """Handle that the client has ended the stream."""


@runtime_checkable
class TasklessContext(Protocol):
    """A call's context, of a listener that keeps streams open without a task."""

    def keep_open(self, stream: KeptStream) -> None:
        """Keep the call open when its handler has returned."""

    def wake(self) -> None:
        """Ask the stream for responses soon."""

    def end_kept(self, status: object) -> None:
        """End a kept call with a ``grpc.Status``."""


async def follow(subscription: Subscription, write: Callable[[bytes], Awaitable[None]]) -> None:
    """Send the responses of a subscription in the current task, until cancelled, and close it.

    Raises the exception with which the subscription ended the stream.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # a coroutine runs in one
    stream = _TaskStream(task)
    subscription.attach(stream)
    try:
        while True:
            while (response := subscription.next_response()) is not None:
                await write(response)
            stream.woken.clear()
            await stream.woken.wait()
    except asyncio.CancelledError:
        if stream.why is not None:
            raise stream.why from None
        raise
    finally:
        subscription.close()
        # No cycle of this frame with the task, or with an exception that has its traceback.
        del task, stream


class _TaskStream:
    """The stream of one task."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.woken = asyncio.Event()
        self.why: Exception | None = None
        self._task = task

    def wake(self) -> None:
        self.woken.set()

    def end(self, why: Exception) -> None:
        self.why = why
        self._task.cancel()
