"""The checks of ``pointsmanctl doctor`` over a fleet: answers in, findings out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.error_details import ErrorDetails
from pointsman_client import NameServerFailedError, PointsmanError, RequestRejectedError
from pointsman_ctl.commands import doctor_command, fleet_checks, name_checks
from pointsman_ctl.commands.agent_round import AgentChoice, QueryResult
from pointsman_ctl.commands.fleet_checks import (
    agent_findings,
    agent_notes,
    best_measured,
    broker_findings,
    command,
    difference_findings,
    group_findings,
    measured_notes,
    node_findings,
    queue_findings,
    unchecked_findings,
)
from pointsman_ctl.output.consumer_group_view import GroupRow
from pointsman_ctl.output.doctor_view import DoctorFinding
from pointsman_ctl.servers.found_agents import Agent, FoundAgents
from pointsman_ctl.servers.name_servers import NodeBrokers, NodeDigests, NodeSettings, Setting
from pointsman_ctl.servers.node_answers import BROKERS, QUEUES, NodeAnswers
from pointsman_ctl.servers.server_calls import NodeResponse

ROOT = Path(__file__).parents[4]
READY, WARMING = broker_pb2.NODE_STATE_READY, broker_pb2.NODE_STATE_WARMING
DOWN = NameServerFailedError("ns2:1", grpc.StatusCode.DEADLINE_EXCEEDED, "late")
OLDER = NameServerFailedError("ns1:1", grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
DENIED = RequestRejectedError("ns1:1", grpc.StatusCode.PERMISSION_DENIED, "no", ErrorDetails())


def status(name: str, state: str = "UP", *, broker_id: int = 0, **facts: Any) -> broker_pb2.BrokerStatus:
    return broker_pb2.BrokerStatus(
        identity=broker_pb2.BrokerIdentity(
            cluster="c1", broker_name=name, broker_id=broker_id, addr=f"{name}{broker_id}:1"
        ),
        state=broker_pb2.BrokerState.Value(f"BROKER_STATE_{state}"),
        **facts,
    )


def answers(
    *brokers: broker_pb2.BrokerStatus, departed: Iterable[admin.FlapScore] = (), info: Any = None, **parts: Any
) -> NodeAnswers:
    about = info or admin.GetNodeInfoResponse(state=READY)
    return NodeAnswers(about, NodeBrokers("ns", brokers, about, list(departed)), **parts)


def short(findings: Iterable[DoctorFinding]) -> list[tuple[str, str, str]]:
    return [(each.severity, each.kind, each.subject) for each in findings]


def of_brokers(*brokers: broker_pb2.BrokerStatus) -> list[DoctorFinding]:
    return list(broker_findings([("ns1:1", answers(*brokers))]))


# Name servers


def node(addr: str, response: NodeAnswers | None, failure: PointsmanError | None = None) -> NodeResponse[NodeAnswers]:
    return NodeResponse(addr, response, failure)


def test_a_name_server_that_is_ready_without_problems_has_no_findings() -> None:
    assert list(node_findings([node("ns1:1", answers())], cluster="")) == []


def test_failed_name_servers_come_first() -> None:
    warming = answers(info=admin.GetNodeInfoResponse(state=WARMING, complaints=["disk full", "rows dropped"]))
    nodes = [node("ns1:1", warming), node("ns2:1", None, DOWN), node("ns3:1", answers()), node("ns4:1", None, DENIED)]
    assert short(node_findings(nodes, cluster="")) == [
        ("ALARM", "NOT_RESPONDING", "ns2:1"),
        ("ALARM", "REJECTED", "ns4:1"),
        ("WARNING", "NOT_READY", "ns1:1"),
        ("ALARM", "PROBLEM", "ns1:1"),
        ("ALARM", "PROBLEM", "ns1:1"),
    ]


def test_no_ready_name_server_is_an_alarm() -> None:
    nodes = [node("ns1:1", answers(info=admin.GetNodeInfoResponse(state=WARMING)))]
    (found,) = node_findings(nodes, cluster="")
    assert (found.severity, found.text) == ("ALARM", "it is WARMING")
    assert found.remedy.endswith("#pointsmannonameserverready")


@pytest.mark.parametrize(
    ("guard", "expected", "undo"),
    [
        (admin.GuardStatus(mode=admin.GUARD_MODE_AUTO), None, False),
        (admin.GuardStatus(mode=admin.GUARD_MODE_AUTO, active=True, lost=3), "ALARM GUARD_ON", False),
        (admin.GuardStatus(mode=admin.GUARD_MODE_HOLD, active=True), "WARNING GUARD_SET", True),
        (admin.GuardStatus(mode=admin.GUARD_MODE_HOLD, active=True, lost=1), "ALARM GUARD_ON", True),
        (admin.GuardStatus(mode=admin.GUARD_MODE_OFF), "WARNING GUARD_SET", True),
    ],
)
def test_a_guard_that_is_on_or_not_auto_is_a_finding(
    guard: admin.GuardStatus, expected: str | None, undo: bool
) -> None:
    guard.cluster = "c1"
    nodes = [node("ns1:1", answers(info=admin.GetNodeInfoResponse(state=READY, guards=[guard])))]
    found = list(node_findings(nodes, cluster="c1"))
    assert [f"{each.severity} {each.kind}" for each in found] == ([expected] if expected else [])
    assert all(("guard auto --cluster c1" in each.remedy) is undo for each in found)
    assert list(node_findings(nodes, cluster="c2")) == []


def test_an_older_name_server_is_to_be_upgraded_and_parts_that_do_not_matter_are_left_out() -> None:
    found = [("ns1:1", answers(failures={QUEUES: OLDER, BROKERS: DENIED}))]
    (one,) = unchecked_findings(found, [QUEUES])
    assert (one.kind, one.subject) == ("NOT_CHECKED", "queues of ns1:1")
    assert one.remedy == "upgrade it: deploy/runbook.md#procedures"
    (other,) = unchecked_findings(found, [BROKERS])
    assert other.remedy == "`pointsmanctl health`; then repeat this command"
    unknown = RequestRejectedError("ns1:1", grpc.StatusCode.NOT_FOUND, "cluster c2 is unknown", ErrorDetails())
    (cluster,) = unchecked_findings([("ns1:1", answers(failures={BROKERS: unknown}))], [BROKERS])
    assert cluster.remedy == "deploy/runbook.md#pointsmanagentpartlyregistered"


def test_differences_of_settings_and_of_routes_of_ready_name_servers() -> None:
    def side(addr: str, state: str, guard: str, **digests: bytes) -> tuple[str, NodeAnswers]:
        settings: NodeSettings = {("GUARD", "c1"): Setting(guard, None)}
        return addr, answers(digests=NodeDigests(addr, state, digests, settings))

    same = side("ns1:1", "READY", "OFF", orders=b"1")
    assert list(difference_findings([same])) == []
    assert list(difference_findings([same, side("ns2:1", "READY", "OFF", orders=b"1")])) == []
    other = side("ns2:1", "READY", "HOLD", a=b"1", b=b"1", c=b"1", orders=b"2")
    setting, routes = difference_findings([same, other, side("ns3:1", "WARMING", "OFF")])
    assert (setting.kind, setting.subject) == ("SETTING_DIFFERS", "guard c1")
    assert setting.text == "OFF at ns1:1, HOLD at ns2:1, OFF at ns3:1"
    assert routes.text.startswith("4 topics differ: a, b, c and 1 more; ")
    assert routes.remedy.startswith("`pointsmanctl diff ns1:1 ns2:1`")


# Brokers


def test_brokers_that_are_up_have_no_findings() -> None:
    assert of_brokers(status("a"), status("a", broker_id=1)) == []


def test_states_have_their_severity_and_are_explained() -> None:
    found = of_brokers(
        status("a", "OUT", reason="REFUSED", rule="probe_refused"),
        status("a", broker_id=2),
        status("b", "OUT", planned=True, broker_id=3),
        status("c", "SUSPECT"),
        status("d", "PROTECTED"),
        status("e", "PROVISIONAL"),
    )
    assert short(found) == [
        ("ALARM", "NO_MASTER", "c1/a"),
        ("ALARM", "NO_MASTER", "c1/b"),
        ("ALARM", "OUT", "c1/a/0"),
        ("WARNING", "OUT", "c1/b/3"),
        ("WARNING", "SUSPECT", "c1/c/0"),
        ("WARNING", "PROTECTED", "c1/d/0"),
        ("WARNING", "PROVISIONAL", "c1/e/0"),
    ]
    assert "rule probe_refused; reason REFUSED; " in found[2].text


def test_wiped_flapping_and_conflicting_brokers_are_findings() -> None:
    other = broker_pb2.BrokerIdentity(cluster="c2", broker_name="z", broker_id=1)
    found = of_brokers(
        status("a", write_wiped=True), status("b", penalty=3_001.0), status("c", penalty=3_000.0, also_at_addr=[other])
    )
    assert short(found) == [
        ("WARNING", "WRITE_WIPED", "c1/a"),
        ("WARNING", "FLAPPING", "c1/b/0"),
        ("WARNING", "ADDRESS_CONFLICT", "c1/c/0"),
    ]
    assert "`pointsmanctl add-write-perm a --cluster c1` restores it" in found[0].remedy


def test_a_departed_broker_is_an_alarm_and_not_one_that_lacks_its_registration() -> None:
    score = admin.FlapScore(cluster="c1", broker_name="a", last_event="EXPIRED", last_event_ago=Duration(seconds=9))
    both = [("ns1:1", answers(status("a"))), ("ns2:1", answers(departed=[score]))]
    (found,) = broker_findings(both)
    assert (found.severity, found.kind, found.subject) == ("ALARM", "DEPARTED", "c1/a/0")
    assert found.remedy.endswith("`pointsmanctl evict c1/a/0`")


def test_a_broker_that_ready_name_servers_lack_is_a_finding() -> None:
    warming = answers(info=admin.GetNodeInfoResponse(state=WARMING))
    found = [("ns1:1", answers(status("a"))), ("ns2:1", answers()), ("ns3:1", answers()), ("ns4:1", warming)]
    (one,) = broker_findings(found)
    assert (one.kind, one.text) == ("NOT_REGISTERED", "not registered at ns2:1, ns3:1, but at ns1:1")
    assert list(broker_findings(found, broker_name="b")) == []


OBSERVED = admin.GetNodeInfoResponse(state=READY, observed=True, complaints=["missing here: c1/b/0 for 3 s"])


def test_a_broker_that_an_observed_name_server_ceased_to_list_is_missing_while_another_lists_it() -> None:
    gone = [admin.FlapScore(cluster="c1", broker_name="b", last_event_ago=Duration(seconds=3))]
    first, second = answers(status("b"), info=OBSERVED), answers(info=OBSERVED, departed=gone)
    one, other = ("observe://o:1/ns1:1", first), ("observe://o:1/ns2:1", second)
    [found] = broker_findings([one, other])
    assert (found.severity, found.kind, found.subject) == ("WARNING", "MISSING", "c1/b/0 at observe://o:1/ns2:1")
    assert found.text == "not listed since 3.0s ago, but listed at observe://o:1/ns1:1"
    [never] = broker_findings([one, ("observe://o:1/ns2:1", answers(info=OBSERVED))])
    assert (never.kind, never.text) == ("MISSING", "not listed at observe://o:1/ns2:1, but at observe://o:1/ns1:1")
    [departed] = [each for each in broker_findings([other]) if each.kind == "DEPARTED"]
    assert departed.severity == "ALARM"
    assert "evict" not in departed.remedy, "an observer changes nothing"
    assert list(node_findings([node(*one), node(*other)], cluster="")) == [], "what is missing is a finding of brokers"


def test_a_fleet_without_brokers_is_a_finding() -> None:
    assert short(broker_findings([("ns1:1", answers())])) == [("WARNING", "NO_BROKERS", "")]


# Queues and groups


def live_queues(*groups: tuple[str, str, str], measured: int = 1) -> admin.ListLiveQueuesResponse:
    return admin.ListLiveQueuesResponse(
        topics=[admin.LiveTopic(topic="orders", findings=[admin.QueueFinding(kind="key_skew", text="hot")])],
        groups=[
            admin.LiveGroup(group=group, topic=topic, findings=[admin.QueueFinding(kind=kind, text=kind)])
            for group, topic, kind in groups
        ],
        measured_broker_count=measured,
        broker_count=2,
    )


def test_findings_of_queues_are_those_of_a_topic_or_of_a_group() -> None:
    live = live_queues(("g", "orders", "stuck"), ("h", "bills", "falling_behind"))
    skew, stuck = ("WARNING", "KEY_SKEW", "orders"), ("ALARM", "STUCK", "g in orders")
    behind = ("WARNING", "FALLING_BEHIND", "h in bills")
    assert short(queue_findings(live)) == [skew, stuck, behind]
    assert short(queue_findings(live, topic="orders")) == [skew, stuck]
    assert short(queue_findings(live, group="h")) == [behind]


def test_the_name_server_with_most_measurements_counts() -> None:
    few, many = live_queues(measured=1), live_queues(measured=2)
    assert best_measured([("ns1:1", answers(queues=few)), ("ns2:1", answers(queues=many))]) == many
    assert best_measured([("ns1:1", answers())]) is None
    assert list(measured_notes(few)) == ["queues measured at 1 of 2 brokers; see `pointsmanctl queues`"]
    assert list(measured_notes(many)) == []


def row(group: str, *flags: str) -> GroupRow:
    return GroupRow(group, 1, True, (), (), (), flags, ())


def test_flags_of_groups_that_need_action_are_findings_unless_a_name_server_found_the_same() -> None:
    rows = [row("g", "STUCK", "BEHIND", "PINNED"), row("h", "NO MEMBERS", "CONFLICT", "DIFFERS", "WARMING")]
    behind = ("WARNING", "BEHIND", "g")
    of_h = [("ALARM", "NO_MEMBERS", "h"), ("ALARM", "CONFLICT", "h"), ("WARNING", "DIFFERS", "h")]
    assert short(group_findings(rows, None)) == [("ALARM", "STUCK", "g"), behind, *of_h]
    assert short(group_findings(rows, live_queues(("g", "orders", "stuck")))) == [behind, *of_h]


def test_an_agent_that_fails_is_a_finding_and_what_has_no_agent_is_a_note() -> None:
    agent, broker = Agent("a:1", ("c1/a/0",)), Agent("b:1", ("c1/b/0",), is_rocketmq=True)
    found = FoundAgents((agent, broker), missing=())
    failed: list[tuple[Agent, NodeResponse[object]]] = [
        (each, NodeResponse(each.addr, None, DOWN)) for each in (agent, broker)
    ]
    choice = AgentChoice()
    assert short(agent_findings(QueryResult(choice, found, (), failed))) == [
        ("WARNING", "AGENT_NOT_RESPONDING", "c1/a/0 at a:1"),
        ("WARNING", "BROKER_NOT_RESPONDING", "c1/b/0 at b:1"),
    ]
    absent = FoundAgents((agent,), absent={"c1/a/0": "OUT"})
    result = QueryResult(choice, absent, (), failed[:1])
    assert list(agent_findings(result)) == []
    (note,) = agent_notes(result)
    assert note.startswith("groups not checked at c1/a/0 OUT (a:1: ")
    listed = route_service_pb2.GetClusterInfoResponse(absent=route_service_pb2.AbsentBrokers(left_out=7))
    (note,) = agent_notes(QueryResult(choice, FoundAgents(()), [NodeResponse("ns1:1", listed, None)], ()))
    assert note == "groups not checked at 7 brokers that ns1:1 does not list: give --cluster"


# Next steps


def test_a_command_is_quoted_for_a_shell() -> None:
    assert command("why", "a|b") == "`pointsmanctl why 'a|b'`"


def test_every_section_of_the_runbook_that_is_named_exists() -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "deploy" / "runbook.md").read_text(encoding="utf-8"), re.MULTILINE)
    modules = (fleet_checks, name_checks, doctor_command)
    text = "".join(Path(module.__file__ or "").read_text(encoding="utf-8") for module in modules)
    named = {*re.findall(r"section\(.([A-Z][\w ]+)", text), *re.findall(r'"(Pointsman[A-Z]\w+)"', text)}
    assert len(named) > 15
    assert named <= {*headings}
