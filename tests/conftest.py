"""Fixtures for every layer."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

from tests.fakes.manual_clock import ManualClock

settings.register_profile("default", max_examples=200, deadline=None)
settings.register_profile("mutants", max_examples=2_000, phases=(Phase.generate,), database=None, deadline=None)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what scenarios print into their files")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()
