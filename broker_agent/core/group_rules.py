"""How consumer groups are kept: what their members are told, how long things take, how many there may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRules:
    """How the members of a group are told of changes."""

    notify: bool = True
    hold_down: float = 0.0
    """Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """How long things take, in seconds, and how many there may be."""

    expiry: float = 120.0
    scan_interval: float = 10.0
    stream_grace: float = 2.0
    warm_up: float = 30.0
    notices: NoticeRules = field(default_factory=NoticeRules)
    """For groups that have none of their own."""
    notices_of: Mapping[str, NoticeRules] = field(default_factory=dict)
    max_clients: int = 20_000
    max_groups: int = 10_000


class GroupLimitReached(Exception):
    """A bound is reached; nothing was changed."""

    def __init__(self, limit: str, bound: int) -> None:
        super().__init__(f"at most {bound} {limit}")
        self.limit = limit
        self.bound = bound
