"""Functions of the application that are told of something, for as long as it wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

ArgumentT = TypeVar("ArgumentT")


class Callbacks(Generic[ArgumentT]):
    """Called from the event loop, so that a callback's fault goes to the loop's handler, not to whoever tells."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[ArgumentT], object]] = {}

    def add(self, callback: Callable[[ArgumentT], object]) -> Callable[[], None]:
        """Tell ``callback``, too; return the function that ends it. Added twice it is told twice."""
        key = object()
        self._callbacks[key] = callback

        def remove() -> None:
            self._callbacks.pop(key, None)

        return remove

    def tell(self, argument: ArgumentT) -> None:
        """Have each called soon."""
        for callback in list(self._callbacks.values()):
            asyncio.get_running_loop().call_soon(callback, argument)
