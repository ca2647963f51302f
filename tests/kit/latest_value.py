"""A subscription to one value: the smallest thing that streams as watches do."""

from __future__ import annotations

from pointsman.daemon.subscriptions import OpenStream


class LatestValue:
    """Sends the value that was set last, to one stream."""

    def __init__(self) -> None:
        self.value: bytes | None = None
        """What the stream has not been given yet."""
        self.error: Exception | None = None
        self.stream: OpenStream | None = None
        self.is_closed = False

    def set(self, value: bytes) -> None:
        """Change it."""
        self.value = value
        if self.stream is not None:
            self.stream.wake()

    def attach(self, stream: OpenStream) -> None:
        """See :class:`Subscription`."""
        self.stream = stream

    def next_response(self) -> bytes | None:
        """See :class:`Subscription`."""
        if self.error is not None:
            raise self.error
        value, self.value = self.value, None
        return value

    def close(self) -> None:
        """See :class:`Subscription`."""
        assert not self.is_closed, "closed twice"
        self.is_closed = True
