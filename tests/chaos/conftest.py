"""Faults that take minutes: `make chaos`. Each test prints what it measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Report = Callable[[str], None]


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """Print a line of figures with the test's name."""
    name = request.node.name

    def say(figures: str) -> None:
        print(f"\n    {name}: {figures}", flush=True)

    return say
