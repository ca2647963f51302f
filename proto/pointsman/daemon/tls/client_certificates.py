"""Certificates of clients, as every port reads them: names, serial number and digest.

TLS has verified them, but an authority may sign whatever is requested. So one strict parser reads them, and not gRPC
(whose texts end at NUL and have no types) or ``ssl`` (which raises for a name that is not UTF-8).
"""

from __future__ import annotations

from typing import NamedTuple

MAX_NAMES, MAX_NAME_LENGTH = 100, 2_048
"""Bounds of what is read of one certificate; beyond them it has no identity."""


class ClientCertificate(NamedTuple):
    """What a client's certificate states."""

    digest: bytes
    """SHA-256 of its DER form: the fingerprint that `openssl x509 -fingerprint -sha256` shows. Empty: unreadable."""
    serial: int = 0
    names: tuple[str, ...] = ()
    """DNS names and URIs, else its common name, if it has exactly one."""
    problem: str = ""
    """Why it has no identity; empty: it was read."""
