"""Who called."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc

ENDING_SECONDS = 1.0
"""How long a stream that a daemon ends may take to send its status: a client may not be reading."""

Context = grpc.aio.ServicerContext[Any, Any]


class Peer(NamedTuple):
    """The other end of a call."""

    addr: str
    """As people write it: host:port."""
    key: str
    """Whom bounds distinguish: an authenticated identity, else the connection. Never a host: proxies and NAT put many
    clients behind one."""


def peer_of(context: Context) -> Peer:
    """Who called; on a connection without authentication its address with the port is the connection."""
    peer = context.peer()
    addr = unquote(peer.partition(":")[2] or peer)
    identities = context.peer_identities()
    return Peer(addr, b" ".join(sorted(identities)).decode(errors="replace") if identities else addr)
