"""What a section of the page is made of, as values: every text is plain, the templates alone write HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from spark_jobs.report.wording import LocalTime, coarse_percent

Numbers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tag:
    """An element within a cell or a note; left out where it has neither lines nor a class."""

    name: Literal["b", "code", "small", "span"]
    lines: tuple[str | None, ...] = ()
    css: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in UTC, and how a reader of the report's zone writes it."""

    name: ClassVar[str] = "time"
    at: str
    day: str
    clock: str


Piece = str | Tag | Moment | None
"""Neither None nor an empty text stays blank: it is shown as a dash."""
Content = Piece | tuple[Piece, ...]
Row = tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first cell names the row; ``kinds`` has an ``n`` for each column of numbers, else a ``t``."""

    kind: ClassVar[str] = "table"
    name: str
    head: tuple[str, ...]
    rows: Sequence[Row]
    kinds: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    kind: ClassVar[str] = "paragraph"
    content: Content
    css: str = ""


@dataclass(frozen=True, slots=True)
class Plots:
    """Drawings beside each other; a phone scrolls a wide one sideways, since its letters would be too small."""

    kind: ClassVar[str] = "plots"
    svgs: list[str]
    wide: bool = False


Part = Table | Paragraph | Plots


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under a heading; ``ident`` is what findings and the table of contents link to."""

    ident: str
    title: str
    parts: list[Part]


def section(ident: str, title: str, *parts: Part | None) -> Section:
    return Section(ident, title, [part for part in parts if part])


def note(*content: Piece) -> Paragraph | None:
    """A paragraph of small text; None without any."""
    return Paragraph(content, css="note") if any(content) else None


def plots(*svgs: str, wide: bool = False) -> Plots | None:
    """Drawings; an empty one is left out."""
    drawn = [svg for svg in svgs if svg]
    return Plots(drawn, wide=wide) if drawn else None


def bold(text: str | None) -> Tag:
    return Tag("b", (text,))


def small(*lines: str | None) -> Tag:
    """Small text under a value, without its empty lines."""
    return Tag("small", tuple(line for line in lines if line))


def broker(row: Numbers) -> tuple[Piece, ...]:
    return bold(row["broker_name"]), f"/{row['broker_id']}", Tag("small", (row["cluster"],))


def topic(row: Numbers) -> tuple[Piece, ...]:
    return bold(row["topic"]), Tag("small", (row["cluster"],))


def moment(time: LocalTime, at: str | None) -> Moment | None:
    return None if at is None else Moment(at, *time.day_and_time(at))


def share(numbers: Numbers, value: float | None) -> str:
    """An availability, with as many decimals as the coverage of the report allows."""
    return coarse_percent(value, is_short=numbers["coverage"]["is_short"])


def left_out(in_all: int, shown: int, of_what: str, where: str) -> str:
    """Say how many rows a table does not show, and where they are."""
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
