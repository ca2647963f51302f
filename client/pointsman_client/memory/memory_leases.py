"""The leases of one group in one queue in memory: what a Redis server keeps in a stream's consumer group."""

from __future__ import annotations

from dataclasses import dataclass, field

from pointsman_client.core.lease import GroupBacklog


@dataclass(slots=True)
class _Delivery:
    ends_at: float
    count: int


@dataclass(slots=True)
class LeaseGroup:
    """Times are monotonic seconds of the transport's clock."""

    next_offset: int
    _deliveries: dict[int, _Delivery] = field(default_factory=dict)

    def take(
        self, most: int, *, first: int, end: int, now: float, ends_at: float, is_ordered: bool
    ) -> tuple[list[tuple[int, int]], int]:
        """Lease up to ``most`` messages of a queue with the offsets ``first`` to ``end``.

        Returns each offset with its number of deliveries, and how many messages were removed before they were finished.
        """
        taken: list[tuple[int, int]] = []
        trimmed = 0
        for offset, delivery in sorted(self._deliveries.items()):
            if len(taken) == most or (is_ordered and delivery.ends_at > now):
                break
            if delivery.ends_at > now:
                continue
            if offset < first:
                del self._deliveries[offset]
                trimmed += 1
                continue
            delivery.ends_at, delivery.count = ends_at, delivery.count + 1
            taken.append((offset, delivery.count))
        if is_ordered and self._deliveries:
            return taken, trimmed
        if self.next_offset < first:
            trimmed += first - self.next_offset
            self.next_offset = first
        while len(taken) < most and self.next_offset < end:
            self._deliveries[self.next_offset] = _Delivery(ends_at, 1)
            taken.append((self.next_offset, 1))
            self.next_offset += 1
        return taken, trimmed

    def finish(self, offset: int, count: int) -> bool:
        """Return whether the message is finished: False if it was delivered again since."""
        delivery = self._deliveries.get(offset)
        if delivery is not None and delivery.count != count:
            return False
        self._deliveries.pop(offset, None)
        return True

    def extend(self, offset: int, count: int, *, ends_at: float) -> bool:
        """Change the end of a lease; return False if it is over."""
        delivery = self._deliveries.get(offset)
        if delivery is None or delivery.count != count:
            return False
        delivery.ends_at = ends_at
        return True

    def next_change(self, *, end: int, is_ordered: bool) -> float | None:
        """Return when there may be something to take; None: not without a change of the queue."""
        if self.next_offset < end and not (is_ordered and self._deliveries):
            return 0.0
        return min((each.ends_at for each in self._deliveries.values()), default=None)

    @property
    def backlog(self) -> GroupBacklog:
        """How far the group is."""
        return GroupBacklog(self.next_offset, len(self._deliveries))
