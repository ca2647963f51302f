"""Errors that end a run, formatted as one line."""

from __future__ import annotations

import contextlib
from typing import Any

MAX_CAUSES = 20


class ReportError(Exception):
    """An error whose message is complete."""


def one_line(error: BaseException) -> str:
    """Return the error as one line. For a Java exception it is the root cause: the others name only Spark's own
    steps."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found = None
    if java is not None:
        from py4j.protocol import Py4JError  # noqa: PLC0415  # with a Java exception, py4j is loaded

        # The Java process may have ended, and its exception with it.
        with contextlib.suppress(Py4JError, OSError):
            found = _root_cause(java)
    kind, text = found or (type(error).__name__, str(error))
    lines = text.strip().splitlines()
    return f"{kind}: {lines[0] if lines else 'no details'}"


def _root_cause(java: Any) -> tuple[str, str] | None:  # noqa: ANN401 - an object of another language
    found = None
    for _ in range(MAX_CAUSES):
        if java is None:
            break
        message = java.getMessage()
        if message:
            found = str(java.getClass().getSimpleName()), str(message)
        java = java.getCause()
    return found
