"""A value that several loops read and are woken for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Observable(Generic[T]):
    """The present value, and whom to wake when it changes. Latest wins: nobody is told what it was in between."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._wakers: list[Callable[[], None]] = []

    @property
    def value(self) -> T:
        """The present value."""
        return self._value

    def set(self, value: T) -> None:
        """Replace the value; equal values wake nobody."""
        if value != self._value:
            self._value = value
            for wake in tuple(self._wakers):
                wake()

    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have ``wake`` called after each change; return what ends that."""
        self._wakers.append(wake)
        return lambda: self._wakers.remove(wake)
