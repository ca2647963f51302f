"""A section of the page: its heading, and the values that its template shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from pointsman_report.report.wording import LocalTime

Numbers = dict[str, Any]
TOP = 20


@dataclass(frozen=True, slots=True)
class Section:
    """``ident`` names its macro in templates/sections.html, and is what findings and the table of contents link to."""

    ident: str
    title: str
    shown: dict[str, Any]


def section(ident: str, title: str, **shown: Any) -> Section:  # noqa: ANN401 - each template knows its own
    return Section(ident, title, shown)


def first(found: Numbers, of_what: str, where: str, *, most: int = TOP) -> dict[str, Any]:
    """The first rows of a listing, and the sentence that says how many it leaves out and where they are."""
    rows = found["rows"][:most]
    return {"rows": rows, "rest": left_out(found["in_all"], len(rows), of_what, where)}


def left_out(in_all: int, shown: int, of_what: str, where: str) -> str:
    return "" if in_all == shown else f"{shown:,} of {in_all:,} {of_what} are listed; the others are in {where}."


def local_time(numbers: Numbers) -> LocalTime:
    return LocalTime(ZoneInfo(numbers["interval"]["timezone"]))


def of_utc_days(numbers: Numbers) -> str:
    """Say that a table is of whole UTC days, where the report is not."""
    span = numbers["interval"]
    if span["from_at"].endswith("T00:00:00.000Z") and span["to_at"].endswith("T00:00:00.000Z"):
        return ""
    days = numbers["from"] if numbers["from"] == numbers["to"] else f"{numbers['from']} to {numbers['to']}"
    return f"Of the UTC {'day' if numbers['from'] == numbers['to'] else 'days'} {days}. "
