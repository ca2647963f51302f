"""How a report writes numbers."""

from __future__ import annotations

import pytest

from spark_jobs.report.wording import duration, label, percent, rfc3339


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "\N{EN DASH}"), (1.0, "100 %"), (0.9999999, "99.999 %"), (0.5, "50.000 %"), (0.0, "0.000 %")],
)
def test_a_share_is_never_rounded_up_to_the_whole(share: float | None, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\N{EN DASH}"),
        (2.04, "2.0 s"),
        (59.0, "59 s"),
        (60.0, "1 min"),
        (3_700.0, "1 h 1 min"),
        (90_000.0, "1 d 1 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_name_cannot_move_a_terminals_cursor() -> None:
    named = label({"cluster": "c", "broker_name": "a\x1b[2J\n", "broker_id": 0})

    assert named == "c/a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}/0"


def test_a_time_keeps_its_milliseconds() -> None:
    assert rfc3339(1_795_227_044_123_456) == "2026-11-21T02:10:44.123Z"
    assert rfc3339(None) is None
