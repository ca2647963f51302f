"""Bodies of RocketMQ brokers about groups: as real ones wrote them, and hostile ones."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.rocketmq.bodies import BadBodyError
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.json_document import to_document
from pointsman_ctl.servers.agent_queries import QueueCache
from pointsman_ctl.servers.group_bodies import (
    MAX_RUNNING_INFO_BYTES,
    read_broker_names,
    read_connections,
    read_groups,
    read_progress,
    read_running_info,
    reads_retries,
)

CONNECTIONS = {
    "connectionSet": [
        {"clientAddr": "10.0.0.2:5", "clientId": "b@2", "language": "JAVA", "version": 479},
        {"clientAddr": "10.0.0.1:5", "clientId": "a@1", "language": "PYTHON", "version": 0},
        {"clientAddr": "10.0.0.1:6", "clientId": "a@1", "language": "PYTHON", "version": 0},
    ],
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "subscriptionTable": {
        "orders": {"subString": "A || B", "topic": "orders"},
        "%RETRY%billing": {"subString": "*", "topic": "%RETRY%billing"},
    },
}
OFFSETS = (
    b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"a","queueId":1,"topic":"orders"}:'
    b'{"brokerOffset":10,"consumerOffset":7,"lastTimestamp":1795360466631,"pullOffset":7},'
    b'{"brokerName":"a","queueId":0,"topic":"%RETRY%billing"}:'
    b'{"brokerOffset":0,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}'
)
RUNNING = (
    b'{"mqTable":{{"brokerName":"a","queueId":1,"topic":"orders"}:{"cachedMsgCount":5,"cachedMsgMaxOffset":11,'
    b'"cachedMsgMinOffset":7,"cachedMsgSizeInMiB":0,"commitOffset":7,"droped":false,'
    b'"lastConsumeTimestamp":1795360466000,"lastLockTimestamp":1795360460000,"lastPullTimestamp":1795360466500,'
    b'"locked":false,"transactionMsgCount":0,"transactionMsgMaxOffset":0,"transactionMsgMinOffset":0,'
    b'"tryUnlockTimes":0},{"brokerName":"b","queueId":0,"topic":"orders"}:{"cachedMsgCount":0,"droped":false,'
    b'"lastPullTimestamp":1795360466000}},"mqPopTable":{},"properties":{"PROP_NAMESERVER_ADDR":"10.0.0.9:9876",'
    b'"PROP_CONSUMEORDERLY":"false"},"statusTable":{"orders":{"pullRT":2.5}},'
    b'"subscriptionSet":[{"subString":"*","topic":"orders"}],"userConsumerInfo":{}}'
)


def running(body: bytes = RUNNING, *, names: tuple[str, ...] = ("a",)) -> dict[tuple[str, int], QueueCache]:
    return read_running_info("x@1", body, broker_names=names, now=1795360468.5)


def test_groups_are_listed_by_name() -> None:
    body = b'{"dataVersion":{"counter":3},"subscriptionGroupTable":{"b":{"groupName":"b"},"a":{"brokerId":0}}}'
    assert read_groups(body) == ["a", "b"]
    assert read_groups(b"{}") == []


def test_a_client_id_with_two_connections_is_one_member() -> None:
    found, clients = read_connections("billing", json.dumps(CONNECTIONS).encode())

    first, second = found.members
    assert (first.client_id, first.peer) == ("a@1", "10.0.0.1:5 10.0.0.1:6")
    assert (second.client_id, second.peer, second.is_connected) == ("b@2", "10.0.0.2:5", True)
    assert first.consume_type == wire.CONSUME_TYPE_PUSH
    assert [(each.topic, each.expression) for each in first.subscriptions] == [("orders", "A || B")]
    assert found.membership.message_model == wire.MESSAGE_MODEL_CLUSTERING
    assert list(found.membership.client_ids) == ["a@1", "b@2"]
    assert clients == {"a@1": "PYTHON", "b@2": "JAVA 5.3.3"}


def test_consume_types_and_models_that_are_not_known_are_unspecified() -> None:
    body = json.dumps(CONNECTIONS | {"consumeType": "CONSUME_POP", "messageModel": None}).encode()
    group, _ = read_connections("billing", body)
    assert group.members[0].consume_type == wire.CONSUME_TYPE_UNSPECIFIED
    assert group.membership.message_model == wire.MESSAGE_MODEL_UNSPECIFIED


def test_offsets_have_objects_as_keys() -> None:
    assert [to_document(each) for each in read_progress("billing", OFFSETS)] == [
        {
            "group": "billing",
            "committed": {"topic": "orders", "queueId": 1, "offset": 7, "epoch": None},
            "maxOffset": 10,
        },
        {
            "group": "billing",
            "committed": {"topic": "%RETRY%billing", "queueId": 0, "offset": 0, "epoch": None},
            "maxOffset": 0,
        },
    ]
    assert read_progress("billing", b'{"consumeTps":0.0,"offsetTable":{}}') == []


def test_names_are_read_as_clients_gave_them() -> None:
    odd = 'a b\x1b[2J}{"\\ \ud800'
    valid = odd.replace("\ud800", "?")
    assert read_groups(json.dumps({"subscriptionGroupTable": {odd: {}}}).encode()) == [valid]
    connection = {"clientAddr": odd, "clientId": odd, "language": odd, "version": 0}
    body = json.dumps({"connectionSet": [connection], "subscriptionTable": {odd: {"subString": odd}}}).encode()
    (member,) = read_connections("billing", body)[0].members
    assert (member.client_id, member.peer, member.subscriptions[0].topic) == (valid, valid, valid)
    (progress,) = read_progress("billing", OFFSETS.replace(b'"orders"', json.dumps(odd).encode()))[:1]
    assert progress.committed.topic == valid


def test_a_queue_of_a_static_topic_without_an_offset_is_left_out() -> None:
    progress = read_progress("billing", OFFSETS.replace(b'"consumerOffset":7', b'"consumerOffset":-1'))
    assert [each.committed.topic for each in progress] == ["%RETRY%billing"]


def test_a_client_reports_the_queues_of_one_broker_with_messages_and_last_pull() -> None:
    assert running() == {("orders", 1): QueueCache("x@1", 5, 2.0)}
    assert running(names=("b",)) == {("orders", 0): QueueCache("x@1", 0, 2.5)}
    assert running(names=("c",)) == {}
    assert running(b'{"mqTable":{}}') == {}
    assert read_broker_names(OFFSETS) == {"a"}


def test_a_client_whose_clock_is_ahead_or_that_has_not_pulled_yet() -> None:
    ahead = RUNNING.replace(b'"lastPullTimestamp":1795360466500', b'"lastPullTimestamp":1795360469500')
    never = RUNNING.replace(b'"lastPullTimestamp":1795360466500', b'"lastPullTimestamp":0')
    silent = RUNNING.replace(b'"lastPullTimestamp":1795360466500,', b"")
    assert [running(each)["orders", 1].since_pull_seconds for each in (ahead, never, silent)] == [0.0, None, None]


@pytest.mark.parametrize("name", [b"droped", b"dropped"])
def test_a_queue_that_a_client_has_given_up_is_left_out(name: bytes) -> None:
    assert running(RUNNING.replace(b'"droped":false', b'"%b":true' % name)) == {}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "has no mqTable"),
        (RUNNING[:60], "mqTable cannot be read"),
        (RUNNING.replace(b'"cachedMsgCount":5', b'"cachedMsgCount":-5'), "cachedMsgCount = -5"),
        (RUNNING.replace(b"1795360466500", b"9223372036854775808"), "lastPullTimestamp = "),
        (RUNNING.replace(b'"queueId":1', b'"queueId":"1"'), "queueId = '1'"),
        (RUNNING.replace(b"}},", b"}}," + b" " * MAX_RUNNING_INFO_BYTES), "bytes, at most 1048576 are read"),
    ],
)
def test_bad_reports_of_clients(body: bytes, problem: str) -> None:
    with pytest.raises(BadBodyError, match=problem):
        running(body)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "is not JSON"),
        (b"[]", "must be an object"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"subscriptionGroupTable":[]}', "subscriptionGroupTable = "),
        (b'{"subscriptionGroupTable":"' + b"a" * 1000 + b'"}', "subscriptionGroupTable = "),
    ],
)
def test_bad_lists_of_groups(body: bytes, problem: str) -> None:
    with pytest.raises(BadBodyError, match=problem.replace("[", r"\[")):
        read_groups(body)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"connectionSet": {}}, None),
        ({"connectionSet": "all"}, "connectionSet = 'all'"),
        ({"connectionSet": [7]}, "clientId = 7"),
        ({"connectionSet": [{"clientId": 7}]}, "clientId = 7"),
        ({"connectionSet": [{"clientId": ["a"] * 1000}]}, "clientId = "),
        ({"connectionSet": [{"clientId": "a", "clientAddr": "h:1", "version": True}]}, "version = True"),
        ({"subscriptionTable": {"orders": []}}, "subString = "),
    ],
)
def test_bad_connections(change: dict[str, object], problem: str | None) -> None:
    body = json.dumps(CONNECTIONS | change).encode()
    if problem is None:
        assert not read_connections("billing", body)[0].members
        return
    with pytest.raises(BadBodyError, match=problem) as raised:
        read_connections("billing", body)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"offsetTable":',
        b'{"offsetTable":{',
        OFFSETS[:-2],
        OFFSETS[:-60],
        OFFSETS.replace(b'"queueId":1', b'"queueId":-1'),
        OFFSETS.replace(b'"queueId":1', b'"queueId":4294967296'),
        OFFSETS.replace(b'"brokerOffset":10', b'"brokerOffset":1e3'),
        OFFSETS.replace(b'"brokerOffset":10', b'"brokerOffset":9223372036854775808'),
        OFFSETS.replace(b'"consumerOffset":7', b'"consumerOffset":-2'),
        OFFSETS.replace(b'"topic":"orders"', b'"topic":7'),
        OFFSETS.replace(b'"brokerName":"a"', b'"brokerName":{}'),
    ],
)
def test_bad_offsets(body: bytes) -> None:
    with pytest.raises(BadBodyError):
        read_progress("billing", body)


def damaged(body: bytes) -> st.SearchStrategy[bytes]:
    return st.integers(0, len(body)).map(lambda cut: body[:cut] + b'{{"\\' + body[cut:])


@given(st.binary(max_size=200) | damaged(OFFSETS) | damaged(RUNNING))
def test_no_body_raises_another_error(body: bytes) -> None:
    for read in (
        lambda: read_groups(body),
        lambda: read_connections("g", body),
        lambda: read_progress("g", body),
        lambda: running(body),
    ):
        with suppress(BadBodyError):
            read()


def test_a_body_of_the_maximum_size_is_read_in_linear_time() -> None:
    entry = OFFSETS[OFFSETS.index(b"{{") + 1 : OFFSETS.index(b",{")]
    began_at = time.process_time()
    assert len(read_progress("g", b'{"offsetTable":{' + b",".join([entry] * 20_000) + b"}}")) == 20_000
    for hostile in (b'{"offsetTable":{' + b'{"' * 2_000_000, b'{"offsetTable":{{"' + b"\\" * 4_000_000):
        with pytest.raises(BadBodyError):
            read_progress("g", hostile)
    assert time.process_time() - began_at < 30.0


def test_a_group_reads_its_retry_topic_if_a_member_subscribes_to_it() -> None:
    own = {"orders": {"subString": "*"}, "%RETRY%other": {"subString": "*"}}
    assert not reads_retries("billing", json.dumps({"subscriptionTable": own}).encode())
    both = own | {"%RETRY%billing": {"subString": "*"}}
    assert reads_retries("billing", json.dumps({"subscriptionTable": both}).encode())
