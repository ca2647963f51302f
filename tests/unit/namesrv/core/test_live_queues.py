"""The last report of each replica: bounded, and of the registration that is held."""

from __future__ import annotations

import pytest

from pointsman_namesrv.core.live_queues import MAX_REPORT_BYTES, OVERHEAD_BYTES, LiveQueueReports, LiveReport
from pointsman_namesrv.core.model import BrokerIdentity

A = BrokerIdentity("c1", "a", 0, "10.0.0.1:10911")
B = BrokerIdentity("c1", "b", 0, "10.0.0.2:10911")


def test_the_last_report_of_a_registration_is_remembered_until_it_is_forgotten() -> None:
    reports = LiveQueueReports()
    assert reports.take(A, 1, b"old", now=10.0)
    assert reports.take(A, 1, b"new", now=40.0)

    assert reports.of(A, 1) == LiveReport(1, b"new", 40.0)
    assert reports.of(A, 2) is None
    assert reports.of(B, 1) is None
    assert (len(reports), reports.size) == (1, 3 + OVERHEAD_BYTES)
    reports.forget(A.position)
    reports.forget(A.position)
    assert (reports.of(A, 1), len(reports), reports.size) == (None, 0, 0)


@pytest.mark.parametrize(
    ("body", "max_bytes"),
    [(b"y" * (MAX_REPORT_BYTES + 1), 100_000), (b"y" * (1_001 - OVERHEAD_BYTES), 1_000)],
    ids=["too large", "no room"],
)
def test_a_report_that_cannot_be_kept_leaves_none_because_the_one_before_is_out_of_date(
    body: bytes, max_bytes: int
) -> None:
    reports = LiveQueueReports(max_bytes=max_bytes)
    assert reports.take(A, 1, b"x" * 600, now=0.0)
    assert not reports.take(A, 1, body, now=30.0)
    assert (reports.of(A, 1), reports.size) == (None, 0)


def test_a_replica_keeps_its_room() -> None:
    full = LiveQueueReports(max_bytes=1_000)
    assert full.take(A, 1, b"x" * (1_000 - OVERHEAD_BYTES), now=0.0)
    assert not full.take(B, 1, b"", now=0.0)
    assert full.take(A, 1, b"y" * (1_000 - OVERHEAD_BYTES), now=30.0)
    assert full.of(A, 1) is not None
