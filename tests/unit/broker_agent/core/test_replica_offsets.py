"""Offsets of one replica: commits at a slave's agent are pending until its master's agent has them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pointsman_agent.core.offsets import OffsetKey, Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.replica_offsets import MAX_PART, PendingPart, ReplicaOffsets

Q0, Q1 = QueueKey("orders", 0), QueueKey("orders", 1)


class Replica:
    """A slave, until a test promotes it."""

    def __init__(self) -> None:
        self.is_master = False
        self.stored, self.pending = Offsets(), Offsets()
        self.offsets = ReplicaOffsets(self.stored, self.pending, is_master=lambda: self.is_master)

    def commit(self, offsets: dict[QueueKey, int], *, reset: bool = False) -> dict[QueueKey, int]:
        return self.offsets.commit("g", offsets, reset=reset, now=100)

    def get(self, *, pending_only: bool = False) -> dict[QueueKey, int]:
        return self.offsets.get("g", [Q0, Q1], pending_only=pending_only)


@pytest.fixture
def replica() -> Iterator[Replica]:
    held = Replica()
    yield held
    held.stored.check_invariants()
    held.pending.check_invariants()


def test_a_master_stores_what_is_committed_and_has_nothing_pending(replica: Replica) -> None:
    replica.is_master = True
    assert replica.commit({Q0: 5}) == {}
    assert replica.get() == {Q0: 5}
    assert replica.get(pending_only=True) == {}
    assert replica.stored.begins("g", ["orders"]) == {"orders": 100}


def test_at_a_slave_commits_are_pending_and_override_what_its_master_stored(replica: Replica) -> None:
    replica.stored.absorb({OffsetKey("g", *Q0): 7, OffsetKey("g", *Q1): 7}.items())
    assert replica.commit({Q0: 9, Q1: 6}) == {Q1: 7}
    assert replica.get() == {Q0: 9, Q1: 7}
    assert replica.get(pending_only=True) == {Q0: 9}
    assert replica.stored.unwritten == 0
    assert replica.offsets.page(limit=9) == [(OffsetKey("g", *Q0), 9), (OffsetKey("g", *Q1), 7)]
    # The master's copy comes again, and is older.
    replica.stored.absorb({OffsetKey("g", *Q0): 7}.items())
    assert replica.get() == {Q0: 9, Q1: 7}


def test_a_reset_at_a_slave_moves_back_and_is_passed_on_as_a_reset(replica: Replica) -> None:
    replica.stored.absorb({OffsetKey("g", *Q0): 7}.items())
    replica.commit({Q1: 3})
    assert replica.commit({Q0: 2}, reset=True) == {}
    assert replica.get() == {Q0: 2, Q1: 3}
    assert replica.offsets.parts() == [
        PendingPart("g", {Q0: 2}, {}, is_reset=True, epochs={Q0: 0}),
        PendingPart("g", {Q1: 3}, {}, epochs={Q1: 0}),
    ]


def test_acknowledged_offsets_are_dropped_unless_they_advanced_since(replica: Replica) -> None:
    replica.commit({Q0: 5, Q1: 5})
    (part,) = replica.offsets.parts()
    replica.commit({Q1: 6})
    replica.offsets.acknowledged(part)
    assert replica.get(pending_only=True) == {Q1: 6}
    assert replica.stored.get("g", [Q0]) == {}


def test_without_replication_the_slave_keeps_a_copy_of_acknowledged_offsets() -> None:
    offsets = ReplicaOffsets(Offsets(), Offsets(), is_master=lambda: False, keeps_copy=True)
    offsets.commit("g", {Q0: 5}, reset=False, now=1)
    offsets.begin("g", {"orders": 1}, ["orders"], now=1)
    for part in offsets.parts():
        offsets.acknowledged(part)
    assert offsets.pending.is_empty
    assert offsets.stored.of("g") == ({Q0: 5}, {"orders": 1})


def test_a_slave_that_is_promoted_stores_what_was_pending_before_anything_else(replica: Replica) -> None:
    replica.stored.absorb({OffsetKey("g", *Q1): 9}.items())
    replica.offsets.begin("g", {"orders": 40}, ["orders"], now=50)
    replica.pending.commit("g", {Q0: 5, Q1: 5})
    replica.is_master = True
    assert replica.get() == {Q0: 5, Q1: 9}
    assert replica.pending.is_empty
    assert replica.stored.begins("g", ["orders"]) == {"orders": 40}
    assert {change.key.queue for change in replica.stored.take() if change.key.queue_id >= 0} == {Q0}


def test_the_earliest_begin_of_both_counts_and_only_an_earlier_one_is_pending(replica: Replica) -> None:
    replica.stored.begin("g", {"orders": 40})
    assert replica.offsets.begin("g", {"orders": 50, "refunds": 5}, ["orders", "refunds", "x"], now=60) == {
        "orders": 40,
        "refunds": 5,
    }
    assert replica.pending.of("g") == ({}, {"refunds": 5})
    assert replica.offsets.begin("g", {"orders": 30}, ["orders"], now=60) == {"orders": 30}


def test_parts_are_as_large_as_one_call_allows_and_can_be_halved_down_to_one() -> None:
    offsets = ReplicaOffsets(Offsets(), Offsets(), is_master=lambda: False)
    queues = {QueueKey("orders", number): 1 for number in range(MAX_PART + 1)}
    offsets.commit("g", queues, reset=False, now=1)
    first, second = offsets.parts()
    assert (len(first.offsets), len(second.offsets)) == (MAX_PART, 1)
    left, right = first.halves()
    assert {**left.offsets, **right.offsets} == dict(first.offsets)
    assert second.halves() == []
