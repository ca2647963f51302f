"""Bodies of RocketMQ brokers about topics, read as their fastjson writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.rocketmq.bodies import BadBodyError
from pointsman_ctl.servers.topic_bodies import (
    QueueStat,
    read_group_list,
    read_topic,
    read_topic_of_all,
    read_topic_stats,
)

CONFIG: dict[str, Any] = {
    "order": True,
    "perm": 14,
    "readQueueNums": 8,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "orders",
    "topicSysFlag": 1,
    "writeQueueNums": 4,
}


def body(**changes: Any) -> bytes:
    return json.dumps(CONFIG | changes).encode()


def test_a_change_keeps_what_it_does_not_name() -> None:
    topic = read_topic(body())
    assert (topic.read_queues, topic.write_queues, topic.is_static) == (8, 4, False)
    assert topic.to_ext("orders", read_queues=8, write_queues=8, perm=4) == {
        "topic": "orders",
        "defaultTopic": "TBW102",
        "readQueueNums": "8",
        "writeQueueNums": "8",
        "perm": "12",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "1",
        "order": "true",
    }


def test_a_static_topic_is_known_by_its_mapping() -> None:
    assert read_topic(body(mappingDetail={"topic": "orders", "totalQueues": 4})).is_static


@pytest.mark.parametrize("changes", [{"perm": "6"}, {"readQueueNums": -1}, {"writeQueueNums": 70_000}])
def test_a_field_that_is_not_a_number_within_its_bounds_is_named(changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(BadBodyError, match=name):
        read_topic(body(**changes))


def test_one_topic_is_found_among_all() -> None:
    everything = json.dumps({"topicConfigTable": {"orders": CONFIG}, "dataVersion": {}}).encode()
    assert read_topic_of_all("orders", everything) == read_topic(body())
    assert read_topic_of_all("bills", everything) is None


def test_the_queues_of_a_topic_are_read_and_those_of_others_left_out() -> None:
    entries = ",".join(
        f'{{"brokerName":"a","queueId":{queue},"topic":"{topic}"}}:'
        f'{{"lastUpdateTimestamp":{at},"maxOffset":{end},"minOffset":{begin}}}'
        for topic, queue, begin, end, at in (("orders", 0, 2, 7, 99), ("orders", 1, -1, -1, -1), ("bills", 0, 0, 1, 1))
    )
    found = [*read_topic_stats("orders", f'{{"offsetTable":{{{entries}}},"topicPutTps":0.0}}'.encode())]
    assert found == [QueueStat(0, 2, 7, 99), QueueStat(1, 0, 0, 0)]
    with pytest.raises(BadBodyError, match="offsetTable"):
        list(read_topic_stats("orders", b"{}"))


def test_names_of_groups_are_sorted_and_printable() -> None:
    assert read_group_list(b'{"groupList":["b","a",1,"\\ud800"]}') == ["?", "a", "b"]
    with pytest.raises(BadBodyError, match="groupList"):
        read_group_list(b"{}")
