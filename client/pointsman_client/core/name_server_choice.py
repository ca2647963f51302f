"""The name server to call first, and the next one after a failure."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence


class NameServerChoice:
    """The name servers and the one in use; after a failure another one is used.

    No failure removes a server, so a client reconnects when its servers return after a total outage.
    """

    def __init__(self, addrs: Sequence[str]) -> None:
        """``addrs``: empty until a list was read; :meth:`replace` then sets it."""
        self._addrs = tuple(addrs)
        self._position = 0
        self._on_move: list[Callable[[], None]] = []

    @property
    def in_use(self) -> str:
        """The server that is called first; empty: no list was read yet."""
        return self._addrs[self._position] if self._addrs else ""

    def order(self) -> tuple[str, ...]:
        """All servers in the order in which one lookup calls them."""
        return self._addrs[self._position :] + self._addrs[: self._position]

    def use(self, addr: str, *, instead_of: Container[str]) -> None:
        """Use ``addr``, which responded, if the server in use is one of ``instead_of``, which did not.

        One that is no longer in the list is not used.
        """
        if self.in_use in instead_of and addr in self._addrs and addr != self.in_use:
            self._position = self._addrs.index(addr)
            self._notify()

    def replace(self, addrs: Sequence[str]) -> None:
        """Take another list; the server in use stays so if it is listed, else the first one is used."""
        in_use, self._addrs = self.in_use, tuple(addrs)
        self._position = self._addrs.index(in_use) if in_use in self._addrs else 0
        self._notify()

    def _notify(self) -> None:
        for callback in self._on_move:
            callback()

    def on_move(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` each time another server is put in use, and after each change of the list."""
        self._on_move.append(callback)
