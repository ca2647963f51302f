"""Settings of the name server, with defaults and limits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from pointsman import config
from pointsman.daemon.access.access_settings import AccessSettings
from pointsman.daemon.process import daemon_process, logs
from pointsman.daemon.rpc.listeners import DEFAULT_LISTENER, LANE, LISTENERS
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman.names import addr_problem, registered_name_problem, text_problem
from pointsman.setting import fault, not_one_of, outside, unusable_listen
from pointsman.wire.credentials import Credentials
from pointsman_namesrv.core.guard import GuardRules
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.request_rules import IntervalBounds

ENVIRONMENT_PREFIX = "NAMESRV"
REMOTING_TLS = ("required", "permissive")
MAX_PEERS = 16


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Address, name and process of the name server."""

    listen: str = "127.0.0.1:9876"
    """Address for gRPC, host:port; `0.0.0.0` accepts connections from the network; port 0 picks a free one."""
    node: str = ""
    """Name of this node in the history and in responses; empty: machine name and port. It must be unique among all name
    servers whose history one report reads."""
    loop: str = "uvloop"
    """Event loop: uvloop or asyncio."""
    listener: str = DEFAULT_LISTENER
    """What carries gRPC on this address: lane, this project's own HTTP/2 server, or grpcio, which is slower."""
    stop_grace_seconds: float = 5.0
    """Time that running calls have to finish after SIGTERM."""
    max_connections: int = 20_000
    """Maximum number of gRPC connections; each takes 2.5 kB, 20 kB with TLS (with grpcio 17 and 82 kB). Further
    connections are closed. Each is an open file, for which the process needs a limit (`LimitNOFILE=`)."""
    warm_up_seconds: float = 45.0
    """Longest warm-up after a start. During the warm-up the response to a query for an unknown topic is UNAVAILABLE,
    not NOT_FOUND. 0: no warm-up. With a snapshot it ends earlier, when all brokers of the snapshot have sent a
    heartbeat or expired."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from unusable_listen("listen", self.listen)
        yield from fault("node", self.node, text_problem(self.node, longest=100))
        yield from not_one_of("loop", self.loop, daemon_process.LOOPS)
        yield from not_one_of("listener", self.listener, LISTENERS)
        yield from outside("stop_grace_seconds", self.stop_grace_seconds, 0.0, 300.0)
        yield from outside("max_connections", self.max_connections, 1, 1_000_000)
        yield from outside("warm_up_seconds", self.warm_up_seconds, 0.0, 3_600.0)


@dataclass(frozen=True, slots=True)
class MonitoringConfig:
    """Metrics, health, the pages and JSON over HTTP."""

    listen: str = "127.0.0.1:9877"
    """Address of `/metrics`, `/healthz`, the pages and JSON, host:port; port 0 picks a free one."""
    tls: bool = False
    """Whether this port is HTTPS, with the certificate of ``[tls]``. Clients present no certificate."""
    report_url: str = ""
    """Address of the newest report, for a link on the pages; empty: no link."""
    broker_url: str = ""
    """Address of a dashboard of one broker, for a link on its page, with `{cluster}` and `{broker}` for the names, such
    as `https://grafana/d/x?var-broker={broker}`; empty: no link."""
    runbook_url: str = ""
    """Address of the runbook, to whose sections the page of a broker links, such as `https://wiki/runbook`; empty: it
    only names them."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from unusable_listen("listen", self.listen)
        for name, url in (
            ("report_url", self.report_url),
            ("broker_url", self.broker_url),
            ("runbook_url", self.runbook_url),
        ):
            yield from fault(name, url, _link_problem(url) if url else None)


@dataclass(frozen=True, slots=True)
class PeersConfig:
    """Other name servers of the same fleet, whose routes, settings and brokers the pages compare with
    this one's."""

    name_servers: tuple[str, ...] = ()
    """gRPC addresses, host:port; the list may be the same on every node."""
    poll_seconds: float = 10.0
    """Interval between two comparisons."""
    timeout_seconds: float = 5.0
    """Longest call to a name server."""
    tls: bool = False
    """Whether to call them with TLS; needed only without the files below. They are those of :class:`Credentials`."""
    ca: str = ""
    """Authorities that sign their certificates; empty: the public ones."""
    certificate: str = ""
    """Certificate of this server as their client, for mTLS; needs ``key``."""
    key: str = ""
    """Private key of the certificate, not encrypted."""
    server_name: str = ""
    """Name that their certificates must have; empty: the host that is connected to."""
    token_file: str = ""
    """File with a bearer token of role viewer or admin."""

    @property
    def credentials(self) -> Credentials:
        """How this server proves to the others who it is."""
        names = (each.name for each in fields(Credentials))
        return Credentials(**{name: getattr(self, name) for name in names})

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        if len(self.name_servers) > MAX_PEERS:
            yield f"name_servers: {len(self.name_servers)} are given, at most {MAX_PEERS} are allowed"
        for position, addr in enumerate(self.name_servers):
            yield from fault("name_servers", addr, addr_problem(addr))
            if addr in self.name_servers[:position]:
                yield f"name_servers: {addr!r} is given twice"
        yield from outside("poll_seconds", self.poll_seconds, 0.1, 3_600.0)
        yield from outside("timeout_seconds", self.timeout_seconds, 0.1, 60.0)
        yield from self.credentials.problems()


@dataclass(frozen=True, slots=True)
class LivenessConfig:
    """Heartbeats: what brokers may declare, and when they expire."""

    min_heartbeat_interval_seconds: float = 1.0
    """Shortest heartbeat interval that a broker may declare; a shorter one is refused with this limit."""
    max_heartbeat_interval_seconds: float = 300.0
    """Longest heartbeat interval that a broker may declare."""
    max_expiry_seconds: float = 3_600.0
    """Longest expiry that a broker may declare."""
    stream_grace_seconds: float = 10.0
    """Time that a broker stays in the routes after its keep-alive stream broke; 0: until its expiry has passed without
    a heartbeat."""
    hand_over_seconds: float = 60.0
    """Time that a registration stays after its agent stopped while the broker ran on, so that the next agent can take
    it over."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from outside("min_heartbeat_interval_seconds", self.min_heartbeat_interval_seconds, 0.1, 3_600.0)
        low = self.min_heartbeat_interval_seconds
        yield from outside("max_heartbeat_interval_seconds", self.max_heartbeat_interval_seconds, low, 3_600.0)
        yield from outside("max_expiry_seconds", self.max_expiry_seconds, 3 * low, 86_400.0)
        yield from outside("stream_grace_seconds", self.stream_grace_seconds, 0.0, 3_600.0)
        yield from outside("hand_over_seconds", self.hand_over_seconds, 0.0, 3_600.0)

    def bounds(self) -> IntervalBounds:
        """Return the limits as the core's type."""
        return IntervalBounds(
            min_heartbeat_interval=self.min_heartbeat_interval_seconds,
            max_heartbeat_interval=self.max_heartbeat_interval_seconds,
            max_expiry=self.max_expiry_seconds,
        )

    def rules(self) -> LivenessRules:
        """Return the rules as the core's type."""
        return LivenessRules(stream_grace=self.stream_grace_seconds, hand_over=self.hand_over_seconds)


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """Protection against mass expiry: while many brokers of a cluster are lost on weak evidence, they stay in the
    routes."""

    enabled: bool = True
    """Whether clusters are protected against mass expiry. `pointsmanctl guard` changes a single cluster for a time."""
    share: float = 0.5
    """The guard turns on when more than this share of the brokers in the baseline is lost."""
    at_least: int = 3
    """Fewest lost brokers at which the guard turns on."""
    limit_seconds: float = 600.0
    """Time after which a further event, the metric and a log line report that the guard is still on. It stays on."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from outside("share", self.share, 0.0, 1.0)
        yield from outside("at_least", self.at_least, 1, 1_000_000)
        yield from outside("limit_seconds", self.limit_seconds, 1.0, 86_400.0)

    def rules(self) -> GuardRules:
        """Return the rules as the core's type."""
        return GuardRules(enabled=self.enabled, share=self.share, at_least=self.at_least, limit=self.limit_seconds)


@dataclass(frozen=True, slots=True)
class RoutesConfig:
    """Limits of brokers, topics and watches."""

    cache_bytes: int = 64 * 1024 * 1024
    """Memory for ready route responses, bytes. With `[remoting] listen` each wire has half of it."""
    max_brokers: int = 10_000
    """Maximum number of registered brokers (replicas); further registrations are refused."""
    max_topics: int = 500_000
    """Maximum number of topics of all brokers together; a topic counts once for each replica that has it."""
    max_topics_per_broker: int = 200_000
    """Maximum number of topics in one registration."""
    watch_coalesce_seconds: float = 0.05
    """Interval at which watchers are notified: changes within one interval reach a watcher as one."""
    max_watchers: int = 0
    """Maximum number of open route watches. 0: 100,000, which take 1.3 to 2 kB each; with `server.listener = "grpcio"`
    8,000, which take 25 to 40 kB each."""
    max_watched_topics: int = 0
    """Maximum number of topics of all watches together. 0: 1,000,000; with `server.listener = "grpcio"` 400,000."""
    max_topics_per_watch: int = 1_000
    """Maximum number of topics in one watch."""
    remember_hours: float = 72.0
    """Time for which the topics of an expired broker stay known. Clients then learn that the topic has no broker up,
    instead of NOT_FOUND. 0: never. The broker itself counts as down for 30 days."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from outside("cache_bytes", self.cache_bytes, 0, 2**36)
        yield from outside("max_brokers", self.max_brokers, 1, 1_000_000)
        yield from outside("max_topics", self.max_topics, 1, 100_000_000)
        yield from outside("max_topics_per_broker", self.max_topics_per_broker, 1, 10_000_000)
        yield from outside("watch_coalesce_seconds", self.watch_coalesce_seconds, 0.0, 5.0)
        yield from outside("max_watchers", self.max_watchers, 0, 1_000_000)
        yield from outside("max_watched_topics", self.max_watched_topics, 0, 100_000_000)
        yield from outside("max_topics_per_watch", self.max_topics_per_watch, 1, 100_000)
        yield from outside("remember_hours", self.remember_hours, 0.0, 8_760.0)

    def on(self, listener: str) -> RoutesConfig:
        """Return these with the limits that depend on the listener, where they are 0."""
        watchers, topics = (100_000, 1_000_000) if listener == LANE else (8_000, 400_000)
        return replace(
            self,
            max_watchers=self.max_watchers or watchers,
            max_watched_topics=self.max_watched_topics or topics,
        )


@dataclass(frozen=True, slots=True)
class RemotingConfig:
    """RocketMQ's own protocol, for unmodified brokers and clients."""

    listen: str = ""
    """Address for brokers and clients that use RocketMQ's own protocol, host:port; port 0 picks a free one; empty: off.
    With `server.listener = "lane"` it may be that of `server.listen`: one port then serves both. Without
    `tls.client_ca` RocketMQ's protocol has no authentication."""
    tls: str = "required"
    """With a certificate in ``[tls]``. required: TLS only. permissive: TLS and plaintext on this port."""
    support_acting_master: bool = False
    """Show clients the replica with the lowest id as id 0 while its group has no master (RocketMQ
    ``supportActingMaster``)."""
    order_message_enable: bool = False
    """Send clients the order configuration of a topic (RocketMQ ``orderMessageEnable``)."""
    max_connections: int = 10_000
    """Maximum number of open connections. At the limit a recent connection that sent no request, else the one idle for
    longest, is closed; never a broker's."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        if self.listen:
            yield from unusable_listen("listen", self.listen)
        yield from not_one_of("tls", self.tls, REMOTING_TLS)
        yield from outside("max_connections", self.max_connections, 1, 1_000_000)


_FOLLOWED = ("dns", "file")


@dataclass(frozen=True, slots=True)
class AddressServerConfig:
    """Lists of name servers over HTTP, which RocketMQ's brokers and clients can ask for in place of a fixed list."""

    listen: str = ""
    """Address of `/rocketmq/nsaddr`, host:port; RocketMQ asks port 8080. Empty: off. Everyone who can connect may read
    the lists, which `pointsmanctl nsaddr` sets."""
    tls: bool = False
    """Whether this port is HTTPS, with the certificate of ``[tls]``: for agents. RocketMQ asks over plain HTTP."""
    dns: str = ""
    """DNS name and port, host:port. `/rocketmq/nsaddr` then lists each address that the name resolves to, at most 16;
    operators cannot change it. Empty: `pointsmanctl nsaddr` sets it."""
    file: str = ""
    """File with that list in place of `dns`: one address per line, each line ended; empty lines and lines with `#` are
    skipped."""
    refresh_seconds: float = 10.0
    """Interval at which `dns` is resolved and `file` is read again. An invalid or empty list keeps the last valid one,
    also over a restart."""

    @property
    def follows(self) -> str:
        """Name and value of the setting that the list follows; empty: operators set it."""
        return next((f"address_server.{name} = {value!r}" for name in _FOLLOWED if (value := getattr(self, name))), "")

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        if self.listen:
            yield from unusable_listen("listen", self.listen)
        yield from fault("dns", self.dns, addr_problem(self.dns) if self.dns else None)
        yield from fault("file", self.file, text_problem(self.file))
        if self.dns and self.file:
            yield "file: dns is also set; set only one of them"
        if self.follows and not self.listen:
            yield f"listen: is empty; {self.follows} needs an address where the list is served"
        yield from outside("refresh_seconds", self.refresh_seconds, 0.05, 3_600.0)


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """Registration events on disk, which the nightly report reads."""

    enabled: bool = True
    """Whether registration events are written for the nightly report."""
    directory: str = "history"
    """Folder of the history; relative to the working directory of the process."""
    queue_rows: int = 100_000
    """Maximum number of rows that wait for the disk; further rows are dropped and counted."""
    queue_bytes: int = 64 * 1024 * 1024
    """Estimated memory of these rows, bytes; further rows are dropped and counted."""
    every_heartbeat: bool = False
    """Write a row for each heartbeat: about 3 million rows per day for 1,000 brokers."""
    read_back_hours: float = 168.0
    """At its start the name server reads back this much of its history: recent events, flap penalties and absent
    brokers. 0: none."""
    retain_days: int = 400
    """Days after which closed files are removed; 0: never."""
    retain_bytes: int = 20 * 1024**3
    """Total size of all files and their indexes above which the oldest closed ones are removed, bytes; 0: no limit."""
    hide_kv: tuple[str, ...] = ()
    """Namespaces of the KV configuration whose values appear in history, log and `pointsmanctl changes` as length and
    SHA-256 only. Values above 1,024 characters always do."""
    ship: tuple[str, ...] = ()
    """Command that copies each closed file elsewhere, run without a shell. `{file}` is replaced by the path; without it
    the path is the last argument. Retried until it exits with 0. Empty: none."""
    ship_timeout_seconds: float = 300.0
    """Longest run of that command for one file."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from fault(
            "directory", self.directory, text_problem(self.directory) if self.directory else "must not be empty"
        )
        yield from outside("queue_rows", self.queue_rows, 1, 10_000_000)
        yield from outside("queue_bytes", self.queue_bytes, 1024 * 1024, 2**36)
        yield from outside("read_back_hours", self.read_back_hours, 0, 8_760)
        yield from outside("retain_days", self.retain_days, 0, 36_500)
        yield from outside("retain_bytes", self.retain_bytes, 0, 2**60)
        for namespace in self.hide_kv:
            yield from fault("hide_kv", namespace, registered_name_problem(namespace))
        for word in self.ship:
            yield from fault("ship", word, text_problem(word, longest=4_096))
        if self.ship:
            program = self.ship[0]
            yield from fault("ship", program, None if program.strip() else "names no program")
        yield from outside("ship_timeout_seconds", self.ship_timeout_seconds, 0.1, 86_400.0)


@dataclass(frozen=True, slots=True)
class SnapshotConfig:
    """State on disk for a warm start: registrations and operator settings."""

    enabled: bool = True
    """Whether registrations and operator settings are kept on disk. Without it both are lost at a restart."""
    directory: str = "state"
    """Folder of the snapshot; relative to the working directory of the process. Two name servers must not share it."""
    interval_seconds: float = 5.0
    """Interval at which changed registrations are written; a SIGKILL loses at most this. Operator settings are written
    before they are acknowledged."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from fault(
            "directory", self.directory, text_problem(self.directory) if self.directory else "must not be empty"
        )
        yield from outside("interval_seconds", self.interval_seconds, 0.1, 3_600.0)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Logs on standard error."""

    level: str = "INFO"
    """Least severity that is logged, on standard error. SIGHUP applies a changed value without a restart."""
    format: str = "auto"
    """``json``, ``text`` or ``auto``: text on a terminal, else JSON."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from not_one_of("level", self.level, logs.LEVELS)
        yield from not_one_of("format", self.format, logs.FORMATS)


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """The complete configuration."""

    server: ServerConfig = field(default_factory=ServerConfig)
    monitoring: MonitoringConfig = field(default_factory=MonitoringConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    peers: PeersConfig = field(default_factory=PeersConfig)
    liveness: LivenessConfig = field(default_factory=LivenessConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    routes: RoutesConfig = field(default_factory=RoutesConfig)
    remoting: RemotingConfig = field(default_factory=RemotingConfig)
    address_server: AddressServerConfig = field(default_factory=AddressServerConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    snapshot: SnapshotConfig = field(default_factory=SnapshotConfig)
    access: AccessSettings = field(default_factory=AccessSettings)
    log: LogConfig = field(default_factory=LogConfig)

    @property
    def cache_bytes_of_each_wire(self) -> int:
        """Return the cache size of gRPC and of RocketMQ's wire: they hold different bytes, so two share the bound."""
        return self.routes.cache_bytes // (2 if self.remoting.listen else 1)

    @property
    def most_connections(self) -> int:
        """Return the number of connections over both wires at their limits."""
        return self.server.max_connections + (self.remoting.max_connections if self.remoting.listen else 0)

    @property
    def shares_port(self) -> bool:
        """Return whether gRPC and RocketMQ's wire are served on one port."""
        return self.remoting.listen == self.server.listen and not self.server.listen.endswith(":0")

    def problems(self) -> Iterator[str]:
        """Rules between sections: plaintext, and two that cannot share a port or a folder."""
        yield from self.tls.unprotected("server.listen", self.server.listen)
        permissive = self.remoting.tls == "permissive"
        yield from self.tls.unprotected("remoting.listen", self.remoting.listen, takes_plaintext=permissive)
        for name in ("monitoring", "address_server"):
            if getattr(self, name).tls and not self.tls.is_on:
                yield f"{name}.tls: needs tls.certificate and tls.key"
        lists = self.address_server.listen
        for name in ("server", "remoting", "monitoring"):
            if lists and lists == getattr(self, name).listen and not lists.endswith(":0"):
                yield f"address_server.listen: {lists!r} is {name}.listen as well"
        yield from self.access.unauthenticated(
            has_certificates=self.tls.requires_certificates,
            has_remoting=bool(self.remoting.listen),
        )
        listen, directory = self.monitoring.listen, self.snapshot.directory
        if listen == self.server.listen and not listen.endswith(":0"):
            yield f"monitoring.listen: {listen!r} is server.listen as well"
        if self.remoting.listen == listen and not listen.endswith(":0"):
            yield f"remoting.listen: {listen!r} is monitoring.listen as well"
        if self.shares_port and self.server.listener != LANE:
            yield (
                f"remoting.listen: {self.remoting.listen!r} is server.listen as well: both on one port need "
                f"server.listener = {LANE!r}"
            )
        both = self.history.enabled and self.snapshot.enabled
        if both and os.path.abspath(directory) == os.path.abspath(self.history.directory):
            yield f"snapshot.directory: {directory!r} is history.directory as well"


def _link_problem(url: str) -> str | None:
    if not url.startswith(("http://", "https://")):
        return "must begin with http:// or https://"
    return text_problem(url)


def load(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object] | None = None
) -> NameServerConfig:
    """Load defaults < file < environment < flags. Raises ConfigError with every problem."""
    return config.load(NameServerConfig, file=file, environment=environment, prefix=ENVIRONMENT_PREFIX, flags=flags)
