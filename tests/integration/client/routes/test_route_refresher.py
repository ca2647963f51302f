"""Lookups that failed sends request: the first immediately, then at most one per second."""

from __future__ import annotations

from pointsman.manual_clock import ManualClock
from pointsman_client.producer.fault_recovery import RouteRefresher


async def test_failures_within_one_second_cause_one_immediate_lookup_and_one_after_it() -> None:
    clock, asked = ManualClock(), list[tuple[str, float]]()

    async def refresh(topic: str) -> None:
        asked.append((topic, clock.monotonic() - began_at))

    refresher, began_at = RouteRefresher(refresh, clock=clock), clock.monotonic()
    for _ in range(10):
        for _ in range(40):
            refresher.request("orders")
        refresher.request("bills")
        await clock.advance(0.125)
    assert sorted(asked) == [("bills", 0.0), ("bills", 1.0), ("orders", 0.0), ("orders", 1.0)]
    await refresher.close(timeout_seconds=1.0)
