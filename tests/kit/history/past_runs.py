"""Files of a name server's earlier runs, written with its own rows."""

from __future__ import annotations

import gzip
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.history.folder import day_folder, file_node
from pointsman_namesrv.history.newest_rows import Question
from pointsman_namesrv.history.row import Record, row_count, to_lines

NODE = "n:1"
BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)


class PastRun:
    """One run; its clock may differ from that of other runs."""

    def __init__(
        self, history: Path, boot_id: str, *, began: datetime = BEGAN, previous: str = "", node: str = NODE
    ) -> None:
        self.boot_id = boot_id
        self._raw = history / "raw"
        self._began = began
        self._node = node
        self._seq = 0
        self._number = 0
        self._lines: list[bytes] = []
        detail: dict[str, object] = {"previous_boot_id": previous} if previous else {}
        self.add(Event(kind=EventKind.NAMESRV_STARTED, detail=detail), uptime=0.0)

    def add(self, *events: Event, uptime: float) -> PastRun:
        """Record events at this time since the start, seconds."""
        for event in events:
            at = self._began + timedelta(seconds=uptime)
            record = Record(event, at, round(uptime * 1000), self._seq + 1, row_count(event))
            self._seq += record.rows
            self._lines += to_lines(record, node=self._node, boot_id=self.boot_id)
        return self

    @property
    def last_seq(self) -> int:
        return self._seq

    def lost(self, rows: int = 1) -> PastRun:
        """Skip numbers, as for rows that were dropped."""
        self._seq += rows
        return self

    def close(self, *, packed: bool = True, torn: bytes = b"") -> Path:
        """Write what was recorded since the last call as the next file."""
        folder = day_folder(self._raw, self._began.date())
        folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        path = folder / f"{file_node(self._node)}-{self.boot_id}-{self._number}.jsonl"
        content, self._lines = b"".join(self._lines) + torn, []
        if packed:
            path = path.with_name(f"{path.name}.gz")
            content = gzip.compress(content)
        path.write_bytes(content)
        return path


QUESTION = Question(
    raw="",
    node=NODE,
    boot_id="now",
    previous_boot_id="",
    started_at=(BEGAN + timedelta(hours=1)).timestamp(),
    max_age_seconds=7 * 86_400.0,
    exact_seconds=54_000.0,
    per_broker=50,
    max_rows=1_000,
    max_bytes=10**9,
    max_seconds=60.0,
)


def question_about(history: Path, **more: object) -> Question:
    """A question an hour after :data:`BEGAN`, by the run ``now``."""
    return replace(QUESTION, raw=str(history / "raw"), **more)  # type: ignore[arg-type]  # fields that a test names
