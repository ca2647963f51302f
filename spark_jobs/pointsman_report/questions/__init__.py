"""Questions to the warehouse, and what each comes back with."""

from __future__ import annotations

from typing import Any, Protocol
from zoneinfo import ZoneInfo


class Answer(Protocol):
    """For people and for programs; the command prints one of the two."""

    @property
    def exit_code(self) -> int:
        """0: answered; 1: there is nothing to say of it, or something that somebody must look at."""

    def as_dict(self) -> dict[str, Any]:
        """What ``--output json`` prints; times are RFC 3339 in UTC."""

    def text(self, zone: ZoneInfo) -> str:
        """What a person reads; times in that zone, which it names."""
