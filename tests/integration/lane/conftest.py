"""Both event loops: the lane runs on their transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001  # the hook's signature
    item: pytest.Item,  # noqa: ARG001  # as above
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each test of this folder on either."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
