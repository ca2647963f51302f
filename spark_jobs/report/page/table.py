"""Sections and tables as HTML: headings, headers with their scope, numbers to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any
from zoneinfo import ZoneInfo

from spark_jobs.report.wording import NOTHING, LocalTime, coarse_percent, printable

Cells = Sequence[str]


def section(ident: str, title: str, *parts: str) -> str:
    """Put parts under a heading; ``ident`` is what findings and the table of contents lead to."""
    return (
        f'<section id="{ident}" aria-labelledby="{ident}-title"><h2 id="{ident}-title">{escape(title)}</h2>\n'
        f"{''.join(parts)}</section>"
    )


def note(text: str) -> str:
    """A line of small text, which is HTML already."""
    return f'<p class="note">{text}</p>' if text else ""


def table(name: str, head: Cells, rows: Iterable[Cells], *, numbers: str = "") -> str:
    """A table whose first cell names the row; ``numbers`` has an ``n`` for each column of numbers, else a ``t``."""
    kinds = numbers.ljust(len(head), "t")

    def cell(tag: str, n: int, content: str, more: str = "") -> str:
        return f"<{tag}{more}{' class=n' if kinds[n] == 'n' else ''}>{content}</{tag}>"

    top = "".join(cell("th", n, escape(title), " scope=col") for n, title in enumerate(head))
    lines = []
    for row in rows:
        first = cell("th", 0, row[0], " scope=row")
        rest = "".join(cell("td", n, content) for n, content in enumerate(row) if n)
        lines.append(f"<tr>{first}{rest}</tr>\n")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>\n{''.join(lines)}</tbody></table></div>"
    )


def wide(svg: str) -> str:
    """A plot that a phone scrolls sideways, since its letters would be too small."""
    return f'<div class="scroll wide" role="region" tabindex="0" aria-label="Plot">{svg}</div>'


def share(numbers: dict[str, Any], value: float | None) -> str:
    """An availability, with as many decimals as the coverage of the report allows."""
    return coarse_percent(value, is_short=numbers["coverage"]["is_short"])


def left_out(count: int, of_what: str, shown: int, where: str) -> str:
    """Say how many rows a table does not show, and where they stand."""
    return f"{shown:,} of {shown + count:,} {of_what} are listed; the others are in {where}." if count else ""


def text(value: object) -> str:
    """A name or sentence from outside."""
    return NOTHING if value is None or value == "" else escape(printable(str(value)))


def broker(row: dict[str, Any]) -> str:
    return f"<b>{text(row['broker_name'])}</b>/{row['broker_id']}<small>{text(row['cluster'])}</small>"


def small(value: str, below: str) -> str:
    """A value with a line of small text under it."""
    return f"{value}<small>{below}</small>" if below else value


def moment(time: LocalTime, at: str | None) -> str:
    if at is None:
        return NOTHING
    day, clock = time.day_and_time(at)
    return f'<time datetime="{at}"><span class="day">{day}</span> {clock}</time>'


def local_time(numbers: dict[str, Any]) -> LocalTime:
    return LocalTime(ZoneInfo(numbers["interval"]["timezone"]))


def of_utc_days(numbers: dict[str, Any]) -> str:
    """Say that a table is of whole UTC days, where the report is not."""
    span = numbers["interval"]
    if span["from_at"].endswith("T00:00:00.000Z") and span["to_at"].endswith("T00:00:00.000Z"):
        return ""
    days = numbers["from"] if numbers["from"] == numbers["to"] else f"{numbers['from']} to {numbers['to']}"
    return f"Of the UTC {'day' if numbers['from'] == numbers['to'] else 'days'} {days}. "
