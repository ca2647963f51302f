"""What every strategy refuses, with RocketMQ's order and messages."""

from __future__ import annotations

import pytest

from pointsman_client.core.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Pinned,
)
from pointsman_client.errors import AllocationError
from tests.kit.client.queues import queues, request

STRATEGIES = [
    Averagely(),
    AveragelyByCircle(),
    ConsistentHash(),
    MachineRoom({"r"}),
    MachineRoomNearby(),
    Pinned(Averagely(), ["b@1"]),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("client_id", "client_ids", "count", "text"),
    [
        pytest.param("", [], 0, "currentCID is empty", id="all-three-faults"),
        pytest.param("", ["b@1"], 4, "currentCID is empty", id="no-client-id"),
        pytest.param("a@1", [], 0, "mqAll is null or mqAll empty", id="no-queues-and-no-members"),
        pytest.param("a@1", ["b@1"], 0, "mqAll is null or mqAll empty", id="no-queues"),
        pytest.param("a@1", [], 4, "cidAll is null or cidAll empty", id="no-members"),
    ],
)
def test_errors_are_found_in_this_order(
    strategy: AllocationStrategy, client_id: str, client_ids: list[str], count: int, text: str
) -> None:
    with pytest.raises(AllocationError) as caught:
        strategy.allocate(request(client_id, client_ids, queues(a=count)))
    assert str(caught.value) == text


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: each.name)
def test_a_client_that_is_not_a_member_gets_nothing(strategy: AllocationStrategy) -> None:
    assert strategy.allocate(request("a@1", ["b@1", "c@1"], queues(a=4))) == ()
