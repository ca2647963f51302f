"""Names of client certificates, with whatever an authority might sign."""

from __future__ import annotations

import hashlib

import pytest
from cryptography import x509

from pointsman.daemon.tls import tls
from pointsman.daemon.tls.tls import client_certificate
from tests.kit.certificates import DNS, MAIL, URI, Authority, Name, der

ADDRESS = 0x87
X400 = 0xA3


@pytest.mark.parametrize(
    ("san", "common_names", "names"),
    [
        ([(DNS, b"a.example"), (URI, b"spiffe://x/a")], ["ignored"], ("a.example", "spiffe://x/a")),
        ([], ["broker-a"], ("broker-a",)),
        ([(ADDRESS, bytes([10, 0, 0, 1]))], ["broker-a"], ("broker-a",)),
        ([(MAIL, b"ops.example")], [], ()),
        ([(MAIL, b"ops.example"), (DNS, b"app.example")], [], ("app.example",)),
        ([(DNS, b"ops.example\0.evil")], [], ("ops.example\0.evil",)),
        ([], ["one", "two"], ()),
        ([], [], ()),
    ],
)
def test_a_peer_is_named_by_dns_names_and_uris_else_by_its_common_name(
    authority: Authority, san: list[Name], common_names: list[str], names: tuple[str, ...]
) -> None:
    read = client_certificate(der(authority.sign("peer", *san, common_names=common_names)))
    assert (read.names, read.problem) == (names, "")


def test_pem_and_der_are_read_alike(authority: Authority) -> None:
    files = authority.issue("broker", "broker-a.example")
    of_pem = client_certificate(files.certificate.read_bytes())
    assert of_pem == client_certificate(der(files))
    assert of_pem.digest == hashlib.sha256(der(files)).digest()
    assert of_pem.serial == x509.load_der_x509_certificate(der(files)).serial_number


@pytest.mark.parametrize(
    "san",
    [
        b"\x30\x04\x82\x02\xff\xfe",
        b"\x30\x03\x86\x01\xff",
        b"\x30\x03\x81\x01\xff",
        b"\x30\x09\x82\x02a",
        b"\x30\x02\xa3\x00",
    ],
    ids=["dns", "uri", "mail", "cut", "x400"],
)
def test_a_certificate_with_an_unreadable_name_has_none(authority: Authority, san: bytes) -> None:
    encoded = der(authority.sign("odd", common_names=["ops.example"], san=san))
    read = client_certificate(encoded)
    assert read.names == ()
    assert read.problem.startswith("cannot be read: ")
    assert read.digest == hashlib.sha256(encoded).digest(), "it can still be denied"
    assert read.serial == x509.load_der_x509_certificate(encoded).serial_number


def test_bytes_that_are_no_certificate_are_named() -> None:
    for encoded in (b"", b"\x30\x00", b"-----BEGIN CERTIFICATE-----\n", bytes(5_000)):
        read = client_certificate(encoded)
        assert (read.names, read.digest) == ((), b"")
        assert read.problem


def test_names_are_bounded(authority: Authority) -> None:
    many = client_certificate(der(authority.sign("many", *[(DNS, b"a%d" % number) for number in range(101)])))
    assert (many.names, many.problem) == ((), "has more than 100 names, or one of more than 2048 characters")


def test_a_certificate_is_read_once_and_the_cache_is_bounded(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_known", type(tls._known)())
    monkeypatch.setattr(tls, "MAX_KNOWN", 2)
    encoded = [der(authority.sign(f"peer-{number}", (DNS, b"a.example"))) for number in range(3)]
    assert client_certificate(encoded[0]) is client_certificate(encoded[0])
    for each in encoded:
        client_certificate(each)
    assert len(tls._known) == 2
