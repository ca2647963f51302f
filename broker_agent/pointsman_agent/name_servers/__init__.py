"""Sources of the list of name servers. A source is any class with :class:`NameServerSource`'s one method."""

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
