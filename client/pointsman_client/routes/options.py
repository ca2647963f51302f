"""The client's settings, checked as a whole. Defaults stand at :class:`NameServerClient`, where users meet them."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman_client.core.checks import check_number, check_seconds, check_zone
from pointsman_client.errors import InvalidOptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Settings of one client; a value out of bounds raises :class:`InvalidOptionError`."""

    poll_name_server_interval_seconds: float
    """Longest time between two lookups of a topic in use (RocketMQ ``pollNameServerInterval``)."""
    poll_jitter: float
    """Share of the interval, 0 to 1, by which a wait may be shorter, so that clients do not ask in step."""
    lookup_timeout_seconds: float
    """For one lookup, over all name servers that it tries (RocketMQ ``mqClientApiTimeout``)."""
    close_timeout_seconds: float
    """Longest time that ``close()`` takes."""
    max_topics: int
    """Topics kept and polled; beyond it the one unused for longest is forgotten."""
    poll_concurrency: int
    """Lookups that one poll runs at the same time."""
    shuffle_name_servers: bool
    """Whether the first server is chosen at random, so that clients spread; else the list's order counts."""
    watch_routes: bool
    """Whether a name server is asked to tell changes as they happen; the poll goes on either way."""
    zone: str
    """Only replica groups of this zone, and those without a master, are in routes; empty: all (``rocketmq.zone``)."""

    def __post_init__(self) -> None:
        check_seconds("poll_name_server_interval_seconds", self.poll_name_server_interval_seconds)
        check_seconds("lookup_timeout_seconds", self.lookup_timeout_seconds)
        check_seconds("close_timeout_seconds", self.close_timeout_seconds)
        if not 0 <= self.poll_jitter <= 1:
            raise InvalidOptionError("poll_jitter", self.poll_jitter, "must be from 0 to 1")
        check_number("max_topics", self.max_topics)
        check_number("poll_concurrency", self.poll_concurrency)
        check_zone("zone", self.zone)
