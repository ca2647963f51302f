"""Lists of name servers that change: a source, what uses its list, and the loop between both.

A source is any class with :class:`NameServerSource`'s one method.
"""

from __future__ import annotations

from typing import Protocol


class NameServerSourceError(Exception):
    """The source cannot be read, or is not a valid list of name servers. The text is for operators."""


class NameServerSource(Protocol):
    """Source of the name servers' addresses."""

    def read(self) -> tuple[str, ...]:
        """Return the addresses, host:port. Raises NameServerSourceError.

        Called in a separate thread, because resolvers and files block.
        """
        ...


class NameServerListUser(Protocol):
    """What uses the list."""

    @property
    def addrs(self) -> tuple[str, ...]:
        """The list in use; empty: none yet."""
        ...

    async def use(self, addrs: tuple[str, ...]) -> None:
        """Use another list. Raises NameServerSourceError if that is not possible: the one in use stays."""
        ...

    def on_read(self, problem: str) -> None:
        """Called after each read; ``problem``: why the list in use stays although it may be outdated; empty: none."""
        ...
