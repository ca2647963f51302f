"""Fixtures for every layer."""

from __future__ import annotations

import pytest

from tests.fakes.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()
