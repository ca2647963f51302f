"""The figures at the top of a report, each with its change against the day and the week before.

The days before are UTC days of the trend; days with less than an hour of coverage are not compared.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from pointsman_report.report.contents import Report
from pointsman_report.report.formatting import coarse_percent, counted, duration, number, percent
from pointsman_report.report.sections.availability_trend import WEEK, TrendDay
from pointsman_report.report.sections.report_basis import MIN_COVERAGE_SECONDS

UP, DOWN = "\N{UPWARDS ARROW}", "\N{DOWNWARDS ARROW}"


class Change(NamedTuple):
    """A figure against that of an earlier day; ``worse``: whether it changed for the worse."""

    text: str
    worse: bool = False


class Tile(NamedTuple):
    """One figure, with lines of small text below."""

    value: str
    name: str
    below: str = ""
    bad: bool = False
    changes: tuple[Change, ...] = ()


def tiles(report: Report) -> list[Tile]:
    """Return the headline's figures; none without data."""
    top, topics, flapping = report.headline, report.topics_at_risk, report.headline.flapping
    if top.no_data:
        return []
    before = _days_before(report)

    def changes(
        now: float | None,
        of: Callable[[TrendDay], float | None],
        bad: int,
        write: Callable[[float], str] = number,
    ) -> tuple[Change, ...]:
        found = (_change(now, of(day), name, bad=bad, write=write) for name, day in before)
        return tuple(change for change in found if change is not None)

    return [
        Tile(
            coarse_percent(top.availability, is_short=report.coverage.is_short),
            "availability",
            f"{duration(top.down_seconds)} downtime",
            changes=changes(top.availability, lambda day: day.availability, -1, percent),
        ),
        Tile(
            number(top.brokers_seen),
            "brokers",
            f"{top.new.count:,} new, {top.gone.count:,} removed",
            changes=changes(top.brokers_seen, lambda day: day.brokers, 0),
        ),
        Tile(
            number(flapping.now),
            "flapping",
            f"{flapping.seven_days:,} in 7 days",
            bad=bool(flapping.now),
            changes=changes(flapping.now, lambda day: day.flapping, 1),
        ),
        Tile(
            number(top.outages),
            "outages",
            f"{top.incident_downs:,} of them in incidents" if top.incident_downs else "",
            changes=changes(top.outages, lambda day: day.outages, 1),
        ),
        Tile(
            number(topics.in_all),
            "topics at risk",
            f"{topics.unwritable:,} unwritable for some time",
            bad=bool(topics.unwritable),
            changes=changes(topics.in_all, lambda day: day.topics_at_risk, 1),
        ),
        _coverage(report),
    ]


def _coverage(report: Report) -> Tile:
    data, covered = report.completeness, report.coverage
    lost = f"{counted(data.rows_missing, 'row')} lost, {counted(data.quarantined_lines, 'bad line')}"
    if covered.is_short:
        return Tile(duration(covered.seconds), "monitoring coverage", lost)
    return Tile(percent(covered.share, digits=1), "monitoring coverage", lost, bad=covered.share < 0.99)


def _days_before(report: Report) -> list[tuple[str, TrendDay]]:
    """The days to compare with: none for a report of several days, or of less than an hour."""
    if report.coverage.is_short or report.from_ != report.to:
        return []
    by_date = {day.date: day for day in report.trend.days}
    names = {1: "the day before", WEEK: "a week before"}
    found = ((name, by_date.get(f"{report.to - timedelta(days=ago)}")) for ago, name in names.items())
    return [(name, day) for name, day in found if day is not None and _is_covered(day)]


def _is_covered(day: TrendDay) -> bool:
    return day.up_seconds + day.down_seconds >= day.brokers * MIN_COVERAGE_SECONDS


def _change(
    now: float | None, before: float | None, name: str, *, bad: int, write: Callable[[float], str]
) -> Change | None:
    """``bad``: 1 if a higher figure is worse, -1 if a lower one is."""
    if now is None or before is None:
        return None
    if write(now) == write(before):
        return Change(f"as {name}")
    grew = now > before
    return Change(f"{UP if grew else DOWN} from {write(before)} {name}", worse=bad == (1 if grew else -1))
