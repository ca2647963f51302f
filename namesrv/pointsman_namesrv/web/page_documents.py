"""Collects, in the event loop and in slices, what the pages are made of. No walk depends on what a page shows."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pointsman.names import PERM_WRITE
from pointsman.rocketmq.frames import version_text
from pointsman.v1 import admin_service_pb2
from pointsman_namesrv.core.fleet_queues import Finding, FleetQueues, GroupNow
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.model import MASTER_ID, GroupKey, Position
from pointsman_namesrv.core.node_refusals import BrokerUnknown, TopicNotFound
from pointsman_namesrv.core.order_topics import problems_of_order
from pointsman_namesrv.core.route_table import Contribution
from pointsman_namesrv.history.row import Record
from pointsman_namesrv.rpc import admin_codec
from pointsman_namesrv.rpc.live_queue_queries import LiveQueueQueries
from pointsman_namesrv.rpc.watch_hub import WatchHub
from pointsman_namesrv.web.fleet_documents import Fleet, departed, without_master
from pointsman_namesrv.web.loop_documents import Handed, Pause, Query
from pointsman_namesrv.web.page_data import (
    ALARM,
    MAX_HOLDERS,
    BrokerData,
    BrokerRow,
    ClientKind,
    ConnectedData,
    EventsData,
    FleetData,
    Holder,
    LiveData,
    NodeFacts,
    TopicData,
    TopicsData,
    row_of_lost,
)
from pointsman_namesrv.web.peer_comparison import SELF, PeerResult
from pointsman_namesrv.web.status_document import Overview, problems_of

ROW_BYTES = 300
RECORD_BYTES = 16
LIVE_BYTES = 250
"""Estimated memory of a broker's row, of an event that the recent events hold, and of a queue or lag."""
MAX_NAMES = 20_000
"""Names whose events are collected, those with the latest: twice as many as there are brokers."""
NAMES_A_STEP = 50
"""Broker names between two checks whether a slice is over: together a part of a millisecond."""
LIVE_LAGS = 2_000
LIVE_ROWS = 1_000
"""Lags, and topics and groups, that are collected of the fleet: the busiest, and those furthest behind."""
LIVE_SECONDS = 15.0
"""Agents measure every 30 s."""
MAX_WATCHERS = 100
MAX_HOSTS = 50
MAX_KINDS = 60

T = TypeVar("T")

RocketMqClients = Callable[[], Sequence[tuple[tuple[str, int] | None, bool]]]
"""Language and version of each connection, None before its first request, and whether it is a broker's."""


@dataclass(slots=True)
class PageSources:
    """Where the facts come from."""

    fleet: Fleet
    live: LiveQueueQueries
    hub: WatchHub
    stream_count: Callable[[], int]
    rocketmq: RocketMqClients | None
    version: str
    peers: Sequence[PeerResult]
    report_url: str
    broker_url: str
    runbook_url: str
    observes: Callable[[], tuple[str, ...]] = tuple
    """Addresses of the name servers that are polled; empty: this is a name server itself."""
    observer_servers: tuple[str, ...] = ()
    """Of an observer: what commands are given as name servers."""
    kept_topics: tuple[int, str, TopicsData] | None = field(default=None, init=False)
    """The last list of topics, with the change of the routes and the cluster that it is of."""

    def node(self) -> NodeFacts:
        """Return the facts about this name server."""
        fleet = self.fleet
        return NodeFacts(
            node=fleet.node,
            addr=fleet.addr,
            version=self.version,
            state=fleet.lifecycle.state.value,
            uptime=fleet.admin.uptime(),
            at=fleet.clock.utc_now(),
            report_url=self.report_url,
            broker_url=self.broker_url,
            runbook_url=self.runbook_url,
            is_reading=fleet.admin.earlier_runs() == admin_service_pb2.EARLIER_RUNS_READING,
            servers=self.observer_servers or self._servers(),
            observes=self.observes(),
        )

    def _servers(self) -> tuple[str, ...]:
        listed = tuple(peer.addr for peer in self.peers)
        is_listed = self.fleet.addr in listed or any(peer.result == SELF for peer in self.peers)
        return listed if is_listed else (self.fleet.addr, *listed)

    def row(self, group: Group, replica: Replica, *, now: float) -> BrokerRow:
        """Return the row of a registered broker."""
        core, state = self.fleet.core, replica.state
        return BrokerRow(
            replica.registration,
            state,
            None if replica.state_since is None else now - replica.state_since,
            now - replica.pulse.last_seen if core.hears_brokers else None,
            replica.health,
            core.penalties.score(replica.identity.position, now=now),
            write_wiped=group.key in core.overrides.wipes,
            in_window=core.maintenance.covers(group.key, now=now),
            has_stream=replica.pulse.stream is not None,
        )

    def lost(self, position: Position, *, now: float) -> BrokerRow | None:
        """Return the row of the broker that was lost at a position."""
        broker, core = self.fleet.core.departed.get(position), self.fleet.core
        if broker is None:
            return None
        since = broker.at if broker.unplanned_at is None else broker.unplanned_at
        return row_of_lost(broker.registration, broker.state, now - since, core.penalties.score(position, now=now))


async def fleet(sources: PageSources, _query: Query, pause: Pause) -> Handed:
    """Collect all brokers and problems: :class:`FleetData`."""
    of, now = sources.fleet, sources.fleet.clock.monotonic()
    rows, overview = list[BrokerRow](), Overview()
    groups = of.core.routes.groups
    for number, key in enumerate(list(groups)):
        group = groups.get(key)
        if group is not None:  # else its brokers left in a pause
            for replica in group.replicas.values():
                rows.append(sources.row(group, replica, now=now))
                overview.count((group, replica))
        if not number % NAMES_A_STEP:
            await pause()
    for broker in of.core.departed.all():
        row = sources.lost(broker.registration.identity.position, now=now)
        if row is not None:
            rows.append(row)
        await pause()
    info = of.info()
    await pause()
    headless = without_master(of.core)
    await pause()
    found = problems_of(of, overview, info, headless=headless, departed=departed(of), peers=sources.peers)
    recorded, size = await _events_data(sources, pause)
    data = FleetData(
        node=sources.node(),
        problems=sorted(found, key=lambda problem: problem.severity != ALARM),
        rows=rows,
        headless=headless,
        guards={guard.cluster: guard for guard in info.guards},
        peers=list(sources.peers),
        peers_checked=[None if peer.checked_at is None else now - peer.checked_at for peer in sources.peers],
        events=recorded,
    )
    return Handed(data, ROW_BYTES * len(rows) + size)


async def broker(sources: PageSources, query: Query, pause: Pause) -> Handed:
    """Collect what is known of one broker name: :class:`BrokerData`. Raises BrokerUnknown, InvalidRequest."""
    of, core, now = sources.fleet, sources.fleet.core, sources.fleet.clock.monotonic()
    key = GroupKey(query.text("cluster"), query.text("broker"))
    group = core.routes.groups.get(key)
    replicas = [] if group is None else [group.replicas[number] for number in sorted(group.replicas)]
    records = of.recent.of(key.broker_name, cluster=key.cluster)
    lost = [sources.lost(Position(*key, number), now=now) for number in _lost_ids(sources, key, records)]
    if group is None and not any(lost) and not records:
        raise BrokerUnknown(key)
    utc_now = of.clock.utc_now()
    statuses = [
        admin_codec.broker_status(core, group, replica, now=now, utc_now=utc_now)
        for replica in replicas
        if group is not None
    ]
    rows = [sources.row(group, replica, now=now) for replica in replicas if group is not None]
    await pause()
    contribution = core.routes.contribution(key)
    windows = [
        admin_codec.maintenance_window(window, now=now)
        for window in core.maintenance.windows()
        if window.until > now and window.key.cluster == key.cluster and window.key.broker_name in {"", key.broker_name}
    ]
    guard = None
    if core.hears_brokers and key.cluster in {each.cluster for each in core.routes.groups}:
        guard = admin_codec.guard_status(core.guard.status(key.cluster), now=now)
    data = BrokerData(
        node=sources.node(),
        key=key,
        statuses=statuses,
        rows=[*rows, *(row for row in lost if row is not None)],
        guard=guard,
        windows=windows,
        records=records,
        topics=contribution.topics,
        hidden=contribution.hidden,
        read_only=contribution.read_only,
        peers=list(sources.peers),
    )
    return Handed(data, ROW_BYTES * len(data.rows) + RECORD_BYTES * len(records))


def _lost_ids(sources: PageSources, key: GroupKey, records: Sequence[Record]) -> list[int]:
    """Return the broker ids under which brokers of a name were lost."""
    brokers = (record.event.broker for record in records)
    seen = {each.identity.broker_id for each in brokers if each is not None and each.identity.group_key == key}
    absent = sources.fleet.core.departed.absent(key, None)
    return sorted(seen | {each.identity.broker_id for each in absent})


async def topics(sources: PageSources, query: Query, pause: Pause) -> Handed:
    """Count the brokers of each topic: :class:`TopicsData`. While no route changes, the last one is still right."""
    routes, cluster = sources.fleet.core.routes, query.text("cluster")
    kept = sources.kept_topics
    if kept is not None and kept[:2] == (routes.change, cluster):
        return _handed_topics(kept[2])
    change = routes.change
    holding = dict[GroupKey, tuple[Contribution, bool, bool]]()
    for key in list(routes.groups):
        holding[key] = _holding(sources, key)
        await pause()
    names = list[str]()
    counts = [array("L"), array("L"), array("L"), array("L")]
    for topic in routes.known_names():
        known = up = writable = queues = 0
        for key in routes.known(topic, cluster):
            contribution, is_up, has_master = holding.get(key) or _holding(sources, key)
            found = contribution.queues(topic)
            if found is None:
                continue
            known, up = known + 1, up + is_up
            if is_up and has_master and found.perm & PERM_WRITE and found.write_queue_nums:
                writable, queues = writable + 1, queues + found.write_queue_nums
        if known:
            names.append(topic)
            for count, value in zip(counts, (known, up, writable, queues), strict=True):
                count.append(value)
        await pause()
    clusters = sorted({key.cluster for key in holding})
    known_counts, up_counts, writable_counts, queue_counts = counts
    data = TopicsData(sources.node(), names, known_counts, up_counts, writable_counts, queue_counts, clusters)
    sources.kept_topics = (change, cluster, data)
    return _handed_topics(data)


def _handed_topics(data: TopicsData) -> Handed:
    return Handed(data, 5 * 8 * len(data.names))


def _holding(sources: PageSources, key: GroupKey) -> tuple[Contribution, bool, bool]:
    routes = sources.fleet.core.routes
    group, contribution = routes.groups.get(key), routes.contribution(key)
    master = None if group is None else group.replicas.get(MASTER_ID)
    is_up = group is not None and not contribution.absent and bool(group.routed())
    return contribution, is_up, master is not None and master.is_routed


async def topic(sources: PageSources, query: Query, pause: Pause) -> Handed:
    """Collect what is known of one topic: :class:`TopicData`. Raises TopicNotFound, InvalidRequest."""
    core, now = sources.fleet.core, sources.fleet.clock.monotonic()
    name, routes = query.text("topic"), core.routes
    keys = sorted(routes.known(name))
    hidden = sorted(key for key, topics in core.overrides.tombstones.items() if name in topics)
    if not keys and not hidden:
        raise TopicNotFound(name, "")
    holders = list[Holder]()
    for key in keys:
        contribution, group = routes.contribution(key), routes.groups.get(key)
        shown, registered = contribution.queues(name), contribution.topics.get(name)
        if shown is None or registered is None:
            continue
        replicas = [] if group is None else [group.replicas[number] for number in sorted(group.replicas)]
        rows = [sources.row(group, each, now=now) for each in replicas if group is not None]
        holders.append(Holder(key, registered, shown.perm, rows, key in core.overrides.wipes))
        await pause()
    absent = [each for key in keys for each in core.departed.absent(key, routes.groups.get(key))]
    order = core.kv.order_topics().get(name, "")
    is_static = any(routes.contribution(key).static_topics.get(name) is not None for key in keys)
    shown_groups = [routes.groups[holder.key] for holder in holders[:MAX_HOLDERS] if holder.key in routes.groups]
    merged = await sources.live.of_brokers(shown_groups, name, pause)
    measured = await _live_data(sources, merged, pause, brokers=len(shown_groups), measured=len(shown_groups))
    data = TopicData(
        node=sources.node(),
        topic=name,
        holders=holders,
        live=measured,
        absent=[(each, None if each.since is None else now - each.since) for each in absent],
        order=order,
        surpluses=problems_of_order(routes, name, order) if order else [],
        is_static=is_static,
        hidden_on=hidden,
        watchers=sources.hub.watchers(name)[1],
    )
    row_count = len(absent) + sum(len(each.replicas) for each in data.holders)
    return Handed(data, ROW_BYTES * row_count + LIVE_BYTES * (len(merged.queues) + len(merged.lags)))


async def live(sources: PageSources, _query: Query, pause: Pause) -> Handed:
    """Merge the measurements of all agents: :class:`LiveData`."""
    merged, brokers, measured = await sources.live.summary(pause, lags=LIVE_LAGS)
    data = await _live_data(sources, merged, pause, brokers=brokers, measured=measured)
    size = LIVE_BYTES * (len(data.lags) + len(data.groups) + len(data.topics))
    return Handed(data, size, fresh_seconds=LIVE_SECONDS)


async def _live_data(
    sources: PageSources, merged: FleetQueues, pause: Pause, *, brokers: int, measured: int
) -> LiveData:
    groups, queues_of = list[tuple[GroupNow, Sequence[Finding]]](), sources.live.queues_of_topics()
    found = merged.every_group()
    await pause()
    wanted = [each for each in found if each.topic == merged.topic] if merged.topic else found
    for group in await _highest(wanted, lambda each: (-each.lag, each.cluster, each.group), pause):
        groups.append((group, merged.findings(group, queues_of)))
        await pause()
    topics = await _highest(merged.every_topic(), lambda each: (-each.put_rate, each.cluster, each.topic), pause)
    return LiveData(
        node=sources.node(),
        topics={(each.cluster, each.topic): each for each in topics},
        groups=groups,
        queues=merged.queues,
        lags=merged.lags,
        broker_count=brokers,
        measured_count=measured,
    )


async def _highest(rows: Sequence[T], key: Callable[[T], tuple[object, ...]], pause: Pause) -> list[T]:
    """Return the first LIVE_ROWS rows by a key, in parts: all together would take longer than a slice."""
    found = list[T]()
    for begin in range(0, len(rows), LIVE_ROWS):
        found = heapq.nsmallest(LIVE_ROWS, [*found, *rows[begin : begin + LIVE_ROWS]], key=key)
        await pause()
    return found


async def events(sources: PageSources, _query: Query, pause: Pause) -> Handed:
    """Collect the events in memory: :class:`EventsData`."""
    return Handed(*await _events_data(sources, pause))


async def _events_data(sources: PageSources, pause: Pause) -> tuple[EventsData, int]:
    """Return the events in memory, and their estimated bytes."""
    recent, node = sources.fleet.recent, sources.node()
    by_name, known_since, count = dict[GroupKey, Sequence[Record]](), node.started_at, 0
    for number, key in enumerate(recent.names()[-MAX_NAMES:]):
        records = by_name[key] = recent.own(key)
        if records:  # else it was dropped in a pause
            count += len(records)
            known_since = min(known_since, records[0].event_at)
        if not number % NAMES_A_STEP:
            await pause()
    return EventsData(node, by_name, known_since), RECORD_BYTES * count + ROW_BYTES * len(by_name)


async def connected(sources: PageSources, _query: Query, pause: Pause) -> Handed:
    """Count agents, watchers and RocketMQ clients: :class:`ConnectedData`."""
    now, hub = sources.fleet.clock.monotonic(), sources.hub
    agents, streams = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for _, replica in list(sources.fleet.core.members()):
        registration = replica.registration
        is_own = registration.from_broker is not None
        version = registration.broker_version if is_own else registration.agent_version
        kind = ("RocketMQ broker" if is_own else "agent", version)
        agents[kind] += 1
        streams[kind] += replica.pulse.stream is not None
        await pause()
    watchers = hub.all_watchers()
    await pause()
    hosts = Counter(watcher.peer.rpartition(":")[0] for watcher in watchers)
    await pause()
    kinds = Counter[tuple[str, str, bool]]()
    connections = sources.rocketmq() if sources.rocketmq is not None else []
    for client, is_brokers in connections:
        language, number = client or ("", 0)
        kinds[language, version_text(number), is_brokers] += 1
        await pause()
    names = sorted({kind[:2] for kind, _ in kinds.most_common(MAX_KINDS)})
    data = ConnectedData(
        node=sources.node(),
        agents={kind: (count, streams[kind]) for kind, count in sorted(agents.items())},
        keep_alive_streams=sources.stream_count(),
        watchers=watchers[:MAX_WATCHERS],
        watcher_count=len(watchers),
        watched_topics=hub.watched_count,
        watcher_hosts=hosts.most_common(MAX_HOSTS),
        rocketmq=[ClientKind(*name, kinds[*name, True], kinds[*name, False]) for name in names],
        rocketmq_count=None if sources.rocketmq is None else len(connections),
        now=now,
    )
    return Handed(data, ROW_BYTES * (len(data.watchers) + len(data.agents) + len(data.watcher_hosts)))


SLOW = frozenset({"page live"})
"""What takes seconds in a large fleet: it is built beside the others, and served until the next one is ready."""

BUILDS: Mapping[str, Callable[[PageSources, Query, Pause], Awaitable[Handed]]] = {
    "page fleet": fleet,
    "page broker": broker,
    "page topics": topics,
    "page topic": topic,
    "page live": live,
    "page events": events,
    "page connected": connected,
}
