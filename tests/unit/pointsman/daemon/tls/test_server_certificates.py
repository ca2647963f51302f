"""A daemon's certificate files: errors at the start, and a failed rotation, which changes nothing."""

from __future__ import annotations

import base64
import datetime as dt
import logging
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from prometheus_client import CollectorRegistry

from pointsman.config import ConfigError
from pointsman.daemon.tls.certificate_files import MAX_PEM_BYTES
from pointsman.daemon.tls.server_certificates import ServerCertificates
from pointsman.daemon.tls.tls import check_certificates, load_certificates
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman.manual_clock import ManualClock
from tests.kit.certificates import Authority, Files

Break = Callable[[Files, Authority], object]


def config_of(files: Files) -> TlsConfig:
    return TlsConfig(certificate=str(files.certificate), key=str(files.key), client_ca=str(files.ca))


def of_now(clock: ManualClock, days: float) -> dt.datetime:
    return clock.utc_now() + dt.timedelta(days=days)


@pytest.fixture
def files(authority: Authority, clock: ManualClock) -> Files:
    return authority.issue("server", expires=of_now(clock, 90))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def served(files: Files, registry: CollectorRegistry, clock: ManualClock) -> ServerCertificates:
    return ServerCertificates(config_of(files), prefix="p", registry=registry, clock=clock)


def encrypt(key: Path) -> None:
    private = load_pem_private_key(key.read_bytes(), password=None)
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    key.write_bytes(private.private_bytes(*form))


def cut(path: Path, share: float = 0.5) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def expired(files: Files, authority: Authority) -> None:
    authority.issue(files.key.stem, expires=dt.datetime(2025, 12, 31, tzinfo=dt.UTC))


FAULTS: list[tuple[str, Break, str]] = [
    ("missing", lambda files, _: files.certificate.unlink(), r"tls\.certificate: '.*server\.pem' cannot be read"),
    ("a folder", lambda files, _: put_folder(files.key), r"tls\.key: '.*' cannot be read: Is a dir"),
    ("half-written certificate", lambda files, _: cut(files.certificate), r"tls\.certificate: '.*' is cut off"),
    ("half-written key", lambda files, _: cut(files.key), r"tls\.key: '.*server\.key' is not a private key"),
    ("empty", lambda files, _: files.certificate.write_bytes(b""), r"tls\.certificate: .* is not a certificate in PEM"),
    ("no PEM", lambda files, _: files.certificate.write_bytes(b"\x30\x82"), r"certificate: .* is not a certificate in"),
    ("too large", lambda files, _: files.key.write_bytes(bytes(MAX_PEM_BYTES + 1)), r"key: .* has more than 10485"),
    ("encrypted key", lambda files, _: encrypt(files.key), r"tls\.key: '.*' is encrypted: store it without a password"),
    (
        "of next year",
        lambda files, authority: authority.issue(files.key.stem, begins=dt.datetime(2027, 1, 1, tzinfo=dt.UTC)),
        r"tls\.certificate: '.*' is valid from 2027-01-01 00:00 UTC",
    ),
    ("expired", expired, r"tls\.certificate: '.*' expired at 2025-12-31 00:00 UTC \(localhost, 127\.0\.0\.1, ::1\)"),
    (
        "another's key",
        lambda files, authority: authority.issue("other").key.replace(files.key),
        r"tls\.key: '.*server\.key' is not the key of '.*server\.pem'",
    ),
    (
        "swapped",
        lambda files, _: (
            files.key.replace(files.key.with_suffix(".x")),
            files.certificate.replace(files.key),
            files.key.with_suffix(".x").replace(files.certificate),
        ),
        r"tls\.certificate: '.*' is not a certificate in PEM form",
    ),
    (
        "a chain in disorder",
        lambda files, authority: files.certificate.write_bytes(
            files.certificate.read_bytes() + authority.issue("other").certificate.read_bytes()
        ),
        r"tls\.certificate: '.*' is out of order: 'localhost, .*' is not followed by its issuer",
    ),
    (
        "a client CA that is none",
        lambda files, _: files.ca.write_bytes(files.certificate.read_bytes()),
        r"tls\.client_ca: '.*ca\.pem' holds the certificate of 'localhost, .*', which may not sign others",
    ),
    ("half-written CA", lambda files, _: cut(files.ca), r"tls\.client_ca: '.*ca\.pem' is cut off"),
]  # fmt: skip
NAMES = [name for name, _, _ in FAULTS]


@pytest.mark.parametrize(("break_it", "problem"), [fault[1:] for fault in FAULTS], ids=NAMES)
def test_at_the_start_an_error_names_the_file_and_the_problem(
    files: Files, authority: Authority, clock: ManualClock, break_it: Break, problem: str
) -> None:
    check_certificates(config_of(files), clock=clock)
    break_it(files, authority)
    with pytest.raises(ConfigError, match=problem):
        check_certificates(config_of(files), clock=clock)


@pytest.mark.parametrize(("break_it", "problem"), [fault[1:] for fault in FAULTS], ids=NAMES)
def test_a_faulty_rotation_keeps_the_last_valid_files_and_logs_once(
    files: Files,
    authority: Authority,
    served: ServerCertificates,
    registry: CollectorRegistry,
    caplog: pytest.LogCaptureFixture,
    break_it: Break,
    problem: str,
) -> None:
    caplog.set_level(logging.INFO)
    before = served.context
    break_it(files, authority)
    for _ in range(3):
        served.poll()
    assert served.context is before
    assert registry.get_sample_value("p_tls_reload_failures_total") == 3
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("TLS files invalid, the last valid ones stay in use: ")
    with pytest.raises(ConfigError, match=problem):
        raise ConfigError([line.removeprefix("TLS files invalid, the last valid ones stay in use: ")])
    assert served.problems()


def test_any_damaged_byte_is_an_error_or_harmless(files: Files, clock: ManualClock, served: ServerCertificates) -> None:
    chance = random.Random(21)
    found = set()
    for path in (files.certificate, files.key, files.ca):
        good = path.read_bytes()
        (block,) = re.findall(rb"-----\n(.*)-----END", good, re.DOTALL)[:1]
        der = bytearray(base64.b64decode(block))
        for _ in range(150):
            damaged = bytearray(der)
            damaged[chance.randrange(len(der))] ^= 1 << chance.randrange(8)
            path.write_bytes(good.replace(block, base64.encodebytes(damaged)))
            served.poll()
            found.update(served.problems())
            try:
                check_certificates(config_of(files), clock=clock)
            except ConfigError:
                continue
        path.write_bytes(good)
    served.poll()
    assert served.problems() == []
    assert len(found) > 3


def test_a_repaired_error_is_logged_and_the_new_files_are_served(
    files: Files, authority: Authority, served: ServerCertificates, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    before = served.context
    cut(files.key)
    served.poll()
    authority.issue("server", expires=of_now(clock, 30))
    served.poll()
    served.poll()
    assert served.context is not before
    assert served.problems() == []
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "TLS files invalid, the last valid ones stay in use",
        "TLS files reloaded",
    ]


def test_files_restored_after_an_error_are_no_longer_a_problem(files: Files, served: ServerCertificates) -> None:
    before, context = files.key.read_bytes(), served.context
    cut(files.key)
    served.poll()
    files.key.write_bytes(before)
    served.poll()
    assert served.problems() == []
    assert served.context is context


def test_the_metric_has_the_expiry_of_the_served_certificate(
    authority: Authority, served: ServerCertificates, registry: CollectorRegistry, clock: ManualClock
) -> None:
    def shown() -> float | None:
        return registry.get_sample_value("p_tls_certificate_expiry_timestamp_seconds")

    assert shown() == of_now(clock, 90).timestamp()
    authority.issue("server", expires=of_now(clock, 7))
    served.poll()
    assert shown() == of_now(clock, 7).timestamp()


async def test_a_certificate_that_expires_in_use_is_a_problem(served: ServerCertificates, clock: ManualClock) -> None:
    assert served.problems() == []
    await clock.advance(91 * 86_400.0)
    assert "expired" in served.problems()[0]


def test_without_files_there_is_nothing_to_read(registry: CollectorRegistry, clock: ManualClock) -> None:
    assert load_certificates(TlsConfig(), prefix="p", registry=registry, clock=clock) is None
    assert list(registry.collect()) == []


def test_without_client_ca_no_certificate_is_requested(files: Files, clock: ManualClock) -> None:
    config = replace(config_of(files), client_ca="")
    served = ServerCertificates(config, prefix="p", registry=CollectorRegistry(), clock=clock)
    assert served.context.verify_mode == served.open_context.verify_mode
