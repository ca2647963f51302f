"""Layout of the history on disk: ``raw/dt=YYYY-MM-DD/<node>-<boot>-<n>.jsonl``, plus ``.gz`` once closed.

A closed file may have an index, ``index/dt=YYYY-MM-DD/<file>.json``.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

_DAY = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")
_NAME = re.compile(r"\.?(?P<node>[^-]*).*\.jsonl(?P<packed>\.gz)?")
MEMBER_BYTES = 256 * 1024
"""Uncompressed bytes of one member of a gzip: questions about the past read single members."""


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file of any node's history when the folder was listed."""

    path: Path
    day: date
    """Day of the folder."""
    node: str
    size: int
    modified_at: datetime
    packed: bool
    """Whether the file is gzipped and complete: no process writes it any longer."""


def file_node(node: str) -> str:
    """Return a node's name as it occurs in file names."""
    # No colon: Hadoop reads one in a path as the end of a scheme. No dash: it separates node, boot and number.
    return re.sub(r"[^A-Za-z0-9._]", "_", node)


def day_folder(raw: Path, day: date) -> Path:
    """Return the folder of a day."""
    return raw / f"dt={day:%Y-%m-%d}"


def index_folder(raw: Path) -> Path:
    """Return the folder of the indexes."""
    return raw.with_name("index")


def index_path(raw: Path, file: HistoryFile) -> Path:
    """Return where the index of a file is, if it has one."""
    return day_folder(index_folder(raw), file.day) / f"{file.path.name}.json"


def states_path(raw: Path, file: HistoryFile) -> Path:
    """Return where the copy of a file's rows about states is, if it has one."""
    return day_folder(index_folder(raw), file.day) / f"{file.path.name.removesuffix('.gz')}.states.gz"


def folder_day(folder: Path) -> date | None:
    """Return the day of a folder; None if it is not one of the history."""
    match = _DAY.fullmatch(folder.name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def day_folders(raw: Path) -> list[tuple[date, Path]]:
    """Return the folders of days, the oldest first. Raises OSError."""
    found = [(folder_day(folder), folder) for folder in raw.iterdir()]
    return sorted((day, folder) for day, folder in found if day is not None)


def history_files(raw: Path) -> list[HistoryFile]:
    """Return every file of the history, the oldest first. Raises OSError when the folder cannot be read."""
    return [file for day, folder in day_folders(raw) for file in files_of(day, folder)]


def files_of(day: date, folder: Path) -> list[HistoryFile]:
    """Return the files of a day's folder, the oldest first; none if it does not exist."""
    return sorted(_in(day, folder), key=lambda file: (file.modified_at, file.path.name))


def _in(day: date, folder: Path) -> Iterator[HistoryFile]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return  # another node has just removed it
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        try:
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        packed = match["packed"] is not None and not entry.name.startswith(".")
        modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
        yield HistoryFile(Path(entry.path), day, match["node"], status.st_size, modified_at, packed)


def pack(path: Path) -> None:
    """Gzip a closed file by rename, without the torn last line of a killed writer. Raises OSError.

    If it fails, one complete file of the two remains.
    """
    # Hidden until it is complete: readers skip names that begin with a dot.
    partial = path.with_name(f".{path.name}.gz")
    try:
        with path.open("rb") as plain, partial.open("wb") as raw:
            while True:
                lines = plain.readlines(MEMBER_BYTES)
                is_torn = bool(lines) and not lines[-1].endswith(b"\n")
                raw.write(gzip.compress(b"".join(lines[:-1] if is_torn else lines), 6, mtime=0))
                if not lines:
                    break
            raw.flush()
            os.fsync(raw.fileno())
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path.with_name(f"{path.name}.gz"))
    path.unlink()
