"""A value with change listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Observable(Generic[T]):
    """The current value and its change listeners, which see only the latest value."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._wakers: list[Callable[[], None]] = []

    @property
    def value(self) -> T:
        """The current value."""
        return self._value

    def set(self, value: T) -> None:
        """Replace the value; an equal value calls no listener."""
        if value != self._value:
            self._value = value
            for wake in tuple(self._wakers):
                wake()

    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` after each change; return a function that removes it."""
        self._wakers.append(wake)
        return lambda: self._wakers.remove(wake)
