"""The agent's configuration: what may be set, what it is when it is not, and what cannot be.

Read by ``pointsman.service.config.load``: defaults < file < environment ``AGENT_SECTION__KEY`` < flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pointsman.service import config as service_config
from pointsman.service.logs import LEVELS
from pointsman.service.setting import fault, not_one_of, outside, unusable_listen
from pointsman.wire.names import (
    MAX_BROKER_ID,
    MAX_FILTER_SERVERS,
    MAX_LABEL_LENGTH,
    MAX_LABELS,
    MAX_QUEUES,
    MAX_TOPIC_SYS_FLAG,
    MIN_EXPIRY_INTERVALS,
    PERM_READ,
    PERM_WRITE,
    addr_problem,
    name_problem,
    text_problem,
)

PERMS: Mapping[str, int] = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}
"""Permissions as the file names them."""

PROBE_KINDS = ("none", "tcp", "redis")
UNPROBED_LEAVES = ("hand_over", "unregister")
MAX_STATE_VERSION = 2**64 - 1
HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSection:
    """Who the broker is."""

    cluster: str
    name: str
    """Name of the replica group."""
    id: int = 0
    """Position in the group; 0 is the master."""
    addr: str
    """Where clients reach the broker, host:port."""
    ha_addr: str = ""
    agent_addr: str = ""
    zone: str = ""
    host: str = ""
    """Empty: this machine's name."""
    labels: dict[str, str] = field(default_factory=dict)
    version: str = ""
    acting_master: bool = True
    filter_servers: tuple[str, ...] = ()
    state_version: int = 0
    """Of two claims on one identity the higher wins."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        for name, value in (("cluster", self.cluster), ("name", self.name)):
            yield from fault(name, value, name_problem(value))
        yield from outside("id", self.id, 0, MAX_BROKER_ID)
        yield from fault("addr", self.addr, addr_problem(self.addr))
        for name, value in (("ha_addr", self.ha_addr), ("agent_addr", self.agent_addr)):
            yield from fault(name, value, addr_problem(value) if value else None)
        for name, value in (("zone", self.zone), ("host", self.host), ("version", self.version)):
            yield from fault(name, value, text_problem(value))
        if len(self.labels) > MAX_LABELS:
            yield f"labels: there are {len(self.labels)}, at most {MAX_LABELS} are allowed"
        for key, value in self.labels.items():
            yield from fault("labels", key, text_problem(key, longest=MAX_LABEL_LENGTH))
            yield from fault(f"labels.{key}", value, text_problem(value, longest=MAX_LABEL_LENGTH))
        yield from _addr_list("filter_servers", self.filter_servers)
        if len(self.filter_servers) > MAX_FILTER_SERVERS:
            yield f"filter_servers: there are {len(self.filter_servers)}, at most {MAX_FILTER_SERVERS} are allowed"
        yield from outside("state_version", self.state_version, 0, MAX_STATE_VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServersSection:
    """Whom to tell."""

    addrs: tuple[str, ...]
    """Each is told separately; they share nothing."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        if not self.addrs:
            yield "addrs: must name at least one name server"
        yield from _addr_list("addrs", self.addrs)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSection:
    """How often to beat, and how long to wait for answers."""

    interval_seconds: float = 30.0
    """What the agent asks for; the name server's answer to the registration is what holds."""
    expiry_seconds: float = 120.0
    timeout_seconds: float = 3.0
    register_timeout_seconds: float = 10.0

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from outside("interval_seconds", self.interval_seconds, 0.05, 3_600.0)
        yield from outside("expiry_seconds", self.expiry_seconds, 0.15, 86_400.0)
        if self.expiry_seconds < MIN_EXPIRY_INTERVALS * self.interval_seconds:
            yield (
                f"expiry_seconds: {self.expiry_seconds} is less than {MIN_EXPIRY_INTERVALS} times interval_seconds "
                f"({self.interval_seconds})"
            )
        yield from outside("timeout_seconds", self.timeout_seconds, 0.05, 60.0)
        yield from outside("register_timeout_seconds", self.register_timeout_seconds, 0.05, 600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSection:
    """How to find out whether the broker answers."""

    kind: str = "none"
    target: str = ""
    """host:port; empty: the broker's own address."""
    interval_seconds: float = 5.0
    timeout_seconds: float = 2.0
    rise: int = 1
    """Passes in a row that turn a failing broker into a passing one."""
    fall: int = 2
    """Failures in a row that turn a passing broker into a failing one."""
    username: str = ""
    password: str = field(default="", repr=False)

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from not_one_of("kind", self.kind, PROBE_KINDS)
        yield from fault("target", self.target, addr_problem(self.target) if self.target else None)
        yield from outside("interval_seconds", self.interval_seconds, 0.05, 3_600.0)
        yield from outside("timeout_seconds", self.timeout_seconds, 0.05, 60.0)
        yield from outside("rise", self.rise, 1, 100)
        yield from outside("fall", self.fall, 1, 100)
        if self.username and not self.password:
            yield f"username: {self.username!r} is given without a password"
        if self.password and self.kind in {"none", "tcp"}:
            yield f"password: a probe of kind {self.kind!r} has no use for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSection:
    """How to stop."""

    timeout_seconds: float = 5.0
    """For the last probe and all leaves together."""
    unprobed: str = "hand_over"
    """Without a probe nobody knows whether the broker goes on: keep its registration, or take it out."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from outside("timeout_seconds", self.timeout_seconds, 0.1, 300.0)
        yield from not_one_of("unprobed", self.unprobed, UNPROBED_LEAVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """The queues of one topic on this broker."""

    name: str
    read_queues: int
    write_queues: int
    perm: str = "rw"
    topic_sys_flag: int = 0

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from fault("name", self.name, name_problem(self.name))
        yield from outside("read_queues", self.read_queues, 0, MAX_QUEUES)
        yield from outside("write_queues", self.write_queues, 0, MAX_QUEUES)
        yield from not_one_of("perm", self.perm, PERMS)
        yield from outside("topic_sys_flag", self.topic_sys_flag, 0, MAX_TOPIC_SYS_FLAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSection:
    """Which topics the broker holds: one ``[[topics.topic]]`` each."""

    topic: tuple[TopicRow, ...] = ()

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        first: dict[str, int] = {}
        for index, row in enumerate(self.topic):
            if row.name in first:
                yield f"topic[{index}].name: {row.name!r} is already topic[{first[row.name]}]"
            first.setdefault(row.name, index)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringSection:
    """Metrics and health over HTTP."""

    listen: str = "127.0.0.1:9881"
    """host:port; port 0 takes a free one and says so in the log."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from unusable_listen("listen", self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """What to log."""

    level: str = "INFO"

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from not_one_of("level", self.level, LEVELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Everything that may be set."""

    broker: BrokerSection
    name_servers: NameServersSection
    heartbeat: HeartbeatSection = field(default_factory=HeartbeatSection)
    probe: ProbeSection = field(default_factory=ProbeSection)
    stop: StopSection = field(default_factory=StopSection)
    topics: TopicsSection = field(default_factory=TopicsSection)
    monitoring: MonitoringSection = field(default_factory=MonitoringSection)
    log: LogSection = field(default_factory=LogSection)


def load(file: Path, environment: Mapping[str, str], *, log_level: str | None = None) -> AgentConfig:
    """Load the configuration. Raises ConfigError with every fault."""
    flags = {"log.level": log_level}
    return service_config.load(AgentConfig, file=file, environment=environment, prefix="AGENT", flags=flags)


def to_toml(config: AgentConfig) -> str:
    """Print the configuration as TOML, its password hidden."""
    shown = replace(config.probe, password=HIDDEN) if config.probe.password else config.probe
    return service_config.to_toml(replace(config, probe=shown))


def _addr_list(name: str, addrs: tuple[str, ...]) -> Iterator[str]:
    for index, addr in enumerate(addrs):
        yield from fault(f"{name}[{index}]", addr, addr_problem(addr))
        if addr in addrs[:index]:
            yield f"{name}[{index}]: {addr!r} is listed twice"
