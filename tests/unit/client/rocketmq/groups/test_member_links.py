"""What a consumer reads and writes as JSON between it and RocketMQ's brokers."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from pointsman_client.core.message_queue import MessageQueue, rocketmq_order
from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState
from pointsman_client.errors import BrokerRefusedError
from pointsman_client.rocketmq.groups.broker_requests import MAX_RESET_QUEUES, reset_offsets, running_info
from pointsman_client.rocketmq.groups.member_links import any_addr, json_object, master_addr, queue_name

# As 4.9.7 sends it.
RECORDED = (
    b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:0,'
    b'{"brokerName":"b","queueId":0,"topic":"t"}:1234567890123}}'
)


def test_the_body_of_a_reset_has_objects_as_keys() -> None:
    assert reset_offsets(RECORDED) == {("t", "b", 1): 0, ("t", "b", 0): 1_234_567_890_123}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", {}),
        (b'{"offsetTable":{}}', {}),
        (b'{"offsetTable":null}', {}),
        (b"\xff\xfe\x00{", {}),
        (RECORDED[:70], {("t", "b", 1): 0}),
        (b'{{"brokerName":"b","queueId":1,"topic":"t"}:-5}', {("t", "b", 1): 0}),
        (b'{{"brokerName":"b","queueId":1,"topic":"t"}:1e3}', {}),
        (b'{{"brokerName":"b","queueId":1,"topic":"t"}:' + b"9" * 30 + b"}", {}),
        (b'{{"brokerName":"b","queueId":"1","topic":"t"}:7}', {}),
        (b'{{"brokerName":"b","queueId":Infinity,"topic":"t"}:7}', {}),
        (b'{{"brokerName":"b","queueId":' + b"9" * 5_000 + b',"topic":"t"}:7}', {}),
        (b'{{"brokerName":["b"],"queueId":1,"topic":"t"}:7}', {}),
        (b'{{"brokerName":"b","topic":"t"}:7}', {}),
        (b'{{"queueId":' + b"[" * 100_000 + b"}:7}", {}),
        (b"{" * 200_000 + b"}:1" * 200_000, {}),
    ],
)
def test_an_invalid_reset_body_has_no_offsets_and_raises_nothing(body: bytes, expected: object) -> None:
    assert reset_offsets(body) == expected


def test_any_bytes_are_read_without_an_error() -> None:
    rng = random.Random(20_261_123)
    for _ in range(2_000):
        damaged = bytearray(RECORDED)
        for _ in range(rng.randint(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        assert len(reset_offsets(bytes(damaged))) <= 2


def test_the_queues_of_a_reset_are_bounded() -> None:
    entry = b'{"brokerName":"b","queueId":%d,"topic":"t"}:1'
    body = b",".join(entry % number for number in range(MAX_RESET_QUEUES + 10))
    assert len(reset_offsets(body)) == MAX_RESET_QUEUES


@pytest.mark.parametrize(
    "value", [None, 1, "t", [], {}, {"topic": "t", "brokerName": "b"}, {"topic": [], "brokerName": "b", "queueId": 0}]
)
def test_a_value_without_the_fields_of_a_queue_has_no_name(value: object) -> None:
    assert queue_name(value) is None


STARTED = {"position": 12, "finishedUpTo": 10, "waiting": 1, "inFlight": 1}
QUEUES: list[dict[str, Any]] = [
    {"topic": "t", "cluster": "c", "brokerName": "b", "queueId": 0, "locked": True} | STARTED,
    {"topic": "t", "cluster": "c", "brokerName": "b", "queueId": 1, "locked": False},
]
"""A started queue, and one that has no lock yet."""


def test_running_info_is_what_java_reads() -> None:
    written = running_info({"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}, QUEUES, {"t": "A || B"}).decode()
    start = '{"properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"},"statusTable":{},'
    assert written.startswith(start + '"subscriptionSet":[{"topic":"t","subString":"A || B"}],"mqTable":{{')
    # Java's reader accepts objects as keys; as texts the keys make it JSON.
    keys = ['{"brokerName":"b","queueId":0,"topic":"t"}', '{"brokerName":"b","queueId":1,"topic":"t"}']
    for key in keys:
        written = written.replace(f"{key}:", f"{json.dumps(key)}:")
    table = json.loads(written)["mqTable"]
    common = {"droped": False}
    assert table[keys[0]] == common | {
        "commitOffset": 10,
        "cachedMsgCount": 2,
        "cachedMsgMinOffset": 10,
        "cachedMsgMaxOffset": 11,
        "locked": True,
    }
    assert table[keys[1]] == common | {
        "commitOffset": 0,
        "cachedMsgCount": 0,
        "cachedMsgMinOffset": 0,
        "cachedMsgMaxOffset": 0,
        "locked": False,
    }


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_a_response_body_that_is_not_a_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BrokerRefusedError, match="response: the body"):
        json_object("b:1", body)


def group(*replicas: tuple[int, str]) -> BrokerData:
    found = tuple(BrokerReplica(broker_id, addr, "", "", BrokerState.UP) for broker_id, addr in replicas)
    return BrokerData("c", "b", found, zone="", acting_master=False)


def test_locks_are_at_the_master_and_offsets_at_another_replica_without_it() -> None:
    both, slaves = group((1, "s:1"), (0, "m:1")), group((3, "s:3"), (2, "s:2"))
    assert [master_addr(each) for each in (both, slaves, None)] == ["m:1", None, None]
    assert [any_addr(each) for each in (both, slaves, group((0, ""), (1, "s:1")), None)] == ["m:1", "s:2", "s:1", None]


def test_queues_are_sorted_as_java_does_without_clusters() -> None:
    queues = [MessageQueue("t", cluster, name, at) for cluster, name in (("z", "a"), ("a", "b")) for at in (10, 9)]
    queues.append(MessageQueue("s", "z", "z", 0))
    named = [(each.topic, each.broker_name, each.queue_id) for each in sorted(queues, key=rocketmq_order)]
    assert named == [("s", "z", 0), ("t", "a", 9), ("t", "a", 10), ("t", "b", 9), ("t", "b", 10)]
