"""Frames of real processes, replayed against this server: its responses are RocketMQ's, with listed exceptions."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman.rocketmq.frames import read_header
from pointsman_namesrv.app import NameServerApp
from tests.kit.broker.rocketmq import frames as recorded
from tests.kit.broker.rocketmq.peer import Answer, RemotingPeer

ANSWERED = [name for name in recorded.REQUESTS if recorded.response(name) is not None]
A, AND_A_TOPIC = "103_broker533_small_r0", "103_broker533_1topic_r0"
M, M_SLAVE, OLD = "103_broker533act_small_r0", "103_brokerslave533_small_r0", "103_broker497_small_r0"
ORDER_TOPIC = "100_mqadmin533_r0"
BEFORE = {
    "101_mqadmin533_r0": [ORDER_TOPIC],
    "103_adhoc_1topic_r0": [],
    "103_adhoc_small_r0": [ORDER_TOPIC],
    "103_broker497_small_r0": [ORDER_TOPIC],
    "103_broker533_1topic_r0": [A],
    "103_broker533act_small_r0": [ORDER_TOPIC],
    "103_brokerslave533_small_r0": [ORDER_TOPIC, M],
    "105_brokerslave533_r0": [M],
    "105_mqadmin533_r0": [A],
    "105_mqadmin497_r0": [OLD],
    "105_producer533_r0": [A],
    "105_producer497_r0": [A, OLD],
    "105_consumer533_r0": [A, AND_A_TOPIC],
    "105_consumer497_r0": [A, AND_A_TOPIC],
    "106": [A, M, M_SLAVE],
    "205_mqadmin533_r0": [A],
    "206_mqadmin533_r0": [A],
    "327_mqadmin533_r0": [A],
}
"""Frames sent before a frame to restore the state it depends on; others need none."""
OTHERWISE = {
    "103_adhoc_1topic_r0": (1, "the full registration that came first was not kept as a frame"),
    "103_broker533b_1topic_r0": (1, "the same, of 1,012 topics"),
    "205_mqadmin533_r0": (0, "the recorded broker had 16 topics"),
    "327_mqadmin533_r0": (0, "the same"),
    "322_broker533b_r0": (0, "its registration of 1,012 topics is too large for a fixture, so nothing is held"),
}
"""Responses that cannot be the recorded ones: their code and why. The language is always PYTHON, not JAVA."""
ONLY_SHAPES = ("106", "206", "105_mqadmin497", "105_producer", "105_brokerslave", "105_consumer497")
"""Whose bodies are compared by their shape alone: other brokers were up, or had other queues."""


def shape(value: Any) -> Any:
    """The types of values by place; of a list the first, of tables keyed by names the values."""
    if isinstance(value, dict):
        tables = ("brokerAddrs", "brokerAddrTable", "clusterAddrTable", "filterServerTable", "table")
        return {
            key: [shape(each) for each in inner.values()][:1] if key in tables else shape(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return type(value).__name__


async def replay(rocketmq: RemotingPeer, name: str) -> Answer:
    rocketmq.send(recorded.request(name))
    return await rocketmq.answer()


@pytest.mark.parametrize("name", ANSWERED)
async def test_responses_are_rocketmqs(rocketmq: RemotingPeer, name: str) -> None:
    for earlier in BEFORE.get(name, BEFORE.get(name[:3], [])):
        assert (await replay(rocketmq, earlier)).code == 0
    answer = await replay(rocketmq, name)
    (upstream,) = recorded.frames(recorded.response(name) or b"")
    theirs, ours = read_header(upstream.form, upstream.header), answer.command
    assert (ours.opaque, ours.flag, ours.version) == (theirs.opaque, theirs.flag, theirs.version)
    if name in OTHERWISE:
        assert ours.code == OTHERWISE[name][0]
        return
    assert (ours.code, ours.remark, ours.ext) == (theirs.code, theirs.remark, theirs.ext)
    if not upstream.body:
        assert not answer.body
    elif name.startswith(ONLY_SHAPES):
        assert shape(answer.json()) == shape(recorded.read_upstream(upstream.body))
    else:
        assert answer.json() == recorded.read_upstream(upstream.body)


async def test_one_way_frames_are_accepted_without_a_response(rocketmq: RemotingPeer, server: NameServerApp) -> None:
    for name in recorded.REQUESTS:
        if "oneway" in name:
            rocketmq.send(recorded.request(name))
    assert await rocketmq.is_answered()
    assert {(key.cluster, key.broker_name) for key in server.core.routes.groups} >= {("DefaultCluster", "broker-dl")}
