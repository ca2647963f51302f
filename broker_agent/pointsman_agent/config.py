"""The agent's configuration: what may be set, what it is when it is not, and what cannot be.

Read by ``pointsman.service.config.load``: defaults < file < environment ``AGENT_SECTION__KEY`` < flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pointsman.service import config as service_config
from pointsman.service.access_settings import AccessSettings
from pointsman.service.logs import FORMATS, LEVELS
from pointsman.service.setting import fault, not_one_of, outside, unusable_listen
from pointsman.service.tls import TlsConfig
from pointsman.wire.credentials import Credentials
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
from pointsman_agent.core.own_state import MASTER_ID

PERMS: Mapping[str, int] = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}
"""Permissions as the file names them."""

PROBE_KINDS = ("none", "tcp", "redis", "http", "grpc", "exec")
TOPIC_SOURCES = ("toml", "rocketmq", "redis")
OFFSET_STORES = ("auto", "redis", "file")
MAX_NAME_SERVERS = 64
"""Each has its own loop and connection. A source with more name servers is rejected."""
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
    replica_id: int = 0
    """Of a Redis that may be promoted or demoted: its id while it is a replica, another for each member of the group;
    while it is a master its id is 0. 0: the id above stands."""

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
        yield from outside("replica_id", self.replica_id, 0, MAX_BROKER_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServersSection:
    """Whom to tell: a list, a DNS name or a file, one of them."""

    addrs: tuple[str, ...] = ()
    """Each is told separately; they share nothing."""
    dns: str = ""
    """host:port; every address that the host resolves to is a name server, a host with A and AAAA records two."""
    file: str = ""
    """A file with an address a line, the last one too; empty lines and lines with ``#`` are skipped."""
    refresh_seconds: float = 10.0
    """How often the name is resolved and the file is looked at."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        given = [name for name in ("addrs", "dns", "file") if getattr(self, name)]
        if not given:
            yield "addrs: must name at least one name server, unless dns or file is given"
        elif len(given) > 1:
            yield f"{given[1]}: is given beside {given[0]}; only one of addrs, dns and file may be"
        if len(self.addrs) > MAX_NAME_SERVERS:
            yield f"addrs: {len(self.addrs)} are given, at most {MAX_NAME_SERVERS} are allowed"
        yield from _addr_list("addrs", self.addrs)
        yield from fault("dns", self.dns, addr_problem(self.dns) if self.dns else None)
        yield from outside("refresh_seconds", self.refresh_seconds, 0.05, 3_600.0)


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
    path: str = "/"
    """Of kind http: passes with any status below 400."""
    service: str = ""
    """Of kind grpc: whose health is asked; empty: the whole server's."""
    peers: tuple[str, ...] = ()
    """Of kind redis: other members of the group, host:port, beside those that the server tells of."""
    command: tuple[str, ...] = ()
    """Of kind exec: program and arguments; exit code 0 passes."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from not_one_of("kind", self.kind, PROBE_KINDS)
        if (self.kind == "exec") is not bool(self.command):
            yield "command: is needed by a probe of kind 'exec', and by no other"
        if self.peers and self.kind != "redis":
            yield f"peers: a probe of kind {self.kind!r} has no use for them"
        yield from _addr_list("peers", self.peers)
        if not self.path.startswith("/"):
            yield f"path: {self.path!r} does not begin with /"
        yield from fault("target", self.target, addr_problem(self.target) if self.target else None)
        yield from outside("interval_seconds", self.interval_seconds, 0.05, 3_600.0)
        yield from outside("timeout_seconds", self.timeout_seconds, 0.05, 60.0)
        yield from outside("rise", self.rise, 1, 100)
        yield from outside("fall", self.fall, 1, 100)
        if self.username and not self.password:
            yield f"username: {self.username!r} is given without a password"
        if self.password and self.kind != "redis":
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
    """Which topics the broker holds."""

    source: str = "toml"
    """toml: the tables below; rocketmq: the files of a RocketMQ broker; redis: the streams of a Redis server."""
    check_interval_seconds: float = 5.0
    """How often the source is looked at; toml also on SIGHUP."""
    store_path: str = ""
    """Of source rocketmq: the broker's storePathRootDir; empty: as broker_conf says."""
    broker_conf: str = ""
    """Of source rocketmq: the broker's properties file; empty: its defaults."""
    max_topics: int = 100_000
    """A source with more is not believed."""
    topic: tuple[TopicRow, ...] = ()

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from not_one_of("source", self.source, TOPIC_SOURCES)
        yield from outside("check_interval_seconds", self.check_interval_seconds, 0.05, 3_600.0)
        yield from outside("max_topics", self.max_topics, 1, 200_000)
        if self.topic and self.source != "toml":
            yield f"topic: is read by source 'toml' only, not by {self.source!r}"
        if self.source == "rocketmq" and not (self.store_path or self.broker_conf):
            yield "store_path: is needed by source 'rocketmq', unless broker_conf is given"
        first: dict[str, int] = {}
        for index, row in enumerate(self.topic):
            if row.name in first:
                yield f"topic[{index}].name: {row.name!r} is already topic[{first[row.name]}]"
            first.setdefault(row.name, index)


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSection:
    """What the agent serves to the broker's clients: groups, locks, offsets."""

    listen: str = ""
    """host:port; empty: nothing is served. Clients find it by broker.agent_addr."""
    grace_seconds: float = 5.0
    """How long a stop waits for calls that are running."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        if self.listen:
            yield from unusable_listen("listen", self.listen)
        yield from outside("grace_seconds", self.grace_seconds, 0.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """What holds for one consumer group."""

    name: str
    notify: bool = True
    """Whether members are notified of changes; without it they query the members with each rebalance, every 20 s."""
    hold_down_seconds: float = 0.0
    """How long the first of several changes waits for the others."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from fault("name", self.name, name_problem(self.name))
        yield from outside("hold_down_seconds", self.hold_down_seconds, 0.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSection:
    """Consumer groups."""

    expiry_seconds: float = 120.0
    """Silence after which a client is out of its groups (RocketMQ's channelExpiredTimeout)."""
    scan_interval_seconds: float = 10.0
    stream_grace_seconds: float = 2.0
    """After the end of a client's stream; one that comes back within it was never away."""
    warm_up_seconds: float = 30.0
    """After a start, in which clients come back. A group whose members from before the start are back, or that had
    none, is served after 1 s."""
    notify: bool = True
    hold_down_seconds: float = 0.0
    """For groups without a row of their own."""
    max_clients: int = 20_000
    """Membership streams; a client id with two of them counts twice."""
    max_groups: int = 10_000
    max_watchers: int = 20_000
    max_subscriptions: int = 200_000
    """Of all members together; about 0.3 kB each with names of 60 characters. A member without any counts as one."""
    max_subscriptions_per_client: int = 4_096
    """In one heartbeat, of all groups that it names."""
    group: tuple[GroupRow, ...] = ()

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from outside("expiry_seconds", self.expiry_seconds, 0.15, 86_400.0)
        yield from outside("scan_interval_seconds", self.scan_interval_seconds, 0.05, 3_600.0)
        yield from outside("stream_grace_seconds", self.stream_grace_seconds, 0.0, 300.0)
        yield from outside("warm_up_seconds", self.warm_up_seconds, 0.0, 3_600.0)
        yield from outside("hold_down_seconds", self.hold_down_seconds, 0.0, 300.0)
        for name in ("max_clients", "max_groups", "max_watchers", "max_subscriptions", "max_subscriptions_per_client"):
            yield from outside(name, getattr(self, name), 1, 1_000_000)
        names = [row.name for row in self.group]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield f"group[{index}].name: {name!r} is already group[{names.index(name)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsSection:
    """Where committed offsets are kept."""

    store: str = "auto"
    """redis: a hash beside the messages; file: this machine; auto: redis where the broker is one."""
    path: str = "offsets.db"
    """Of store file."""
    pending_path: str = ""
    """Offsets that a slave's agent takes while no master is there; empty: beside path, named after the broker."""
    flush_interval_seconds: float = 5.0
    """How old offsets may be after a crash (RocketMQ's flushConsumerOffsetInterval)."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from not_one_of("store", self.store, OFFSET_STORES)
        yield from outside("flush_interval_seconds", self.flush_interval_seconds, 0.05, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatsSection:
    """How full the queues are, and how far groups are behind."""

    interval_seconds: float = 600.0
    """How often name servers are told; 0: never."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        if self.interval_seconds:
            yield from outside("interval_seconds", self.interval_seconds, 0.05, 86_400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringSection:
    """Metrics and health over HTTP."""

    listen: str = "127.0.0.1:9881"
    """host:port; port 0 takes a free one and says so in the log."""
    tls: bool = False
    """HTTPS with the certificate of ``[tls]``; clients are asked for none."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from unusable_listen("listen", self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """What to log."""

    level: str = "INFO"
    format: str = "auto"
    """``json``, ``text`` or ``auto``: text on a terminal, else JSON."""

    def problems(self) -> Iterable[str]:
        """List what cannot be."""
        yield from not_one_of("level", self.level, LEVELS)
        yield from not_one_of("format", self.format, FORMATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Everything that may be set."""

    broker: BrokerSection
    name_servers: NameServersSection
    credentials: Credentials = field(default_factory=Credentials)
    """Of the connections to name servers, and to the agent of a slave's master."""
    heartbeat: HeartbeatSection = field(default_factory=HeartbeatSection)
    probe: ProbeSection = field(default_factory=ProbeSection)
    stop: StopSection = field(default_factory=StopSection)
    topics: TopicsSection = field(default_factory=TopicsSection)
    rpc: RpcSection = field(default_factory=RpcSection)
    tls: TlsConfig = field(default_factory=TlsConfig)
    groups: GroupsSection = field(default_factory=GroupsSection)
    offsets: OffsetsSection = field(default_factory=OffsetsSection)
    queue_stats: QueueStatsSection = field(default_factory=QueueStatsSection)
    monitoring: MonitoringSection = field(default_factory=MonitoringSection)
    access: AccessSettings = field(default_factory=AccessSettings)
    log: LogSection = field(default_factory=LogSection)

    def problems(self) -> Iterable[str]:
        """List what cannot be together."""
        yield from self.tls.unprotected("rpc.listen", self.rpc.listen)
        if self.monitoring.tls and not self.tls.is_on:
            yield "monitoring.tls: needs tls.certificate and tls.key"
        if self.broker.replica_id and self.probe.kind != "redis":
            yield f"broker.replica_id: needs a probe of kind 'redis', which tells the role, not {self.probe.kind!r}"
        yield from self.access.unauthenticated(has_certificates=self.tls.requires_certificates, has_remoting=False)

    @property
    def redis_login(self) -> tuple[str, str, str]:
        """Address, user name and password of the broker, where it is a Redis: the probe's, if that goes to it."""
        probe = self.probe
        if probe.kind != "redis":
            return self.broker.addr, "", ""
        return probe.target or self.broker.addr, probe.username, probe.password

    @property
    def is_redis(self) -> bool:
        """Whether the broker is a Redis: its probe or the source of its topics says so."""
        return "redis" in (self.probe.kind, self.topics.source)

    @property
    def may_be_slave(self) -> bool:
        """Whether the broker is, or may become, a replica of another one."""
        return self.broker.id != MASTER_ID or self.broker.replica_id != 0

    @property
    def pending_offsets_path(self) -> Path:
        """Where a slave's agent keeps offsets until the master's agent has them."""
        broker = self.broker
        name = f"{broker.cluster}.{broker.name}.{broker.replica_id or broker.id}.pending.db"
        return Path(self.offsets.pending_path) if self.offsets.pending_path else Path(self.offsets.path).parent / name

    @property
    def keeps_offsets_in_redis(self) -> bool:
        """Whether committed offsets are kept beside the messages."""
        return self.offsets.store == "redis" or (self.offsets.store == "auto" and self.is_redis)


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object] | None = None) -> AgentConfig:
    """Load defaults < file < environment < flags. Raises ConfigError with every fault."""
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
