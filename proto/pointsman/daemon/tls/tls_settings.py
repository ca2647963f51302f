"""The section ``[tls]`` of both daemons: TLS of their listeners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pointsman.names import is_loopback, text_problem
from pointsman.setting import fault, not_one_of

CLIENT_CERTIFICATES = ("required", "optional")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS of the listeners. Files are PEM; changed files are used without a restart."""

    certificate: str = ""
    """The server's certificate, then its intermediates, each followed by its issuer. Empty: no TLS."""
    key: str = ""
    """Private key of the certificate, not encrypted."""
    client_ca: str = ""
    """Certificates of the authorities that sign clients (mTLS); empty: clients present no certificate."""
    client_certificate: str = "required"
    """required: with ``client_ca`` each client needs a certificate. optional: clients without one are served, too;
    with ``listener = "grpcio"`` gRPC requests none, so that its clients are identified by tokens."""
    plaintext_beyond_loopback: bool = False
    """Allow listening beyond loopback without TLS: for a network in which every machine is trusted."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        for name in ("certificate", "key", "client_ca"):
            yield from fault(name, getattr(self, name), text_problem(getattr(self, name), longest=4_096))
        for given, missing in (("certificate", "key"), ("key", "certificate"), ("client_ca", "certificate")):
            if getattr(self, given) and not getattr(self, missing):
                yield f"{missing}: must be given with {given}"
        yield from not_one_of("client_certificate", self.client_certificate, CLIENT_CERTIFICATES)

    @property
    def is_on(self) -> bool:
        """Return whether listeners use TLS."""
        return bool(self.certificate)

    @property
    def requires_certificates(self) -> bool:
        """Return whether every client must present a certificate; only then gRPC reads it."""
        return bool(self.client_ca) and self.client_certificate == "required"

    def unprotected(self, name: str, listen: str, *, takes_plaintext: bool = False) -> Iterator[str]:
        """Yield the problem of a plaintext address beyond loopback; ``takes_plaintext``: it accepts plaintext with TLS
        too."""
        host_is_given = ":" in listen[1:]
        if (
            not host_is_given
            or is_loopback(listen)
            or self.plaintext_beyond_loopback
            or (self.is_on and not takes_plaintext)
        ):
            return
        ways = "set tls.certificate and tls.key" if not self.is_on else "set remoting.tls = 'required'"
        yield (
            f"{name}: {listen!r} can be reached from other machines without TLS: {ways}, "
            "or tls.plaintext_beyond_loopback = true for a network you trust"
        )
