"""The page of the fleet: what is wrong, then all brokers, filtered, sorted and in pages. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pointsman.queue_findings import ALARMS
from pointsman.v1 import admin_service_pb2
from pointsman.wire.operator_texts import counted
from pointsman.wire.wire_time import seconds_of
from pointsman_namesrv.core.broker_events import OWNER
from pointsman_namesrv.core.fleet_queues import Finding, GroupNow
from pointsman_namesrv.core.model import GroupKey, Position, ProbeVerdict
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.web.page_data import (
    ALARM,
    RANKS,
    WARNING,
    WORST_FIRST,
    BrokerRow,
    FleetData,
    LiveData,
    Problem,
)
from pointsman_namesrv.web.page_links import broker_path, command, fleet_path, group_path, option
from pointsman_namesrv.web.page_query import AT, Column, Paged, PageQuery, columns_of, distinct, sort_of, sorted_page
from pointsman_namesrv.web.peer_comparison import UNKNOWN, PeerResult
from pointsman_namesrv.web.time_strip import Bar, strip

PARAMETERS = ("name", "state", "cluster", "zone", "owner", "version", "sort", "page", AT)
NOT_UP, NO_MASTER, WIPED, FLAPPING, WINDOW = "NOT_UP", "NO_MASTER", "WIPED", "FLAPPING", "MAINTENANCE"
STATES = (NOT_UP, *(phase.value for phase in WORST_FIRST), NO_MASTER, WIPED, FLAPPING, WINDOW)
TITLES = {
    "name": "Broker",
    "state": "State",
    "heartbeat": "Heartbeat",
    "penalty": "Penalty",
    "topics": "Topics",
    "zone": "Zone, owner",
    "version": "Version",
}
NUMBERS = ("heartbeat", "penalty", "topics")
MAX_CLUSTERS = 40
MAX_GROUP_PROBLEMS = 6
STRIP_HOURS = 24.0


@dataclass(frozen=True, slots=True)
class ShownBroker:
    """One row of the list."""

    row: BrokerRow
    path: str
    strip: Sequence[Bar]
    at_peers: Sequence[tuple[str, bool]]
    """The state at each other name server, and whether it differs from the one here."""
    owner: str
    """The team that owns it; empty: unknown."""

    @property
    def notes(self) -> str:
        """Return what an operator should know beside the state."""
        row = self.row
        health = row.health.detail if row.health.verdict is ProbeVerdict.FAILING and not row.is_lost else ""
        found = (
            f"probe: {health}" if health else "",
            "write permission wiped" if row.write_wiped else "",
            "in maintenance" if row.in_window else "",
            "flapping" if row.score is not None and row.score.flapping else "",
        )
        return "; ".join(filter(None, found))


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """One cluster in numbers."""

    name: str
    path: str
    states: Mapping[str, int]
    """The worst first; lost brokers are not counted."""
    lost: int
    without_master: int
    guard: admin_service_pb2.GuardStatus | None

    @property
    def total(self) -> int:
        """Return the number of registered brokers."""
        return sum(self.states.values())

    @property
    def up(self) -> int:
        """Return the number of brokers that are UP."""
        return self.states.get(Phase.UP.value, 0)

    @property
    def guard_seconds(self) -> float:
        """Return for how long the guard has been on."""
        return 0.0 if self.guard is None else seconds_of(self.guard.active_for)


@dataclass(frozen=True, slots=True)
class FleetPage:
    """What the template shows."""

    data: FleetData
    query: PageQuery
    verdict: str
    """ok, warning, alarm or empty."""
    headline: str
    counts: str
    problems: Sequence[Problem]
    columns: Mapping[str, Column]
    brokers: Paged[ShownBroker]
    peer_names: Sequence[str]
    clusters: Sequence[ShownCluster]
    more_clusters: int
    choices: Mapping[str, Sequence[str]]
    peers: Sequence[tuple[PeerResult, float | None]]
    is_filtered: bool
    is_measured: bool
    """Whether the measurements of groups are read."""
    command: str


def fleet_page(data: FleetData, live: LiveData, query: PageQuery) -> FleetPage:
    """Select and count what the page shows. Raises InvalidRequest."""
    clusters = list(clusters_of(data))
    states = Counter[str]()
    for cluster in clusters:
        states.update(cluster.states)
    problems = [*data.problems, *group_problems(live.groups)]
    problems.sort(key=lambda problem: problem.severity != ALARM)
    verdict, headline = verdict_of(problems, states.total())
    named = ", ".join(f"{states[phase.value]:,} {phase.value}" for phase in WORST_FIRST if states[phase.value])
    counts = f"{counted(states.total(), 'broker')} in {counted(sum(bool(each.total) for each in clusters), 'cluster')}"
    by, is_descending = sort_of(query, TITLES, default="state")
    part = sorted_page(list(matched(data, query)), _KEYS[by], query, is_descending=is_descending)
    others = [peer for peer in data.peers if peer.brokers is not None]
    shown = [_shown(row, data, others) for row in part.rows]
    registrations = [row.registration for row in data.rows]
    choices = {
        "cluster": distinct([cluster.name for cluster in clusters]),
        "zone": distinct([each.zone for each in registrations]),
        "owner": distinct([each.labels.get(OWNER, "") for each in registrations]),
        "version": distinct([each.broker_version for each in registrations]),
    }
    servers = data.node.servers
    return FleetPage(
        data=data,
        query=query,
        verdict=verdict,
        headline=headline,
        counts=f"{counts}: {named}" if named else counts,
        problems=problems,
        columns=columns_of(query, TITLES, default="state", highest_first=NUMBERS),
        brokers=Paged(shown, part.found, part.first, part.before, part.after),
        peer_names=[peer.addr for peer in others],
        clusters=clusters[:MAX_CLUSTERS],
        more_clusters=max(0, len(clusters) - MAX_CLUSTERS),
        choices=choices,
        peers=list(zip(data.peers, data.peers_checked, strict=True)),
        is_measured=live.is_read,
        is_filtered=any(query.text(name) for name in PARAMETERS[:6]),
        command=command(servers, "brokers", *option("cluster", query.text("cluster"))),
    )


def matched(data: FleetData, query: PageQuery) -> Iterator[BrokerRow]:
    """Yield the brokers that the filter selects. Raises InvalidRequest."""
    name, state = query.text("name").lower(), query.choice("state", STATES)
    cluster, zone, owner, version = (query.text(each) for each in ("cluster", "zone", "owner", "version"))
    headless = set(data.headless) if state == NO_MASTER else frozenset[GroupKey]()
    for row in data.rows:
        registration = row.registration
        identity = registration.identity
        if (
            (cluster and identity.cluster != cluster)
            or (zone and registration.zone != zone)
            or (owner and registration.labels.get(OWNER, "") != owner)
            or (version and registration.broker_version != version)
            or (name and name not in f"{identity.cluster}/{identity.broker_name} {identity.addr}".lower())
        ):
            continue
        if not state or _has_state(row, state, headless):
            yield row


def _has_state(row: BrokerRow, state: str, headless: frozenset[GroupKey] | set[GroupKey]) -> bool:
    match state:
        case "NOT_UP":
            return row.state.phase is not Phase.UP
        case "NO_MASTER":
            return row.identity.group_key in headless
        case "WIPED":
            return row.write_wiped
        case "FLAPPING":
            return row.score is not None and row.score.flapping
        case "MAINTENANCE":
            return row.in_window
    return row.state.phase.value == state


_KEYS: Mapping[str, Callable[[BrokerRow], tuple[object, ...]]] = {
    "name": lambda row: (row.identity,),
    "state": lambda row: (RANKS[row.state.phase], row.state.planned, not row.write_wiped, row.registration.identity),
    "heartbeat": lambda row: (row.silence is None, row.silence or 0.0, row.identity),
    "penalty": lambda row: (row.penalty, row.identity),
    "topics": lambda row: (len(row.registration.topics), row.identity),
    "zone": lambda row: (row.registration.zone, row.registration.labels.get(OWNER, ""), row.identity),
    "version": lambda row: (row.registration.broker_version, row.identity),
}


def _shown(row: BrokerRow, data: FleetData, peers: Sequence[PeerResult]) -> ShownBroker:
    identity = row.identity
    records = data.events.by_name.get(identity.group_key, ())
    # What is remembered of a lost broker has no labels, but its registration was an event.
    owners = (str(each.event.detail[OWNER]) for each in reversed(records) if OWNER in each.event.detail)
    return ShownBroker(
        row,
        broker_path(identity.cluster, identity.broker_name),
        strip(
            records,
            identity.position,
            now=data.node.at,
            hours=STRIP_HOURS,
            known_since=data.events.known_since,
        ),
        [at_peer(peer, identity.position, row.state.phase) for peer in peers],
        row.registration.labels.get(OWNER) or next(owners, ""),
    )


def at_peer(peer: PeerResult, position: Position, here: Phase) -> tuple[str, bool]:
    """Return the state of a broker at another name server, and whether clients get another route there.

    A broker that is not registered here is UP there unless the comparison named it, so nothing is stated of it.
    """
    if peer.is_unknown:
        return UNKNOWN, True
    if peer.brokers is None or here is Phase.GONE:
        return "", False
    state = peer.brokers.get(position, Phase.UP.value)
    return state, state != here.value and not (state == "NOT ROUTED" and here is Phase.OUT)


def group_problems(groups: Sequence[tuple[GroupNow, Sequence[Finding]]]) -> Iterator[Problem]:
    """Yield the groups that need action, those furthest behind first."""
    found = [(group, finding) for group, findings in groups for finding in findings if finding.kind in _SHOWN_KINDS]
    for group, finding in found[:MAX_GROUP_PROBLEMS]:
        severity = ALARM if finding.kind in ALARMS else WARNING
        yield Problem(severity, f"{finding.says[:1].upper()}{finding.says[1:]}.", group_path(group.group))
    if len(found) > MAX_GROUP_PROBLEMS:
        yield Problem(WARNING, f"{len(found) - MAX_GROUP_PROBLEMS} more findings about groups.", "/groups")


_SHOWN_KINDS = ALARMS | {"falling_behind", "too_few_queues", "rebalance_storm"}


def verdict_of(problems: Sequence[Problem], brokers: int) -> tuple[str, str]:
    """Return the verdict, and one line that states it."""
    alarms = sum(problem.severity == ALARM for problem in problems)
    warnings = len(problems) - alarms
    parts = [counted(alarms, "problem") if alarms else "", counted(warnings, "warning") if warnings else ""]
    if any(parts):
        return ALARM if alarms else WARNING, ", ".join(filter(None, parts))
    if not brokers:
        return "", "No broker is registered"
    return "ok", "The broker is UP" if brokers == 1 else f"All {brokers:,} brokers are UP"


def clusters_of(data: FleetData) -> Iterator[ShownCluster]:
    """Yield the clusters, those with a problem first."""
    states, lost = dict[str, Counter[str]](), Counter[str]()
    for row in data.rows:
        cluster = row.registration.identity.cluster
        if row.is_lost:
            lost[cluster] += not row.state.planned
        else:
            of_cluster = states.get(cluster)
            if of_cluster is None:
                of_cluster = states[cluster] = Counter()
            of_cluster[row.state.phase] += 1
    no_master = Counter(key.cluster for key in data.headless)
    names = {*states, *lost}

    def is_well(name: str) -> bool:
        of_it = states.get(name, Counter())
        return not no_master[name] and of_it.total() == of_it[Phase.UP.value]

    for name in sorted(names, key=lambda name: (is_well(name), name)):
        of_it = states.get(name, Counter())
        ordered = {phase.value: of_it[phase.value] for phase in WORST_FIRST if of_it[phase.value]}
        guard = data.guards.get(name)
        yield ShownCluster(name, fleet_path(cluster=name), ordered, lost[name], no_master[name], guard)
