"""The agent's configuration: settings, defaults and checks.

Read by ``pointsman.config.load``: defaults < file < environment ``AGENT_SECTION__KEY`` < flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pointsman import config as service_config
from pointsman.address_list import url_problem
from pointsman.daemon.access.access_settings import AccessSettings
from pointsman.daemon.process.logs import FORMATS, LEVELS
from pointsman.daemon.rpc.listeners import DEFAULT_LISTENER, LISTENERS
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman.name_servers.list_sources import forgeable_list_problem
from pointsman.names import (
    MAX_BROKER_ID,
    MAX_FILTER_SERVERS,
    MAX_LABEL_LENGTH,
    MAX_LABELS,
    MAX_QUEUE_WEIGHT,
    MAX_QUEUES,
    MAX_TOPIC_SYS_FLAG,
    MIN_EXPIRY_INTERVALS,
    PERM_READ,
    PERM_WRITE,
    addr_problem,
    name_problem,
    text_problem,
)
from pointsman.setting import fault, not_one_of, outside, unusable_listen
from pointsman.wire.credentials import Credentials
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
    """Identity of the broker. `cluster`, `name` and `addr` are required."""

    cluster: str
    """Cluster that the broker belongs to."""
    name: str
    """Name of the replica group."""
    id: int = 0
    """Id of the broker in its group; 0 is the master."""
    addr: str
    """Address at which clients reach the broker, host:port."""
    ha_addr: str = ""
    """Address from which replicas copy, host:port, or empty."""
    agent_addr: str = ""
    """Address at which clients reach this agent (see `[rpc]`), host:port; empty: `rpc.listen`, with
    the host of `addr` in place of `0.0.0.0`."""
    zone: str = ""
    """Zone (machine room) of the broker, for routes and strategies by zone; empty: none."""
    host: str = ""
    """Machine of the broker; empty: the name of the agent's machine."""
    labels: dict[str, str] = field(default_factory=dict)
    """At most 32 labels, such as `{ rack = "r1" }`. The nightly report shows the label `owner` next to a broker."""
    version: str = ""
    """Version of the broker's software, for operators and the report."""
    acting_master: bool = True
    """Whether the topics of this replica are served read-only while its group has no master."""
    filter_servers: tuple[str, ...] = ()
    """Addresses of RocketMQ filter servers, passed on in routes."""
    state_version: int = 0
    """Of two registrations for one identity the higher value wins. Raise it when a replica is promoted by hand."""
    replica_id: int = 0
    """Id of a Redis server while it is a replica, unique in its group; while it is a master its id is 0. For servers
    that Sentinel may promote; needs `probe.kind = "redis"`. 0: `id` applies."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
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
    """Where the name servers are: a list, a DNS name, a file or an address server; exactly one of them."""

    addrs: tuple[str, ...] = ()
    """Addresses of all name servers, host:port, at most 64. The agent registers with each."""
    dns: str = ""
    """DNS name and port, host:port: each address that the name resolves to is a name server."""
    file: str = ""
    """File with one address per line, each line ended; empty lines and lines with `#` are skipped."""
    url: str = ""
    """Address server to ask, as `http://ns1:8080/rocketmq/nsaddr-grpc`: a name server's `[address_server]`, or another
    one that answers as RocketMQ expects. The list must have the gRPC addresses. `https://` is verified by
    `[credentials]`."""
    refresh_seconds: float = 10.0
    """Interval at which `dns` is resolved, `file` is read and `url` is asked again."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        given = [name for name in ("addrs", "dns", "file", "url") if getattr(self, name)]
        if not given:
            yield "addrs: must name at least one name server, unless dns, file or url is given"
        elif len(given) > 1:
            yield f"{given[1]}: {given[0]} is also set; set only one of addrs, dns, file and url"
        if len(self.addrs) > MAX_NAME_SERVERS:
            yield f"addrs: {len(self.addrs)} are given, at most {MAX_NAME_SERVERS} are allowed"
        yield from _addr_list("addrs", self.addrs)
        yield from fault("dns", self.dns, addr_problem(self.dns) if self.dns else None)
        if self.url and (problem := url_problem(self.url)):
            # One with a user name is not shown: it may have a password.
            yield f"url: {problem}" if "@" in self.url else f"url: {self.url!r} {problem}"
        yield from outside("refresh_seconds", self.refresh_seconds, 0.05, 3_600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSection:
    """Heartbeats to the name servers."""

    interval_seconds: float = 30.0
    """Heartbeat interval that the agent requests; the response to its registration applies."""
    expiry_seconds: float = 120.0
    """Time without a heartbeat after which name servers remove the broker; at least 3 intervals."""
    timeout_seconds: float = 3.0
    """Longest wait for the response to a heartbeat."""
    register_timeout_seconds: float = 10.0
    """Longest wait for the response to a registration."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
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
    """Health check of the broker."""

    kind: str = "none"
    """How the broker is checked. none: not at all. tcp: connect. redis: PING and INFO. http: GET `path`. grpc: the
    health protocol. exec: run `command`."""
    target: str = ""
    """Address that is checked, host:port; empty: `broker.addr`."""
    interval_seconds: float = 5.0
    """Time between two checks."""
    timeout_seconds: float = 2.0
    """Longest run of one check."""
    rise: int = 1
    """Passes in a row that turn a failing broker into a passing one."""
    fall: int = 2
    """Failures in a row that turn a passing broker into a failing one."""
    username: str = ""
    """For kind redis: user name (ACL); needs a password."""
    password: str = field(default="", repr=False)
    """For kind redis. Set it in the environment, `AGENT_PROBE__PASSWORD`, so that no file has it."""
    path: str = "/"
    """For kind http: path of the GET; a status below 400 passes."""
    service: str = ""
    """For kind grpc: name of the service that is checked; empty: the server as a whole."""
    peers: tuple[str, ...] = ()
    """For kind redis: other members of the group, host:port, in addition to those that the server reports. An empty
    master fails its check while one of them holds messages."""
    command: tuple[str, ...] = ()
    """For kind exec: program and arguments; exit code 0 passes."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        yield from not_one_of("kind", self.kind, PROBE_KINDS)
        if (self.kind == "exec") is not bool(self.command):
            yield "command: required by probe.kind 'exec', and not used by any other kind"
        if self.peers and self.kind != "redis":
            yield f"peers: not used by probe.kind {self.kind!r}; remove it"
        yield from _addr_list("peers", self.peers)
        if not self.path.startswith("/"):
            yield f"path: must begin with /, got {self.path!r}"
        yield from fault("target", self.target, addr_problem(self.target) if self.target else None)
        yield from outside("interval_seconds", self.interval_seconds, 0.05, 3_600.0)
        yield from outside("timeout_seconds", self.timeout_seconds, 0.05, 60.0)
        yield from outside("rise", self.rise, 1, 100)
        yield from outside("fall", self.fall, 1, 100)
        if self.username and not self.password:
            yield f"username: {self.username!r} is set without a password"
        if self.password and self.kind != "redis":
            yield f"password: not used by probe.kind {self.kind!r}; remove it"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSection:
    """What the agent does when it stops."""

    timeout_seconds: float = 5.0
    """Total time for the final probe and for unregistering at all name servers."""
    unprobed: str = "hand_over"
    """Action on stop without a probe. hand_over: keep the registration for the next agent. unregister: remove the
    broker."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        yield from outside("timeout_seconds", self.timeout_seconds, 0.1, 300.0)
        yield from not_one_of("unprobed", self.unprobed, UNPROBED_LEAVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """The queues of one topic on this broker."""

    name: str
    """Name of the topic."""
    read_queues: int
    """Number of queues that consumers read."""
    write_queues: int
    """Number of queues that producers write."""
    perm: str = "rw"
    """Permission of the topic."""
    topic_sys_flag: int = 0
    """RocketMQ's flags of the topic: unit 1, unit-sub 2."""
    queue_weight: int = 1
    """Share of each queue in sends without a key or queue: a queue of weight 3 gets three messages while one of weight
    1 gets one."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        yield from fault("name", self.name, name_problem(self.name))
        yield from outside("read_queues", self.read_queues, 0, MAX_QUEUES)
        yield from outside("write_queues", self.write_queues, 0, MAX_QUEUES)
        yield from not_one_of("perm", self.perm, PERMS)
        yield from outside("topic_sys_flag", self.topic_sys_flag, 0, MAX_TOPIC_SYS_FLAG)
        yield from outside("queue_weight", self.queue_weight, 1, MAX_QUEUE_WEIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSection:
    """Topics of the broker."""

    source: str = "toml"
    """Where topics come from. toml: the `[[topics.topic]]` tables of this file. rocketmq: the files of a RocketMQ
    broker. redis: the streams `topic:queue:N` of a Redis server."""
    check_interval_seconds: float = 5.0
    """Interval at which the source is read; `toml` is also read on SIGHUP."""
    store_path: str = ""
    """For source rocketmq: the broker's storePathRootDir; empty: the one in `broker_conf`."""
    broker_conf: str = ""
    """For source rocketmq: the broker's properties file; empty: RocketMQ's defaults."""
    max_topics: int = 100_000
    """A source with more topics is rejected, and the last good state stays in use."""
    writable: bool = False
    """For source toml: whether `pointsmanctl topic` may change the `[[topics.topic]]` tables of this file. Comments and
    order are kept; the file is replaced by rename, so the agent must be able to write its folder."""
    topic: tuple[TopicRow, ...] = ()
    """One table for each topic of the broker, see below."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        yield from not_one_of("source", self.source, TOPIC_SOURCES)
        yield from outside("check_interval_seconds", self.check_interval_seconds, 0.05, 3_600.0)
        yield from outside("max_topics", self.max_topics, 1, 200_000)
        if self.topic and self.source != "toml":
            yield f"topic: used by source 'toml' only, not by {self.source!r}; remove it"
        if self.writable and self.source != "toml":
            yield f"writable: used by source 'toml' only, not by {self.source!r}; remove it"
        if self.source == "rocketmq" and not (self.store_path or self.broker_conf):
            yield "store_path: required by source 'rocketmq', unless broker_conf is set"
        first: dict[str, int] = {}
        for index, row in enumerate(self.topic):
            if row.name in first:
                yield f"topic[{index}].name: {row.name!r} is already topic[{first[row.name]}]"
            first.setdefault(row.name, index)


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSection:
    """Services for the broker's clients: groups, locks, offsets."""

    listen: str = ""
    """Address for clients of the broker: consumer groups, queue locks, offsets; host:port; empty: off."""
    grace_seconds: float = 5.0
    """Time that running calls have to finish when the agent stops."""
    listener: str = DEFAULT_LISTENER
    """What carries gRPC on this address: lane, this project's own HTTP/2 server, or grpcio, which is slower."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        if self.listen:
            yield from unusable_listen("listen", self.listen)
        yield from not_one_of("listener", self.listener, LISTENERS)
        yield from outside("grace_seconds", self.grace_seconds, 0.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """What applies to one consumer group."""

    name: str
    """Name of the group."""
    notify: bool = True
    """Whether members are notified of changes; without it they query the members with each rebalance, every 20 s."""
    hold_down_seconds: float = 0.0
    """Delay after a first change, so that several changes cause one rebalance."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        yield from fault("name", self.name, name_problem(self.name))
        yield from outside("hold_down_seconds", self.hold_down_seconds, 0.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSection:
    """Consumer groups."""

    expiry_seconds: float = 120.0
    """Time without a heartbeat after which a client is removed from its groups (RocketMQ's channelExpiredTimeout)."""
    scan_interval_seconds: float = 10.0
    """Interval of that check."""
    stream_grace_seconds: float = 2.0
    """Time that a client has to reconnect after its stream ended, before it is removed from its groups."""
    warm_up_seconds: float = 30.0
    """Time after a start in which clients reconnect and no member rebalances. A group whose members from before the
    start are back, or that had none, is served after 1 s."""
    notify: bool = True
    """As in `[[groups.group]]`, for groups without such a table."""
    hold_down_seconds: float = 0.0
    """As in `[[groups.group]]`, for groups without such a table."""
    max_clients: int = 20_000
    """Maximum number of membership streams; a client id with two streams counts twice."""
    max_groups: int = 10_000
    """Maximum number of groups with members."""
    max_watchers: int = 20_000
    """Maximum number of open watches of groups."""
    max_subscriptions: int = 200_000
    """Maximum number of subscriptions of all members together; about 0.3 kB each. A member without any counts as
    one."""
    max_subscriptions_per_client: int = 4_096
    """Maximum number of subscriptions in one heartbeat."""
    group: tuple[GroupRow, ...] = ()
    """Tables for single groups, see below."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
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
    """Where committed offsets are stored. redis: in the broker, next to the messages. file: SQLite file on this
    machine. auto: redis if the broker is a Redis, else file."""
    path: str = "offsets.db"
    """File of the store `file`."""
    pending_path: str = ""
    """File for offsets that a slave's agent accepts while its master is down; empty: in the folder of `path`, named
    after the broker."""
    flush_interval_seconds: float = 5.0
    """Interval at which offsets are stored; a crash loses at most this (RocketMQ's flushConsumerOffsetInterval)."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        yield from not_one_of("store", self.store, OFFSET_STORES)
        yield from outside("flush_interval_seconds", self.flush_interval_seconds, 0.05, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatsSection:
    """Measurement of queue depths and group lags."""

    live_interval_seconds: float = 30.0
    """Interval at which they are measured, for metrics, name servers and `pointsmanctl`. One that takes longer
    than 0.3 s is repeated after 100 times as long, at most after ten minutes."""
    interval_seconds: float = 600.0
    """Interval at which averages are reported for the history and the nightly report; 0: never. If it is the shorter
    one, queues are measured at this interval."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        yield from outside("live_interval_seconds", self.live_interval_seconds, 0.05, 3_600.0)
        if self.interval_seconds:
            yield from outside("interval_seconds", self.interval_seconds, 0.05, 86_400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringSection:
    """Metrics and health over HTTP."""

    listen: str = "127.0.0.1:9881"
    """Address of `/metrics` and `/healthz`, host:port; port 0 picks a free one, which the log shows."""
    tls: bool = False
    """Whether this port is HTTPS, with the certificate of ``[tls]``. Clients present no certificate."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        yield from unusable_listen("listen", self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """What to log."""

    level: str = "INFO"
    """Least severity that is logged, on standard error."""
    format: str = "auto"
    """``json``, ``text`` or ``auto``: text on a terminal, else JSON."""

    def problems(self) -> Iterable[str]:
        """Return the invalid values."""
        yield from not_one_of("level", self.level, LEVELS)
        yield from not_one_of("format", self.format, FORMATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """All settings."""

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
        """Return invalid combinations of sections."""
        yield from self.tls.unprotected("rpc.listen", self.rpc.listen)
        if self.monitoring.tls and not self.tls.is_on:
            yield "monitoring.tls: needs tls.certificate and tls.key"
        url = self.name_servers.url
        yield from fault("name_servers.url", url, forgeable_list_problem(url, self.credentials))
        if self.broker.replica_id and self.probe.kind != "redis":
            yield f"broker.replica_id: needs probe.kind 'redis', which reports the role, not {self.probe.kind!r}"
        yield from self.access.unauthenticated(has_certificates=self.tls.requires_certificates, has_remoting=False)

    @property
    def redis_login(self) -> tuple[str, str, str]:
        """Address, user name and password of the broker if it is a Redis: the probe's, if it probes Redis."""
        probe = self.probe
        if probe.kind != "redis":
            return self.broker.addr, "", ""
        return probe.target or self.broker.addr, probe.username, probe.password

    @property
    def is_redis(self) -> bool:
        """Whether the broker is a Redis, by its probe or its topic source."""
        return "redis" in (self.probe.kind, self.topics.source)

    @property
    def may_be_slave(self) -> bool:
        """Whether the broker is, or may become, a replica of another one."""
        return self.broker.id != MASTER_ID or self.broker.replica_id != 0

    @property
    def pending_offsets_path(self) -> Path:
        """File in which a slave's agent stores offsets until the master's agent has them."""
        broker = self.broker
        name = f"{broker.cluster}.{broker.name}.{broker.replica_id or broker.id}.pending.db"
        return Path(self.offsets.pending_path) if self.offsets.pending_path else Path(self.offsets.path).parent / name

    @property
    def keeps_offsets_in_redis(self) -> bool:
        """Whether committed offsets are stored in the broker, next to the messages."""
        return self.offsets.store == "redis" or (self.offsets.store == "auto" and self.is_redis)


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object] | None = None) -> AgentConfig:
    """Load defaults < file < environment < flags. Raises ConfigError with all errors."""
    return service_config.load(AgentConfig, file=file, environment=environment, prefix="AGENT", flags=flags)


def to_toml(config: AgentConfig) -> str:
    """Return the configuration as TOML, without its password."""
    shown = replace(config.probe, password=HIDDEN) if config.probe.password else config.probe
    return service_config.to_toml(replace(config, probe=shown))


def _addr_list(name: str, addrs: tuple[str, ...]) -> Iterator[str]:
    for index, addr in enumerate(addrs):
        yield from fault(f"{name}[{index}]", addr, addr_problem(addr))
        if addr in addrs[:index]:
            yield f"{name}[{index}]: {addr!r} is listed twice"
