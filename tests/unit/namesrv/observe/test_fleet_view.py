"""Answers of real RocketMQ name servers as the observer reads them, and answers that no name server should give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.rocketmq.bodies import BadBodyError, read_json
from pointsman_namesrv.core.model import Position, QueueConfig
from pointsman_namesrv.observe import fleet_view
from pointsman_namesrv.observe.fleet_view import Listed, read_cluster_info, read_route, read_topic_list
from pointsman_namesrv.observe.route_differences import ABSENT
from tests.kit.broker.rocketmq.frames import frames, response


def recorded(name: str) -> bytes:
    data = response(name)
    assert data is not None
    return frames(data)[0].body


@pytest.mark.parametrize("name", ["106_broker533_r0", "106_mqadmin497_r0", "106_brokerslave533_r0", "106_adhoc_r0"])
def test_the_bare_ids_of_a_real_answer_are_read(name: str) -> None:
    view = read_cluster_info(recorded(name))

    assert view.brokers
    assert view.skipped == ()
    for position, listed in view.brokers.items():
        assert position.cluster
        assert position.broker_id >= 0
        assert listed.addr.count(":") == 1


def test_digits_within_strings_are_not_quoted() -> None:
    assert read_json(b'{0:"{1:2}",-1:{"a,2:\\"":3}}') == {"0": "{1:2}", "-1": {'a,2:"': 3}}


def cluster_info(addrs: object, *, cluster: str = "c", name: str = "a", **more: object) -> bytes:
    data = {"brokerName": name, "cluster": cluster, "brokerAddrs": addrs, **more}
    return json.dumps({"brokerAddrTable": {name: data}, "clusterAddrTable": {cluster: [name]}}).encode()


def test_brokers_and_their_zone() -> None:
    view = read_cluster_info(cluster_info({"0": "10.0.0.1:1", "1": "10.0.0.2:1"}, zoneName="z1"))

    assert view.brokers == {
        Position("c", "a", 0): Listed("10.0.0.1:1", "z1"),
        Position("c", "a", 1): Listed("10.0.0.2:1", "z1"),
    }


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (cluster_info({"-1": "10.0.0.1:1"}), "id must be a number"),
        (cluster_info({"x": "10.0.0.1:1"}), "id must be a number"),
        (cluster_info({"0": "no address"}), "address 'no address' must be host:port"),
        (cluster_info({"0": 7}), "address 7 is not a string"),
        (cluster_info({"0": "10.0.0.1:1"}, cluster=""), "cluster must not be empty"),
        (cluster_info({"0": "10.0.0.1:1"}, name="a b"), "name may hold only"),
    ],
)
def test_entries_that_do_not_fit_a_row_are_skipped_and_named(body: bytes, problem: str) -> None:
    view = read_cluster_info(body)

    assert not view.brokers
    assert len(view.skipped) == 1
    assert problem in view.skipped[0]


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"\xff", b'{"brokerAddrTable":[]}', b'{"brokerAddrTable":{"a":1}}', b"[" * 100_000],
)
def test_an_answer_that_cannot_be_read_raises_bad_answer(body: bytes) -> None:
    with pytest.raises(BadBodyError):
        read_cluster_info(body)


def test_an_empty_fleet_is_an_answer() -> None:
    assert not read_cluster_info(b'{"brokerAddrTable":{},"clusterAddrTable":{}}').brokers
    assert not read_cluster_info(b"{}").brokers


def test_more_brokers_than_the_bound_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_view, "MAX_BROKERS", 2)
    with pytest.raises(BadBodyError, match="more than 2 brokers"):
        read_cluster_info(cluster_info({str(number): "10.0.0.1:1" for number in range(3)}))


@pytest.mark.parametrize("name", ["105_consumer533_r0", "105_consumer497_r0", "105_mqadmin533_r0"])
def test_a_real_route_is_read(name: str) -> None:
    assert read_route(recorded(name)).queues


def test_unreadable_parts_of_a_route_are_skipped() -> None:
    queues = {"brokerName": "a", "readQueueNums": 4, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0}
    route = {
        "brokerDatas": [{"brokerName": "a", "cluster": "c"}],
        "queueDatas": [queues, {**queues, "perm": "6"}, {**queues, "brokerName": "unknown"}, 7],
    }
    assert read_route(json.dumps(route).encode()).queues == [("c", "a", QueueConfig(4, 8, 6, 0))]
    with pytest.raises(BadBodyError):
        read_route(b"{}")


def a_route(**changes: Any) -> dict[str, Any]:
    """Two brokers, one with a slave."""
    return {
        "brokerDatas": [
            {"brokerName": "a", "cluster": "c", "brokerAddrs": {"0": "10.0.0.1:1", "1": "10.0.0.2:1"}},
            {"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": "10.0.0.3:1"}},
        ],
        "queueDatas": [
            {"brokerName": name, "readQueueNums": 4, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0}
            for name in ("a", "b")
        ],
        **changes,
    }


def digest(route: dict[str, Any]) -> int:
    return read_route(json.dumps(route).encode()).digest


def test_routes_are_equal_when_they_mean_the_same_whatever_the_order_and_the_rest() -> None:
    shuffled = {name: list(reversed(entries)) for name, entries in a_route().items()}
    shuffled["brokerDatas"][1]["brokerAddrs"] = {"1": "10.0.0.2:1", "0": "10.0.0.1:1"}
    assert digest(shuffled) == digest(a_route(filterServerTable={"x": ["y"]}, orderTopicConf="a:4"))


@pytest.mark.parametrize(
    ("table", "field", "value"),
    [
        ("brokerDatas", "brokerName", "z"),
        ("brokerDatas", "cluster", "z"),
        ("brokerDatas", "brokerAddrs", {"0": "10.0.0.9:1", "1": "10.0.0.2:1"}),
        ("brokerDatas", "brokerAddrs", {"0": "10.0.0.1:1"}),
        ("queueDatas", "readQueueNums", 5),
        ("queueDatas", "writeQueueNums", 5),
        ("queueDatas", "perm", 4),
        ("queueDatas", "topicSysFlag", 1),
    ],
)
def test_what_a_client_would_notice_makes_another_route(table: str, field: str, value: object) -> None:
    route = a_route()
    route[table][0][field] = value
    assert digest(route) != digest(a_route())


def test_a_route_of_any_size_is_not_parsed() -> None:
    with pytest.raises(BadBodyError, match="at most 100000 are read"):
        read_route(b'{"brokerDatas":[' + b"{}," * 60_000 + b"{}]}")


def test_a_route_without_a_broker_is_none() -> None:
    assert digest(a_route(brokerDatas=[], queueDatas=[])) == ABSENT


def test_a_topic_list() -> None:
    assert read_topic_list(b'{"topicList":["T","%RETRY%g+T","a b",7]}') == ["T", "%RETRY%g+T"]
    with pytest.raises(BadBodyError):
        read_topic_list(b"{}")
