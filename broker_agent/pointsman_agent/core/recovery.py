"""Which groups an agent may serve before its warm-up is over.

After a start an agent does not know which members hold queues. A member that has not reconnected may still read its
queues, and a list without it would assign them to another member. That is impossible for a group whose members from
before the start are all back, that had none, or that has no committed offset here: a consumer commits where a queue
begins before it reads the first message. RocketMQ has no such rule: its clients rebalance on any list of the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

MAX_SEEN = 100_000
"""Members remembered until the lists are loaded; beyond this limit the full warm-up applies."""


class Recovery:
    """The members of each group from before the start that are still missing."""

    def __init__(self) -> None:
        self.is_known = False
        """Whether :meth:`recall` was called."""
        self._seen: set[tuple[str, str]] = set()
        self._missing: dict[str, set[str]] = {}
        self._unknown: AbstractSet[str] = frozenset()
        """Groups with offsets and without a list: their members are unknown."""

    def recall(self, lists: Mapping[str, Iterable[str]] | None, *, with_offsets: Collection[str]) -> None:
        """Record the last member lists (None: there were none) and the groups that have committed offsets."""
        self.is_known = True
        self._unknown = frozenset(with_offsets) if lists is None else frozenset()
        missing = {
            group: {each for each in client_ids if (group, each) not in self._seen}
            for group, client_ids in (lists or {}).items()
        }
        self._missing = {group: client_ids for group, client_ids in missing.items() if client_ids}
        self._seen.clear()

    def account_for(self, group: str, client_id: str) -> bool:
        """Record that a member is back or has left; return whether it was the last missing one of its group."""
        if not self.is_known:
            if len(self._seen) < MAX_SEEN:
                self._seen.add((group, client_id))
            return False
        missing = self._missing.get(group)
        if missing is None or client_id not in missing:
            return False
        missing.discard(client_id)
        if missing:
            return False
        del self._missing[group]
        return True

    def groups_missing(self, client_id: str) -> list[str]:
        """Return the groups in which a client is missing."""
        return [group for group, missing in self._missing.items() if client_id in missing]

    def is_complete(self, group: str) -> bool:
        """Return whether no member of the group from before the start is missing."""
        return self.is_known and group not in self._missing and group not in self._unknown

    def missing(self) -> Mapping[str, AbstractSet[str]]:
        """Return the missing members by group."""
        return self._missing
