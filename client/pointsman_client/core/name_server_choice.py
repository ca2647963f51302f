"""The name server to call first, and the next one after a failure."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence


class NameServerChoice:
    """The configured name servers and the one in use; after a failure another one is used.

    The list never shrinks, so a client reconnects when its servers return after a total outage.
    """

    def __init__(self, addrs: Sequence[str]) -> None:
        self._addrs = tuple(addrs)
        self._position = 0
        self._on_move: list[Callable[[], None]] = []

    @property
    def in_use(self) -> str:
        """The server that is called first."""
        return self._addrs[self._position]

    def order(self) -> tuple[str, ...]:
        """All servers in the order in which one lookup calls them."""
        return self._addrs[self._position :] + self._addrs[: self._position]

    def use(self, addr: str, *, instead_of: Container[str]) -> None:
        """Use ``addr``, which responded, if the server in use is one of ``instead_of``, which did not."""
        if self.in_use in instead_of:
            self._move_to(self._addrs.index(addr))

    def _move_to(self, position: int) -> None:
        if position != self._position:
            self._position = position
            for callback in self._on_move:
                callback()

    def on_move(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` each time another server is put in use."""
        self._on_move.append(callback)
