"""The caller of an RPC."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc

from pointsman.daemon.access.access import Access, Caller, Rule
from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.daemon.tls.tls import client_certificate

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
    certificate = _certificate(context)
    return Peer(addr, " ".join(certificate.names) or addr if certificate is not None else addr)


def addr_of(context: Context) -> str:
    """Return the address of the caller, host:port."""
    peer = context.peer()
    return unquote(peer.partition(":")[2] or peer)


def admitted(access: Access, rule: Rule, context: Context) -> Caller | None:
    """Return the caller if the rule allows the call; None where everything is open. Raises Denied."""
    if access.is_open:
        certificate = _certificate(context) if access.denies_certificates else None
        return access.admit(rule, certificate, (), peer=peer_of(context).key if rule.limit is not None else "")
    authorization: list[str] = []
    if access.takes_tokens:
        metadata = context.invocation_metadata() or ()
        authorization = [str(value) for key, value in metadata if key == "authorization"]
    needs_certificate = not authorization or access.denies_certificates
    return access.admit(rule, _certificate(context) if needs_certificate else None, authorization)


def _certificate(context: Context) -> ClientCertificate | None:
    """Return the verified certificate of the connection."""
    # Ten times as slow as peer_identities, whose texts end at NUL and have no types.
    encoded = context.auth_context().get("x509_pem_cert")
    return client_certificate(next(iter(encoded))) if encoded else None
