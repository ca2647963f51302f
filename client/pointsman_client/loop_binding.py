"""Where and when an object may be used: in the event loop and process in which it was started, until it is closed."""

from __future__ import annotations

import asyncio
import os
import warnings

from pointsman_client.errors import ClientClosedError, ClientNotStartedError, ForkedError, WrongEventLoopError


class LoopBinding:
    """gRPC's threads and an event loop do not survive a fork, and nothing here is made for two loops.

    Of an owner that was started and is collected before it was closed, a ResourceWarning is given.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._closed = False

    @property
    def is_bound(self) -> bool:
        """Whether it was started."""
        return self._loop is not None

    @property
    def is_closed(self) -> bool:
        """Whether its use has ended."""
        return self._closed

    def bind(self) -> None:
        """Note where it is started."""
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()

    def check(self) -> None:
        """Raise ClientClosedError, ClientNotStartedError, ForkedError or WrongEventLoopError unless it may be used."""
        if self._closed:
            raise ClientClosedError
        if self._loop is None:
            raise ClientNotStartedError
        self.check_place()

    def check_place(self) -> None:
        """Raise ForkedError or WrongEventLoopError elsewhere than where it was started."""
        if self._loop is None:
            return
        if os.getpid() != self._pid:
            raise ForkedError
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            raise WrongEventLoopError from None
        if here is not self._loop:
            raise WrongEventLoopError

    def close(self) -> None:
        """End its use."""
        self._closed = True

    def __del__(self) -> None:
        # A part of the interpreter may be gone at its end; a child did not start what its parent did.
        if not self._closed and self._loop is not None and self._pid == os.getpid():
            text = f"unclosed {self._owner}: use it in an `async with` block, or call close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
