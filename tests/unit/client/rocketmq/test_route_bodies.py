"""Bodies of RocketMQ name servers, recorded and made, as the client's values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.rocketmq.bodies import BadBodyError
from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState, ClusterData, QueueData, TopicRoute
from pointsman_client.rocketmq.route_bodies import (
    MAX_GROUPS,
    StaticTopicError,
    read_clusters,
    read_route,
    read_topics,
)
from tests.kit.broker.rocketmq.frames import frames, response

TOPIC = "TopicTest"


def recorded(name: str) -> bytes:
    data = response(name)
    assert data is not None
    return frames(data)[0].body


def group(name: str, *addrs: str, cluster: str = "DefaultCluster", zone: str = "", acting: bool = False) -> BrokerData:
    replicas = tuple(BrokerReplica(number, addr, "", "", BrokerState.UP) for number, addr in enumerate(addrs))
    return BrokerData(cluster, name, replicas, zone, acting)


def broker(name: str = "a", cluster: object = "c", addrs: object = None, **fields: object) -> dict[str, object]:
    return {"brokerName": name, "cluster": cluster, "brokerAddrs": addrs or {"0": "10.0.0.1:10911"}, **fields}


def queues(name: str = "a", **fields: object) -> dict[str, object]:
    return {"brokerName": name, "perm": 6, "readQueueNums": 8, "writeQueueNums": 8, "topicSysFlag": 0, **fields}


def body(brokers: object = None, queue_datas: object = None, **fields: object) -> bytes:
    content = {
        "brokerDatas": [broker()] if brokers is None else brokers,
        "queueDatas": [queues()] if queue_datas is None else queue_datas,
        **fields,
    }
    return json.dumps(content).encode()


def read(content: bytes, **how: Any) -> TopicRoute:
    route = read_route(TOPIC, content, counter=1, **how)
    assert route is not None
    return route


def test_a_recorded_route_is_sorted_by_broker() -> None:
    route = read(recorded("105_producer497_r0"))

    assert route.queue_datas == (
        QueueData("DefaultCluster", "broker-a", 8, 8, 7, 0),
        QueueData("DefaultCluster", "broker-old", 8, 8, 7, 0),
    )
    assert route.broker_datas == (group("broker-a", "127.0.0.1:20911"), group("broker-old", "127.0.0.1:21911"))
    assert (route.topic, route.revision.boot, route.revision.counter) == (TOPIC, 0, 1)


def test_recorded_clusters_with_bare_ids_are_read() -> None:
    assert read_clusters(recorded("106_brokerslave533_r0")) == (
        ClusterData(
            "DefaultCluster",
            (
                group("broker-a", "127.0.0.1:20911"),
                group("broker-b", "127.0.0.1:22911"),
                group("broker-c", "127.0.0.1:23911"),
                group("broker-m", "127.0.0.1:25911", "127.0.0.1:26911", acting=True),
                group("broker-old", "127.0.0.1:21911"),
            ),
        ),
    )


def test_recorded_topics_are_sorted() -> None:
    topics = read_topics(recorded("206_mqadmin533_r0"))

    assert len(topics) == 15
    assert topics[0] == "%RETRY%group_c"


def test_the_digest_depends_on_the_content_only() -> None:
    brokers, listed = [broker("a"), broker("b")], [queues("a"), queues("b")]
    route, reordered = read(body(brokers, listed)), read(body(brokers[::-1], listed[::-1]))
    later = read_route(TOPIC, body(brokers, listed), counter=2)

    assert len(route.revision.digest) == 32
    assert route.is_same_as(reordered)
    assert later is not None
    assert route.is_same_as(later)
    for changed in (
        body(brokers, [queues("a"), queues("b", perm=4)]),
        body([broker("a"), broker("b", zoneName="z")], listed),
        body([broker("a"), broker("b", enableActingMaster=True)], listed),
        body([broker("a"), broker("b", addrs={"1": "10.0.0.1:10911"})], listed),
        body(brokers, listed, orderTopicConf="a:4"),
    ):
        assert not route.is_same_as(read(changed))


def test_all_fields_of_a_5_x_broker_are_read() -> None:
    route = read(
        body(
            [broker(zoneName="z1", enableActingMaster=True)],
            filterServerTable={"10.0.0.1:10911": ["10.0.0.1:30000", 7]},
            orderTopicConf="a:4",
        )
    )

    assert route.order_topic_conf == "a:4"
    assert route.broker_datas == (
        BrokerData(
            "c",
            "a",
            (BrokerReplica(0, "10.0.0.1:10911", "", "", BrokerState.UP, ("10.0.0.1:30000",)),),
            zone="z1",
            acting_master=True,
        ),
    )


def test_null_is_as_if_absent() -> None:
    nulls = dict.fromkeys(("filterServerTable", "orderTopicConf", "topicQueueMappingByBroker"))
    route = read(body([broker(zoneName=None)], **nulls))

    assert route.is_same_as(read(body()))
    assert read(body([], [])).broker_datas == ()
    assert read(b'{"brokerDatas":null,"queueDatas":null}').queue_datas == ()


def test_a_broker_that_is_listed_twice_has_its_queues_once() -> None:
    route = read(body(queue_datas=[queues(), queues(), queues()]))

    assert [data.broker_name for data in route.queue_datas] == ["a"]


def test_queues_of_brokers_that_are_not_listed_are_dropped() -> None:
    assert [data.broker_name for data in read(body(queue_datas=[queues("a"), queues("b")])).queue_datas] == ["a"]


@pytest.mark.parametrize(
    "addrs", [{"-1": "10.0.0.2:10911"}, {"4294967296": "10.0.0.2:1"}, {"x": "10.0.0.2:1"}, {"1": "no port"}, {"1": 5}]
)
def test_a_replica_that_registered_nonsense_does_not_hide_the_others(addrs: dict[str, object]) -> None:
    route = read(body([broker(addrs={"0": "10.0.0.1:10911", **addrs})]))

    assert [replica.broker_id for replica in route.broker_datas[0].replicas] == [0]


def test_a_part_of_the_route_is_selected_by_cluster_and_zone() -> None:
    content = body(
        [
            broker("near", zoneName="Z1"),
            broker("far", zoneName="z2"),
            broker("far-without-master", addrs={"1": "10.0.0.9:10911"}, zoneName="z2"),
            broker("other", "c2"),
        ],
        [queues(name) for name in ("near", "far", "far-without-master", "other")],
    )

    near = read(content, zone="z1")
    assert [data.broker_name for data in near.broker_datas] == ["far-without-master", "near"]
    assert [data.broker_name for data in near.queue_datas] == ["far-without-master", "near"]
    assert [data.broker_name for data in read(content, cluster="c2").queue_datas] == ["other"]
    assert read(content, cluster="c2", zone="z1").queue_datas == ()
    assert read_route(TOPIC, content, counter=1, cluster="c3", zone="z1") is None


def test_a_static_topic_is_recognised() -> None:
    with pytest.raises(StaticTopicError):
        read(body(topicQueueMappingByBroker={"a": {"bname": "a", "totalQueues": 1}}))
    assert read(body(topicQueueMappingByBroker={})).queue_datas


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the body b'' is not JSON"),
        (b"\xff\x00", r"the body b'\xff\x00' is not JSON"),
        (b"[" * 100_000, "is not JSON: nested too deeply"),
        (b"[]", "the body = [], must be an object"),
        (body(brokers={}), "brokerDatas = {}, must be a list"),
        (body(brokers=[7]), "brokerDatas[0] = 7, must be an object"),
        (body(queue_datas="x" * 200), f"queueDatas = '{'x' * 99}..., must be a list"),
        (body(brokers=[broker()] * (MAX_GROUPS + 1)), "brokerDatas has 20001 entries, at most 20000 are read"),
        (body([broker(), broker("b", cluster=3)]), "brokerDatas[1].cluster = 3, must be a string"),
        (body([broker("a b")]), "brokerDatas[0].brokerName = 'a b', may hold only"),
        (body([broker(addrs=["10.0.0.1:1"])]), "brokerDatas[0].brokerAddrs = ['10.0.0.1:1'], must be an object"),
        (body([broker(zoneName="a\nb")]), r"brokerDatas[0].zoneName = 'a\nb', must not hold control characters"),
        (body([broker(enableActingMaster="yes")]), "enableActingMaster = 'yes', must be true or false"),
        (body(queue_datas=[queues(perm=16)]), "queueDatas[0].perm = 16, must be a whole number from 0 to 15"),
        (body(queue_datas=[queues(readQueueNums=65_536)]), "readQueueNums = 65536, must be a whole number"),
        (body(queue_datas=[queues(writeQueueNums=-1)]), "writeQueueNums = -1, must be"),
        (body(queue_datas=[queues(writeQueueNums=True)]), "writeQueueNums = True, must be"),
        (body(queue_datas=[queues(writeQueueNums=None)]), "writeQueueNums = None, must be"),
        (body(queue_datas=[queues(topicSysFlag=4)]), "topicSysFlag = 4, must be"),
        (body([*map(broker, "ab")], [queues(name, readQueueNums=65_535) for name in "ab"]), "131086 read and write"),
        (body(orderTopicConf=["a:4"]), "route.orderTopicConf = ['a:4'], must be a string"),
        (body(filterServerTable=[1]), "filterServerTable = [1], must be an object"),
    ],
)
def test_a_bad_route_is_rejected_with_the_field_and_its_value(content: bytes, problem: str) -> None:
    with pytest.raises(BadBodyError) as caught:
        read(content)

    assert problem in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{}", "topicList = None, must be a list"),
        (b'{"topicList":["a",7]}', "topicList has 7, which must be a string"),
        (b'{"topicList":["a b"]}', "topicList has 'a b', which may hold only"),
    ],
)
def test_a_bad_list_of_topics_is_rejected(content: bytes, problem: str) -> None:
    with pytest.raises(BadBodyError) as caught:
        read_topics(content)

    assert problem in str(caught.value)


def test_bad_clusters_are_rejected() -> None:
    table = {"a": broker(), "x" * 200: broker("b", cluster="")}
    with pytest.raises(BadBodyError) as caught:
        read_clusters(json.dumps({"brokerAddrTable": table}).encode())

    assert str(caught.value) == f"brokerAddrTable['{'x' * 99}...].cluster = '', must not be empty"
    assert read_clusters(b"{}") == ()
