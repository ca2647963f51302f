"""The committed offsets of one replica: those its broker stores, and those its agent accepted without a master.

The latter are *pending*. They are on the agent's own disk, because only the master can change a slave's data, until the
master's agent has acknowledged them or the slave has become the master. RocketMQ's slave writes its own
``consumerOffset.json``, which is overwritten by the master's copy when the master is back (``SlaveSynchronize``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from pointsman_agent.core.offset_epoch import next_epoch
from pointsman_agent.core.offsets import OffsetKey, Offsets
from pointsman_agent.core.queue import QueueKey

_ItemT = TypeVar("_ItemT")

MAX_PART = 1_000
"""Offsets, or begins of topics, in one call."""


@dataclass(frozen=True, slots=True)
class PendingPart:
    """Offsets or begins handed over to the master's agent in one call."""

    group: str
    offsets: Mapping[QueueKey, int]
    begins: Mapping[str, int]
    is_reset: bool = False
    """Whether the offsets may go backwards there."""
    epochs: Mapping[QueueKey, int] = field(default_factory=dict)
    """Those of the offsets. There, too, an offset of a later epoch stays."""

    def halves(self) -> list[PendingPart]:
        """Split it into two parts; none if it has only one offset or begin."""
        if len(self.offsets) + len(self.begins) < 2:
            return []
        return [
            replace(self, offsets=dict(offsets), begins=dict(begins))
            for offsets, begins in zip(_halved(self.offsets.items()), _halved(self.begins.items()), strict=True)
        ]


class ReplicaOffsets:
    """``stored`` and ``pending`` of one broker; ``is_master`` is called each time.

    ``keeps_copy``: offsets that the master's agent acknowledged are stored here, too, as they are not replicated.
    """

    def __init__(
        self,
        stored: Offsets,
        pending: Offsets | None = None,
        *,
        is_master: Callable[[], bool] = lambda: True,
        keeps_copy: bool = False,
    ) -> None:
        self.stored = stored
        self.pending = Offsets() if pending is None else pending
        self._is_master = is_master
        self._keeps_copy = keeps_copy
        self._resets: set[OffsetKey] = set()

    def commit(
        self,
        group: str,
        offsets: Mapping[QueueKey, int],
        *,
        epochs: Mapping[QueueKey, int] | None = None,
        reset: bool,
        now: int,
        peer: str = "",
    ) -> dict[QueueKey, int]:
        """See :meth:`Offsets.commit`; ``now`` is also for begins. Raises TooManyOffsets."""
        if self._is_master():
            self.adopt()
            kept = self.stored.commit(group, offsets, epochs=epochs, reset=reset, peer=peer, now=now)
            self.stored.begin_committed(group, offsets, now=now)
            self.stored.saw([group], now=now)
            return kept
        held = self.get(group, offsets)
        present = {queue: self.epoch(group, queue) for queue in offsets}
        wanted = present if epochs is None else {**present, **epochs}
        kept = {
            queue: held[queue]
            for queue, offset in offsets.items()
            if queue in held
            and (
                wanted[queue] < present[queue]
                or (wanted[queue] == present[queue] and held[queue] > offset and not reset)
            )
        }
        taken = {queue: offset for queue, offset in offsets.items() if queue not in kept}
        # Pending offsets take precedence over stored ones, which may be old copies of the master's.
        self.pending.commit(group, taken, epochs={queue: wanted[queue] for queue in taken}, reset=True, peer=peer)
        if reset:
            self._resets |= {OffsetKey(group, *queue) for queue in taken}
        return kept

    def reset(self, group: str, offsets: Mapping[QueueKey, int], *, now: int, peer: str = "") -> dict[QueueKey, int]:
        """See :meth:`Offsets.reset`. Raises TooManyOffsets."""
        if self._is_master():
            self.adopt()
        epochs = {queue: next_epoch(self.epoch(group, queue), now=now) for queue in offsets}
        self.commit(group, offsets, epochs=epochs, reset=True, now=now, peer=peer)
        return epochs

    def epoch(self, group: str, queue: QueueKey) -> int:
        """See :meth:`Offsets.epoch`."""
        return max(self.stored.epoch(group, queue), self.pending.epoch(group, queue))

    def get(self, group: str, queues: Collection[QueueKey], *, pending_only: bool = False) -> dict[QueueKey, int]:
        """See :meth:`Offsets.get`. ``pending_only``: only those that the master's agent may not have."""
        if self._is_master():
            self.adopt()
        pending = self.pending.get(group, queues)
        pending = {queue: offset for queue, offset in pending.items() if self._is_latest(group, queue)}
        return pending if pending_only else {**self.stored.get(group, queues), **pending}

    def begin(
        self, group: str, moments: Mapping[str, int], topics: Collection[str], *, now: int, peer: str = ""
    ) -> dict[str, int]:
        """Record ``moments``, see :meth:`Offsets.begin`; return the begins of ``topics``. Raises TooManyOffsets."""
        if self._is_master():
            self.adopt()
            self.stored.begin(group, moments, peer=peer)
            self.stored.saw([group], now=now)
        else:
            known = self.stored.begins(group, moments)
            earlier = {topic: moment for topic, moment in moments.items() if moment < known.get(topic, moment + 1)}
            self.pending.begin(group, earlier, peer=peer)
        stored, pending = self.stored.begins(group, topics), self.pending.begins(group, topics)
        return {
            topic: min(each[topic] for each in (stored, pending) if topic in each)
            for topic in topics
            if topic in stored or topic in pending
        }

    def page(
        self, *, limit: int, group: str = "", after: tuple[str, str, int] | None = None
    ) -> list[tuple[OffsetKey, int]]:
        """See :meth:`Offsets.page`."""
        stored = self.stored.page(limit=limit, group=group, after=after)
        pending = self.pending.page(limit=limit, group=group, after=after)
        pending = [(key, offset) for key, offset in pending if self._is_latest(key.group, key.queue)]
        return sorted((dict(stored) | dict(pending)).items())[:limit]

    def delete(self, group: str) -> int:
        """Remove everything of a group; return the number of its offsets.

        A slave forgets its copy of what the master stores, and what the master's agent may not have.
        """
        is_master = self._is_master()
        if is_master:
            self.adopt()
        count = self.stored.delete(group, is_ours=is_master or self._keeps_copy)
        count = max(count, self.pending.delete(group))
        self._resets = {key for key in self._resets if key.group != group}
        return count

    # --- towards the master -----------------------------------------------------------------------------------

    def adopt(self) -> int:
        """Store the pending offsets of a promoted slave; return their number. Raises TooManyOffsets."""
        if self.pending.is_empty:
            return 0
        count = 0
        for part in self.parts():
            self.stored.commit(part.group, part.offsets, epochs=part.epochs, reset=part.is_reset)
            self.stored.begin(part.group, part.begins)
            self._forget(part)
            count += len(part.offsets)
        return count

    def parts(self) -> list[PendingPart]:
        """Return the pending offsets in parts for one call each; resets are separate parts."""
        found: list[PendingPart] = []
        for group in self.pending.groups():
            offsets, begins = self.pending.of(group)
            resets = {queue for queue in offsets if OffsetKey(group, *queue) in self._resets}
            found += [PendingPart(group, {}, dict(part)) for part in _cut(begins.items())]
            for is_reset in (True, False):
                wanted = [(queue, offset) for queue, offset in offsets.items() if (queue in resets) is is_reset]
                found += [
                    PendingPart(
                        group, dict(part), {}, is_reset, {queue: self.pending.epoch(group, queue) for queue, _ in part}
                    )
                    for part in _cut(wanted)
                ]
        return found

    def acknowledged(self, part: PendingPart) -> None:
        """Record that the master's agent has a part, or higher offsets."""
        if self._keeps_copy:
            self.stored.commit(part.group, part.offsets, epochs=part.epochs, reset=part.is_reset)
            self.stored.begin(part.group, part.begins)
        self._forget(part)

    def give_up(self, part: PendingPart) -> None:
        """Drop a part that the master's agent refuses: its broker has no such queue, or a lower end."""
        self._forget(part)

    def _forget(self, part: PendingPart) -> None:
        self.pending.discard(part.group, part.offsets, part.begins, epochs=part.epochs)
        left = self.pending.get(part.group, part.offsets)
        self._resets -= {OffsetKey(part.group, *queue) for queue in part.offsets if queue not in left}

    def _is_latest(self, group: str, queue: QueueKey) -> bool:
        """Whether no later reset than that of a pending offset is stored."""
        return self.pending.epoch(group, queue) >= self.stored.epoch(group, queue)


def _halved(items: Iterable[_ItemT]) -> tuple[list[_ItemT], list[_ItemT]]:
    everything = list(items)
    middle = len(everything) // 2
    return everything[:middle], everything[middle:]


def _cut(items: Iterable[_ItemT]) -> list[list[_ItemT]]:
    rest = iter(items)
    parts = []
    while part := list(islice(rest, MAX_PART)):
        parts.append(part)
    return parts
