"""The settings of the Redis transport, checked as a whole. Defaults stand at :class:`RedisStreamsTransport`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pointsman_client.core.checks import check_number, check_seconds
from pointsman_client.errors import InvalidOptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """Settings of one transport; a value out of bounds raises :class:`InvalidOptionError`."""

    username: str | None
    password: str | None
    db: int
    ssl: Mapping[str, object] | None
    """Arguments of redis-py's ``SSLConnection``; None: no TLS."""
    max_length: int | None
    """Messages that a queue keeps, about (``MAXLEN ~``); None: all."""
    max_age_seconds: float | None
    """Messages born longer ago are removed now and then; None: none."""
    wait_replicas: int
    """Replicas that must have a message for SEND_OK (``WAIT``)."""
    wait_fsync: bool
    """Whether a message must be on the master's disk for SEND_OK (``WAITAOF``)."""
    wait_timeout_seconds: float
    """Longest wait for either."""
    connect_timeout_seconds: float
    """For one try to connect and log in."""

    def __post_init__(self) -> None:
        check_seconds("wait_timeout_seconds", self.wait_timeout_seconds)
        check_seconds("connect_timeout_seconds", self.connect_timeout_seconds)
        if self.max_age_seconds is not None:
            check_seconds("max_age_seconds", self.max_age_seconds)
        if self.max_length is not None:
            check_number("max_length", self.max_length)
        check_number("wait_replicas", self.wait_replicas, at_least=0)
        check_number("db", self.db, at_least=0)
        if self.username is not None and self.password is None:
            raise InvalidOptionError("username", self.username, "needs a password")
