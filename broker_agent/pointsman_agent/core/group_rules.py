"""Limits and durations of consumer groups, and how their members are notified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRules:
    """How the members of a group are notified of changes."""

    notify: bool = True
    hold_down: float = 0.0
    """Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """Durations in seconds, and limits."""

    expiry: float = 120.0
    scan_interval: float = 10.0
    stream_grace: float = 2.0
    warm_up: float = 30.0
    notices: NoticeRules = field(default_factory=NoticeRules)
    """For groups without an entry in ``notices_of``."""
    notices_of: Mapping[str, NoticeRules] = field(default_factory=dict)
    max_clients: int = 20_000
    """Streams of clients, so a client id with two streams counts twice."""
    max_groups: int = 10_000
    max_subscriptions: int = 200_000
    """Of all members together; a member without subscriptions counts as one."""
    max_subscriptions_per_client: int = 4_096
    """In one beat, of all groups that it names."""


class GroupLimitReached(Exception):
    """A limit is reached; nothing was changed."""

    def __init__(self, limit: str, bound: int, *, field: str = "", value: int | None = None) -> None:
        super().__init__(f"at most {bound} {limit}")
        self.limit = limit
        self.bound = bound
        self.field = field
        """Field of the request; empty: no single one."""
        self.value = value
        """The requested value."""
