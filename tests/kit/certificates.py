"""Certificates of a test's own authority, made on the fly."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

DNS, MAIL, URI = 0x82, 0x81, 0x86
"""Kinds of names in a SAN."""
Name = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files of one side."""

    ca: Path
    """The authority of the other side's certificate."""
    certificate: Path
    key: Path


class Authority:
    """A certificate authority; ``folder`` gets its files."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self._ca = trustme.CA()
        self.file = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(
        self,
        name: str,
        *identities: str,
        begins: dt.datetime | None = None,
        expires: dt.datetime | None = None,
    ) -> Files:
        """Write ``name``.pem and ``name``.key, for these DNS names and addresses (by default for loopback).

        Written again under the same name they are a rotation: each file is replaced as a whole.
        """
        names = identities or ("localhost", "127.0.0.1", "::1")
        issued = self._ca.issue_cert(*names, not_before=begins, not_after=expires)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return self._write(name, chain, issued.private_key_pem.bytes())

    def sign(self, name: str, *names: Name, common_names: Sequence[str] = (), san: bytes | None = None) -> Files:
        """As :meth:`issue`, with whatever an authority might sign as requested: any bytes of any kind of name.

        ``san``: the extension in place of that of ``names``.
        """
        key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in common_names])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(x509.load_pem_x509_certificate(self._ca.cert_pem.bytes()).subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
        )
        if names or san is not None:
            encoded = _general_names(names) if san is None else san
            oid = ExtensionOID.SUBJECT_ALTERNATIVE_NAME
            builder = builder.add_extension(x509.UnrecognizedExtension(oid, encoded), critical=False)
        issuer = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), password=None)
        made = builder.sign(issuer, hashes.SHA256())  # type: ignore[arg-type]  # an EC key
        pem = serialization.Encoding.PEM
        form, no_password = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self._write(name, made.public_bytes(pem), key.private_bytes(pem, form, no_password))

    def _write(self, name: str, certificate: bytes, key: bytes) -> Files:
        files = Files(self.file, self.folder / f"{name}.pem", self.folder / f"{name}.key")
        for path, pem in ((files.key, key), (files.certificate, certificate)):
            fresh = path.with_suffix(f"{path.suffix}.new")
            fresh.write_bytes(pem)
            fresh.replace(path)
        return files


def der(files: Files) -> bytes:
    """The first certificate of a side, as it is on the wire."""
    certificate = x509.load_pem_x509_certificates(files.certificate.read_bytes())[0]
    return certificate.public_bytes(serialization.Encoding.DER)


def _general_names(names: Sequence[Name]) -> bytes:
    """Encode a SAN without a check of its content."""
    return _tagged(0x30, b"".join(_tagged(kind, value) for kind, value in names))


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 0x80 else b"\x82" + size.to_bytes(2, "big")  # DER
    return bytes([tag]) + length + content
