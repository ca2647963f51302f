"""Some members take all queues for now, for a trial or to look for a fault; the others get nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pointsman_client.allocation.precondition import is_member
from pointsman_client.allocation.strategy import AllocationRequest, AllocationStrategy
from pointsman_client.message_queue import MessageQueue


class Pinned:
    """Another strategy among the pinned members. A pin that names nobody who is there changes nothing, and a list that
    is configured (``ByConfig``) does not grow.

    The agents say who is pinned and for how long, the same to all members, so a pin ends by itself
    (``pointsmanctl pin``). Consumers wrap their strategy anew at each rebalance.
    """

    def __init__(self, inner: AllocationStrategy, client_ids: Iterable[str]) -> None:
        self._inner = inner
        self._client_ids = frozenset(client_ids)

    @property
    def name(self) -> str:
        """The inner strategy's with a prefix."""
        return f"PINNED-{self._inner.name}"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share."""
        chosen = tuple(client_id for client_id in request.client_ids if client_id in self._client_ids)
        if not chosen:
            return tuple(self._inner.allocate(request))
        if not is_member(request) or request.client_id not in chosen:
            return ()
        return tuple(self._inner.allocate(replace(request, client_ids=chosen)))
