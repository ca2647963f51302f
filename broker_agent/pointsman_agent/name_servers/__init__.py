"""Which name servers there are. A source is whatever has :class:`NameServerSource`'s one method."""

from __future__ import annotations

from typing import Protocol


class NameServerSourceError(Exception):
    """The source cannot be read, or what it says is no list of name servers. The text is for people."""


class NameServerSource(Protocol):
    """Knows the addresses of the name servers."""

    def read(self) -> tuple[str, ...]:
        """Return the addresses, host:port. Raises NameServerSourceError.

        Called in a thread of its own, because neither a resolver nor a file can be asked without waiting.
        """
        ...
