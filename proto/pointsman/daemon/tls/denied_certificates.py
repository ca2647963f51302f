"""The file of client certificates that are refused although their authority signed them: stolen keys, old hosts.

One line for each, ``sha256:HEX`` (the fingerprint of the certificate) or ``serial:HEX`` (of any authority in
``tls.client_ca``), in the forms that openssl prints; text after it and lines that begin with # are comments.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import NamedTuple

from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.wire.refusals import shown

MAX_FILE_BYTES = 1024 * 1024
MAX_SHOWN_PROBLEMS = 20
_ENTRY = re.compile(r"(sha256|serial)[:=]([0-9A-Fa-f:]+)", re.ASCII)
_DIGEST_DIGITS, _SERIAL_DIGITS = 64, 40


class DeniedFileError(Exception):
    """The file cannot be used. ``problems`` has one line per problem."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class DeniedCertificates(NamedTuple):
    """The content of the file."""

    digests: frozenset[bytes] = frozenset()
    serials: frozenset[int] = frozenset()

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.digests) + len(self.serials)

    def has(self, certificate: ClientCertificate) -> bool:
        """Return whether a certificate is denied; one that cannot be read is, because it cannot be compared."""
        if not certificate.digest:
            return True
        return certificate.digest in self.digests or certificate.serial in self.serials


def read_denied_certificates(path: Path) -> DeniedCertificates:
    """Read the file. Blocks. Raises DeniedFileError."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DeniedFileError(f"{path}: is not a regular file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DeniedFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise DeniedFileError(f"{path}: has more than {MAX_FILE_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise DeniedFileError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    if not text:
        # A file is empty for a moment while it is written in place.
        raise DeniedFileError(f"{path}: is empty; a file without entries needs a comment line (#)")
    digests, serials, problems = set[bytes](), set[int](), list[str]()
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        entry = _ENTRY.fullmatch(words[0])
        kind, digits = (entry[1], entry[2].replace(":", "")) if entry is not None else ("", "")
        if kind == "sha256" and len(digits) == _DIGEST_DIGITS:
            digests.add(bytes.fromhex(digits))
        elif kind == "serial" and 0 < len(digits) <= _SERIAL_DIGITS:
            serials.add(int(digits, 16))
        else:
            problems.append(
                f"{path}: line {number}: {shown(words[0])} must be sha256: and {_DIGEST_DIGITS} hexadecimal digits, or "
                f"serial: and at most {_SERIAL_DIGITS}"
            )
    if problems:
        more = len(problems) - MAX_SHOWN_PROBLEMS
        raise DeniedFileError(
            *problems[:MAX_SHOWN_PROBLEMS], *([f"{path}: and {more} more problems"] if more > 0 else [])
        )
    return DeniedCertificates(frozenset(digests), frozenset(serials))
