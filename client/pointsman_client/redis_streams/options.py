"""Options of the Redis transport, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.clock import Clock
from pointsman_client.core.checks import check_number, check_seconds
from pointsman_client.errors import InvalidOptionError


@dataclass(frozen=True, kw_only=True)
class RedisOptions:
    """Options of :class:`RedisStreamsTransport`; a value out of bounds raises :class:`InvalidOptionError`."""

    username: str | None = None
    """User name (ACL) for every server (``AUTH``); requires ``password``."""
    password: str | None = None
    """Password for every server (``AUTH``)."""
    db: int = 0
    """Database number on every server (``SELECT``)."""
    ssl: Mapping[str, object] | None = None
    """Arguments of redis-py's ``SSLConnection``, such as ``{"ssl_ca_certs": "ca.pem"}``; ``{}``: TLS with the
    system's CA certificates; None: no TLS."""
    max_length: int | None = 1_000_000
    """Maximum number of messages of a queue (``MAXLEN ~``), plus up to 100: Redis removes complete nodes. None: no
    limit."""
    max_age_seconds: float | None = None
    """Older messages are removed, approximately and in the background; None: no limit."""
    wait_replicas: int = 0
    """Replicas that must have a message for SEND_OK (``WAIT``)."""
    wait_fsync: bool = False
    """Whether a message must be on the master's disk for SEND_OK (``WAITAOF``, Redis 7.2)."""
    wait_timeout_seconds: float = 1.0
    """Timeout of the wait for replicas or disk."""
    connect_timeout_seconds: float = 3.0
    """Timeout for connecting and authentication."""
    max_reply_bytes: int = 256 * 1024 * 1024
    """Maximum size of a reply to a pull, bytes: at least ``pull_batch_size`` messages of the largest size that
    producers of the topics send. A server that sends more is treated as unreachable."""
    clock: Clock | None = None
    """Clock, for tests; None: the system clock."""

    def __post_init__(self) -> None:
        check_seconds("wait_timeout_seconds", self.wait_timeout_seconds)
        check_seconds("connect_timeout_seconds", self.connect_timeout_seconds)
        if self.max_age_seconds is not None:
            check_seconds("max_age_seconds", self.max_age_seconds)
        if self.max_length is not None:
            check_number("max_length", self.max_length)
        check_number("max_reply_bytes", self.max_reply_bytes)
        check_number("wait_replicas", self.wait_replicas, at_least=0)
        check_number("db", self.db, at_least=0)
        if self.username is not None and self.password is None:
            raise InvalidOptionError("username", self.username, "requires a password")
