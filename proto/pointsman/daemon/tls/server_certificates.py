"""A daemon's certificate and key: read, checked, reloaded while it runs, and the TLS contexts made of them."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge

from pointsman.clock import Clock
from pointsman.config import ConfigError
from pointsman.daemon.tls.certificate_files import BadCertificate, Pem, check_pair, read_authorities, read_pem
from pointsman.daemon.tls.tls_settings import TlsConfig

POLL_INTERVAL_SECONDS = 5.0
"""Interval at which the files are read."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Files that belong together."""

    pems: tuple[Pem, ...]
    expires_at: datetime
    for_grpc: grpc.ServerCertificateConfiguration
    context: ssl.SSLContext
    """Requests a certificate from clients, as configured."""
    open_context: ssl.SSLContext
    """Requests no certificate."""


class ServerCertificates:
    """The certificate in use. :attr:`context`, :attr:`open_context` and :meth:`grpc_credentials` are thread-safe."""

    def __init__(self, config: TlsConfig, *, prefix: str, registry: CollectorRegistry, clock: Clock) -> None:
        """Read the files, and register metrics whose names begin with ``prefix``. Raises ConfigError."""
        self._config = config
        self._clock = clock
        try:
            self._loaded = _load(config, now=clock.utc_now())
        except BadCertificate as error:
            raise ConfigError([f"tls.{error}"]) from error
        self._problem = ""
        self._failures = Counter(
            f"{prefix}_tls_reload_failures_total",
            "Failed reloads of the TLS files, one every 5 s while they are invalid; the last valid ones stay in use",
            registry=registry,
        )
        expiry = Gauge(
            f"{prefix}_tls_certificate_expiry_timestamp_seconds",
            "Expiry of the served TLS certificate, or of the first intermediate to expire; Unix time",
            registry=registry,
        )
        expiry.set_function(lambda: self._loaded.expires_at.timestamp())  # noqa: PLW0108  # reads the current value

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context of the next handshake, which requests certificates from clients as configured."""
        return self._loaded.context

    @property
    def open_context(self) -> ssl.SSLContext:
        """Return the context of the next handshake, which requests no certificate from clients."""
        return self._loaded.open_context

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of one gRPC port, which fetch the certificate before each handshake."""
        shown = self._loaded

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            if shown is self._loaded:
                return None  # unchanged: gRPC need not read it again
            shown = self._loaded
            return shown.for_grpc

        # gRPC for Python either requires a client's certificate or requests none.
        required = bool(self._config.client_ca) and self._config.client_certificate == "required"
        return grpc.dynamic_ssl_server_credentials(shown.for_grpc, fetch, required)  # type: ignore[arg-type]  # stubs know no None

    async def run(self) -> None:
        """Load new files until cancelled."""
        while True:
            await self._clock.sleep(POLL_INTERVAL_SECONDS)
            await asyncio.to_thread(self.poll)

    def poll(self) -> None:
        """Read the files; if they cannot be used, the last valid ones stay in use. Blocks."""
        try:
            fresh = _load(self._config, now=self._clock.utc_now(), known=self._loaded)
        except BadCertificate as error:
            self._failures.inc()
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning(
                    "TLS files invalid, the last valid ones stay in use: tls.%s", error, extra={"facts": self._facts()}
                )
            return
        if fresh is not self._loaded or self._problem:
            self._loaded, self._problem = fresh, ""
            log.info("TLS files reloaded", extra={"facts": self._facts()})

    def problems(self) -> list[str]:
        """Return the current problems, for operators."""
        found = [f"tls.{self._problem}; the last valid files stay in use"] if self._problem else []
        if self._clock.utc_now() > self._loaded.expires_at:
            found.append(f"tls.certificate: {self._config.certificate!r} expired: clients refuse to connect")
        return found

    def _facts(self) -> Mapping[str, object]:
        return {"certificate": self._config.certificate, "serving_until": self._loaded.expires_at.isoformat()}


def _load(config: TlsConfig, *, now: datetime, known: _Loaded | None = None) -> _Loaded:
    """Read and check the files; return ``known`` if they have not changed. Raises BadCertificate."""
    pems = _read(config)
    if known is not None and known.pems == pems:
        return known
    try:
        return _checked(config, pems, now=now)
    except BadCertificate:
        raise
    except Exception as error:  # any parser error on foreign bytes: a new file must not end the daemon
        raise pems[0].bad(f"cannot be used: {error!r}") from error


def _checked(config: TlsConfig, pems: tuple[Pem, ...], *, now: datetime) -> _Loaded:
    certificate, key, *authorities = pems
    pair = check_pair(certificate, key, now=now)
    context, open_context = (_context(certificate, key) for _ in range(2))
    context.set_alpn_protocols(["h2"])  # RocketMQ's clients send no ALPN, and get none
    for authority in authorities:
        read_authorities(authority, now=now)
        try:
            context.load_verify_locations(authority.path)
        except OSError as error:
            raise authority.bad(f"cannot be used: {_reason(error)}") from error
        is_required = config.client_certificate == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    if _read(config) != pems:
        # OpenSSL read the files by name.
        raise certificate.bad("changed while it was read")
    return _Loaded(
        pems,
        min(each.not_valid_after_utc for each in pair),
        grpc.ssl_server_certificate_configuration(
            [(key.data, certificate.data)], root_certificates=authorities[0].data if authorities else None
        ),
        context,
        open_context,
    )


def _read(config: TlsConfig) -> tuple[Pem, ...]:
    names = ("certificate", "key", "client_ca") if config.client_ca else ("certificate", "key")
    return tuple(read_pem(name, Path(getattr(config, name))) for name in names)


def _context(certificate: Pem, key: Pem) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(certificate.path, key.path, password="")  # else OpenSSL would prompt on the terminal
    except OSError as error:
        raise certificate.bad(f"cannot be used: {_reason(error)}") from error
    return context


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error)
