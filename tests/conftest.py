"""Fixtures for every layer."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

from tests.fakes.manual_clock import ManualClock

settings.register_profile("mutants", phases=(Phase.generate,), database=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what scenarios print into their files")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()
