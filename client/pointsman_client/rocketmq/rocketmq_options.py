"""Options of the RocketMQ transport, checked together."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from pointsman.clock import Clock
from pointsman_client.core.checks import check_name, check_number, check_seconds
from pointsman_client.core.request_signature import AccessKey
from pointsman_client.errors import InvalidOptionError


@dataclass(frozen=True, kw_only=True)
class RocketmqOptions:
    """Options of :class:`RocketmqTransport`; a value out of bounds raises :class:`InvalidOptionError`."""

    producer_group: str = "POINTSMAN_PRODUCER"
    """Producer group that brokers see in each message sent (``producerGroup``)."""
    compress_from_bytes: int | None = 4096
    """Bodies of this size or more are compressed with zlib (``compressMsgBodyOverHowmuch``); None: none."""
    compress_level: int = 5
    """zlib's level, 1 to 9 (``rocketmq.message.compressLevel``)."""
    max_body_bytes: int = 16 * 1024 * 1024
    """Maximum size of a received body after decompression; a response beyond it is read in parts."""
    max_in_flight: int = 10_000
    """Maximum number of unanswered requests per broker, waiting pulls included; as many may wait for a connection."""
    max_unsent_bytes: int = 64 * 1024 * 1024
    """Maximum bytes per broker that the network has not taken yet."""
    connect_timeout_seconds: float = 3.0
    """Timeout for connecting, TLS included (``connectTimeoutMillis``)."""
    tls: ssl.SSLContext | None = None
    """TLS of all connections; None: plain text."""
    access_key: AccessKey | None = None
    """Account that signs all requests, for brokers with ``aclEnable`` or ``authenticationEnabled``; None: none."""
    clock: Clock | None = None
    """For tests; None: the system's."""

    def __post_init__(self) -> None:
        check_name("producer_group", self.producer_group)
        if self.compress_from_bytes is not None:
            check_number("compress_from_bytes", self.compress_from_bytes)
        check_number("compress_level", self.compress_level, at_most=9)
        check_number("max_body_bytes", self.max_body_bytes)
        check_number("max_in_flight", self.max_in_flight)
        check_number("max_unsent_bytes", self.max_unsent_bytes)
        check_seconds("connect_timeout_seconds", self.connect_timeout_seconds)
        if self.access_key is not None and not isinstance(self.access_key, AccessKey):
            # Not its value, which may be the secret.
            raise InvalidOptionError("access_key", type(self.access_key), "must be an AccessKey or None")
        if self.tls is not None and not isinstance(self.tls, ssl.SSLContext):
            raise InvalidOptionError("tls", self.tls, "must be an ssl.SSLContext or None")
