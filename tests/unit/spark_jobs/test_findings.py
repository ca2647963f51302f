"""What a report says somebody has to look at."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from spark_jobs.report.findings import fell_silent, findings

FINE: dict[str, Any] = {
    "last_day": "2026-03-05",
    "warehouse_ends_on": None,
    "rows": 9,
    "days_without_rows": [],
    "unwatched_clusters": {},
    "fell_silent": None,
    "rows_missing": 0,
    "rows_ahead": 0,
    "unreadable_files": [],
    "quarantined_lines": 0,
}
DAY = date(2026, 3, 5)


def life(boot: str, to_at: str, *, is_open: bool = False) -> dict[str, Any]:
    return {"node": "n", "boot_id": boot, "from_at": "2026-03-05T00:00:00.000Z", "to_at": to_at, "open": is_open}


def test_a_missed_night_is_told_with_the_command_that_mends_it() -> None:
    (said,) = findings([], FINE | {"warehouse_ends_on": "2026-03-02"})

    assert said.startswith(
        "the warehouse ends on 2026-03-02: run pointsman-report backfill --from 2026-03-03 --to 2026-03-05"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({}, [], id="all-well"),
        pytest.param({"unwatched_clusters": {"c": ["2026-03-05"]}}, ["nobody watched cluster c on 2026-03-05"], id="c"),
        pytest.param(
            {"unreadable_files": ["a.gz"], "quarantined_lines": 1},
            ["1 files of history cannot be read to their end: a.gz"],
            id="damaged-file-is-no-further-line",
        ),
    ],
)
def test_a_finding_is_a_line(change: dict[str, Any], said: list[str]) -> None:
    assert findings([], FINE | change) == said


def test_name_servers_that_stopped_politely_did_not_fall_silent() -> None:
    lives = [life("killed", "2026-03-05T01:00:00.000Z"), life("stopped", "2026-03-05T02:00:00.000Z")]

    assert fell_silent(lives, {("n", "stopped")}, last_day=DAY) is None


def test_the_last_to_watch_fell_silent_when_it_neither_stopped_nor_was_followed() -> None:
    killed = life("killed", "2026-03-05T01:00:00.000Z")

    assert fell_silent([killed], set(), last_day=DAY) == killed
    assert fell_silent([killed, life("next", "2026-03-06T00:00:00.000Z", is_open=True)], set(), last_day=DAY) is None
    assert fell_silent([killed], set(), last_day=datetime.now(tz=UTC).date()) is None, "that day is not over"
