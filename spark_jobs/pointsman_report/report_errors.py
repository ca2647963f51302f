"""Faults that a run ends with, and how each becomes one line."""

from __future__ import annotations

import contextlib
from typing import Any

MOST_CAUSES = 20


class ReportError(Exception):
    """A fault whose text already says everything."""


def one_line(error: BaseException) -> str:
    """Say what went wrong: of a Java fault the deepest cause, because those above it name only Spark's own steps."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    told = None
    if java is not None:
        from py4j.protocol import Py4JError  # noqa: PLC0415  # there is a Java fault, so there is py4j

        # The Java process may be gone, and with it what it had to say.
        with contextlib.suppress(Py4JError, OSError):
            told = _deepest(java)
    kind, text = told or (type(error).__name__, str(error))
    lines = text.strip().splitlines()
    return f"{kind}: {lines[0] if lines else 'no details'}"


def _deepest(java: Any) -> tuple[str, str] | None:  # noqa: ANN401 - an object of another language
    told = None
    for _ in range(MOST_CAUSES):
        if java is None:
            break
        message = java.getMessage()
        if message:
            told = str(java.getClass().getSimpleName()), str(message)
        java = java.getCause()
    return told
