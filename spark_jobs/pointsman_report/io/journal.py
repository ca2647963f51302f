"""A set of folder moves that are all made or none, even if the process is killed between two of them.

The moves are written to a journal before the first one is made. A run that fails undoes its moves and deletes the
journal. If a run is killed, the next run that locks the warehouse finishes the moves: everything to be moved was
complete before the journal was written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from pointsman_report.hadoop_files import Files


@dataclass(frozen=True, slots=True)
class Replacement:
    """A folder that replaces a published one; either may be missing, but not both."""

    published: str
    staged: str | None
    old: str | None
    """Where the published folder is moved; None if there is none."""


class Journal:
    """The file that lists the moves in progress."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def execute(self, replacements: list[Replacement]) -> None:
        """Make all moves, or undo those already made.

        Raises:
            OSError: a move failed.
        """
        rows = [[each.published, each.staged, each.old] for each in replacements]
        moves: list[tuple[str, str]] = []

        def move(source: str, target: str) -> None:
            # Recorded first: an interrupt may come between the two.
            moves.append((source, target))
            self._files.move(source, target)

        try:
            self._files.write(self._path, json.dumps(rows))
            for each in replacements:
                if each.old is not None:
                    move(each.published, each.old)
                if each.staged is not None:
                    move(each.staged, each.published)
            self._files.delete(self._path)
        except BaseException:  # undoes its moves, and raises again
            for source, target in reversed(moves):
                if self._files.exists(target) and not self._files.exists(source):
                    self._files.move(target, source)
            self._files.delete(self._path)
            raise

    def is_open(self) -> bool:
        """Return whether moves were begun that are neither completed nor undone."""
        return self._files.exists(self._path)

    def finish(self) -> int:
        """Finish the moves of a killed process; return the number of folders."""
        replacements = self._left()
        for each in replacements:
            if each.old is not None and not self._files.exists(each.old) and self._files.exists(each.published):
                self._files.move(each.published, each.old)
            if each.staged is not None and self._files.exists(each.staged):
                self._files.move(each.staged, each.published)
        self._files.delete(self._path)
        return len(replacements)

    def _left(self) -> list[Replacement]:
        text = self._files.text(self._path)
        return [] if text is None else [Replacement(*row) for row in json.loads(text)]


def folders_of(replacements: Iterable[Replacement]) -> set[str]:
    """Return the folders that must exist before the first move."""
    targets = (path for each in replacements for path in (each.published, each.old) if path is not None)
    return {path.rpartition("/")[0] for path in targets}
