"""Which settings and files of credentials are accepted, and the errors of the others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pointsman.wire.channel_opener import ChannelOpener, explain_connection_failure
from pointsman.wire.credentials import Credentials, CredentialsError
from tests.kit.certificates import Authority, Files

DAMAGED = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Authority(tmp_path).issue("client")


def credentials(**settings: Path | str) -> Credentials:
    return Credentials(**{name: str(value) for name, value in settings.items()})  # type: ignore[arg-type]  # all are str


def problems(**settings: Path | str) -> list[str]:
    return list(credentials(**settings).problems())


def test_complete_files_are_accepted(files: Files, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(b"s3cret-._~+/=\r\n")
    assert problems(ca=files.ca, certificate=files.certificate, key=files.key, token_file=token) == []
    assert not list(Credentials().problems())


def test_tls_is_on_with_any_of_its_settings(files: Files) -> None:
    assert credentials(ca=files.ca).uses_tls
    assert Credentials(tls=True).uses_tls
    assert Credentials(server_name="ns1").uses_tls
    assert not Credentials(token_file="token").uses_tls


def test_certificate_and_key_come_together(files: Files) -> None:
    assert problems(certificate=files.certificate) == [
        "key: is missing; certificate is set, and they are used together"
    ]
    assert problems(key=files.key) == ["certificate: is missing; key is set, and they are used together"]


def test_a_key_of_another_certificate_is_named(files: Files, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other").issue("other")
    assert problems(certificate=files.certificate, key=other.key) == [
        f"key: {other.key} does not belong to the certificate {files.certificate}"
    ]


def test_every_file_that_cannot_be_read_is_named(files: Files, tmp_path: Path) -> None:
    absent, pipe = tmp_path / "absent.pem", tmp_path / "pipe"
    os.mkfifo(pipe)
    assert problems(ca=absent, certificate=tmp_path, key=files.key, token_file=pipe) == [
        f"ca: {absent} cannot be read: No such file or directory",
        f"certificate: {tmp_path} is not a file",
        f"token_file: {pipe} is not a file",
    ]
    assert problems(ca="a\0b") == ["ca: a\0b cannot be read: embedded null byte"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_named(files: Files) -> None:
    files.key.chmod(0)
    assert problems(certificate=files.certificate, key=files.key) == [
        f"key: {files.key} cannot be read: Permission denied"
    ]


@pytest.mark.parametrize("field", ["ca", "certificate", "key"])
def test_half_written_files_are_named(files: Files, field: str) -> None:
    file: Path = getattr(files, field)
    file.write_bytes(file.read_bytes()[:-15])
    assert problems(ca=files.ca, certificate=files.certificate, key=files.key) == [
        f"{field}: {file} is cut short or damaged: a BEGIN line has no END line"
    ]
    file.write_bytes(b"")
    block = "PRIVATE KEY" if field == "key" else "CERTIFICATE"
    assert problems(ca=files.ca, certificate=files.certificate, key=files.key) == [
        f"{field}: {file} has no PEM block {block}"
    ]


def test_a_pem_file_without_a_certificate_is_reported(files: Files, tmp_path: Path) -> None:
    damaged, key = tmp_path / "damaged.pem", tmp_path / "damaged.key"
    damaged.write_bytes(DAMAGED)
    key.write_bytes(DAMAGED.replace(b"CERTIFICATE", b"PRIVATE KEY"))
    (problem,) = problems(ca=damaged)
    assert problem.startswith(f"ca: {damaged} has a certificate that cannot be decoded")
    (problem,) = problems(certificate=files.certificate, key=key)
    assert problem.startswith(f"key: {key} cannot be used with the certificate {files.certificate}")


def test_files_in_the_wrong_field_are_named(files: Files) -> None:
    assert problems(ca=files.ca, certificate=files.key, key=files.certificate) == [
        f"certificate: {files.key} has no PEM block CERTIFICATE",
        f"key: {files.certificate} has no PEM block PRIVATE KEY",
    ]


def test_a_key_with_a_passphrase_is_refused_without_a_prompt(files: Files, tmp_path: Path) -> None:
    encrypted = tmp_path / "encrypted.key"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(files.key), "-passout", "pass:secret", "-out", str(encrypted)]
    subprocess.run(command, check=True, capture_output=True)
    (problem,) = problems(certificate=files.certificate, key=encrypted)
    assert problem.startswith(f"key: {encrypted} is encrypted")


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    assert problems(token_file=huge) == [f"token_file: {huge} is larger than 1048576 bytes"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"two words\n", "has a character that a token cannot have (code 32) at position 4"),
        (b" token", "has a character that a token cannot have (code 32) at position 1"),
        (b"token \n", "has a character that a token cannot have (code 32) at position 6"),
        (b"one\ntwo\n", "has a character that a token cannot have (code 10) at position 4"),
        (b"one\r\ninjected: header", "has a character that a token cannot have (code 13) at position 4"),
        (b"tab\tbed", "has a character that a token cannot have (code 9) at position 4"),
        (b"nul\0", "has a character that a token cannot have (code 0) at position 4"),
        (b"\x1b[31m", "has a character that a token cannot have (code 27) at position 1"),
        ("tökén".encode(), "has a character that a token cannot have (code 195) at position 2"),
        (b"\xef\xbb\xbftoken", "has a character that a token cannot have (code 239) at position 1"),
        (b"x" * 4_097, "has 4097 bytes, at most 4096 are allowed"),
    ],
)
def test_tokens_that_cannot_be_sent_are_refused_and_not_repeated(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    (found,) = problems(token_file=file)
    assert found.startswith(f"token_file: {file} {problem}")


def test_a_server_name_has_no_whitespace() -> None:
    assert problems(server_name="ns 1\n") == ["server_name: 'ns 1\\n' must be a host name"]


def test_an_opener_needs_files_that_can_be_used(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"token_file: .* cannot be read"):
        ChannelOpener(credentials(token_file=tmp_path / "absent"))


def test_a_client_without_a_certificate_learns_what_to_set() -> None:
    message = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: Unwrap failed (X)"
    meaning = "the server rejected the connection: set tls here, with a certificate that its client CA signed"
    assert explain_connection_failure(message) == f"{meaning} ({message})"


def test_a_failure_of_no_handshake_keeps_its_message() -> None:
    message = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Connection refused"
    assert explain_connection_failure(message) == message
    assert explain_connection_failure("Socket closed") == "Socket closed"
