"""Options of the client, and those that producers and consumers share with it."""

from __future__ import annotations

import random
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from pointsman.clock import Clock
from pointsman.wire.credentials import Credentials
from pointsman_client.core.checks import check_number, check_seconds, check_zone
from pointsman_client.core.request_signature import AccessKey
from pointsman_client.errors import InvalidOptionError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.pointsman_grpc import links


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """Options of all classes that look up routes. In brackets: RocketMQ's names, of ``ClientConfig``.

    A value out of bounds raises :class:`InvalidOptionError`.
    """

    poll_name_server_interval_seconds: float = 30.0
    """Longest time between two lookups of a topic in use (``pollNameServerInterval``, 30,000 ms). A started client that
    is passed in uses its own."""
    lookup_timeout_seconds: float = 3.0
    """Timeout of one lookup with all name servers that it tries (``mqClientApiTimeout``, 3,000 ms). Likewise."""
    credentials: Credentials | None = None
    """TLS and token of connections to name servers and agents; None: neither. A client that is passed in uses its own.
    Changed files apply to new connections within 10 s."""
    rocketmq_tls: ssl.SSLContext | None = None
    """TLS of connections to ``rocketmq://`` name servers, and to brokers by the default transport, also if given as
    ``transport=RocketmqTransport``; None: plain text. A client that is passed in uses its own."""
    rocketmq_access_key: AccessKey | None = None
    """Account that signs requests to ``rocketmq://`` name servers, and to brokers, as for ``rocketmq_tls``; None: none.
    A client that is passed in uses its own."""
    metrics_hook: MetricsHook | None = None
    """Receives every event that can be counted, such as :class:`~pointsman_client.prometheus.PrometheusMetrics`."""
    clock: Clock | None = None
    """For tests; None: the system clock."""
    rng: random.Random | None = None
    """For tests; None: a new one with a random seed."""

    def __post_init__(self) -> None:
        for option in fields(self):
            value, may_be_none = getattr(self, option.name), "None" in str(option.type)
            if option.name.endswith("_seconds") and not (value is None and may_be_none):
                check_seconds(option.name, value)


@dataclass(frozen=True, kw_only=True)
class ClientOptions(SharedOptions):
    """Options of :class:`NameServerClient`."""

    name_servers: str | Sequence[str] = field(kw_only=False)
    """Addresses, ``host:port``, or ``rocketmq://host:port`` for RocketMQ's name servers: a list, or a str with ``,`` or
    ``;`` between them (``namesrvAddr``). Or the URL of their list at an address server, which is read every 30 s:
    ``http://host:port/path``, or ``rocketmq+http://host:port/path`` for RocketMQ's name servers, each with ``https``
    as well."""
    poll_jitter: float = 0.1
    """Share of the interval, 0 to 1, by which a wait may be shorter, so that clients do not poll at the same moment."""
    close_timeout_seconds: float = 2.0
    """Longest time that ``close()`` takes."""
    max_topics: int = 1_000
    """Maximum number of cached topics; beyond it the one unused for longest is evicted."""
    poll_concurrency: int = 8
    """Number of lookups that one poll runs in parallel."""
    shuffle_name_servers: bool = True
    """Whether the first server is chosen at random, to balance clients; else the first in the list is used."""
    watch_routes: bool = True
    """Whether a name server pushes changes as they happen; the client polls in both cases. RocketMQ's cannot push."""
    zone: str = ""
    """Only replica groups of this zone, and those without a master, are in routes; empty: all (``rocketmq.zone``)."""
    open_channel: links.OpenChannel = links.open_channel
    """For tests: opens the connections."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.poll_jitter <= 1:
            raise InvalidOptionError("poll_jitter", self.poll_jitter, "must be from 0 to 1")
        check_number("max_topics", self.max_topics)
        check_number("poll_concurrency", self.poll_concurrency)
        check_zone("zone", self.zone)
