"""Certificates of a test's own authority, made on the fly."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import trustme


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
        files = Files(self.file, self.folder / f"{name}.pem", self.folder / f"{name}.key")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        for path, pem in ((files.key, issued.private_key_pem.bytes()), (files.certificate, chain)):
            fresh = path.with_suffix(f"{path.suffix}.new")
            fresh.write_bytes(pem)
            fresh.replace(path)
        return files
