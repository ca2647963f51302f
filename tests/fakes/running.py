"""A coroutine that runs for the length of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run it in a task, which is cancelled at the end; what it raised before comes out."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        was_done = task.done()
        task.cancel()
        await asyncio.wait([task])
        if was_done:
            task.result()
