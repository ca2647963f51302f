"""The section [tls], and which addresses are served without it."""

from __future__ import annotations

import pytest

from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman.names import is_loopback
from pointsman_namesrv.config import NameServerConfig, RemotingConfig, ServerConfig

ON = TlsConfig(certificate="c.pem", key="k.pem")
PERMISSIVE = RemotingConfig(listen="0.0.0.0:9875", tls="permissive")


@pytest.mark.parametrize(
    ("addr", "expected"),
    [
        ("127.0.0.1:9876", True),
        ("127.8.0.1:0", True),
        ("[::1]:9876", True),
        ("localhost:9876", True),
        ("0.0.0.0:9876", False),
        ("[::]:9876", False),
        ("10.0.0.1:9876", False),
        ("localhost.example:9876", False),
        ("ns1:9876", False),
    ],
)
def test_loopback_addresses_are_recognised(addr: str, expected: bool) -> None:
    assert is_loopback(addr) is expected


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        ({}, []),
        ({"certificate": "c.pem"}, ["key: must be given with certificate"]),
        ({"key": "k.pem"}, ["certificate: must be given with key"]),
        ({"client_ca": "ca.pem"}, ["certificate: must be given with client_ca"]),
        ({"client_certificate": "never"}, ["client_certificate: 'never' is none of required, optional"]),
        (
            {"client_ca": "a\nb", "certificate": "c", "key": "k"},
            ["client_ca: 'a\\nb' must not hold control characters"],
        ),
    ],
)
def test_files_are_given_together(settings: dict[str, str], problems: list[str]) -> None:
    assert list(TlsConfig(**settings).problems()) == problems  # type: ignore[arg-type]  # all are texts


@pytest.mark.parametrize(
    ("config", "faults"),
    [
        (NameServerConfig(), []),
        (NameServerConfig(server=ServerConfig(listen="0.0.0.0:9876")), ["server.listen"]),
        (NameServerConfig(server=ServerConfig(listen="0.0.0.0:9876"), tls=ON), []),
        (NameServerConfig(remoting=RemotingConfig(listen="10.0.0.1:9875")), ["remoting.listen"]),
        (NameServerConfig(remoting=RemotingConfig(listen="10.0.0.1:9875"), tls=ON), []),
        (NameServerConfig(remoting=PERMISSIVE, tls=ON), ["remoting.listen"]),
        (
            NameServerConfig(
                server=ServerConfig(listen="0.0.0.0:9876"),
                remoting=PERMISSIVE,
                tls=TlsConfig(plaintext_beyond_loopback=True),
            ),
            [],
        ),
    ],
)
def test_plaintext_beyond_loopback_is_an_error_that_names_both_solutions(
    config: NameServerConfig, faults: list[str]
) -> None:
    problems = list(config.problems())
    assert [line.partition(":")[0] for line in problems] == faults
    for line in problems:
        assert "tls.plaintext_beyond_loopback = true" in line
        assert ("tls.certificate and tls.key" if not config.tls.is_on else "remoting.tls = 'required'") in line
