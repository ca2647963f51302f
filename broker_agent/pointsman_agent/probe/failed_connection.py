"""What a failed connection to the broker proves: strong evidence needs a refusal by the agent's own machine."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Mapping
from typing import Any

from pointsman.names import split_addr
from pointsman_agent.core.probe_verdict import ProbeFailure

UNASSIGNED_ADDRESSES: Mapping[int, str] = {socket.AF_INET: "203.0.113.254", socket.AF_INET6: "100::1"}
"""Reserved for documentation (RFC 5737) and for discarding (RFC 6666): no interface has them."""
_NOT_USABLE_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH})
"""``::1`` where the machine has no IPv6, though its hosts file names it."""

_SockAddr = tuple[Any, ...]


async def classify_failed_connection(target: str) -> ProbeFailure:
    """Return CONNECTION_REFUSED_LOCALLY if ``target`` (host:port) is this machine and refuses connections, else OTHER.

    Call it after a connection failed. It connects to ``target`` once more, if every address of ``target`` is this
    machine's: the exceptions of asyncio, uvloop, redis-py and gRPC do not show which addresses refused the connection.
    """
    host, port = split_addr(target)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # ValueError: a name that no resolver can be asked for
        return ProbeFailure.OTHER
    addresses = [(family, sockaddr) for family, _, _, _, sockaddr in found]
    if not all(_is_own(family, sockaddr) for family, sockaddr in addresses):
        return ProbeFailure.OTHER
    errors = {await _connect_error(family, sockaddr) for family, sockaddr in addresses}
    is_refused = errors - _NOT_USABLE_HERE == {errno.ECONNREFUSED}
    return ProbeFailure.CONNECTION_REFUSED_LOCALLY if is_refused else ProbeFailure.OTHER


def _is_own(family: int, sockaddr: _SockAddr) -> bool:
    """Return whether the address is a loopback address or one of this machine's interfaces. Sends no packet."""
    host, _, *scope = sockaddr
    if ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        return True
    # With ip_nonlocal_bind (load balancers) every address can be bound: then it proves nothing.
    return _can_bind(family, (host, 0, *scope)) and not _can_bind(family, (UNASSIGNED_ADDRESSES[family], 0))


def _can_bind(family: int, sockaddr: _SockAddr) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(sockaddr)
    except OSError:
        return False
    return True


async def _connect_error(family: int, sockaddr: _SockAddr) -> int | None:
    """Connect once; return the errno of the failure, None if there was none."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, sockaddr)
    except OSError as error:
        return error.errno
    return None
