"""A section of the page: its heading, and the values that its template shows."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pointsman_report.report.table_rows import Listing

R = TypeVar("R")
TOP = 20


@dataclass(frozen=True, slots=True)
class Section:
    """``ident`` names its macro in templates/sections.html, and is what findings and the table of contents link to."""

    ident: str
    title: str
    shown: dict[str, object]
    is_empty: bool = False
    """It states only that there was nothing; such sections are folded at the end of the page."""

    def empty_without(self, *rows: Sized) -> Section:
        """Return it as empty if all of these have no rows."""
        return replace(self, is_empty=not any(rows))


def section(ident: str, title: str, **shown: object) -> Section:
    """Return a section of the page; ``shown`` are the variables of its template."""
    return Section(ident, title, shown)


@dataclass(frozen=True, slots=True)
class Shown(Generic[R]):
    """The first rows of a listing, and a sentence with the number of the others and where they are."""

    rows: list[R]
    rest: str


def first(found: Listing[R], of_what: str, where: str, *, most: int = TOP) -> Shown[R]:
    """Return the first rows of a list, and a sentence about the others."""
    rows = found.rows[:most]
    return Shown(rows, left_out(found.in_all, len(rows), of_what, where))


def left_out(in_all: int, shown: int, of_what: str, where: str) -> str:
    """Return a sentence that states how many are not shown; empty if all are."""
    return "" if in_all == shown else f"{shown:,} of {in_all:,} {of_what} are shown; see {where} for the others."
