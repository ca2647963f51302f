"""Logs as one JSON object a line on standard error; facts go in ``extra={"facts": {...}}``."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


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
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(level: str) -> None:
    """Send every logger of this process to standard error as JSON, from ``level`` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # At DEBUG grpc.aio writes a line for each call on a channel, which would bury our own.
    logging.getLogger("grpc._cython").setLevel(max(logging.getLevelNamesMapping()[level], logging.INFO))
