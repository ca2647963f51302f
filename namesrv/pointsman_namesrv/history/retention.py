"""Retention of the history on disk: by age and by size, closed files only, the oldest first.

The folder counts as a whole, with the indexes, whichever node wrote the files: several nodes may share it, and no other
process cleans up after a removed node.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from pathlib import Path

from pointsman_namesrv.history.folder import HistoryFile, day_folders, history_files, index_path, states_path
from pointsman_namesrv.history.history_files import MAX_FILE_AGE
from pointsman_namesrv.node_metrics import Metrics

SURELY_CLOSED = 2 * MAX_FILE_AGE
"""A running node closes a file within an hour, and until then writes a row every minute."""

log = logging.getLogger(__name__)


class Retention:
    """Removes files older than ``days``, then the oldest of those beyond ``max_bytes``; 0: no limit.

    ``waits`` returns whether a file is still to be shipped. Such a file is removed only for ``max_bytes``.
    """

    def __init__(
        self, raw: Path, *, days: int, max_bytes: int, metrics: Metrics, waits: Callable[[Path], bool] = lambda _: False
    ) -> None:
        self._raw = raw
        self._days = days
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._waits = waits

    def enforce(self, *, today: date, utc_now: datetime, open_path: Path | None = None) -> int:
        """Remove what exceeds the limits; return the number of files. Raises OSError when the folder cannot be read."""
        files = history_files(self._raw)
        closed = [file for file in files if file.path != open_path and _is_closed(file, utc_now)]
        waiting = {file.path for file in closed if self._waits(file.path)}
        free = [file for file in closed if file.path not in waiting]
        removed: Counter[str] = Counter()
        gone: set[Path] = set()
        if self._days:
            earliest = today - timedelta(days=self._days)
            gone |= self._remove((file for file in free if file.day < earliest), "days", removed)
        if self._max_bytes:
            sizes = {file.path: file.size + self._index_size(file) for file in files if file.path not in gone}
            excess = sum(sizes.values()) - self._max_bytes
            for choice, cause in ((free, "bytes"), ([file for file in closed if file.path in waiting], "unshipped")):
                for file in choice:
                    if excess > 0 and file.path not in gone and self._remove([file], cause, removed):
                        excess -= sizes[file.path]
        self._remove_empty_folders(today)
        if removed:
            level = logging.WARNING if removed["unshipped"] else logging.INFO
            log.log(level, "history files removed", extra={"facts": dict(removed)})
        return removed.total()

    def _index_size(self, file: HistoryFile) -> int:
        size = 0
        for path in (index_path(self._raw, file), states_path(self._raw, file)):
            with contextlib.suppress(OSError):
                size += path.stat().st_size
        return size

    def _remove(self, files: Iterable[HistoryFile], cause: str, removed: Counter[str]) -> set[Path]:
        gone = set()
        for file in files:
            try:
                file.path.unlink(missing_ok=True)
            except OSError as error:
                facts = {"file": file.path, "error": str(error)}
                log.warning("history file cannot be removed", extra={"facts": facts})
                continue
            gone.add(file.path)
            with contextlib.suppress(OSError):  # the worker that made them removes them, too
                index_path(self._raw, file).unlink(missing_ok=True)
                states_path(self._raw, file).unlink(missing_ok=True)
            removed[cause] += 1
            self._metrics.history_removed.labels(cause).inc()
        return gone

    def _remove_empty_folders(self, today: date) -> None:
        for day, folder in day_folders(self._raw):
            if day < today:
                with contextlib.suppress(OSError):  # it is not empty
                    folder.rmdir()


def _is_closed(file: HistoryFile, utc_now: datetime) -> bool:
    return file.packed or utc_now - file.modified_at > SURELY_CLOSED
