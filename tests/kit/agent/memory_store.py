"""A store of offsets in memory, with the rules of the real ones, that fails or waits on a test's request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pointsman_agent.core.offsets import OffsetChange, OffsetKey, apply_changes
from pointsman_agent.offsets.stored_offsets import StoreFailed


class MemoryStore:
    """Implements ``pointsman_agent.offsets.stored_offsets.OffsetStore``."""

    def __init__(self) -> None:
        self.table: dict[OffsetKey, int] = {}
        self.problem = ""
        """While it is set, each call fails with it."""
        self.ours = True
        self.may_be_taken = False
        """Whether another writer may take the store over at any time."""
        self.go_on = asyncio.Event()
        """While it is cleared, writing hangs, after the table has changed."""
        self.go_on.set()
        self.writes: list[Sequence[OffsetChange]] = []
        self.loads = 0
        self.is_closed = False

    async def load(self) -> Mapping[OffsetKey, int]:
        self.loads += 1
        self._fail()
        return dict(self.table)

    async def write(self, changes: Sequence[OffsetChange]) -> Mapping[OffsetKey, int]:
        self.writes.append(changes)
        self._fail()
        higher = apply_changes(self.table, changes)
        await self.go_on.wait()
        return higher

    def is_ours(self) -> bool:
        return self.ours

    def is_exclusive(self) -> bool:
        return self.ours and not self.may_be_taken

    async def close(self) -> None:
        self.is_closed = True

    def _fail(self) -> None:
        if self.problem:
            raise StoreFailed(self.problem)
