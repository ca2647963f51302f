"""Rounds of route lookups."""

from __future__ import annotations

import pytest

from pointsman_client.routes.route_tasks import LookUpRound


async def test_an_unexpected_error_in_one_lookup_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    found: list[str] = []

    async def look_up(topic: str) -> None:
        if topic == "b":
            raise ZeroDivisionError("a callback of the application")
        found.append(topic)

    await LookUpRound(concurrency=1).run(["a", "b", "c"], look_up)
    assert found == ["a", "c"]
    assert caplog.messages == ["unexpected error in the lookup of topic b"]
