"""Messages as JSON: protobuf's own mapping, and each exception from it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.json_document import enum_name, read_route_document, to_document, to_route_document
from pointsman_client.errors import AbsentBroker
from pointsman_client.pointsman_grpc.codec import from_topic_route, to_topic_route
from tests.kit.name_server.scripted_routes import broker_data, topic_route

NEWER = admin.GetNodeInfoResponse.FromString(bytes([0x18, 99]))
"""A node's state that these stubs do not know."""


def test_values_awkward_for_scripts_are_not_written_as_protobuf_does() -> None:
    info = admin.GetNodeInfoResponse(
        state=broker_pb2.NODE_STATE_READY, boot=7, uptime=Duration(seconds=1, nanos=500_000_000), sizes={"b": 1, "a": 2}
    )
    document = to_document(info)

    assert (document["state"], document["boot"], document["uptimeSeconds"]) == ("READY", "0000000000000007", 1.5)
    assert json.dumps(document["sizes"]) == '{"a": 2, "b": 1}'


def test_numbers_that_do_not_fit_a_double_are_strings() -> None:
    status = broker_pb2.BrokerStatus(generation=2**64 - 1, data_version=broker_pb2.DataVersion(counter=2**63))
    document = to_document(status)
    assert (document["generation"], document["dataVersion"]["counter"]) == (str(2**64 - 1), str(2**63))


def test_a_field_that_is_not_set_is_null_or_its_default_and_never_absent() -> None:
    document = to_document(broker_pb2.BrokerStatus(health=broker_pb2.BrokerHealth()))
    unset = {key for key, value in document.items() if value is None}

    assert {"silenceSeconds", "stateForSeconds", "registeredAt", "brokerName"} <= unset
    assert document["health"] == {"status": "UNSPECIFIED", "detail": "", "evidence": "UNSPECIFIED", "everPassed": None}
    assert (document["penalty"], document["labels"], document["topicCount"]) == (0.0, {}, 0)


def test_the_identity_is_a_field_like_others_and_a_struct_has_integers() -> None:
    detail = Struct()
    detail.update({"topics": 4, "share": 0.5, "inner": {"ids": [1, 2]}})
    identity = broker_pb2.BrokerIdentity(cluster="c1", broker_name="a", broker_id=1, addr="a:1")
    event = admin.BrokerEvent(identity=identity, seq=5, detail=detail, event_at=Timestamp(seconds=1))
    document = to_document(event)

    place = [document[key] for key in ("cluster", "brokerName", "brokerId", "brokerAddr")]
    assert (place, "identity" in document, document["seq"]) == (["c1", "a", 1, "a:1"], False, 5)
    assert json.dumps(document["detail"], sort_keys=True) == '{"inner": {"ids": [1, 2]}, "share": 0.5, "topics": 4}'
    assert document["eventAt"] == "1970-01-01T00:00:01Z"


def test_values_of_a_newer_server_are_numbers_as_text() -> None:
    assert (enum_name(NEWER, "state"), to_document(NEWER)["state"]) == ("99", "99")
    assert enum_name(admin.GetNodeInfoResponse(state=broker_pb2.NODE_STATE_WARMING), "state") == "WARMING"


def test_a_route_is_read_as_it_was_written() -> None:
    groups = [broker_data("broker-a", {0: "10.0.0.1:1", 1: "10.0.0.2:1"}, acting_master=True, zone="z1")]
    route = topic_route(groups=groups, order_topic_conf="broker-a:4")
    route.broker_datas[0].replicas[1].filter_servers.append("f:1")

    document = json.loads(json.dumps(to_route_document(route)))
    assert document["filterServerTable"] == {"10.0.0.2:1": ["f:1"]}
    assert read_route_document(document) == route


def test_a_client_writes_a_route_as_it_was_received() -> None:
    route = topic_route(groups=[broker_data(zone="z1")])
    identity = broker_pb2.BrokerIdentity(cluster="c1", broker_name="b", broker_id=1, addr="b:1")
    for since in (None, Timestamp(seconds=100)):
        route.absent_brokers.append(
            route_service_pb2.AbsentBroker(identity=identity, is_registered=True, reason="PROBE", since=since)
        )

    known = to_topic_route(route)
    assert known.absent_brokers[1] == AbsentBroker(
        "c1", "b", 1, "b:1", True, "PROBE", datetime(1970, 1, 1, 0, 1, 40, tzinfo=UTC)
    )
    assert from_topic_route(known) == route


@pytest.mark.parametrize("state", ["GREEN", 7])
def test_a_route_with_an_unknown_state_is_refused(state: object) -> None:
    document = to_route_document(topic_route())
    document["brokerDatas"][0]["replicas"][0]["state"] = state
    with pytest.raises(ValueError, match=str(state)):
        read_route_document(document)
