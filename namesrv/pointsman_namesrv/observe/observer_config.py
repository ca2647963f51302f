"""Settings of the observer, with defaults and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from pointsman import config
from pointsman.daemon.access.access_settings import AccessSettings
from pointsman.daemon.process import daemon_process
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman.names import addr_problem, text_problem
from pointsman.setting import fault, not_one_of, outside, unusable_listen
from pointsman.wire.credentials import Credentials, CredentialsError, read_account
from pointsman_namesrv.config import HistoryConfig, LogConfig

ENVIRONMENT_PREFIX = "OBSERVE"
MAX_NAME_SERVERS = 16


@dataclass(frozen=True, slots=True)
class ObservedConfig:
    """The RocketMQ name servers that are polled, and how. SIGHUP applies changes without a restart."""

    name_servers: tuple[str, ...] = ()
    """Addresses, host:port; all of the fleet: a broker is down while no reachable one lists it."""
    poll_seconds: float = 1.0
    """Seconds between two polls; a response has about 150 bytes per broker."""
    topics_seconds: float = 600.0
    """Seconds between the end of one walk over all topics and the next; 0: topics are neither recorded nor compared."""
    topic_requests_per_second: float = 10.0
    """Maximum number of requests for topics per second at each name server, evenly spaced."""
    tls: bool = False
    """Connect with TLS; needed only where no file below is set. They are those of :class:`Credentials`."""
    ca: str = ""
    """Authorities that sign the name servers' certificates; empty: the public ones."""
    certificate: str = ""
    """Own certificate, for name servers that request one (mTLS); needs ``key``."""
    key: str = ""
    """Private key of the certificate, not encrypted."""
    server_name: str = ""
    """Name that the certificates must have; empty: the host that is connected to."""
    access_key_file: str = ""
    """Account that signs all requests, as for mqadmin: a file with the lines `accessKey: NAME` and `secretKey: SECRET`;
    empty: requests are not signed."""

    @property
    def credentials(self) -> Credentials:
        """Return the TLS settings of connections to the name servers."""
        own = {each.name for each in fields(self)}
        return Credentials(**{each.name: getattr(self, each.name) for each in fields(Credentials) if each.name in own})

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        if len(self.name_servers) > MAX_NAME_SERVERS:
            yield f"name_servers: {len(self.name_servers)} are given, at most {MAX_NAME_SERVERS} are allowed"
        for position, addr in enumerate(self.name_servers):
            yield from fault("name_servers", addr, addr_problem(addr))
            if addr in self.name_servers[:position]:
                yield f"name_servers: {addr!r} is given twice"
        yield from outside("poll_seconds", self.poll_seconds, 0.2, 60.0)
        yield from outside("topics_seconds", self.topics_seconds, 0.0, 86_400.0)
        yield from outside("topic_requests_per_second", self.topic_requests_per_second, 0.1, 1_000.0)
        yield from self.credentials.problems()
        if self.access_key_file:
            try:
                read_account("access_key_file", self.access_key_file)
            except CredentialsError as error:
                yield from error.problems


@dataclass(frozen=True, slots=True)
class RecordedConfig:
    """The history that the nightly report reads."""

    directory: str = "history"
    """Folder of the history; relative to the working directory of the process. Observers may share it."""
    retain_days: int = HistoryConfig().retain_days
    """Days after which closed files are removed; 0: never."""
    retain_bytes: int = HistoryConfig().retain_bytes
    """Total size of all files and their indexes above which the oldest closed ones are removed, bytes; 0: no limit."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from fault(
            "directory", self.directory, text_problem(self.directory) if self.directory else "must not be empty"
        )
        yield from outside("retain_days", self.retain_days, 0, 36_500)
        yield from outside("retain_bytes", self.retain_bytes, 0, 2**60)

    @property
    def as_history(self) -> HistoryConfig:
        """Return these as settings of a recorder."""
        return HistoryConfig(directory=self.directory, retain_days=self.retain_days, retain_bytes=self.retain_bytes)


@dataclass(frozen=True, slots=True)
class ObserverServerConfig:
    """Queries by `pointsmanctl`."""

    listen: str = ""
    """gRPC address of `observe://HOST:PORT`, host:port; port 0 picks a free one; empty: off."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        if self.listen:
            yield from unusable_listen("listen", self.listen)


@dataclass(frozen=True, slots=True)
class ObserverMonitoringConfig:
    """Metrics, health, pages and JSON over HTTP."""

    listen: str = ""
    """Address of `/metrics`, `/healthz`, the pages and `/v1`, host:port; port 0 picks a free one; empty: off."""
    tls: bool = False
    """Whether this port is HTTPS, with the certificate of ``[tls]``. Clients present no certificate."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        if self.listen:
            yield from unusable_listen("listen", self.listen)


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """The process."""

    loop: str = "uvloop"
    """Event loop: uvloop or asyncio."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        yield from not_one_of("loop", self.loop, daemon_process.LOOPS)


@dataclass(frozen=True, slots=True)
class ObserverConfig:
    """The complete configuration."""

    observed: ObservedConfig = field(default_factory=ObservedConfig)
    history: RecordedConfig = field(default_factory=RecordedConfig)
    server: ObserverServerConfig = field(default_factory=ObserverServerConfig)
    monitoring: ObserverMonitoringConfig = field(default_factory=ObserverMonitoringConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    access: AccessSettings = field(default_factory=AccessSettings)
    process: ProcessConfig = field(default_factory=ProcessConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def problems(self) -> Iterator[str]:
        """Rules between sections."""
        if self.server.listen:
            yield from self.tls.unprotected("server.listen", self.server.listen)
        if self.monitoring.tls and not self.tls.is_on:
            yield "monitoring.tls: needs tls.certificate and tls.key"
        yield from self.access.unauthenticated(has_certificates=self.tls.requires_certificates, has_remoting=False)


def load(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object] | None = None
) -> ObserverConfig:
    """Load defaults < file < environment < flags. Raises ConfigError with every problem."""
    return config.load(ObserverConfig, file=file, environment=environment, prefix=ENVIRONMENT_PREFIX, flags=flags)
