"""The file of denied certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.daemon.entry_file import MAX_FILE_BYTES, EntryFileError
from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.daemon.tls.denied_certificates import read_denied_certificates

DIGEST = "ab" * 32


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "denied"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_certificates_are_denied_by_fingerprint_or_serial_number(tmp_path: Path) -> None:
    colons = ":".join(["CD"] * 32)
    content = f"# stolen\nsha256:{DIGEST}\nsha256={colons} of broker-a\n\nserial=0A1F the old host\nserial:ff\n"
    denied = read_denied_certificates(write(tmp_path, content))
    assert len(denied) == 4
    assert denied.has(ClientCertificate(bytes.fromhex(DIGEST), 1))
    assert denied.has(ClientCertificate(b"\xcd" * 32, 1))
    assert denied.has(ClientCertificate(b"other", 0x0A1F))
    assert denied.has(ClientCertificate(b"other", 255))
    assert not denied.has(ClientCertificate(b"other", 1))
    assert denied.has(ClientCertificate(b"", problem="cannot be read"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is empty"),
        (b"\xff", "is not UTF-8 text"),
        ("#" * (MAX_FILE_BYTES + 1), "has more than"),
        ("# ok\nsha256:12", "line 2: 'sha256:12' must be sha256: and 64 hexadecimal digits"),
        ("serial:", "line 1: 'serial:'"),
        ("serial:" + "1" * 41, "at most 40"),
        (DIGEST, "must be sha256:"),
        ("x\n" * 30, "and 10 more problems"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | bytes, problem: str) -> None:
    with pytest.raises(EntryFileError) as refused:
        read_denied_certificates(write(tmp_path, content))
    assert problem in str(refused.value)
    assert str(tmp_path / "denied") in str(refused.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(EntryFileError, match=str(path)):
            read_denied_certificates(path)
