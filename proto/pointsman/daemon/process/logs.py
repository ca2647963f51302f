"""Logs on standard error, as JSON for programs or as text for operators; facts go in ``extra={"facts": {...}}``.

A thread writes them: if the reader of standard error stops reading, log lines are dropped and the event loop continues.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Iterable
from datetime import UTC, datetime

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMATS = ("auto", "json", "text")
"""``auto``: text on a terminal, else JSON."""
QUEUE_LINES = 10_000
FLUSH_SECONDS = 2.0

RESET, COLORS = "\033[0m", {"DEBUG": "\033[2m", "WARNING": "\033[33m", "ERROR": "\033[31m", "CRITICAL": "\033[31m"}


class JsonFormatter(logging.Formatter):
    """``{"at", "level", "logger", "message", ...facts, "error"}``; times are UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record as one line."""
        line: dict[str, object] = {
            "at": _at(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: fact for name, fact in getattr(record, "facts", {}).items() if name not in line}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """``TIME LEVEL message  name=value ...``, and a traceback in indented lines below; times are UTC.

    Values may come from the network. What is not printable is escaped, so that no value can begin another line or send
    control characters to a terminal.
    """

    def __init__(self, *, colors: bool) -> None:
        super().__init__()
        self._colors = COLORS if colors else {}

    def format(self, record: logging.LogRecord) -> str:
        """Render one record as one line, and a traceback as further lines."""
        level = f"{record.levelname:<7}"
        if color := self._colors.get(record.levelname):
            level = f"{color}{level}{RESET}"
        line = f"{_at(record)} {level} {_escaped(record.getMessage())}"
        facts = getattr(record, "facts", {}).items()
        if shown := " ".join(f"{_quoted(str(name))}={_shown(fact)}" for name, fact in facts if fact is not None):
            line += f"  {shown}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            line += "".join(f"\n    {_escaped(each)}" for each in trace)
        return line


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(fact: object) -> str:
    if isinstance(fact, str):
        return _quoted(fact)
    if isinstance(fact, Iterable) and not isinstance(fact, bytes | dict):
        return _quoted(", ".join(map(str, fact)))
    return _quoted(json.dumps(fact, ensure_ascii=False, default=str))


def _quoted(text: str) -> str:
    """Return a single printable word unchanged, anything else in double quotes."""
    if text and text.isprintable() and not any(char in text for char in ' ="'):
        return text
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_escaped(quoted)}"'


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class _LineWriter(threading.Thread):
    """Writes lines from a bounded queue; lines that do not fit are dropped and counted."""

    def __init__(self) -> None:
        super().__init__(name="logs", daemon=True)
        self._lines: queue.Queue[str | None] = queue.Queue(QUEUE_LINES)
        self.dropped = 0
        """Lines dropped since the last accepted one."""

    def put(self, *lines: str) -> None:
        try:
            for line in lines:
                self._lines.put_nowait(line)
                self.dropped = 0
        except queue.Full:
            self.dropped += 1

    def run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                sys.stderr.write(line + "\n")
                if self._lines.empty():
                    sys.stderr.flush()
            except (OSError, ValueError):
                continue  # standard error is closed

    def close(self, timeout: float) -> None:
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self.join(timeout)


class _LineHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.writer = _LineWriter()
        self.writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        lines = [self.format(record)]
        if self.writer.dropped:
            message = f"{self.writer.dropped} log lines dropped"
            facts = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": message}
            lines.insert(0, self.format(logging.makeLogRecord(facts)))
        self.writer.put(*lines)

    def flush(self) -> None:
        """Called at the exit of the process, and by :func:`flush`; the handler must not be used afterwards."""
        if self.writer.is_alive():
            self.writer.close(FLUSH_SECONDS)


def configure(level: str, format_name: str = "auto") -> None:
    """Send every logger of this process to standard error, from ``level`` on; ``format_name`` is one of FORMATS."""
    logging.basicConfig(level=level, handlers=[_LineHandler()], force=True)
    apply(level, format_name)


def apply(level: str, format_name: str) -> None:
    """Change level and format."""
    root = logging.getLogger()
    root.setLevel(level)
    # At DEBUG grpc.aio writes a line for each call on a channel, which would bury all others.
    logging.getLogger("grpc._cython").setLevel(max(logging.getLevelNamesMapping()[level], logging.INFO))
    for handler in root.handlers:
        if isinstance(handler, _LineHandler):
            handler.setFormatter(_formatter(format_name))


def _formatter(format_name: str) -> logging.Formatter:
    is_terminal = sys.stderr is not None and sys.stderr.isatty()  # None: it was closed before the start
    if format_name == "json" or (format_name == "auto" and not is_terminal):
        return JsonFormatter()
    return TextFormatter(
        colors=is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    )


def flush() -> None:
    """Write what is queued, for at most two seconds; nothing is logged afterwards."""
    for handler in logging.getLogger().handlers:
        handler.flush()
