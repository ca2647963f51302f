"""Why a member has no queue: an operator should know whether that is a surplus, a pin or chance."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from pointsman_client.allocation.strategy import AllocationRequest
from pointsman_client.message_queue import MessageQueue


class IdleReason(StrEnum):
    """Reasons to have nothing to do."""

    MORE_MEMBERS_THAN_QUEUES = "more members than queues"
    PINNED_ELSEWHERE = "the group's queues are pinned to other members"
    STRATEGY = "the allocation strategy gives this member none"


def idle_reason(
    request: AllocationRequest, share: Collection[MessageQueue], *, pinned: Collection[str] = ()
) -> IdleReason | None:
    """Say why a member's share is empty; None: it is not, or the client is no member."""
    if share or request.client_id not in request.client_ids:
        return None
    chosen = [client_id for client_id in request.client_ids if client_id in pinned] or request.client_ids
    if request.client_id not in chosen:
        return IdleReason.PINNED_ELSEWHERE
    if len(chosen) > len(request.queues):
        return IdleReason.MORE_MEMBERS_THAN_QUEUES
    return IdleReason.STRATEGY


def idle_warning(request: AllocationRequest, reason: IdleReason) -> str:
    """Say it in a sentence for the log, with the numbers and what to do."""
    topic = request.queues[0].topic if request.queues else "?"
    cure = {
        IdleReason.MORE_MEMBERS_THAN_QUEUES: "stop members or add queues",
        IdleReason.PINNED_ELSEWHERE: "it gets queues again when the pin ends (pointsmanctl unpin)",
        IdleReason.STRATEGY: "averagely spreads queues evenly",
    }[reason]
    return (
        f"{request.client_id} of group {request.group} has no queue of topic {topic}: {reason} "
        f"({len(request.client_ids)} members, {len(request.queues)} queues); {cure}"
    )
