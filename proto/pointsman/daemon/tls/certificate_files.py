"""Certificates and keys in PEM files, with checks whose errors name the file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from pointsman.daemon.tls.client_certificates import MAX_NAME_LENGTH, MAX_NAMES, ClientCertificate

MAX_PEM_BYTES = 1024 * 1024
_NO_EXTENSION = (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError)
"""Exceptions from reading an extension that is missing or damaged."""


class BadCertificate(Exception):
    """A file cannot be used; the message begins with the name of its setting."""

    def __init__(self, setting: str, path: str | Path, problem: str) -> None:
        super().__init__(f"{setting}: {str(path)!r} {problem}")
        self.setting = setting
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Pem:
    """The content of a file."""

    setting: str
    path: Path
    data: bytes

    def bad(self, problem: str) -> BadCertificate:
        """Return an error that names this file."""
        return BadCertificate(self.setting, self.path, problem)


def read_pem(setting: str, path: Path) -> Pem:
    """Read a file. Raises BadCertificate."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise BadCertificate(setting, path, f"cannot be read: {error.strerror}") from error
    if len(data) > MAX_PEM_BYTES:
        raise BadCertificate(setting, path, f"has more than {MAX_PEM_BYTES} bytes")
    return Pem(setting, path, data)


def read_certificates(pem: Pem) -> list[x509.Certificate]:
    """Return the certificates of a file, at least one. Raises BadCertificate."""
    # cryptography skips a block without its end, so a half-written chain would pass as a shorter one.
    if pem.data.count(b"-----BEGIN ") != pem.data.count(b"-----END "):
        raise pem.bad("is cut off: a block has no end")
    try:
        return x509.load_pem_x509_certificates(pem.data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise pem.bad("is not a certificate in PEM form") from error


def read_authorities(pem: Pem, *, now: datetime) -> list[x509.Certificate]:
    """Return the authorities' certificates, at least one of them valid now. Raises BadCertificate."""
    found = read_certificates(pem)
    for each in found:
        if not _is_authority(each):
            raise pem.bad(f"holds the certificate of {name_of(each)!r}, which may not sign others")
    if not any(each.not_valid_before_utc <= now <= each.not_valid_after_utc for each in found):
        raise pem.bad("holds no certificate that is valid now")
    return found


def check_pair(certificate: Pem, key: Pem, *, now: datetime) -> list[x509.Certificate]:
    """Return the certificates of a file; the first is valid now and belongs to ``key``. Raises BadCertificate."""
    chain = read_certificates(certificate)
    for each in chain:
        if now > each.not_valid_after_utc:
            raise certificate.bad(f"expired at {each.not_valid_after_utc:%Y-%m-%d %H:%M} UTC ({name_of(each)})")
        if now < each.not_valid_before_utc:
            raise certificate.bad(f"is valid from {each.not_valid_before_utc:%Y-%m-%d %H:%M} UTC ({name_of(each)})")
    try:
        private = load_pem_private_key(key.data, password=None)
    except TypeError as error:
        raise key.bad("is encrypted: store it without a password, readable by the daemon alone") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise key.bad("is not a private key in PEM form") from error
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        public = chain[0].public_key().public_bytes(*form)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise certificate.bad("has a public key of an unknown kind") from error
    if private.public_key().public_bytes(*form) != public:
        raise key.bad(f"is not the key of {str(certificate.path)!r}")
    for child, issuer in pairwise(chain):
        if not is_issued_by(child, [issuer]):
            raise certificate.bad(f"is out of order: {name_of(child)!r} is not followed by its issuer")
    return chain


def is_issued_by(certificate: x509.Certificate, issuers: Sequence[x509.Certificate]) -> bool:
    """Return whether one of these signed it."""
    for issuer in issuers:
        try:
            certificate.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return True
    return False


def name_of(certificate: x509.Certificate) -> str:
    """Return its names for operators: those that peers compare, else its subject."""
    return ", ".join(alternative_names(certificate)) or certificate.subject.rfc4514_string() or "no name"


def alternative_names(certificate: x509.Certificate) -> list[str]:
    """Return DNS names, addresses and URIs."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except _NO_EXTENSION:
        return []
    return [
        str(each.value)
        for each in names
        if isinstance(each, x509.DNSName | x509.IPAddress | x509.UniformResourceIdentifier)
    ]


def read_client_certificate(encoded: bytes) -> ClientCertificate:
    """Read a certificate that TLS has verified, in PEM or DER; with a problem, it has no names."""
    digest, serial = b"", 0
    try:
        is_pem = encoded.startswith(b"-----BEGIN")
        certificate = x509.load_pem_x509_certificate(encoded) if is_pem else x509.load_der_x509_certificate(encoded)
        digest = hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()
        serial = certificate.serial_number
        names = _identities(certificate)
    except Exception as error:  # noqa: BLE001  # any parser error on foreign bytes
        return ClientCertificate(digest, serial, problem=f"cannot be read: {error!r}"[:MAX_NAME_LENGTH])
    if len(names) > MAX_NAMES or any(len(name) > MAX_NAME_LENGTH for name in names):
        problem = f"has more than {MAX_NAMES} names, or one of more than {MAX_NAME_LENGTH} characters"
        return ClientCertificate(digest, serial, problem=problem)
    return ClientCertificate(digest, serial, names)


def _identities(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return DNS names and URIs, else the common name. Raises an error of the parser."""
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = []
    else:
        kinds = (x509.DNSName, x509.UniformResourceIdentifier)
        names = [each.value for each in alternative if isinstance(each, kinds) and each.value]
    if names:
        return tuple(names)
    common = [each.value for each in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return tuple(name for name in common if isinstance(name, str) and name) if len(common) == 1 else ()


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except _NO_EXTENSION:
        return False
