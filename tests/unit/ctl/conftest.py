"""Shared by all tests of the command line's texts."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _without_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readline, which pytest imports, sets COLUMNS for all processes that are started afterwards: xdist's workers."""
    monkeypatch.delenv("COLUMNS", raising=False)
