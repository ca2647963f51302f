"""Which client of a group may consume a queue in order: RocketMQ's ``RebalanceLockManager``.

A lock expires when it was not renewed for *longer* than ``lifetime`` seconds. It stays with its owner until another
client requests it, so an owner that is slightly late keeps it.

Locks are in memory only, as in RocketMQ: after a restart each owner gets its locks again with its next renewal.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pointsman_agent.core.queue import QueueKey

LOCK_LIFETIME_SECONDS = 60.0
"""RocketMQ's ``rocketmq.broker.rebalance.lockMaxLiveTime``; its clients renew every 20 s."""

MAX_LOCKS = 100_000


class TooManyLocks(Exception):
    """The limit of locks is reached; nothing was locked."""

    def __init__(self, bound: int) -> None:
        super().__init__(f"at most {bound} queues may be locked")
        self.bound = bound


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_at: float


@dataclass(slots=True)
class _Owner:
    identity: str
    locks: int
    renewed_at: float


@dataclass(frozen=True, slots=True, order=True)
class HeldLock:
    """One lock, for operators."""

    group: str
    queue: QueueKey
    client_id: str
    renewed_ago: float
    """Seconds since its last renewal; above the lifetime another client may take it over."""


class QueueLocks:
    """All locks of this broker's queues, by group; at most ``max_locks``. Expired locks are removed first."""

    def __init__(self, *, lifetime: float = LOCK_LIFETIME_SECONDS, max_locks: int = MAX_LOCKS) -> None:
        self.lifetime = lifetime
        self._max_locks = max_locks
        self._groups: dict[str, dict[QueueKey, _Lock]] = {}
        self._owners: dict[str, _Owner] = {}
        """Of each client with locks."""
        self._count = 0
        self._oldest = float("-inf")
        """No lock was renewed before this moment."""

    def __len__(self) -> int:
        """Number of locks, expired ones included."""
        return self._count

    @property
    def group_count(self) -> int:
        """Number of groups with locks."""
        return len(self._groups)

    def owner_of(self, client_id: str, *, now: float) -> str:
        """Return the identity that took a client's locks; empty: unknown, or it has no lock that has not expired."""
        owner = self._owners.get(client_id)
        return "" if owner is None or now - owner.renewed_at > self.lifetime else owner.identity

    def lock(
        self, group: str, client_id: str, queues: Sequence[QueueKey], *, now: float, identity: str = ""
    ) -> list[QueueKey]:
        """Lock or renew each of ``queues`` that is free, expired or the client's own; return those, in their order.

        ``identity``: the authenticated caller. Raises TooManyLocks.
        """
        self._make_room(group, queues, now=now)
        locks = self._groups.get(group, {})
        granted = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                locks[queue] = _Lock(client_id, now)
                self._count += 1
            elif lock.client_id == client_id or self._is_expired(lock, now=now):
                self._note_ended(lock.client_id)
                lock.client_id, lock.renewed_at = client_id, now
            else:
                continue
            self._note_taken(client_id, identity, now=now)
            granted.append(queue)
        if locks:
            self._groups[group] = locks
        return granted

    def unlock(self, group: str, client_id: str, queues: Sequence[QueueKey]) -> list[QueueKey]:
        """Unlock each of ``queues`` that the client holds, expired or not; return those, in their order."""
        locks = self._groups.get(group, {})
        released = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._note_ended(client_id)
                released.append(queue)
        self._count -= len(released)
        if not locks:
            # RocketMQ keeps the empty table of each group that ever had a lock.
            self._groups.pop(group, None)
        return released

    def page(
        self, *, now: float, limit: int, group: str = "", after: tuple[str, str, int] | None = None
    ) -> list[HeldLock]:
        """List up to ``limit`` locks after ``after`` (group, topic, queue id), sorted; empty ``group``: of all."""
        found: list[HeldLock] = []
        for name in [group] if group else sorted(self._groups):
            if after is not None and name < after[0]:
                continue
            locks = self._groups.get(name, {})
            behind = QueueKey(*after[1:]) if after is not None and name == after[0] else None
            queues = (queue for queue in locks if behind is None or queue > behind)
            for queue in heapq.nsmallest(limit - len(found), queues):
                lock = locks[queue]
                found.append(HeldLock(name, queue, lock.client_id, now - lock.renewed_at))
            if len(found) == limit:
                break
        return found

    def check_invariants(self) -> None:
        """Raise AssertionError where the tables contradict each other; for tests."""
        if not all(self._groups.values()):
            raise AssertionError("a group without locks is kept")
        locks = [lock for of_group in self._groups.values() for lock in of_group.values()]
        if len(locks) != self._count or self._count > self._max_locks:
            raise AssertionError(f"{len(locks)} locks, counted {self._count}, allowed {self._max_locks}")
        if any(lock.renewed_at < self._oldest for lock in locks):
            raise AssertionError("a lock is older than the oldest")
        if {each: owner.locks for each, owner in self._owners.items()} != Counter(lock.client_id for lock in locks):
            raise AssertionError("the owners' locks are counted wrongly")

    def _note_taken(self, client_id: str, identity: str, *, now: float) -> None:
        owner = self._owners.setdefault(client_id, _Owner(identity, 0, now))
        owner.identity, owner.renewed_at = identity, now
        owner.locks += 1

    def _note_ended(self, client_id: str) -> None:
        owner = self._owners[client_id]
        owner.locks -= 1
        if not owner.locks:
            del self._owners[client_id]

    def _is_expired(self, lock: _Lock, *, now: float) -> bool:
        return now - lock.renewed_at > self.lifetime

    def _make_room(self, group: str, queues: Sequence[QueueKey], *, now: float) -> None:
        if self._count + len(queues) <= self._max_locks:
            return
        locks = self._groups.get(group, {})
        missing = len({queue for queue in queues if queue not in locks})
        if self._count + missing <= self._max_locks:
            return
        # Scan for a refused call only if a lock may have expired since the last scan.
        if now - self._oldest > self.lifetime:
            self._drop_expired(now=now)
            missing = len({queue for queue in queues if queue not in self._groups.get(group, {})})
        if self._count + missing > self._max_locks:
            raise TooManyLocks(self._max_locks)

    def _drop_expired(self, *, now: float) -> None:
        self._oldest = now
        for group, locks in list(self._groups.items()):
            for queue, lock in list(locks.items()):
                if self._is_expired(lock, now=now):
                    del locks[queue]
                    self._note_ended(lock.client_id)
                    self._count -= 1
                else:
                    self._oldest = min(self._oldest, lock.renewed_at)
            if not locks:
                del self._groups[group]
