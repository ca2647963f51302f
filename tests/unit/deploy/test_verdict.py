"""The demo's verdict: it passes what happened, and notices each way in which a report can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deploy.demo.verdict import Deeds, faults

KILLED_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
FLAPPING, QUIET = ("broker-c", 0), ("broker-a", 1)
EVERYBODY = {FLAPPING, QUIET}


def deeds() -> Deeds:
    made = Deeds(flapping=FLAPPING)
    for second in (0, 10):
        made.note(FLAPPING, KILLED_AT + timedelta(seconds=second))
    return made


def entry(name: str, broker_id: int, kind: str, *starts: float) -> dict[str, Any]:
    outages = [{"start_at": (KILLED_AT + timedelta(seconds=at)).isoformat()} for at in starts]
    return {
        "broker_name": name,
        "broker_id": broker_id,
        "class": kind,
        "down_count": len(starts),
        "outages": outages,
    }


def report() -> dict[str, Any]:
    return {"brokers": [entry(*FLAPPING, "flapping", 1.0, 12.9), entry(*QUIET, "healthy")]}


def test_a_report_of_what_happened_has_no_fault() -> None:
    assert list(faults(report(), deeds(), everybody=EVERYBODY)) == []


def _swap(found: dict[str, Any]) -> None:
    found["brokers"].reverse()


def _lose(found: dict[str, Any]) -> None:
    found["brokers"].pop()


def _class(found: dict[str, Any]) -> None:
    found["brokers"][0]["class"] = "degraded"


def _count(found: dict[str, Any]) -> None:
    found["brokers"][0]["down_count"] = 3


def _late(found: dict[str, Any]) -> None:
    found["brokers"][0] = entry(*FLAPPING, "flapping", 1.0, 13.1)


def _early(found: dict[str, Any]) -> None:
    found["brokers"][0] = entry(*FLAPPING, "flapping", -0.1, 12.0)


def _blame(found: dict[str, Any]) -> None:
    found["brokers"][1] = entry(*QUIET, "degraded", 5.0)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_swap, "broker-a/1 tops the list"),
        (_lose, "the report knows"),
        (_class, "broker-c/0 is classed degraded"),
        (_count, "counts 3 downs, 2 kills"),
        (_late, "outage 2 of broker-c/0 starts 3.100 s after its kill"),
        (_early, "outage 1 of broker-c/0 starts -0.100 s after its kill"),
        (_blame, "broker-a/1 counts 1 downs, 0 kills"),
    ],
)
def test_a_report_that_is_wrong_is_noticed(spoil: Callable[[dict[str, Any]], None], said: str) -> None:
    found = report()
    spoil(found)
    assert any(said in line for line in faults(found, deeds(), everybody=EVERYBODY))
