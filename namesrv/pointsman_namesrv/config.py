"""Everything an operator may set, with its default and its bounds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from pointsman.service import config, daemon_process, logs
from pointsman.service.access_settings import AccessSettings
from pointsman.service.setting import fault, not_one_of, outside, unusable_listen
from pointsman.service.tls import TlsConfig
from pointsman.wire.credentials import Credentials
from pointsman.wire.names import addr_problem, text_problem
from pointsman_namesrv.core.guard import GuardRules
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.request_rules import IntervalBounds

ENVIRONMENT_PREFIX = "NAMESRV"
REMOTING_TLS = ("required", "permissive")
MAX_PEERS = 16


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where the name server listens, and as whom it speaks."""

    listen: str = "127.0.0.1:9876"
    """gRPC, host:port; port 0 picks a free one."""
    node: str = ""
    """Name of this node in history and answers; empty: machine name and port. The address that it listens on would not
    do: many nodes listen on 127.0.0.1 or 0.0.0.0, and one report reads the histories of several machines."""
    loop: str = "uvloop"
    """Event loop: uvloop or asyncio."""
    stop_grace_seconds: float = 5.0
    """How long running calls may take after SIGTERM."""
    max_connections: int = 18_000
    """Maximum number of gRPC connections; each takes 17 kB. One more is closed."""
    warm_up_seconds: float = 45.0
    """How long after the start, at most, an unknown topic is "not yet" and not "not found"; 0: from the start."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from unusable_listen("listen", self.listen)
        yield from fault("node", self.node, text_problem(self.node, longest=100))
        yield from not_one_of("loop", self.loop, daemon_process.LOOPS)
        yield from outside("stop_grace_seconds", self.stop_grace_seconds, 0.0, 300.0)
        yield from outside("max_connections", self.max_connections, 1, 1_000_000)
        yield from outside("warm_up_seconds", self.warm_up_seconds, 0.0, 3_600.0)


@dataclass(frozen=True, slots=True)
class MonitoringConfig:
    """Metrics, health, the status page and JSON over HTTP."""

    listen: str = "127.0.0.1:9877"
    """host:port; port 0 picks a free one."""
    tls: bool = False
    """HTTPS with the certificate of ``[tls]``; clients are asked for none."""
    report_url: str = ""
    """Where last night's report is, for a link on the status page; empty: no link."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from unusable_listen("listen", self.listen)
        yield from fault("report_url", self.report_url, _link_problem(self.report_url) if self.report_url else None)


@dataclass(frozen=True, slots=True)
class PeersConfig:
    """Other name servers of the same fleet, whose routes and settings the status page compares with this one's."""

    name_servers: tuple[str, ...] = ()
    """gRPC addresses, host:port; the list may be the same on every node."""
    poll_seconds: float = 10.0
    """How often they are compared."""
    timeout_seconds: float = 5.0
    """How long one call to a name server may take."""
    tls: bool = False
    """See :class:`Credentials` for this and what follows: how this server calls the others."""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""
    token_file: str = ""

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
    """What brokers may declare, and what their silence means."""

    min_heartbeat_interval_seconds: float = 1.0
    max_heartbeat_interval_seconds: float = 300.0
    max_expiry_seconds: float = 3_600.0
    stream_grace_seconds: float = 10.0
    """How long a broker stays in the routes after its stream broke; 0: until it is silent for its expiry."""
    hand_over_seconds: float = 60.0
    """How long a registration stays after its agent handed over."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from outside("min_heartbeat_interval_seconds", self.min_heartbeat_interval_seconds, 0.1, 3_600.0)
        low = self.min_heartbeat_interval_seconds
        yield from outside("max_heartbeat_interval_seconds", self.max_heartbeat_interval_seconds, low, 3_600.0)
        yield from outside("max_expiry_seconds", self.max_expiry_seconds, 3 * low, 86_400.0)
        yield from outside("stream_grace_seconds", self.stream_grace_seconds, 0.0, 3_600.0)
        yield from outside("hand_over_seconds", self.hand_over_seconds, 0.0, 3_600.0)

    def bounds(self) -> IntervalBounds:
        """As the core reads them."""
        return IntervalBounds(
            min_heartbeat_interval=self.min_heartbeat_interval_seconds,
            max_heartbeat_interval=self.max_heartbeat_interval_seconds,
            max_expiry=self.max_expiry_seconds,
        )

    def rules(self) -> LivenessRules:
        """As the core reads them."""
        return LivenessRules(stream_grace=self.stream_grace_seconds, hand_over=self.hand_over_seconds)


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """When many brokers of a cluster are lost at once on weak evidence, none is removed for it."""

    enabled: bool = True
    share: float = 0.5
    """Share of the brokers that were up when the window began; above it the guard turns on."""
    at_least: int = 3
    """With fewer lost brokers the guard stays off."""
    limit_seconds: float = 600.0
    """After this time a second event, a metric and a log line say that it is still on."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from outside("share", self.share, 0.0, 1.0)
        yield from outside("at_least", self.at_least, 1, 1_000_000)
        yield from outside("limit_seconds", self.limit_seconds, 1.0, 86_400.0)

    def rules(self) -> GuardRules:
        """As the core reads them."""
        return GuardRules(enabled=self.enabled, share=self.share, at_least=self.at_least, limit=self.limit_seconds)


@dataclass(frozen=True, slots=True)
class RoutesConfig:
    """Bounds on what is held and answered."""

    cache_bytes: int = 64 * 1024 * 1024
    """Most bytes of ready route answers."""
    max_brokers: int = 10_000
    """Maximum number of registered brokers (replicas)."""
    max_topics: int = 500_000
    """Maximum number of topics of all brokers together; a topic counts once for each replica that has it."""
    max_topics_per_broker: int = 200_000
    watch_coalesce_seconds: float = 0.05
    """How often watched routes are looked at: changes within one such time reach a watcher as one."""
    max_watchers: int = 8_000
    """Maximum number of open watches; each takes 25 to 40 kB."""
    max_watched_topics: int = 400_000
    """Maximum number of topics of all watches together."""
    max_topics_per_watch: int = 1_000
    remember_hours: float = 72.0
    """How long a broker that was lost is remembered, and its topics are known, with no broker up; 0: not at all."""

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


@dataclass(frozen=True, slots=True)
class RemotingConfig:
    """RocketMQ's own wire, for its brokers and clients as they are."""

    listen: str = ""
    """host:port, port 0 picks a free one; empty: off."""
    tls: str = "required"
    """Where ``[tls]`` has a certificate: required, or permissive, which takes plaintext as well."""
    support_acting_master: bool = False
    """Show clients the lowest id of a group without master as id 0 (RocketMQ ``supportActingMaster``)."""
    order_message_enable: bool = False
    """Give clients the order configuration of a topic (RocketMQ ``orderMessageEnable``)."""
    max_connections: int = 10_000
    """Most open connections; beyond it, one of the latest that never asked or has been quiet is closed."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        if self.listen:
            yield from unusable_listen("listen", self.listen)
        yield from not_one_of("tls", self.tls, REMOTING_TLS)
        yield from outside("max_connections", self.max_connections, 1, 1_000_000)


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """Where every registration is remembered."""

    enabled: bool = True
    directory: str = "history"
    """Folder of the history; relative to where the server is started."""
    queue_rows: int = 100_000
    """Rows that may wait for the disk; more are dropped and counted."""
    queue_bytes: int = 64 * 1024 * 1024
    """Memory that they may hold, estimated."""
    every_heartbeat: bool = False
    """Write a row for each beat: about 3 million a day for 1,000 brokers."""
    retain_days: int = 400
    """Days that are kept; 0: for ever."""
    retain_bytes: int = 20 * 1024**3
    """Bytes on the disk above which the oldest closed files are removed; 0: no bound."""
    ship: tuple[str, ...] = ()
    """Command for each closed file, without a shell; {file} stands for it, else it comes last. Empty: none."""
    ship_timeout_seconds: float = 300.0
    """How long the command may take for one file."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from fault(
            "directory", self.directory, text_problem(self.directory) if self.directory else "must not be empty"
        )
        yield from outside("queue_rows", self.queue_rows, 1, 10_000_000)
        yield from outside("queue_bytes", self.queue_bytes, 1024 * 1024, 2**36)
        yield from outside("retain_days", self.retain_days, 0, 36_500)
        yield from outside("retain_bytes", self.retain_bytes, 0, 2**60)
        for word in self.ship:
            yield from fault("ship", word, text_problem(word, longest=4_096))
        if self.ship:
            program = self.ship[0]
            yield from fault("ship", program, None if program.strip() else "names no program")
        yield from outside("ship_timeout_seconds", self.ship_timeout_seconds, 0.1, 86_400.0)


@dataclass(frozen=True, slots=True)
class SnapshotConfig:
    """What is kept on this machine's disk to start warm."""

    enabled: bool = True
    directory: str = "state"
    """Folder of the snapshot, for one name server alone; relative to where the server is started."""
    interval_seconds: float = 5.0
    """How often changed registrations are written; what a SIGKILL may cost. Not the settings of operators."""

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
    format: str = "auto"
    """``json``, ``text`` or ``auto``: text on a terminal, else JSON."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from not_one_of("level", self.level, logs.LEVELS)
        yield from not_one_of("format", self.format, logs.FORMATS)


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """The whole configuration."""

    server: ServerConfig = field(default_factory=ServerConfig)
    monitoring: MonitoringConfig = field(default_factory=MonitoringConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    peers: PeersConfig = field(default_factory=PeersConfig)
    liveness: LivenessConfig = field(default_factory=LivenessConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    routes: RoutesConfig = field(default_factory=RoutesConfig)
    remoting: RemotingConfig = field(default_factory=RemotingConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    snapshot: SnapshotConfig = field(default_factory=SnapshotConfig)
    access: AccessSettings = field(default_factory=AccessSettings)
    log: LogConfig = field(default_factory=LogConfig)

    def problems(self) -> Iterator[str]:
        """Rules between sections: plaintext, and two that cannot share a port or a folder."""
        yield from self.tls.unprotected("server.listen", self.server.listen)
        permissive = self.remoting.tls == "permissive"
        yield from self.tls.unprotected("remoting.listen", self.remoting.listen, takes_plaintext=permissive)
        if self.monitoring.tls and not self.tls.is_on:
            yield "monitoring.tls: needs tls.certificate and tls.key"
        yield from self.access.unauthenticated(
            has_certificates=self.tls.requires_certificates, has_remoting=bool(self.remoting.listen)
        )
        listen, directory = self.monitoring.listen, self.snapshot.directory
        if listen == self.server.listen and not listen.endswith(":0"):
            yield f"monitoring.listen: {listen!r} is server.listen as well"
        taken = {self.server.listen: "server.listen", listen: "monitoring.listen"}
        if self.remoting.listen in taken and not self.remoting.listen.endswith(":0"):
            yield f"remoting.listen: {self.remoting.listen!r} is {taken[self.remoting.listen]} as well"
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
    """Load defaults < file < environment < flags. Raises ConfigError with every fault."""
    return config.load(NameServerConfig, file=file, environment=environment, prefix=ENVIRONMENT_PREFIX, flags=flags)
