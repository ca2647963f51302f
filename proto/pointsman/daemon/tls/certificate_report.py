"""The table of `certs check`: each TLS file of a configuration, and its problems."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509

from pointsman.daemon.entry_file import EntryFileError
from pointsman.daemon.tls.certificate_files import (
    BadCertificate,
    alternative_names,
    check_pair,
    is_issued_by,
    read_authorities,
    read_certificates,
    read_pem,
)
from pointsman.daemon.tls.denied_certificates import read_denied_certificates

SECONDS_A_DAY = 86_400.0
HEADINGS = ("SETTING", "FILE", "NAMES", "EXPIRES", "DAYS", "RESULT")


@dataclass(frozen=True, slots=True)
class Row:
    """A certificate or a key."""

    setting: str
    path: str
    subject: str = ""
    names: Sequence[str] = ()
    expires_at: datetime | None = None
    days_left: float | None = None
    problems: list[str] = field(default_factory=list)
    note: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the JSON document."""
        return {
            "setting": self.setting,
            "file": self.path,
            "subject": self.subject,
            "names": list(self.names),
            "expiresAt": self.expires_at.isoformat() if self.expires_at else None,
            "daysLeft": None if self.days_left is None else round(self.days_left, 2),
            "problems": self.problems,
            "note": self.note,
        }

    def as_cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        return (
            self.setting,
            self.path,
            ", ".join(self.names) or self.subject or "-",
            f"{self.expires_at:%Y-%m-%d}" if self.expires_at else "-",
            "-" if self.days_left is None else f"{self.days_left:.0f}",
            "; ".join(self.problems) or (f"ok, {self.note}" if self.note else "ok"),
        )


def check_files(config: object, *, now: datetime, days: float, ca: Path | None) -> list[Row]:
    """Check every section with a certificate, key or CA. ``ca``: must have issued the certificates."""
    return [
        row
        for section in dataclasses.fields(config)  # type: ignore[arg-type]  # any dataclass instance
        for row in _check_section(section.name, getattr(config, section.name), now=now, days=days, ca=ca)
    ]


def table(rows: Sequence[Row]) -> str:
    """Format the rows as a table."""
    cells = [tuple(_printable(cell) for cell in row.as_cells()) for row in rows]
    lines = [HEADINGS, *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _denied(name: str, path: str) -> Row:
    """Return the row of a file of denied certificates."""
    try:
        denied = read_denied_certificates(Path(path))
    except EntryFileError as error:
        return Row(name, path, problems=[problem.removeprefix(f"{path}: ") for problem in error.problems])
    return Row(name, path, note=f"{len(denied)} denied")


def _check_section(name: str, section: Any, *, now: datetime, days: float, ca: Path | None) -> Iterator[Row]:  # noqa: ANN401  # any dataclass
    if denied := getattr(section, "denied_certificates", ""):
        yield _denied(f"{name}.denied_certificates", denied)
    given = {key: getattr(section, key, "") for key in ("certificate", "key", "client_ca", "ca")}
    paths = {key: Path(value) for key, value in given.items() if isinstance(value, str) and value}
    authorities: list[x509.Certificate] = []
    for key in ("client_ca", "ca"):
        if key in paths:
            rows, authorities = _read(f"{name}.{key}", paths[key], now=now, days=days)
            try:
                read_authorities(read_pem(key, paths[key]), now=now)
            except BadCertificate as error:
                rows[0].problems.insert(0, error.problem)
            yield from rows
    if "certificate" not in paths or "key" not in paths:
        return
    rows, chain = _read(f"{name}.certificate", paths["certificate"], now=now, days=days)
    key_row = Row(f"{name}.key", str(paths["key"]), note="belongs to the certificate")
    try:
        certificate = read_pem("certificate", paths["certificate"])
        check_pair(certificate, read_pem("key", paths["key"]), now=now)
    except BadCertificate as error:
        problems = (key_row if error.setting == "key" else rows[0]).problems
        if error.problem not in problems:
            problems.insert(0, error.problem)
    if chain and ca is not None and not _comes_from(chain, read_authorities(read_pem("ca", ca), now=now)):
        rows[0].problems.append(f"was not issued by {str(ca)!r}, with the intermediates in the file")
    elif chain and authorities and not _comes_from(chain, authorities):
        rows[0] = dataclasses.replace(rows[0], note=f"not issued by the CA of [{name}]")
    if rows[0].problems and not key_row.problems:
        key_row = dataclasses.replace(key_row, note="")
    yield from [*rows, key_row]


def _read(setting: str, path: Path, *, now: datetime, days: float) -> tuple[list[Row], list[x509.Certificate]]:
    """Return a row for each certificate of a file; if it cannot be read, one with the problem."""
    try:
        found = read_certificates(read_pem(setting, path))
    except BadCertificate as error:
        return [Row(setting, str(path), problems=[error.problem])], []
    rows = []
    for each in found:
        left = (each.not_valid_after_utc - now).total_seconds() / SECONDS_A_DAY
        problems = [f"expires in {left:.1f} days"] if 0 <= left < days else []
        if left < 0:
            problems = [f"expired {-left:.1f} days ago"]
        subject, names = each.subject.rfc4514_string(), alternative_names(each)
        rows.append(Row(setting, str(path), subject, names, each.not_valid_after_utc, left, problems))
    return rows, found


def _comes_from(chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]) -> bool:
    return any(each in authorities or is_issued_by(each, authorities) for each in chain)
