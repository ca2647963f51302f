"""Everything an operator may set, with its default and its bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from namesrv.core.liveness import LivenessRules
from namesrv.core.validation import IntervalBounds
from pointsman.service import config, logs, process
from pointsman.service.setting import fault, not_one_of, outside, unusable_listen
from pointsman.wire.names import text_problem

ENVIRONMENT_PREFIX = "NAMESRV"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where the name server listens, and as whom it speaks."""

    listen: str = "127.0.0.1:9876"
    """gRPC, host:port; port 0 picks a free one."""
    node: str = ""
    """Name of this node in history and answers; empty: machine name and port."""
    loop: str = "uvloop"
    """Event loop: uvloop or asyncio."""
    stop_grace_seconds: float = 5.0
    """How long running calls may take after SIGTERM."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from unusable_listen("listen", self.listen)
        yield from fault("node", self.node, text_problem(self.node, longest=100))
        yield from not_one_of("loop", self.loop, process.LOOPS)
        yield from outside("stop_grace_seconds", self.stop_grace_seconds, 0.0, 300.0)


@dataclass(frozen=True, slots=True)
class MonitoringConfig:
    """Metrics and health over HTTP."""

    listen: str = "127.0.0.1:9877"
    """host:port; port 0 picks a free one."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from unusable_listen("listen", self.listen)


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
class RoutesConfig:
    """Bounds on what is held and answered."""

    cache_bytes: int = 64 * 1024 * 1024
    """Most bytes of ready route answers."""
    max_topics_per_broker: int = 200_000

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from outside("cache_bytes", self.cache_bytes, 0, 2**36)
        yield from outside("max_topics_per_broker", self.max_topics_per_broker, 1, 10_000_000)


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """Where every registration is remembered."""

    enabled: bool = True
    directory: str = "history"
    """Folder of the history; relative to where the server is started."""
    queue_rows: int = 100_000
    """Rows that may wait for the disk; more are dropped and counted."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from fault(
            "directory", self.directory, text_problem(self.directory) if self.directory else "must not be empty"
        )
        yield from outside("queue_rows", self.queue_rows, 1, 10_000_000)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Logs, JSON on standard error."""

    level: str = "INFO"

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from not_one_of("level", self.level, logs.LEVELS)


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """The whole configuration."""

    server: ServerConfig = field(default_factory=ServerConfig)
    monitoring: MonitoringConfig = field(default_factory=MonitoringConfig)
    liveness: LivenessConfig = field(default_factory=LivenessConfig)
    routes: RoutesConfig = field(default_factory=RoutesConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    log: LogConfig = field(default_factory=LogConfig)


def load(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object] | None = None
) -> NameServerConfig:
    """Load defaults < file < environment < flags. Raises ConfigError with every fault."""
    return config.load(NameServerConfig, file=file, environment=environment, prefix=ENVIRONMENT_PREFIX, flags=flags)
