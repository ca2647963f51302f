"""Wait for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Return when the condition holds; AssertionError when it does not within the time."""
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "what was waited for did not come"
        time.sleep(0.01)
