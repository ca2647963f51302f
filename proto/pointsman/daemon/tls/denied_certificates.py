"""The file of client certificates that are refused although their authority signed them: stolen keys, old hosts.

One line for each, ``sha256:HEX`` (the fingerprint of the certificate) or ``serial:HEX`` (of any authority in
``tls.client_ca``), in the forms that openssl prints; text after it and lines that begin with # are comments.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from pointsman.daemon.entry_file import read_entries
from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.wire.refusals import shown

_ENTRY = re.compile(r"(sha256|serial)[:=]([0-9A-Fa-f:]+)", re.ASCII)
_DIGEST_DIGITS, _SERIAL_DIGITS = 64, 40


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
    """Read the file. Blocks. Raises EntryFileError."""
    digests, serials = set[bytes](), set[int]()

    def take(words: list[str]) -> str | None:
        entry = _ENTRY.fullmatch(words[0])
        kind, digits = (entry[1], entry[2].replace(":", "")) if entry is not None else ("", "")
        if kind == "sha256" and len(digits) == _DIGEST_DIGITS:
            digests.add(bytes.fromhex(digits))
        elif kind == "serial" and 0 < len(digits) <= _SERIAL_DIGITS:
            serials.add(int(digits, 16))
        else:
            return (
                f"{shown(words[0])} must be sha256: and {_DIGEST_DIGITS} hexadecimal digits, or serial: and at most "
                f"{_SERIAL_DIGITS}"
            )
        return None

    read_entries(path, take, entries="entries")
    return DeniedCertificates(frozenset(digests), frozenset(serials))
