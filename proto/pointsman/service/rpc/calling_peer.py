"""The caller of an RPC."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc

from pointsman.service.access import Access, Caller, Rule, is_address

ENDING_SECONDS = 1.0
"""Longest time to send the status of a stream that the daemon ends: a client may not be reading."""

Context = grpc.aio.ServicerContext[Any, Any]


class Peer(NamedTuple):
    """The other end of a call."""

    addr: str
    """Address as host:port."""
    key: str
    """Key for bounds: an authenticated identity, else the connection. Never a host: proxies and NAT put many clients
    behind one."""
    caller: Caller | None = None
    """The caller with its grants; None where everything is open."""


def peer_of(context: Context, caller: Caller | None = None) -> Peer:
    """Return the caller; without authentication its address with the port identifies the connection."""
    addr = addr_of(context)
    if caller is not None:
        return Peer(addr, caller.identity, caller)
    identities = context.peer_identities()
    return Peer(addr, b" ".join(sorted(identities)).decode(errors="replace") if identities else addr)


def addr_of(context: Context) -> str:
    """Return the address of the caller, host:port."""
    peer = context.peer()
    return unquote(peer.partition(":")[2] or peer)


def admitted(access: Access, rule: Rule, context: Context) -> Caller | None:
    """Return the caller if the rule allows the call; None where everything is open. Raises Denied."""
    if access.is_open:
        return access.admit(rule, (), (), peer=peer_of(context).key)
    authorization: list[str] = []
    if access.takes_tokens:
        metadata = context.invocation_metadata() or ()
        authorization = [str(value) for key, value in metadata if key == "authorization"]
    return access.admit(rule, () if authorization else _certificate_names(access, context), authorization)


def _certificate_names(access: Access, context: Context) -> tuple[str, ...]:
    """Return the DNS names and URIs of a verified certificate, else its common name."""
    # Ten times as fast as auth_context, but without the types of the names.
    identities = tuple(context.peer_identities() or ())
    if not identities:
        return ()
    known = access.known_names.get(identities)
    if known is not None:
        return known
    verified = context.auth_context()
    alternative = [*verified.get("peer_dns", ()), *verified.get("peer_uri", ())]
    names = tuple(name.decode(errors="replace") for name in alternative or verified.get("x509_common_name", ()) if name)
    # A mail address (with @) or an IP address of another certificate may be written like one of these names.
    is_plain = sorted(alternative) == sorted(identities) and not any(
        b"@" in name or is_address(name) for name in identities
    )
    if is_plain:
        access.remember_names(identities, names)
    return names
