"""Everything an operator may set, with its default and its bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from namesrv.core.liveness import LivenessRules
from namesrv.core.validation import IntervalBounds
from pointsman.service import config, logs, process
from pointsman.wire.names import addr_problem, text_problem

ENVIRONMENT_PREFIX = "NAMESRV"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where the name server listens, and as whom it speaks."""

    listen: str = "127.0.0.1:9876"
    """gRPC, host:port; port 0 picks a free one."""
    node: str = ""
    """Name of this node in history and answers; empty: the listen address with its real port."""
    loop: str = "uvloop"
    """Event loop: uvloop or asyncio."""
    stop_grace_seconds: float = 5.0
    """How long running calls may take after SIGTERM."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from _listen_problems("listen", self.listen)
        problem = text_problem(self.node, longest=255)
        if problem:
            yield f"node: {problem}: {self.node!r}"
        if self.loop not in process.LOOPS:
            yield f"loop: must be one of {', '.join(process.LOOPS)}, not {self.loop!r}"
        yield from _range_problems("stop_grace_seconds", self.stop_grace_seconds, 0.0, 300.0)


@dataclass(frozen=True, slots=True)
class MonitoringConfig:
    """Metrics and health over HTTP."""

    listen: str = "127.0.0.1:9877"
    """host:port; port 0 picks a free one."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from _listen_problems("listen", self.listen)


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
        yield from _range_problems("min_heartbeat_interval_seconds", self.min_heartbeat_interval_seconds, 0.1, 3_600.0)
        low = self.min_heartbeat_interval_seconds
        yield from _range_problems("max_heartbeat_interval_seconds", self.max_heartbeat_interval_seconds, low, 3_600.0)
        yield from _range_problems("max_expiry_seconds", self.max_expiry_seconds, 3 * low, 86_400.0)
        yield from _range_problems("stream_grace_seconds", self.stream_grace_seconds, 0.0, 3_600.0)
        yield from _range_problems("hand_over_seconds", self.hand_over_seconds, 0.0, 3_600.0)

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
        yield from _range_problems("cache_bytes", self.cache_bytes, 0, 2**36)
        yield from _range_problems("max_topics_per_broker", self.max_topics_per_broker, 1, 10_000_000)


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
        if not self.directory:
            yield "directory: must not be empty: ''"
        yield from _range_problems("queue_rows", self.queue_rows, 1, 10_000_000)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Logs, JSON on standard error."""

    level: str = "INFO"

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        if self.level not in logs.LEVELS:
            yield f"level: must be one of {', '.join(logs.LEVELS)}, not {self.level!r}"


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


def _listen_problems(name: str, addr: str) -> Iterator[str]:
    # Port 0 is no address to reach, but a fine one to listen on.
    problem = addr_problem(f"{addr}9" if addr.endswith(":0") else addr)
    if problem:
        yield f"{name}: {problem}: {addr!r}"


def _range_problems(name: str, value: float, low: float, high: float) -> Iterator[str]:
    if not low <= value <= high:
        yield f"{name}: must be from {low:g} to {high:g}, not {value:g}"
