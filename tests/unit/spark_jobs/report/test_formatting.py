"""How a report writes numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from pointsman_report.report.formatting import (
    LocalTime,
    broker_label,
    counted,
    duration,
    is_brief,
    micros,
    objective,
    outage_duration,
    percent,
    rfc3339,
    some,
)


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "\N{EN DASH}"), (1.0, "100 %"), (0.9999999, "99.999 %"), (0.5, "50.000 %"), (0.0, "0.000 %")],
)
def test_a_share_is_never_rounded_up_to_100_percent(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_a_share_of_four_digits_is_written_without_binary_rounding() -> None:
    texts = {n: percent(n / 10_000) for n in range(10_000)}

    assert {n: text for n, text in texts.items() if text != f"{Decimal(n) / 100:.3f} %"} == {}
    assert percent(1 - 7 / 10_000) == "99.930 %"


@pytest.mark.parametrize("digits", [0, 1, 3])
def test_the_greatest_share_below_100_percent_is_shown_as_less(digits: int) -> None:
    assert percent(math.nextafter(1.0, 0.0), digits=digits) == {0: "99 %", 1: "99.9 %", 3: "99.999 %"}[digits]


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.0, "0 s"),
        (1.2345, "1.234 s"),
        (9.9994, "9.999 s"),
        (10.0, "10 s"),
        (-1.5, "\N{MINUS SIGN}1.5 s"),
    ],
)
def test_a_brief_outage_is_shown_with_milliseconds(seconds: float | None, text: str) -> None:
    assert outage_duration(seconds) == text
    assert is_brief(seconds) == (seconds is not None and 0 <= seconds < 10)


@pytest.mark.parametrize(
    ("share", "text"), [(None, "\N{EN DASH}"), (0.999, "99.9 %"), (0.99995, "99.995 %"), (0.5, "50 %")]
)
def test_an_objective_has_the_decimals_that_it_was_given(share: float | None, text: str) -> None:
    assert objective(share) == text


def test_the_time_of_a_brief_outage_has_milliseconds() -> None:
    time = LocalTime(ZoneInfo("Asia/Kathmandu"))

    assert time.day_and_time("2026-03-05T18:20:00.045Z", brief=True) == ("2026-03-06", "00:05:00.045")
    assert time.day_and_time("2026-03-05T18:20:00.045Z") == ("2026-03-06", "00:05:00")


def test_a_name_cannot_move_a_terminals_cursor() -> None:
    named = broker_label("c", "a\x1b[2J\n", 0)

    assert named == "c/a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}/0"


def test_a_time_keeps_its_milliseconds() -> None:
    assert rfc3339(1_795_227_044_123_456) == "2026-11-21T02:10:44.123Z"
    assert rfc3339(None) is None


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 outages"), (1, "1 outage"), (2, "2 outages"), (1_234, "1,234 outages")]
)
def test_one_is_singular(count: int, text: str) -> None:
    assert counted(count, "outage") == text


def test_the_first_few_are_named_and_the_others_counted() -> None:
    assert some(["a", "b"]) == "a, b"
    assert some(list("abcdefg")) == "a, b, c, d, e and 2 more"
    assert some(["a"], of=3) == "a and 2 more"


def test_a_time_is_shown_in_the_zone_and_names_it() -> None:
    berlin = LocalTime(ZoneInfo("Europe/Berlin"))

    assert berlin.plain("2026-03-29T01:30:00.000Z") == "2026-03-29 03:30:00"
    assert berlin.clock("2026-03-29T00:30:00.000Z") == "2026-03-29 01:30 Europe/Berlin"


def test_a_time_that_was_written_reads_back() -> None:
    assert micros("2026-11-21T02:10:44.123Z") == 1_795_227_044_123_000
