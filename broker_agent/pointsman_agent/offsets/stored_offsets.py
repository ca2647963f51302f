"""What keeps offsets beyond the life of the agent. A store is whatever has :class:`OffsetStore`'s methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pointsman.wire.names import MAX_QUEUES, name_problem
from pointsman_agent.core.offsets import BEGIN_ID, MAX_OFFSET, SEEN_ID, OffsetChange, OffsetKey

BEGIN, SEEN = "begin", "seen"
"""What a store has in place of a queue id for BEGIN_ID and SEEN_ID."""


class StoreNotInstalledError(Exception):
    """The store needs a package that is not installed; the text says which."""


class StoreFailed(Exception):
    """The store did not do what it was asked, or nobody knows whether it did; the text says why. Try again later."""


class OffsetStore(Protocol):
    """Each call ends by itself, within a deadline of the store's own. One call at a time."""

    async def load(self) -> Mapping[OffsetKey, int]:
        """Read every offset. Called again while others may write; then what did not change may be left out.

        Raises StoreFailed.
        """
        ...

    async def write(self, changes: Sequence[OffsetChange]) -> Mapping[OffsetKey, int]:
        """Make the store hold the changes, for good; return those where it keeps a higher offset, with that.

        Raises StoreFailed; then any part of them may be written.
        """
        ...

    def is_ours(self) -> bool:
        """Whether nobody else writes the store now, so that memory cannot be behind it."""
        ...

    def is_exclusive(self) -> bool:
        """Whether it is ours and nothing takes it from us before :meth:`close`, so that it need not be asked again."""
        ...

    async def close(self) -> None:
        """Let go of it. The last call."""
        ...


def stored_offset(group: str, topic: str, queue_id: str, offset: str) -> tuple[OffsetKey, int] | None:
    """Read an offset, or a moment, as a store has it, in plain decimals; None for what no agent can have written."""
    if name_problem(group) is not None or not _is_plain(offset, most=MAX_OFFSET):
        return None
    if queue_id == SEEN and not topic:
        return OffsetKey(group, "", SEEN_ID), int(offset)
    if name_problem(topic) is not None:
        return None
    if queue_id == BEGIN:
        return OffsetKey(group, topic, BEGIN_ID), int(offset)
    return (OffsetKey(group, topic, int(queue_id)), int(offset)) if _is_plain(queue_id, most=MAX_QUEUES - 1) else None


def queue_text(key: OffsetKey) -> str:
    """Write the queue id of a key as a store has it."""
    return {BEGIN_ID: BEGIN, SEEN_ID: SEEN}.get(key.queue_id) or str(key.queue_id)


def _is_plain(text: str, *, most: int) -> bool:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return False
    return (text == "0" or text[0] != "0") and int(text) <= most
