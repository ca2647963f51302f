"""Peers that speak TLS to a daemon, and files for it that do not fit."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc
import trustme

from pointsman.daemon.tls.tls_settings import TlsConfig
from tests.kit.certificates import Files


def tls_config(files: Files, *, mutual: bool = False, **more: str) -> TlsConfig:
    """The section for these files; ``mutual``: clients of the same authority alone."""
    ca = str(files.ca) if mutual else ""
    return TlsConfig(certificate=str(files.certificate), key=str(files.key), client_ca=ca, **more)  # type: ignore[arg-type]  # texts


def channel(addr: str, ca: Path, own: Files | None = None) -> grpc.aio.Channel:
    """A separate connection to a daemon; ``own``: what it presents."""
    key, chain = (own.key.read_bytes(), own.certificate.read_bytes()) if own else (None, None)
    credentials = grpc.ssl_channel_credentials(ca.read_bytes(), key, chain)
    return grpc.aio.secure_channel(addr, credentials, options=[("grpc.use_local_subchannel_pool", 1)])


def context(ca: Path, own: Files | None = None) -> ssl.SSLContext:
    """The same for a plain TLS connection."""
    made = ssl.create_default_context(cafile=str(ca))
    if own is not None:
        made.load_cert_chain(own.certificate, own.key)
    return made


def self_signed(folder: Path) -> Files:
    """A certificate that no authority signed, and its key."""
    made = trustme.CA()
    files = Files(folder / "self.pem", folder / "self.pem", folder / "self.key")
    made.cert_pem.write_to_path(str(files.certificate))
    made.private_key_pem.write_to_path(str(files.key))
    return files
