"""Logs as one JSON object a line on standard error; facts go in ``extra={"facts": {...}}``.

A thread writes them: a reader of standard error that stops reading costs log lines, never the event loop.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import queue
import sys
import threading
from datetime import UTC, datetime

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
QUEUE_LINES = 10_000
FLUSH_SECONDS = 2.0


class JsonFormatter(logging.Formatter):
    """``{"at", "level", "logger", "message", ...facts, "error"}``; times are UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record as one line."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: fact for name, fact in getattr(record, "facts", {}).items() if name not in line}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class _LineWriter(threading.Thread):
    """Writes lines from a bounded queue; what does not fit is dropped, and the next line that fits says how many."""

    def __init__(self) -> None:
        super().__init__(name="logs", daemon=True)
        self._lines: queue.Queue[str | None] = queue.Queue(QUEUE_LINES)
        self._dropped = 0

    def put(self, line: str) -> None:
        try:
            if self._dropped:
                self._lines.put_nowait(
                    json.dumps({"level": "WARNING", "message": f"{self._dropped} log lines dropped"})
                )
                self._dropped = 0
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                sys.stderr.write(line + "\n")
                if self._lines.empty():
                    sys.stderr.flush()
            except (OSError, ValueError):
                continue  # nobody reads standard error any more; there is nobody to tell

    def close(self, timeout: float) -> None:
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self.join(timeout)


class _LineHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.writer = _LineWriter()
        self.writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        self.writer.put(self.format(record))

    def flush(self) -> None:
        """Called at the exit of the process, and by :func:`flush`; the handler is of no use afterwards."""
        if self.writer.is_alive():
            self.writer.close(FLUSH_SECONDS)


def configure(level: str) -> None:
    """Send every logger of this process to standard error as JSON, from ``level`` on."""
    logging.basicConfig(level=level, handlers=[_LineHandler()], force=True)
    set_level(level)


def set_level(level: str) -> None:
    """Log from ``level`` on from now on."""
    logging.getLogger().setLevel(level)
    # At DEBUG grpc.aio writes a line for each call on a channel, which would bury our own.
    logging.getLogger("grpc._cython").setLevel(max(logging.getLevelNamesMapping()[level], logging.INFO))


def flush() -> None:
    """Write what is queued, for at most two seconds; nothing is logged afterwards."""
    for handler in logging.getLogger().handlers:
        handler.flush()
