"""Stores for offsets. A store is any class with :class:`OffsetStore`'s methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pointsman.names import MAX_QUEUES, name_problem
from pointsman_agent.core.offset_epoch import MAX_EPOCH
from pointsman_agent.core.offsets import BEGIN_ID, MAX_OFFSET, SEEN_ID, OffsetChange, OffsetKey

BEGIN, SEEN = "begin", "seen"
"""How a store writes BEGIN_ID and SEEN_ID."""


class StoreNotInstalledError(Exception):
    """The store needs a package that is not installed; the text names it."""


class StoreFailed(Exception):
    """The store failed; the write may or may not have been applied. The text has the reason. Retriable."""


class OffsetStore(Protocol):
    """Each call has a deadline. At most one call at a time. Offsets are with epochs (``core/offset_epoch.py``)."""

    async def load(self) -> Mapping[OffsetKey, int]:
        """Read every offset. Called again while other agents may write; then unchanged ones may be omitted.

        Raises StoreFailed.
        """
        ...

    async def write(self, changes: Sequence[OffsetChange]) -> Mapping[OffsetKey, int]:
        """Write the changes durably; return those where the store retains a higher offset, with it.

        Raises StoreFailed; then any part of the changes may be written.
        """
        ...

    def is_ours(self) -> bool:
        """Whether no other agent writes the store now, so that memory is not older than it."""
        ...

    def is_exclusive(self) -> bool:
        """Whether this agent remains the only writer until :meth:`close`."""
        ...

    async def close(self) -> None:
        """Release the store. The last call."""
        ...


def stored_offset(group: str, topic: str, queue_id: str, offset: str) -> tuple[OffsetKey, int] | None:
    """Read an offset or a moment from a store's decimals; None if no agent can have written it."""
    if name_problem(group) is not None or not _is_plain(offset, most=MAX_OFFSET):
        return None
    if queue_id == SEEN and not topic:
        return OffsetKey(group, "", SEEN_ID), int(offset)
    if name_problem(topic) is not None:
        return None
    if queue_id == BEGIN:
        return OffsetKey(group, topic, BEGIN_ID), int(offset)
    return (OffsetKey(group, topic, int(queue_id)), int(offset)) if _is_plain(queue_id, most=MAX_QUEUES - 1) else None


def stored_epoch(text: str) -> int | None:
    """Read an epoch from a store's decimals; None if no agent can have written it."""
    return int(text) if _is_plain(text, most=MAX_EPOCH) else None


def queue_text(key: OffsetKey) -> str:
    """Return the queue id of a key as stored."""
    return {BEGIN_ID: BEGIN, SEEN_ID: SEEN}.get(key.queue_id) or str(key.queue_id)


def _is_plain(text: str, *, most: int) -> bool:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return False
    return (text == "0" or text[0] != "0") and int(text) <= most
