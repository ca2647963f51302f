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
    """Streams of clients, so a client id with two streams counts twice."""
    max_groups: int = 10_000
    max_subscriptions: int = 200_000
    """Of all members together; a member without subscriptions counts as one."""
    max_subscriptions_per_client: int = 4_096
    """In one beat, of all groups that it names."""


class GroupLimitReached(Exception):
    """A bound is reached; nothing was changed."""

    def __init__(self, limit: str, bound: int, *, field: str = "", value: int | None = None) -> None:
        super().__init__(f"at most {bound} {limit}")
        self.limit = limit
        self.bound = bound
        self.field = field
        """Of the request; empty: no single one."""
        self.value = value
        """What was asked for."""
