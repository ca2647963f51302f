"""Certificates of a daemon's listeners and of its clients.

A daemon without TLS saves the time and memory of `cryptography`, which is imported where the first one is read.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from pointsman.clock import Clock
from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.daemon.tls.tls_settings import TlsConfig

if TYPE_CHECKING:
    import ssl

    from prometheus_client import CollectorRegistry

    from pointsman.daemon.tls.server_certificates import ServerCertificates

MAX_KNOWN = 4_096
"""Clients' certificates whose content is cached."""


def load_certificates(
    config: TlsConfig, *, prefix: str, registry: CollectorRegistry, clock: Clock
) -> ServerCertificates | None:
    """Read the files; None without TLS. Metrics begin with ``prefix``. Blocks. Raises ConfigError."""
    if not config.is_on:
        return None
    from pointsman.daemon.tls.server_certificates import ServerCertificates  # noqa: PLC0415

    return ServerCertificates(config, prefix=prefix, registry=registry, clock=clock)


def open_context(certificates: ServerCertificates | None, is_wanted: bool) -> Callable[[], ssl.SSLContext] | None:
    """Return the context function of a listener that requests no certificates; None: plaintext."""
    return (lambda: certificates.open_context) if certificates is not None and is_wanted else None


def check_certificates(config: TlsConfig, *, clock: Clock) -> None:
    """Read the files as a start would. Blocks. Raises ConfigError."""
    if config.is_on:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415

        load_certificates(config, prefix="unused", registry=CollectorRegistry(), clock=clock)


_known: OrderedDict[bytes, ClientCertificate] = OrderedDict()


def client_certificate(encoded: bytes) -> ClientCertificate:
    """Read a client's certificate, once, in PEM (as gRPC has it) or DER (as ``ssl`` has it)."""
    key = hashlib.sha256(encoded).digest()
    known = _known.get(key)
    if known is None:
        from pointsman.daemon.tls.certificate_files import read_client_certificate  # noqa: PLC0415

        known = _known[key] = read_client_certificate(encoded)
        while len(_known) > MAX_KNOWN:
            _known.popitem(last=False)
    return known
