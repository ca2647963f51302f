"""Small text files that operators write: one entry per line. Empty lines and lines that begin with # are comments."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

MAX_FILE_BYTES = 1024 * 1024
MAX_SHOWN_PROBLEMS = 20


class EntryFileError(Exception):
    """The file cannot be used. ``problems`` has one line per problem."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read_entries(path: Path, take: Callable[[list[str]], str | None], *, entries: str) -> None:
    """Call ``take`` with the words of each entry; it returns the problem of the entry, or None.

    Blocks. ``entries``: what the file has, for its errors. Raises EntryFileError.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise EntryFileError(f"{path}: is not a regular file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise EntryFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise EntryFileError(f"{path}: has more than {MAX_FILE_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise EntryFileError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    if not text:
        # A file is empty for a moment while it is written in place.
        raise EntryFileError(f"{path}: is empty; a file without {entries} needs a comment line (#)")
    problems = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        if words and not words[0].startswith("#") and (problem := take(words)) is not None:
            problems.append(f"{path}: line {number}: {problem}")
    if len(problems) > MAX_SHOWN_PROBLEMS:
        problems[MAX_SHOWN_PROBLEMS:] = [f"{path}: and {len(problems) - MAX_SHOWN_PROBLEMS} more problems"]
    if problems:
        raise EntryFileError(*problems)
