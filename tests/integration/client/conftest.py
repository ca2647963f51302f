"""Consumers in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pointsman.manual_clock import ManualClock
from tests.kit.client.consumer_setup import Setup, consumer_setup


@pytest.fixture
async def setup(clock: ManualClock) -> AsyncIterator[Setup]:
    """One group and its brokers, which the test's consumers join."""
    async with consumer_setup(clock) as made:
        yield made
