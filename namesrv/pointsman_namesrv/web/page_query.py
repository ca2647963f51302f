"""Filter, sort and page of a list, as parameters of its address. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from pointsman.wire.refusals import FieldViolation, InvalidRequest, shown
from pointsman_namesrv.web.page_links import with_parameters

T = TypeVar("T")
ROWS = 50
"""Rows of one page."""
MAX_PAGE = 1_000_000
FEW_OF = 10
"""A page within this share of all rows is found without sorting the others."""
LONGEST = 262
PAGE_TOKEN = "page_token"  # noqa: S105  # where a page of the history continues
AT = "at"
"""The parameter of a moment in the past that a page shows."""


@dataclass(frozen=True, slots=True)
class PageQuery:
    """A path with its parameters, checked against those that the page knows."""

    path: str
    parameters: Mapping[str, str]

    def text(self, name: str) -> str:
        """Return a parameter; empty if it is missing. Raises InvalidRequest for one that is too long."""
        value = self.parameters.get(name, "").strip()
        if len(value) > LONGEST:
            text = f"may have at most {LONGEST} characters, not {len(value)}: {shown(value)}"
            raise InvalidRequest([FieldViolation(name, text)])
        return value

    def choice(self, name: str, allowed: Collection[str]) -> str:
        """Return a parameter that has one of some values, or none. Raises InvalidRequest."""
        value = self.text(name)
        if value and value not in allowed:
            text = f"must be one of {', '.join(allowed)}, not {shown(value)}"
            raise InvalidRequest([FieldViolation(name, text)])
        return value

    def moment(self, name: str) -> datetime | None:
        """Return a time (RFC 3339; without a zone UTC). Raises InvalidRequest."""
        value = self.text(name)
        if not value:
            return None
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            text = f"must be a time such as 2026-11-27T03:12Z, not {shown(value)}"
            raise InvalidRequest([FieldViolation(name, text)]) from None
        try:
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        except OverflowError:
            raise InvalidRequest([FieldViolation(name, f"is out of range: {shown(value)}")]) from None

    @property
    def page(self) -> int:
        """Return the number of the page, from 1. Raises InvalidRequest."""
        value = self.text("page") or "1"
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 9 else 0
        if not 1 <= number <= MAX_PAGE:
            raise InvalidRequest([FieldViolation("page", f"must be a number from 1, not {shown(value)}")])
        return number

    def change(self, **changes: str) -> str:
        """Return the address with other parameters; a change of any but the page leads to the first page."""
        kept = {name: value for name, value in self.parameters.items() if name != "page"}
        return with_parameters(self.path, kept | changes)


@contextmanager
def parameters_named(**names: str) -> Iterator[None]:
    """Name the fields of a request, which a refusal names, as the parameters that they came from."""
    try:
        yield
    except InvalidRequest as refusal:
        named = (FieldViolation(names.get(each.field, each.field), each.description) for each in refusal.violations)
        raise InvalidRequest(list(named)) from None


@dataclass(frozen=True, slots=True)
class Paged(Generic[T]):
    """The rows of one page of a list."""

    rows: Sequence[T]
    found: int
    first: int
    """Number of the first row, from 1; 0: there is none."""
    before: str
    """Address of the page before; empty: none."""
    after: str

    @property
    def last(self) -> int:
        """Return the number of the last row."""
        return self.first + len(self.rows) - 1 if self.rows else 0


def paged(rows: Sequence[T], query: PageQuery, *, found: int | None = None) -> Paged[T]:
    """Return the rows of the requested page; a page behind the last one is empty.

    ``found``: number of all rows, where ``rows`` are the first of them.
    """
    page, total = query.page, len(rows) if found is None else found
    begin = (page - 1) * ROWS
    part = rows[begin : begin + ROWS]
    before = query.change(page=str(min(page - 1, max(1, -(-total // ROWS))))) if page > 1 and total else ""
    after = query.change(page=str(page + 1)) if begin + ROWS < total else ""
    return Paged(part, total, begin + 1 if part else 0, before, after)


def sorted_page(
    rows: Sequence[T], key: Callable[[T], tuple[object, ...]], query: PageQuery, *, is_descending: bool
) -> Paged[T]:
    """Return the requested page of the rows in an order; of very many, only those up to the page are sorted."""
    end = query.page * ROWS
    if end * FEW_OF < len(rows):
        pick = heapq.nlargest if is_descending else heapq.nsmallest
        return paged(pick(end, rows, key=key), query, found=len(rows))
    return paged(sorted(rows, key=key, reverse=is_descending), query)


@dataclass(frozen=True, slots=True)
class Column:
    """A column by which a list can be sorted."""

    name: str
    title: str
    path: str
    """Address of the list sorted by it, or the other way round if it is already."""
    direction: str
    """ascending, descending, or empty: the list is sorted by another one."""


def sort_of(query: PageQuery, names: Collection[str], *, default: str) -> tuple[str, bool]:
    """Return the column to sort by, and whether the highest comes first. Raises InvalidRequest."""
    value = query.choice("sort", [*names, *(f"-{name}" for name in names)]) or default
    return value.removeprefix("-"), value.startswith("-")


def columns_of(
    query: PageQuery, titles: Mapping[str, str], *, default: str, highest_first: Collection[str] = ()
) -> Mapping[str, Column]:
    """Return the columns of a list with the addresses that sort it; ``highest_first``: those of which operators look
    for the highest values."""
    by, is_descending = sort_of(query, titles, default=default)

    def column(name: str, title: str) -> Column:
        direction = ("descending" if is_descending else "ascending") if name == by else ""
        is_next_descending = not is_descending if name == by else name in highest_first
        return Column(name, title, query.change(sort=f"-{name}" if is_next_descending else name), direction)

    return {name: column(name, title) for name, title in titles.items()}


def distinct(values: Collection[str], *, most: int = 60) -> list[str]:
    """Return the values of a filter; none where there are too many to choose from."""
    found = sorted({value for value in values if value})
    return found if len(found) <= most else []
