"""Check files of raw history against the published JSON Schema of a row, without Spark or Java."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointsman_report.report_errors import ReportError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


class UnreadableFileError(ReportError):
    """A file that cannot be opened or unpacked; the message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in one line."""

    file: str
    line: int
    field: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field}: {self.problem}"


@cache
def row_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a row."""
    text = resources.files("pointsman_report").joinpath("registration_event.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def known_events() -> frozenset[str]:
    """Event names in the schema; others are allowed."""
    return frozenset(row_schema()["properties"]["event"]["examples"])


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number the lines of a plain or gzipped file, line ends included.

    Raises:
        UnreadableFileError: the file cannot be opened, or is not a gzip.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                yield number, line
    except EOFError:
        # A gzip cut by a crash: its complete lines were returned.
        yield number + 1, b""
    except (OSError, zlib.error) as error:
        raise UnreadableFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def problems_of(path: Path) -> Iterator[Problem | None]:
    """Yield the problems of each line, or None for a valid one."""
    # Imported late: only this function needs it.
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    validator = Draft202012Validator(row_schema())
    for number, line in lines_of(path):
        errors = list(_errors(line, validator))
        if not errors:
            yield None
        for field, problem in errors:
            yield Problem(str(path), number, field, problem)


def _errors(line: bytes, validator: Validator) -> Iterator[tuple[str, str]]:
    if not line:
        yield "line", "torn: the gzip ends in the middle"
        return
    if not line.strip():
        yield "line", "empty"
        return
    if line.startswith(codecs.BOM_UTF8):
        # Python ignores it, other readers do not.
        yield "line", "begins with a byte order mark"
        return
    try:
        row = json.loads(line)
        found_errors = sorted(validator.iter_errors(row), key=lambda found: found.json_path)
    except RecursionError:
        yield "line", "nested too deeply"
        return
    except ValueError as error:
        # Only a crash leaves a line without a line end.
        torn = not line.endswith(b"\n")
        yield "line", "torn: the file ends in the middle of a row" if torn else f"not JSON: {error}"
        return
    for found in found_errors:
        missing = found.validator == "required"
        field = found.message.split("'")[1] if missing else ".".join(map(str, found.absolute_path)) or "line"
        yield field, "missing" if missing else found.message
