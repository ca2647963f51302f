"""The document ``/v1/status``: first the problems, then the fleet, bounded at any size."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from pointsman.v1 import admin_service_pb2
from pointsman.wire.json_document import to_document
from pointsman.wire.refusals import FieldViolation, InvalidRequest, shown
from pointsman.wire.wire_time import seconds_of
from pointsman_namesrv.core.flap_penalties import FlapScore
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.model import GroupKey, NodeState
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.rpc import admin_codec
from pointsman_namesrv.web.fleet_documents import Fleet, departed, departed_document, is_held, without_master
from pointsman_namesrv.web.loop_documents import Pause, Query
from pointsman_namesrv.web.page_data import ALARM, WARNING, Problem
from pointsman_namesrv.web.page_links import broker_path, fleet_path, with_parameters
from pointsman_namesrv.web.peer_comparison import PeerResult

MAX_BROKERS = 60
MAX_CLUSTERS = 60
MAX_GONE = 20
MAX_EVENTS = 30
MOST_NAMED = 3
"""Names in one problem; the others are counted."""
MOST_LINES = 6
"""Lines for one kind of problem."""
LONGEST_SEARCH = 262

_Member = tuple[Group, Replica]
_WORST_FIRST = (Phase.OUT, Phase.PROTECTED, Phase.SUSPECT, Phase.PROVISIONAL, Phase.UP)


async def status(
    fleet: Fleet, query: Query, pause: Pause, *, version: str, peers: Sequence[PeerResult], report_url: str
) -> object:
    """Return the document; ``search`` limits its brokers to names that contain this text.

    Raises InvalidRequest.
    """
    search = query.text("search")
    if len(search) > LONGEST_SEARCH:
        text = f"may have at most {LONGEST_SEARCH} characters, not {len(search)}: {shown(search)}"
        raise InvalidRequest([FieldViolation("search", text)])
    overview = await _overview_of(fleet, search.lower(), pause, most=MAX_BROKERS)
    info = fleet.info()
    await pause()
    headless = without_master(fleet.core)
    await pause()
    lost = departed(fleet)
    guards = {guard.cluster: guard for guard in info.guards}
    problems = sorted(
        problems_of(fleet, overview, info, headless=headless, departed=lost, peers=peers),
        key=lambda problem: problem.severity != ALARM,
    )
    no_master = Counter(key.cluster for key in headless)
    names = sorted(overview.by_cluster, key=lambda name: (not (no_master[name] or overview.troubled[name]), name))
    return {
        "node": fleet.node,
        "addr": fleet.addr,
        "version": version,
        "nodeState": fleet.lifecycle.state,
        "uptimeSeconds": seconds_of(info.uptime),
        "at": f"{fleet.clock.utc_now():%Y-%m-%dT%H:%M:%SZ}",
        "reportUrl": report_url or None,
        "problems": [{"severity": problem.severity, "text": problem.text} for problem in problems],
        "brokerCount": sum(overview.phases.values()),
        "states": dict(sorted(overview.phases.items())),
        "clusterCount": len(names),
        "clusters": [
            {
                "cluster": name,
                "brokers": sum(overview.by_cluster[name].values()),
                "states": dict(sorted(overview.by_cluster[name].items())),
                "withoutMaster": no_master[name],
                "guard": to_document(guards[name]) if name in guards else None,
            }
            for name in names[:MAX_CLUSTERS]
        ],
        "search": search,
        "found": overview.found,
        "brokers": (fleet.status_of(*member) for member in overview.first if is_held(*member)),
        "gone": [departed_document(fleet, score) for score in lost[:MAX_GONE]],
        "events": (
            to_document(admin_codec.broker_event(record)) for record in reversed(fleet.recent.latest(MAX_EVENTS))
        ),
        "nameServers": [peer.to_document(now=fleet.clock.monotonic()) for peer in peers],
    }


class Overview:
    """The fleet in numbers, and the brokers to check first."""

    def __init__(self) -> None:
        self.phases: Counter[str] = Counter()
        self.by_cluster: dict[str, Counter[str]] = {}
        self.troubled: Counter[str] = Counter()
        """Brokers that are not UP, by cluster."""
        self.not_up: dict[tuple[Phase, bool], list[_Member]] = {}
        """By phase and whether it is planned."""
        self.found = 0
        self.first: list[_Member] = []

    def count(self, member: _Member) -> None:
        """Count a registered broker."""
        group, replica = member
        cluster, phase = group.key.cluster, replica.state.phase
        self.phases[phase] += 1
        of_cluster = self.by_cluster.get(cluster)
        if of_cluster is None:
            of_cluster = self.by_cluster[cluster] = Counter()
        of_cluster[phase] += 1
        if phase is not Phase.UP:
            self.troubled[cluster] += 1
            self.not_up.setdefault((phase, replica.state.planned), []).append(member)


async def _overview_of(fleet: Fleet, search: str, pause: Pause, *, most: int) -> Overview:
    """Count the brokers, and find the first ``most`` of those whose name contains ``search``, the worst first."""
    overview, wiped = Overview(), fleet.core.overrides.wipes
    matching: list[_Member] = []
    for member in list(fleet.core.members()):
        group, replica = member
        if not is_held(group, replica):
            continue
        overview.count(member)
        if search in f"{group.key}".lower():
            matching.append(member)
        await pause()

    def rank(member: _Member) -> tuple[object, ...]:
        group, replica = member
        state = replica.state
        return (_WORST_FIRST.index(state.phase), state.planned, group.key not in wiped, replica.identity)

    # In parts: a large fleet takes longer than a slice.
    rows = iter(matching)
    while part := list(islice(rows, 1_000)):
        held = (member for member in (*overview.first, *part) if is_held(*member))
        overview.first = heapq.nsmallest(most, held, key=rank)
        await pause()
    overview.found = sum(is_held(*member) for member in matching)
    return overview


def problems_of(
    fleet: Fleet,
    overview: Overview,
    info: admin_service_pb2.GetNodeInfoResponse,
    *,
    headless: Sequence[GroupKey],
    departed: Sequence[FlapScore],
    peers: Iterable[PeerResult],
) -> Iterator[Problem]:
    """Yield what is wrong, each with the page that shows it."""
    active = [guard for guard in info.guards if guard.active]
    for guard in active[:MOST_LINES]:
        reason = guard.reason or f"{guard.lost} of {guard.baseline} brokers lost, {guard.up} up"
        since = f"The guard of {guard.cluster} has been on for {span(seconds_of(guard.active_for))}"
        text = f"{since}: {reason}. Its brokers stay in the routes."
        yield Problem(ALARM, text, fleet_path(cluster=guard.cluster))
    if len(active) > MOST_LINES:
        yield Problem(ALARM, f"The guard is on in {len(active) - MOST_LINES} more clusters.")
    if headless:
        path = _path([*headless], state="NO_MASTER")
        yield Problem(ALARM, f"No master: {_named(headless, str)} cannot be written.", path)
    for (phase, planned), members in sorted(overview.not_up.items(), key=lambda item: _WORST_FIRST.index(item[0][0])):
        names = _named(members, lambda member: str(member[1].identity.position))
        text = f"{_brokers(len(members))} {phase}, {'planned, ' if planned else ''}{_MEANINGS[phase]}: {names}."
        severity = ALARM if phase is Phase.OUT and not planned else WARNING
        yield Problem(severity, text, _path([group.key for group, _ in members], state=phase.value))
    if departed:
        names = _named(departed, lambda score: str(score.position))
        path = _path([GroupKey(*score.position[:2]) for score in departed], state=Phase.GONE.value)
        yield Problem(ALARM, f"{_brokers(len(departed))} departed unplanned: {names}.", path)
    for text in islice(info.complaints, MOST_LINES):
        yield Problem(ALARM, f"{text[:1].upper()}{text[1:]}.")
    for text in _starting(fleet):
        yield Problem(WARNING, text)
    wipes = sorted(fleet.core.overrides.wipes)
    if wipes:
        text = f"Write permission wiped by an operator: {_named(wipes, str)}."
        yield Problem(WARNING, text, _path(wipes, state="WIPED"))
    for setting in [guard for guard in info.guards if guard.mode != admin_service_pb2.GUARD_MODE_AUTO][:MOST_LINES]:
        mode = admin_service_pb2.GuardMode.Name(setting.mode).removeprefix("GUARD_MODE_")
        text = f"The guard of {setting.cluster} is set to {mode}."
        yield Problem(WARNING, text, with_parameters("/changes", {"cluster": setting.cluster}))
    flapping = [s for s in fleet.core.penalties.top(now=fleet.clock.monotonic(), limit=MAX_GONE) if s.flapping]
    if flapping:
        names = _named(flapping, lambda score: f"{score.position} (penalty {score.penalty:.0f})")
        path = _path([GroupKey(*score.position[:2]) for score in flapping], state="FLAPPING")
        yield Problem(WARNING, f"Flapping: {names}.", path)
    yield from _at_peers(list(peers))


def _at_peers(peers: Sequence[PeerResult]) -> Iterator[Problem]:
    if peers and all(peer.is_unknown for peer in peers):
        yield Problem(ALARM, "No name server is watched: the brokers are shown as they were listed last.")
    for peer in peers:
        for text in peer.problems():
            yield Problem(WARNING, text, "/#name-servers")


def _path(keys: Sequence[GroupKey], *, state: str) -> str:
    """Return the page of a single broker name, or the list of all in a state."""
    return broker_path(*keys[0]) if len({*keys}) == 1 else fleet_path(state=state)


def _starting(fleet: Fleet) -> Iterator[str]:
    if fleet.lifecycle.state is not NodeState.READY and fleet.core.hears_brokers:
        yield f"This name server is {fleet.lifecycle.state}: {_NODE_MEANINGS[fleet.lifecycle.state]}."
    if fleet.admin.earlier_runs() == admin_service_pb2.EARLIER_RUNS_READING:
        who = "name server" if fleet.core.hears_brokers else "observer"
        yield f"This {who} is still reading its history: earlier events and penalties may be missing."


_MEANINGS = {
    Phase.OUT: "no traffic",
    Phase.PROTECTED: "kept in the routes by the guard",
    Phase.SUSPECT: "heartbeats missing, still routed",
    Phase.PROVISIONAL: "no heartbeat since the restart, still routed",
}
_NODE_MEANINGS = {
    NodeState.WARMING: "it may not know every broker yet",
    NodeState.DRAINING: "it sends its clients to other name servers",
}


def _brokers(count: int) -> str:
    return f"{count} broker{'' if count == 1 else 's'}"


def _named(items: Sequence[object], name: Callable[..., str]) -> str:
    named = ", ".join(map(name, items[:MOST_NAMED]))
    return f"{named} and {len(items) - MOST_NAMED} more" if len(items) > MOST_NAMED else named


def span(seconds: float) -> str:
    """Format a duration in its largest relevant unit."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
