"""Queries on the warehouse and their results."""

from __future__ import annotations

from typing import Any, Protocol
from zoneinfo import ZoneInfo


class QueryResult(Protocol):
    """A result that can be printed as text or JSON."""

    @property
    def exit_code(self) -> int:
        """0: found; 1: no data, or something that needs attention."""

    def as_dict(self) -> dict[str, Any]:
        """Content of ``--output json``; times are RFC 3339 in UTC."""

    def text(self, zone: ZoneInfo) -> str:
        """Text for operators; times are in that zone, which is named."""
