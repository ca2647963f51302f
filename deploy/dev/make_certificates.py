"""Create a CA and certificates for trials: ca, server, broker-a, client, admin. Not for production.

A second run keeps the CA and renews the certificates, as in a rotation. Requires the packages of the daemons.
"""

from __future__ import annotations

import argparse
import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3_650
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; print the purpose of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the files; created if it is missing")
    parser.add_argument("--host", action="append", default=[], help="another name or address of the server")
    parser.add_argument("--client", action="append", default=[], help="the name of another client certificate")
    parser.add_argument("--days", type=float, default=90.0, help="how long the certificates are valid (90)")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    authority, key = _authority(given.folder)
    print(f"{given.folder / 'ca.pem'}: the authority; tls.client_ca of servers, ca of clients")
    certificates = {"server": (*LOOPBACK, *given.host)}
    certificates |= {name: (name,) for name in ("broker-a", "client", "admin", *given.client)}
    for name, names in certificates.items():
        _issue(given.folder, name, names, authority, key, given.days)
        print(f"{given.folder / name}.pem, .key: {', '.join(names)}, {given.days:g} days")
    return 0


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Read the authority of a folder, or make one."""
    file = folder / "ca.pem"
    if file.exists():
        key = load_pem_private_key(file.with_suffix(".key").read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return x509.load_pem_x509_certificate(file.read_bytes()), key
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name("Pointsman trial CA")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _builder(subject, subject, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(folder, "ca", made, key)
    return made, key


def _issue(
    folder: Path,
    name: str,
    names: Sequence[str],
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    days: float,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    # Servers are clients too: an agent registers, a name server asks its peers.
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if name == "server" else [])]
    made = (
        _builder(_name(name), authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(each) for each in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write(folder, name, made, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """Replace both files, each as a whole."""
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for suffix, mode, data in ((".key", 0o600, private), (".pem", 0o644, certificate.public_bytes(Encoding.PEM))):
        fresh = folder / f".{name}{suffix}.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        fresh.replace(folder / f"{name}{suffix}")


if __name__ == "__main__":
    raise SystemExit(main())
