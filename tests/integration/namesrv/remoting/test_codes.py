"""Every code of RocketMQ's wire, sent to a real server on a real port."""

from __future__ import annotations

import json

import pytest

from pointsman.rocketmq.codes import RequestCode
from pointsman.rocketmq.frames import BINARY_FORM
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig, RoutesConfig
from pointsman_namesrv.core.model import GroupKey
from tests.kit.broker.rocketmq.frames import ask, broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.name_server import wire
from tests.kit.name_server.peer import peer_of

A = GroupKey("DefaultCluster", "broker-a")
SLAVE = broker_ext(broker_id=1, addr="10.0.0.2:10911", haServerAddr="10.0.0.2:10912")


async def registered(rocketmq: RemotingPeer, ext: dict[str, str] | None = None, body: bytes | None = None) -> None:
    rocketmq.send(register(ext, body, opaque=77))
    answer = await rocketmq.answer()
    assert (answer.code, answer.command.opaque) == (0, 77)


async def perm_of(rocketmq: RemotingPeer, topic: str = "TopicTest") -> int:
    return int((await rocketmq.ask(105, {"topic": topic})).json()["queueDatas"][0]["perm"])


async def test_a_route_has_upstreams_shape(rocketmq: RemotingPeer) -> None:
    await registered(rocketmq)
    answer = await rocketmq.ask(105, {"topic": "TopicTest", "acceptStandardJsonOnly": "true"})
    assert answer.code == 0
    assert answer.command.remark is None
    assert answer.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )


async def test_a_weight_changes_nothing_for_rocketmqs_clients(server: NameServerApp, rocketmq: RemotingPeer) -> None:
    answers = []
    async with peer_of(server.addr) as agent:
        for version, weight in enumerate((0, 1, 7), 1):
            await agent.register(wire.topic("orders", weight=weight), version=(0, 0, version))
            answers.append((await rocketmq.ask(105, {"topic": "orders"})).body)

    assert len(set(answers)) == 1
    assert (
        b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]'
        in (answers[0])
    )


@pytest.mark.parametrize("form", [0, BINARY_FORM])
async def test_both_forms_get_a_response_in_json(rocketmq: RemotingPeer, form: int) -> None:
    await registered(rocketmq)
    for _ in range(3):
        assert (await rocketmq.ask(105, {"topic": "TopicTest"}, form=form)).code == 0
        unknown = await rocketmq.ask(105, {"topic": "unknown"}, form=form)
        assert unknown.code == 17
        assert unknown.command.remark == (
            "No topic route info in name server for the topic: unknown\n"
            "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
        )


@pytest.mark.parametrize("routes_config", [RoutesConfig(), RoutesConfig(cache_bytes=0)], ids=["kept", "not-kept"])
@pytest.mark.usefixtures("routes_config")
async def test_the_response_for_a_changed_route_is_the_current_one(rocketmq: RemotingPeer) -> None:
    await registered(rocketmq)
    # From the third time on a cached response is found by the bytes of the header.
    assert [await perm_of(rocketmq) for _ in range(4)] == [6] * 4
    changed = {"TopicTest": topic_config("TopicTest", perm=4)}
    await registered(rocketmq, body=register_body(changed, counter=2))
    assert [await perm_of(rocketmq) for _ in range(4)] == [4] * 4
    await registered(rocketmq, SLAVE)
    data = (await rocketmq.ask(105, {"topic": "TopicTest"})).json()["brokerDatas"][0]
    assert data["brokerAddrs"] == {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}


async def test_a_slave_learns_its_master(rocketmq: RemotingPeer) -> None:
    await registered(rocketmq)
    rocketmq.send(register(SLAVE))
    answer = await rocketmq.answer()
    assert answer.command.ext == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}
    assert answer.body == b""


async def test_a_slave_alone_keeps_its_topics(rocketmq: RemotingPeer) -> None:
    await registered(rocketmq)
    await registered(rocketmq, SLAVE)
    assert (await rocketmq.ask(104, broker_ext())).code == 0
    route = (await rocketmq.ask(105, {"topic": "TopicTest"})).json()
    assert route["brokerDatas"][0]["brokerAddrs"] == {"1": "10.0.0.2:10911"}
    assert route["queueDatas"][0]["perm"] == 4


class TestActingMaster:
    @pytest.fixture
    def remoting_config(self) -> RemotingConfig:
        return RemotingConfig(listen="127.0.0.1:0", support_acting_master=True, order_message_enable=True)

    async def test_the_lowest_id_is_shown_as_the_masters(self, rocketmq: RemotingPeer) -> None:
        member = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
        body = register_body({"TopicTest": topic_config("TopicTest"), member: topic_config(member, perm=1)})
        for broker_id in (0, 1, 2):
            ext = broker_ext(broker_id=broker_id, addr=f"10.0.0.{broker_id}:1", enableActingMaster="true")
            await registered(rocketmq, ext, body)
        await rocketmq.ask(104, broker_ext(addr="10.0.0.0:1"))

        async def addrs(topic: str) -> object:
            return (await rocketmq.ask(105, {"topic": topic})).json()["brokerDatas"][0]["brokerAddrs"]

        assert await addrs("TopicTest") == {"0": "10.0.0.1:1", "2": "10.0.0.2:1"}
        assert await addrs(member) == {"1": "10.0.0.1:1", "2": "10.0.0.2:1"}
        assert (await rocketmq.ask(106)).json()["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {
            "1": "10.0.0.1:1",
            "2": "10.0.0.2:1",
        }

    async def test_not_where_its_group_does_not_want_that(self, rocketmq: RemotingPeer) -> None:
        await registered(rocketmq, SLAVE)
        route = (await rocketmq.ask(105, {"topic": "TopicTest"})).json()
        assert route["brokerDatas"][0]["brokerAddrs"] == {"1": "10.0.0.2:10911"}

    async def test_clients_are_given_the_order_configuration(self, rocketmq: RemotingPeer) -> None:
        await registered(rocketmq)
        conf = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicTest", "value": "broker-a:4"}
        await rocketmq.ask(100, conf)
        assert (await rocketmq.ask(105, {"topic": "TopicTest"})).json()["orderTopicConf"] == "broker-a:4"


async def test_order_topics_go_to_brokers_and_not_to_clients(rocketmq: RemotingPeer) -> None:
    await registered(rocketmq)
    await rocketmq.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T2", "value": "broker-a:8"})
    rocketmq.send(register())
    answer = await rocketmq.answer()
    assert answer.json() == {"table": {"T2": "broker-a:8"}}
    await rocketmq.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicTest", "value": "broker-a:8"})
    assert "orderTopicConf" not in (await rocketmq.ask(105, {"topic": "TopicTest"})).json()


async def test_zones(rocketmq: RemotingPeer) -> None:
    await registered(rocketmq, {"__ZONE_NAME": "z1"})
    await registered(rocketmq, broker_ext("broker-b", addr="10.0.0.3:1", __ZONE_NAME="z2"))

    async def brokers(**ext: str) -> list[str]:
        route = (await rocketmq.ask(105, {"topic": "TopicTest", **ext})).json()
        return [data["brokerName"] for data in route["brokerDatas"]]

    assert await brokers(__ZONE_NAME="z1", __ZONE_MODE="true") == ["broker-a"]
    assert await brokers(__ZONE_NAME="z1", __ZONE_MODE="false") == ["broker-a", "broker-b"]
    assert await brokers(__ZONE_NAME="z3", __ZONE_MODE="TRUE") == []
    info = (await rocketmq.ask(106)).json()
    assert info["brokerAddrTable"]["broker-b"]["zoneName"] == "z2"


async def test_cluster_info_and_lists(rocketmq: RemotingPeer) -> None:
    body = register_body(
        {
            "unit": topic_config("unit", topicSysFlag=1),
            "sub": topic_config("sub", topicSysFlag=2),
            "both": topic_config("both", topicSysFlag=3),
            "none": topic_config("none"),
        }
    )
    assert (await rocketmq.ask(304)).json() == {"topicList": []}
    await registered(rocketmq, body=body)
    assert (await rocketmq.ask(106)).json() == {
        "brokerAddrTable": {
            "broker-a": {
                "brokerAddrs": {"0": "10.0.0.1:10911"},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
                "enableActingMaster": False,
            }
        },
        "clusterAddrTable": {"DefaultCluster": ["broker-a"]},
    }
    every = {"topicList": ["both", "none", "sub", "unit"]}
    assert (await rocketmq.ask(206)).json() == every
    assert (await rocketmq.ask(224, {"cluster": "DefaultCluster"})).json() == every
    assert (await rocketmq.ask(224, {"cluster": "other"})).json() == {"topicList": []}
    assert (await rocketmq.ask(224, {"cluster": ""})).json() == {"topicList": []}
    assert (await rocketmq.ask(304)).json() == {
        "brokerAddr": "10.0.0.1:10911",
        "topicList": ["DefaultCluster", "broker-a"],
    }
    assert (await rocketmq.ask(311)).json() == {"topicList": ["both", "unit"]}
    assert (await rocketmq.ask(312)).json() == {"topicList": ["both", "sub"]}
    assert (await rocketmq.ask(313)).json() == {"topicList": ["sub"]}


async def test_a_list_that_exceeds_a_frame_is_refused(rocketmq: RemotingPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    await registered(rocketmq)
    monkeypatch.setattr("pointsman_namesrv.remoting.table_responses.MAX_FRAME_BYTES", 100)
    for code, ext in ((206, {}), (224, {"cluster": "DefaultCluster"})):
        refused = await rocketmq.ask(code, ext)
        assert refused.code == 1
        assert "a RocketMQ frame at most 100" in (refused.command.remark or "")


async def test_members_of_a_group(rocketmq: RemotingPeer) -> None:
    who = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
    empty = await rocketmq.ask(901, who)
    assert empty.command.remark == "not set any response code"
    assert empty.json() == {
        "brokerMemberGroup": {"brokerAddrs": {}, "brokerName": "broker-a", "cluster": "DefaultCluster"}
    }
    await registered(rocketmq, SLAVE)
    assert (await rocketmq.ask(901, who)).json()["brokerMemberGroup"]["brokerAddrs"] == {"1": "10.0.0.2:10911"}


async def test_write_permissions(rocketmq: RemotingPeer) -> None:
    await registered(rocketmq)
    wiped = await rocketmq.ask(205, {"brokerName": "broker-a"})
    assert wiped.command.ext == {"wipeTopicCount": "2"}
    assert await perm_of(rocketmq) == 4
    given = await rocketmq.ask(327, {"brokerName": "broker-a"})
    assert given.command.ext == {"addTopicCount": "2"}
    assert await perm_of(rocketmq) == 6
    assert (await rocketmq.ask(205, {"brokerName": "unknown"})).command.ext == {"wipeTopicCount": "0"}


async def test_deleting_a_topic(rocketmq: RemotingPeer) -> None:
    await registered(rocketmq)
    assert (await rocketmq.ask(216, {"topic": "TopicTest", "clusterName": "other"})).code == 0
    assert (await rocketmq.ask(105, {"topic": "TopicTest"})).code == 0
    assert (await rocketmq.ask(216, {"topic": "TopicTest", "clusterName": "DefaultCluster"})).code == 0
    assert (await rocketmq.ask(105, {"topic": "TopicTest"})).code == 17
    assert (await rocketmq.ask(216, {"topic": "unknown"})).code == 0


async def test_registering_one_topic(rocketmq: RemotingPeer) -> None:
    queues = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
    body = json.dumps({"brokerDatas": [], "filterServerTable": {}, "queueDatas": [queues]}).encode()
    assert (await rocketmq.ask(217, {"topic": "One"}, body)).code == 0
    assert (await rocketmq.ask(105, {"topic": "One"})).code == 17
    await registered(rocketmq)
    assert (await rocketmq.ask(217, {"topic": "One"}, body)).code == 0
    assert (await rocketmq.ask(105, {"topic": "One"})).json()["queueDatas"] == [queues]
    assert (await rocketmq.ask(217, {"topic": "One"}, b"{")).code == 1


async def test_kv_configuration(rocketmq: RemotingPeer) -> None:
    one = {"namespace": "n", "key": "k"}
    missing = await rocketmq.ask(101, one)
    assert (missing.code, missing.command.remark) == (22, "No config item, Namespace: n Key: k")
    assert (await rocketmq.ask(219, {"namespace": "n"})).command.remark == "No config item, Namespace: n"
    assert (await rocketmq.ask(100, {**one, "value": "v"})).code == 0
    assert (await rocketmq.ask(101, one)).command.ext == {"value": "v"}
    assert (await rocketmq.ask(219, {"namespace": "n"})).json() == {"table": {"k": "v"}}
    assert (await rocketmq.ask(102, one)).code == 0
    assert (await rocketmq.ask(102, one)).code == 0
    assert (await rocketmq.ask(101, one)).code == 22
    assert (await rocketmq.ask(219, {"namespace": ""})).code == 22
    assert (await rocketmq.ask(100, {"namespace": "n"})).command.remark == "namespace or key is null"


async def test_settings(rocketmq: RemotingPeer) -> None:
    refused = await rocketmq.ask(318, body=b"listenPort=1\n")
    assert (refused.code, refused.command.remark) == (
        16,
        "settings are a file: change it and restart this name server",
    )
    shown = (await rocketmq.ask(319)).body.decode().splitlines()
    assert "supportActingMaster=false" in shown
    assert shown == sorted(shown)
    assert not [line for line in shown if "/" in line]


async def test_data_versions(rocketmq: RemotingPeer, server: NameServerApp) -> None:
    held = b'{"counter":1,"stateVersion":0,"timestamp":1700000000001}'
    unknown = await rocketmq.ask(322, broker_ext(), held)
    assert (unknown.command.ext, unknown.body) == ({"changed": "true"}, b"")
    await registered(rocketmq)
    same = await rocketmq.ask(322, broker_ext(), held)
    assert (same.command.ext, same.body) == ({"changed": "false"}, held)
    assert (await rocketmq.ask(322, broker_ext(), b'{"counter":2}')).command.ext == {"changed": "true"}
    assert (await rocketmq.ask(322, broker_ext())).command.ext == {"changed": "true"}
    async with remoting_peer(server.remoting_addr) as stranger:
        asked = await stranger.ask(322, broker_ext(), held)
        assert (asked.command.ext, asked.body) == ({"changed": "true"}, held)


async def test_responses_to_registrations_are_those_of_upstream(rocketmq: RemotingPeer, server: NameServerApp) -> None:
    rocketmq.send(register(body=register_body({"One": topic_config("One")})))
    refused = await rocketmq.answer()
    assert (refused.code, refused.command.remark) == (1, "register broker failed")
    rocketmq.send(register({"bodyCrc32": "7"}))
    refused = await rocketmq.answer()
    assert (refused.code, refused.command.remark) == (1, "crc32 not match")
    rocketmq.send(register(broker_ext(broker_id=-1)))
    assert (await rocketmq.answer()).code == 0
    rocketmq.send(register(body=b"nonsense"))
    assert (await rocketmq.answer()).code == 1
    assert not server.core.routes.groups
    rocketmq.send(register({"bodyCrc32": "0"}))
    assert (await rocketmq.answer()).code == 0


async def test_a_heartbeat_names_no_id(rocketmq: RemotingPeer) -> None:
    beat = {name: value for name, value in broker_ext().items() if name != "brokerId"}
    assert (await rocketmq.ask(904, beat)).code == 0
    await registered(rocketmq)
    assert (await rocketmq.ask(904, beat)).code == 0


@pytest.mark.parametrize(
    ("code", "ext", "missing"),
    [
        (103, {"clusterName": "c"}, "brokerName"),
        (103, broker_ext() | {"brokerId": "abc"}, "brokerId"),
        (104, {}, "clusterName"),
        (105, {}, "topic"),
        (322, {}, "clusterName"),
        (904, {}, "clusterName"),
        (901, {}, "clusterName"),
        (205, {}, "brokerName"),
        (216, {}, "topic"),
        (217, {}, "topic"),
        (219, {}, "namespace"),
        (224, {}, "cluster"),
        (101, {}, "namespace"),
        (100, {"namespace": "n", "key": "k"}, "value"),
    ],
)
async def test_a_missing_or_unreadable_field_is_named(
    rocketmq: RemotingPeer, code: int, ext: dict[str, str], missing: str
) -> None:
    answer = await rocketmq.ask(code, ext)
    assert answer.code == 1
    assert (answer.command.remark or "").startswith(missing)


async def test_the_response_to_an_unknown_code_is_3(rocketmq: RemotingPeer) -> None:
    answer = await rocketmq.ask(999)
    assert (answer.code, answer.command.remark) == (3, " request type 999 not supported")


async def test_one_way_requests_and_responses_never_get_a_response(
    rocketmq: RemotingPeer, server: NameServerApp
) -> None:
    for code in [*RequestCode, 999]:
        rocketmq.send(ask(code, broker_ext(), flag=2))
        rocketmq.send(ask(code, broker_ext(), flag=1))
        rocketmq.send(ask(code, broker_ext(), flag=3))
    rocketmq.send(register(flag=2))
    assert await rocketmq.is_answered()
    assert A in server.core.routes.groups


async def test_many_requests_get_their_responses_in_one_write(rocketmq: RemotingPeer) -> None:
    await registered(rocketmq)
    rocketmq.send(b"".join(ask(105, {"topic": "TopicTest"}, opaque=-i) for i in range(200)))
    answers = [await rocketmq.answer() for _ in range(200)]
    assert {answer.command.opaque for answer in answers} == {-i for i in range(200)}
    assert len({answer.body for answer in answers}) == 1


async def test_the_opaque_of_an_object_within_the_header_is_not_the_requests(rocketmq: RemotingPeer) -> None:
    for number in (0, 7):
        header = b'{"code":106,"of":{"opaque":%d}}' % number
        rocketmq.send((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
        assert (await rocketmq.answer()).command.opaque == 0
