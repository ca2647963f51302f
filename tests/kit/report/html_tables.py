"""Reads the tables of an HTML page."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class HtmlTable:
    """The text of a table's header and cells, without what a row opens; ``name`` is what a screen reader calls it."""

    name: str
    head: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[HtmlTable] = []
        self.text: list[str] = []
        self.void: list[str] = []
        self._cell: list[str] | None = None
        self._label = ""
        self._in_head = False
        self._is_more = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "div" and given.get("role") == "region":
            self._label = given.get("aria-label") or ""
        elif tag == "table":
            self.tables.append(HtmlTable(self._label))
        elif tag == "thead":
            self._in_head = True
        elif tag == "tbody":
            self._in_head = False
        elif tag == "tr" and not self._in_head:
            self._is_more = given.get("class") == "more"
            if not self._is_more:
                self.tables[-1].rows.append([])
        elif tag in ("td", "th") and not (tag == "td" and self._is_more):
            assert tag == "td" or given.get("scope") in ("row", "col"), "a header needs a scope"
            self._cell = []
        elif tag == "small" and self._cell:
            self._cell.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            text = " ".join("".join(self._cell).split())
            (self.tables[-1].head if self._in_head else self.tables[-1].rows[-1]).append(text)
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)


def tables_of(page: str) -> dict[str, HtmlTable]:
    """Return the page's tables by name."""
    reader = _Reader()
    reader.feed(page)
    assert len({table.name for table in reader.tables}) == len(reader.tables), "two tables of one name"
    return {table.name: table for table in reader.tables}
