"""Name servers from DNS: every address that a host name stands for."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from pointsman.wire.names import join_addr, split_addr
from pointsman_agent.name_servers import NameServerSourceError

Resolve = Callable[[str], Sequence[str]]
"""From a host name to its addresses, IPv4 and IPv6. Raises OSError, or UnicodeError for what is no host name."""


def resolve(host: str) -> Sequence[str]:
    """Ask the machine's resolver; blocks for as long as that takes."""
    return [str(sockaddr[0]) for *_, sockaddr in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


class DnsNameServers:
    """All A and AAAA answers for the host of ``addr`` (host:port), each with its port.

    A name server that has both counts as two, and is told twice.
    """

    def __init__(self, addr: str, *, resolve: Resolve = resolve) -> None:
        self._host, self._port = split_addr(addr)
        self._resolve = resolve

    def read(self) -> tuple[str, ...]:
        """See :meth:`pointsman_agent.name_servers.NameServerSource.read`."""
        try:
            hosts = self._resolve(self._host)
        except (OSError, UnicodeError) as error:
            said = getattr(error, "strerror", None) or error
            raise NameServerSourceError(f"{self._host!r} cannot be resolved: {said}") from error
        return tuple(join_addr(host, self._port) for host in hosts)
