"""What the commands print: RocketMQ's keys in JSON, and tables that fit and hide nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from rich.console import RenderableType

from pointsman.v1 import admin_service_pb2, broker_pb2, route_service_pb2
from pointsman.wire.json_document import to_route_document
from pointsman_client import NameServerFailedError
from pointsman_ctl.commands.broker_commands import (
    FLAPPING_ABOVE,
    brokers_parts,
    is_flapping,
    to_brokers_document,
    watchers_parts,
)
from pointsman_ctl.commands.node_commands import health_parts, info_parts
from pointsman_ctl.commands.route_commands import clusters_parts, route_parts, to_clusters_document
from pointsman_ctl.output import output_layout
from pointsman_ctl.output.node_difference import difference_parts, digest_difference
from pointsman_ctl.servers.name_servers import NodeBrokers, NodeDigests
from pointsman_ctl.servers.server_calls import NodeResponse
from pointsman_namesrv.core.flap_penalties import FlapRules
from tests.kit.name_server.scripted_routes import broker_data, topic_route

W1 = topic_route(
    "TopicTest",
    [
        broker_data("broker-a", {0: "192.168.1.10:10911", 1: "192.168.1.11:10911"}),
        broker_data("broker-b", {0: "192.168.1.20:10911", 1: "192.168.1.21:10911"}),
    ],
)
FAILED = NameServerFailedError("10.0.0.2:9876", grpc.StatusCode.UNAVAILABLE, "Connection refused")
READY = admin_service_pb2.GetNodeInfoResponse(state=broker_pb2.NODE_STATE_READY)


def status(
    broker_id: int = 0, state: broker_pb2.BrokerState.ValueType = broker_pb2.BROKER_STATE_UP, name: str = "broker-a"
) -> broker_pb2.BrokerStatus:
    return broker_pb2.BrokerStatus(
        identity=broker_pb2.BrokerIdentity(
            cluster="DefaultCluster", broker_name=name, broker_id=broker_id, addr=f"192.168.100.{broker_id}:10911"
        ),
        state=state,
        generation=2**64 - 1,
        silence=Duration(seconds=31, nanos=200_000_000),
        topic_count=100_000,
        health=broker_pb2.BrokerHealth(detail="connect: refused"),
    )


def printed_of(nodes: list[NodeResponse[NodeBrokers]]) -> Any:
    return json.loads(json.dumps(output_layout.node_documents(nodes, to_brokers_document)))


def shown(capsys: pytest.CaptureFixture[str], parts: Iterable[RenderableType]) -> list[str]:
    output_layout.show(parts)
    return capsys.readouterr().out.splitlines()


@pytest.fixture(params=["80", ""], ids=["80-columns", "piped"])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    width: str = request.param
    if width:
        monkeypatch.setenv("COLUMNS", width)
    return width


def test_weights_have_a_column_where_there_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    route = topic_route(groups=[broker_data("a"), broker_data("b")])
    assert "WEIGHT" not in shown(capsys, route_parts(route))[0]

    route.queue_datas[0].queue_weight = 3
    lines = [line.split() for line in shown(capsys, route_parts(route))[:3]]

    assert [line[-2:] for line in lines] == [["PERM", "WEIGHT"], ["rw", "3"], ["rw", "1"]]


def test_w1_the_route_has_rocketmqs_keys_and_text_as_broker_ids() -> None:
    printed = json.loads(json.dumps(to_route_document(W1)))

    queue = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0, "cluster": "DefaultCluster"}
    queue |= {"queueWeight": 1}
    assert printed["queueDatas"] == [{"brokerName": "broker-a", **queue}, {"brokerName": "broker-b", **queue}]
    assert [(data["cluster"], data["brokerName"], data["brokerAddrs"]) for data in printed["brokerDatas"]] == [
        ("DefaultCluster", "broker-a", {"0": "192.168.1.10:10911", "1": "192.168.1.11:10911"}),
        ("DefaultCluster", "broker-b", {"0": "192.168.1.20:10911", "1": "192.168.1.21:10911"}),
    ]
    assert {"zoneName", "enableActingMaster", "replicas"} <= set(printed["brokerDatas"][0])
    assert printed["brokerDatas"][0]["replicas"][1]["state"] == "UP"
    assert printed["revision"] == {"boot": "0000000000000007", "counter": 1, "digest": W1.revision.digest.hex()}


def test_a_route_as_a_table_fits_80_columns_and_has_one_row_a_broker(
    capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    lines = shown(capsys, route_parts(W1))

    assert lines == [
        "CLUSTER         BROKER    READ QUEUES  WRITE QUEUES  PERM",
        "DefaultCluster  broker-a            4             4  rw",
        "DefaultCluster  broker-b            4             4  rw",
        "",
        "CLUSTER         BROKER    ID  ADDR                STATE",
        "DefaultCluster  broker-a   0  192.168.1.10:10911  UP",
        "DefaultCluster  broker-a   1  192.168.1.11:10911  UP",
        "DefaultCluster  broker-b   0  192.168.1.20:10911  UP",
        "DefaultCluster  broker-b   1  192.168.1.21:10911  UP",
    ], columns


def test_a_static_topic_shows_its_logical_queues(capsys: pytest.CaptureFixture[str]) -> None:
    static = topic_route(groups=[broker_data("broker-a", {0: "10.0.0.1:1"}, cluster="c1")])
    for name, logical in (("broker-a", range(20)), ("broker-b", range(0))):
        static.static_topic_mappings.add(
            cluster="c1",
            broker_name=name,
            scope="__global__",
            total_queues=20,
            epoch=1_795_786_784_006,
            logical_queue_ids=logical,
            physical_queue_ids=logical,
        )
    lines = shown(capsys, route_parts(static))
    assert "static topic of 20 logical queues, which clients address instead of those above" in lines
    text = "\n".join(lines)
    assert "15>15 and 4 more" in text
    assert "16>16" not in text
    assert to_route_document(static)["staticTopicMappings"][0]["logicalQueueIds"] == list(range(20))


def test_an_order_configuration_and_zones_are_shown_where_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    ordered = topic_route(groups=[broker_data(zone="z1")], order_topic_conf="broker-a:4")
    printed = "\n".join(shown(capsys, route_parts(ordered)))

    assert "order topic: broker-a:4" in printed
    assert "ZONE" in printed
    assert "z1" in printed


@pytest.mark.parametrize(
    ("acting_master", "replicas", "words", "condition"),
    [
        (False, {1: "10.0.0.2:1"}, "NO MASTER", "NO_MASTER"),
        (True, {1: "10.0.0.2:1", 2: "10.0.0.3:1"}, "NO MASTER, 1 ACTING", "NO_MASTER"),
        (False, {}, "NO BROKER", "NO_BROKER"),
    ],
)
def test_a_group_without_a_master_is_marked(
    capsys: pytest.CaptureFixture[str], acting_master: bool, replicas: dict[int, str], words: str, condition: str
) -> None:
    group = broker_data("broker-a", replicas, acting_master=acting_master)
    clusters = [route_service_pb2.ClusterData(cluster="DefaultCluster", broker_datas=[group])]

    lines = shown(capsys, clusters_parts(clusters))
    assert lines[1].split(maxsplit=4) == ["DefaultCluster", "broker-a", "0", "-", words]
    printed = to_clusters_document(route_service_pb2.GetClusterInfoResponse(clusters=clusters))
    assert printed["clusters"][0]["brokerDatas"][0]["conditions"] == [condition]


def test_an_empty_fleet_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, clusters_parts([])) == ["no broker is registered"]


def test_each_node_shows_its_brokers_and_a_failed_node_its_error(
    capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    out, suspect = status(0, broker_pb2.BROKER_STATE_OUT), status(1, broker_pb2.BROKER_STATE_SUSPECT)
    out.reason, out.planned, out.health.status = "REFUSED", True, broker_pb2.PROBE_STATUS_FAILING
    out.health.evidence, out.health.ever_passed = broker_pb2.PROBE_EVIDENCE_STRONG, True
    suspect.reason = "SILENCE"
    brokers = [out, suspect, status(0, name="broker-b")]
    answer = NodeBrokers("ns-1", brokers, READY)
    nodes = [NodeResponse("10.0.0.1:9876", answer, None), NodeResponse("10.0.0.2:9876", None, FAILED)]

    assert shown(capsys, brokers_parts(nodes)) == [
        "node 10.0.0.1:9876 (ns-1)",
        "CLUSTER         BROKER    ID  ADDR                 STATE    REASON            LAST HEARTBEAT  TOPICS",
        "DefaultCluster  broker-a   0  192.168.100.0:10911  OUT      REFUSED, planned           31.2s  100000",
        "DefaultCluster  broker-a   1  192.168.100.1:10911  SUSPECT  SILENCE                    31.2s  100000",
        "DefaultCluster  broker-b   0  192.168.100.0:10911  UP       -                          31.2s  100000",
        "NO MASTER in DefaultCluster/broker-a: not writable",
        "PROBE FAILED of DefaultCluster/broker-a 0: connect: refused (strong evidence)",
        "3 brokers in 1 cluster: 1 UP, 1 SUSPECT, 1 OUT",
        "",
        "node 10.0.0.2:9876",
        "10.0.0.2:9876 is not responding (connection refused)",
    ], columns
    printed = printed_of(nodes)["nodes"]
    assert printed[0]["brokers"][0]["generation"] == "18446744073709551615"
    assert printed[0]["brokers"][0]["silenceSeconds"] == 31.2
    probes = [(broker["health"]["evidence"], broker["health"]["everPassed"]) for broker in printed[0]["brokers"]]
    assert probes == [("STRONG", True), ("UNSPECIFIED", None), ("UNSPECIFIED", None)]
    assert printed[0]["conditions"] == [
        {"cluster": "DefaultCluster", "brokerName": "broker-a", "condition": "NO_MASTER"}
    ]
    assert printed[1]["error"]["servers"] == [{"addr": "10.0.0.2:9876", "message": "connection refused"}]


def test_flapping_has_the_threshold_of_the_name_servers() -> None:
    assert FlapRules().suppress_above == FLAPPING_ABOVE
    assert not is_flapping(broker_pb2.BrokerStatus(penalty=FLAPPING_ABOVE))
    assert is_flapping(broker_pb2.BrokerStatus(penalty=FLAPPING_ABOVE + 1))


def score(name: str, ago: int, last_event: str = "EXPIRED") -> admin_service_pb2.FlapScore:
    return admin_service_pb2.FlapScore(
        cluster="DefaultCluster", broker_name=name, last_event=last_event, last_event_ago=Duration(seconds=ago)
    )


def test_the_last_five_unplanned_departures_are_named_and_all_counted(capsys: pytest.CaptureFixture[str]) -> None:
    gone = [score("probed", 30, "PROBE_FAILED"), *(score(f"lost-{number}", 590 + number) for number in range(6))]
    nodes = [NodeResponse("ns1:9876", NodeBrokers("ns-1", [status(0)], READY, gone), None)]

    line = next(line for line in shown(capsys, brokers_parts(nodes)) if line.startswith("DEPARTED"))
    assert line.startswith(
        "DEPARTED: DefaultCluster/probed 0 (PROBE_FAILED 30.0s ago), DefaultCluster/lost-0 0 (EXPIRED"
    )
    assert line.endswith("DefaultCluster/lost-3 0 (EXPIRED 9m 53s ago) and 2 more: see `pointsmanctl flapping`")
    printed = printed_of(nodes)["nodes"][0]["gone"]
    assert (printed[0]["brokerName"], printed[0]["lastEvent"]) == ("probed", "PROBE_FAILED")
    assert printed[0]["lastEventAgoSeconds"] == 30.0


def test_where_all_brokers_have_left_the_list_shows_the_departed_ones(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [NodeResponse("ns1:9876", NodeBrokers("ns-1", [], READY, [score("broker-a", 1)]), None)]
    assert shown(capsys, brokers_parts(nodes))[1:] == [
        "no broker is registered",
        "DEPARTED: DefaultCluster/broker-a 0 (EXPIRED 1.0s ago)",
    ]


def test_a_route_that_the_filter_empties_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = shown(capsys, route_parts(route_service_pb2.TopicRoute(topic="orders")))
    assert "no broker in this cluster and zone has the topic" in line


def test_rows_are_never_wrapped_on_a_narrow_terminal_while_text_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = status(0, broker_pb2.BROKER_STATE_PROVISIONAL, name="broker-of-the-second-hall-payments-eu-central-1")
    long.identity.addr = "broker-17.payments.eu-central-1.example.internal:10911"
    long.health.status, long.health.detail = broker_pb2.PROBE_STATUS_FAILING, "timeout " * 20
    lines = shown(capsys, brokers_parts([NodeResponse("ns1:9876", NodeBrokers("", [long], READY), None)]))

    assert lines[2].split()[:5] == [
        *("DefaultCluster", long.identity.broker_name, "0", long.identity.addr, "PROVISIONAL"),
    ]
    assert all(len(line) <= 80 for line in lines[3:])


def health(**facts: Any) -> Any:
    return [NodeResponse("ns1:9876", admin_service_pb2.GetNodeInfoResponse(**facts), None)]


def test_a_warming_server_shows_its_progress_where_it_knows_the_number_of_brokers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warming, ready = broker_pb2.NODE_STATE_WARMING, broker_pb2.NODE_STATE_READY
    for facts, line in (
        (
            {"state": warming, "provisional_brokers": 6, "sizes": {"brokers": 20}},
            "WARMING: 14 of 20 brokers have sent a heartbeat",
        ),
        ({"state": warming, "sizes": {"brokers": 20}}, "WARMING"),
        ({"state": warming, "provisional_brokers": 6}, "WARMING"),
        ({"state": ready, "provisional_brokers": 6, "sizes": {"brokers": 20}}, "READY"),
    ):
        assert shown(capsys, health_parts(health(**facts))) == [f"ns1:9876 {line}"]


def test_a_watcher_that_has_not_read_all_shows_how_far_behind_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    facts: dict[str, Any] = {"age": Duration(seconds=300), "topics": 2, "pending": 1, "lag": Duration(seconds=3)}
    watchers = [admin_service_pb2.Watcher(peer="10.9.9.9:5", **facts)]

    assert shown(capsys, watchers_parts(admin_service_pb2.ListWatchersResponse(watchers=watchers, total=2))) == [
        "CLIENT         AGE  TOPICS  PENDING   LAG",
        "10.9.9.9:5  5m 00s       2        1  3.0s",
        "2 watchers, the oldest 1 shown",
    ]


def test_a_node_shows_its_problems(capsys: pytest.CaptureFixture[str]) -> None:
    info = admin_service_pb2.GetNodeInfoResponse(complaints=["history is not written"], provisional_brokers=2)
    lines = shown(capsys, info_parts(info, with_configuration=False))
    assert "PROBLEM: history is not written" in lines
    assert ["provisional", "brokers", "2"] in [line.split() for line in lines]


@pytest.mark.parametrize(("topics", "words"), [(1, "1 topic at a:1, 1 at b:1: equal"), (2, "2 topics at")])
def test_one_topic_is_one_topic(capsys: pytest.CaptureFixture[str], topics: int, words: str) -> None:
    side = NodeDigests("", "READY", {f"topic-{number}": b"" for number in range(topics)})
    parts = difference_parts(("a:1", "b:1"), (side, side), digest_difference(side, side), ())
    assert words in shown(capsys, parts)[-1]


def test_actions_of_operators_and_the_guard_are_listed_below_the_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    kept, wiped, away = status(0, broker_pb2.BROKER_STATE_PROTECTED), status(1), status(0, name="broker-b")
    kept.reason, kept.penalty = "SILENCE", 3500.4
    wiped.write_wiped, wiped.penalty = True, 3900.0
    # Two outages of late are a penalty, and no flapping.
    away.in_maintenance, away.penalty = True, 2000.0
    info = admin_service_pb2.GetNodeInfoResponse(
        state=broker_pb2.NODE_STATE_WARMING,
        guards=[
            admin_service_pb2.GuardStatus(
                cluster="DefaultCluster", mode=admin_service_pb2.GUARD_MODE_AUTO, active=True, reason="3 of 4 lost"
            ),
            admin_service_pb2.GuardStatus(cluster="calm", mode=admin_service_pb2.GUARD_MODE_AUTO),
        ],
    )
    nodes = [NodeResponse("ns1:9876", NodeBrokers("ns-1", [kept, wiped, away], info), None)]

    lines = shown(capsys, brokers_parts(nodes))
    assert lines[0] == "node ns1:9876 (ns-1) WARMING"
    assert lines[5:] == [
        "WRITE WIPED: DefaultCluster/broker-a",
        "IN MAINTENANCE: DefaultCluster/broker-b 0",
        "FLAP PENALTY: DefaultCluster/broker-a 1 (3900), DefaultCluster/broker-a 0 (3500)",
        "GUARD of DefaultCluster is AUTO, active for 0ms: 3 of 4 lost",
        "3 brokers in 1 cluster: 2 UP, 1 PROTECTED",
    ]
    printed = printed_of(nodes)["nodes"][0]
    assert printed["nodeState"] == "WARMING"
    assert [guard["active"] for guard in printed["guards"]] == [True, False]
    marks = [
        (broker["reason"], broker["writeWiped"], broker["inMaintenance"], broker["penalty"])
        for broker in printed["brokers"]
    ]
    assert marks == [("SILENCE", False, False, 3500.4), ("", True, False, 3900.0), ("", False, True, 2000.0)]


def test_a_row_of_long_names_stays_one_line_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    name = "b" * 127
    lines = shown(capsys, route_parts(topic_route(groups=[broker_data(name)])))

    assert f"DefaultCluster  {name}            4             4  rw" in lines
