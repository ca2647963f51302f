"""Clients that state no epoch: who may commit after a reset."""

from __future__ import annotations

from pointsman_agent.core.loads_since_reset import MAX_CONNECTIONS, MAX_QUEUES, REFUSED_MILLIS, LoadsSinceReset
from pointsman_agent.core.offsets import OffsetKey

KEY = OffsetKey("g", "orders", 0)
RESET = 1_000_000


def test_a_queue_that_was_never_reset_takes_any_commit() -> None:
    assert LoadsSinceReset().may_commit(KEY, 0, "a", now=RESET)


def test_after_a_reset_only_who_loaded_since_may_commit_and_after_an_hour_each() -> None:
    loads = LoadsSinceReset()
    loads.loaded([(KEY, 0)], "before", now=RESET)
    loads.loaded([(KEY, RESET)], "after", now=RESET + 5)
    assert loads.may_commit(KEY, RESET, "after", now=RESET + 5)
    assert not loads.may_commit(KEY, RESET, "before", now=RESET + REFUSED_MILLIS - 1)
    assert loads.may_commit(KEY, RESET, "before", now=RESET + REFUSED_MILLIS)


def test_a_second_reset_forgets_who_loaded_after_the_first() -> None:
    loads = LoadsSinceReset()
    loads.loaded([(KEY, RESET)], "a", now=RESET)
    assert not loads.may_commit(KEY, RESET + 1, "a", now=RESET + 1)
    loads.loaded([(KEY, RESET + 1)], "b", now=RESET + 1)
    assert not loads.may_commit(KEY, RESET + 1, "a", now=RESET + 1)


def test_what_is_remembered_is_bounded() -> None:
    loads = LoadsSinceReset()
    for number in range(MAX_CONNECTIONS + 1):
        loads.loaded([(KEY, RESET)], f"c{number}", now=RESET)
    assert not loads.may_commit(KEY, RESET, "c0", now=RESET)
    assert loads.may_commit(KEY, RESET, "c1", now=RESET)
    loads.loaded([(OffsetKey("g", "orders", n), RESET) for n in range(1, MAX_QUEUES + 1)], "a", now=RESET)
    assert not loads.may_commit(KEY, RESET, "c1", now=RESET)
    assert loads.may_commit(OffsetKey("g", "orders", MAX_QUEUES), RESET, "a", now=RESET)
