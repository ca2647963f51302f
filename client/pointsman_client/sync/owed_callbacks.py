"""Callbacks of sends that have not returned yet, so that slow ones hold up new sends instead of being dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pointsman_client.core.send_outcome import SendResult
from pointsman_client.errors import TooManyInFlightError
from pointsman_client.producer.producer import SendCallback


class OwedCallbacks:
    """Those of one producer, on any number of threads; at most ``most`` at the same time."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._sizes: dict[object, int] = {}

    def owe(self, callback: SendCallback, *, size: int) -> tuple[SendCallback, Callable[[], None]]:
        """Return what calls ``callback``, and what says that it will not be called.

        Raises :class:`TooManyInFlightError`.
        """
        debt = object()
        with self._lock:
            if len(self._sizes) >= self._most:
                raise TooManyInFlightError(len(self._sizes), sum(self._sizes.values()))
            self._sizes[debt] = size

        def settle() -> None:
            with self._lock:
                self._sizes.pop(debt, None)

        def call(ended: SendResult | Exception) -> None:
            try:
                callback(ended)
            finally:
                settle()

        return call, settle
