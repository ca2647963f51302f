"""A long search, and a time limit that leaves every search the time to shrink what it finds."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Of fuzz.py. Without a database, the seed alone gives the same examples again.
settings.register_profile(
    "fuzz",
    max_examples=200,
    stateful_step_count=50,
    derandomize=False,
    database=None,
    deadline=None,
    print_blob=True,
)

SEARCH_SECONDS = 900
"""Hypothesis ends shrinking by itself after 300 s."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.config.getoption("--timeout") is None:
        item.add_marker(pytest.mark.timeout(SEARCH_SECONDS))
