"""What the page of the fleet selects, counts and sorts."""

from __future__ import annotations

import pytest

from pointsman.wire.refusals import InvalidRequest
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.flap_penalties import FlapScore
from pointsman_namesrv.core.fleet_queues import Finding, GroupNow
from pointsman_namesrv.core.model import GroupKey, Position, Reason
from pointsman_namesrv.core.replica_state import UP, Phase, ReplicaState
from pointsman_namesrv.history.row import Record
from pointsman_namesrv.web.fleet_page import FleetPage, at_peer, fleet_page, group_problems, verdict_of
from pointsman_namesrv.web.page_data import ALARM, WARNING, BrokerRow, EventsData, FleetData, Problem
from pointsman_namesrv.web.page_query import PageQuery
from pointsman_namesrv.web.peer_comparison import PeerResult
from tests.kit.ctl.command_line import parsed
from tests.kit.name_server.page_facts import NO_EVENTS, NODE, NOTHING_MEASURED, broker_row

OUT = ReplicaState(Phase.OUT, Reason.REFUSED)
GONE = ReplicaState(Phase.GONE, Reason.SILENCE)
FLAPS = FlapScore(
    position=Position("c1", "f", 0),
    penalty=4_000.0,
    flapping=True,
    outages=4,
    last_event=EventKind.EXPIRED,
    last_event_at=0.0,
)
ROWS = [
    broker_row("a", zone="z1", owner="pay", version="7.4"),
    broker_row("b", state=OUT, zone="z2", owner="pay", version="7.2"),
    broker_row("c", state=GONE, silence=None, cluster="c2"),
    broker_row("d", write_wiped=True, cluster="c2", zone="z1"),
    broker_row("f", score=FLAPS, in_window=True),
]
POSITION = Position("c1", "a", 0)


def shown(parameters: dict[str, str], rows: list[BrokerRow] = ROWS, peers: tuple[PeerResult, ...] = ()) -> FleetPage:
    data = FleetData(
        node=NODE,
        problems=[],
        rows=rows,
        headless=[GroupKey("c1", "b")],
        guards={},
        peers=peers,
        peers_checked=[None] * len(peers),
        events=NO_EVENTS,
    )
    return fleet_page(data, NOTHING_MEASURED, PageQuery("/", parameters))


def names(page: FleetPage) -> list[str]:
    return [each.row.identity.broker_name for each in page.brokers.rows]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["b", "c", "d", "a", "f"]),
        ({"state": "OUT"}, ["b"]),
        ({"state": "NOT_UP"}, ["b", "c"]),
        ({"state": "NO_MASTER"}, ["b"]),
        ({"state": "WIPED"}, ["d"]),
        ({"state": "FLAPPING"}, ["f"]),
        ({"state": "MAINTENANCE"}, ["f"]),
        ({"cluster": "c2"}, ["c", "d"]),
        ({"zone": "z1"}, ["d", "a"]),
        ({"owner": "pay"}, ["b", "a"]),
        ({"version": "7.4"}, ["a"]),
        ({"name": "C2/"}, ["c", "d"]),
        ({"name": "a-0:1"}, ["a"]),
        ({"cluster": "c2", "state": "GONE"}, ["c"]),
        ({"sort": "name"}, ["a", "b", "f", "c", "d"]),
        ({"sort": "-penalty"}, ["f", "d", "c", "b", "a"]),
        ({"sort": "heartbeat"}, ["a", "b", "f", "d", "c"]),
    ],
)
def test_brokers_are_filtered_and_sorted_the_worst_first(parameters: dict[str, str], expected: list[str]) -> None:
    assert names(shown(parameters)) == expected


def test_an_unknown_state_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="state must be one of NOT_UP, OUT, GONE"):
        shown({"state": "DOWN"})


def test_a_lost_broker_is_listed_and_not_counted() -> None:
    page = shown({})
    assert page.counts == "4 brokers in 2 clusters: 1 OUT, 3 UP"
    clusters = {each.name: (each.up, each.total, each.lost, each.without_master) for each in page.clusters}
    assert clusters == {"c1": (2, 3, 0, 1), "c2": (1, 1, 1, 0)}
    assert [each.name for each in page.clusters] == ["c1", "c2"]


def test_of_a_large_fleet_one_page_is_shown() -> None:
    rows = [broker_row(f"b{number:03}") for number in range(120)]
    page = shown({"page": "3", "cluster": "c1"}, rows)
    assert names(page) == [f"b{number:03}" for number in range(100, 120)]
    assert (page.brokers.first, page.brokers.found, page.brokers.after) == (101, 120, "")


def test_what_a_choice_offers_is_what_brokers_have() -> None:
    choices = shown({}).choices
    assert choices == {"cluster": ["c1", "c2"], "zone": ["z1", "z2"], "owner": ["pay"], "version": ["7.2", "7.4"]}


def test_the_command_is_that_of_the_filtered_cluster() -> None:
    read, found = parsed(shown({"cluster": "-c"}).command)
    assert (read, found["cluster"], found["namesrv"]) == ("brokers", "-c", ("ns1:9876",))


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        (Phase.UP, {}, ("UP", False)),
        (Phase.UP, {POSITION: "NOT ROUTED"}, ("NOT ROUTED", True)),
        (Phase.UP, {POSITION: "SUSPECT"}, ("SUSPECT", True)),
        (Phase.OUT, {}, ("UP", True)),
        (Phase.OUT, {POSITION: "NOT ROUTED"}, ("NOT ROUTED", False)),
        (Phase.GONE, {}, ("", False)),
        (Phase.UP, None, ("", False)),
    ],
)
def test_a_state_that_only_one_name_server_has_is_marked(
    here: Phase, there: dict[Position, str] | None, expected: tuple[str, bool]
) -> None:
    assert at_peer(PeerResult("ns2:9876", brokers=there), POSITION, here) == expected


def test_a_name_server_that_was_not_compared_has_no_column() -> None:
    peers = (PeerResult("ns1:9876", "SELF"), PeerResult("ns2:9876", brokers={}), PeerResult("ns3:9876", "UNREACHABLE"))
    page = shown({}, peers=peers)
    assert page.peer_names == ["ns2:9876"]
    assert all(len(each.at_peers) == 1 for each in page.brokers.rows)


def test_a_group_that_falls_behind_is_a_problem_with_a_link() -> None:
    behind = GroupNow("c1", "%g", "orders"), [Finding("falling_behind", "group %g lags", "more members")]
    stuck = GroupNow("c1", "s", "orders"), [Finding("stuck", "group s is stuck", ""), Finding("idle_members", "", "")]
    assert list(group_problems([behind, stuck])) == [
        Problem(WARNING, "Group %g lags.", "/groups/%25g"),
        Problem(ALARM, "Group s is stuck.", "/groups/s"),
    ]
    assert list(group_problems([stuck] * 8))[-1] == Problem(WARNING, "2 more findings about groups.", "/groups")


def test_the_verdict_counts_problems_and_warnings() -> None:
    alarm, warning = Problem(ALARM, ""), Problem(WARNING, "")
    assert verdict_of([alarm, warning, warning], 5) == ("alarm", "1 problem, 2 warnings")
    assert verdict_of([warning], 5) == ("warning", "1 warning")
    assert verdict_of([], 2_000) == ("ok", "All 2,000 brokers are UP")
    assert verdict_of([], 1) == ("ok", "The broker is UP")
    assert verdict_of([], 0) == ("", "No broker is registered")


def test_an_up_broker_has_no_note_and_a_planned_absence_is_sorted_behind_others() -> None:
    rows = [broker_row("p", state=GONE._replace(planned=True), silence=None), broker_row("q", state=GONE, silence=None)]
    assert names(shown({}, rows)) == ["q", "p"]
    assert shown({}, [broker_row("a", state=UP)]).brokers.rows[0].notes == ""


def test_the_owner_of_a_lost_broker_is_that_of_its_registration() -> None:
    registered = Event(kind=EventKind.REGISTERED, group=GroupKey("c2", "c"), detail={"owner": "pay"})
    events = EventsData(NODE, {GroupKey("c2", "c"): [Record(registered, NODE.at, 0, 1)]}, NODE.started_at)
    data = FleetData(NODE, [], ROWS, [], {}, [], [], events)
    page = fleet_page(data, NOTHING_MEASURED, PageQuery("/", {"cluster": "c2"}))
    assert [(each.row.identity.broker_name, each.owner) for each in page.brokers.rows] == [("c", "pay"), ("d", "")]
