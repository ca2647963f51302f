"""``messages probe``: a message through every queue of the probe topic, at brokers of both kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman_ctl.commands.message_probe_command import KEPT_MESSAGES, PROBE_TOPIC
from tests.kit.agent.group_clients import Consumer, reads
from tests.kit.broker.rocketmq.fake_broker import Answer
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.ctl.both_brokers import BothBrokers, both_brokers
from tests.kit.ctl.keys import undocumented_keys
from tests.kit.waiting import eventually

pytestmark = pytest.mark.redis
PROBE = ("messages", "probe")


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[BothBrokers]:
    async with both_brokers(tmp_path, topics=("orders", PROBE_TOPIC)) as found:
        await eventually(lambda: found.agent.groups.core.state.value == "ready")
        yield found


async def test_every_queue_of_every_broker_stores_and_returns_a_message(brokers: BothBrokers) -> None:
    ended = await brokers.ctl(*PROBE)
    assert (ended.code, ended.err) == (0, "")
    header, *rows = ended.out.splitlines()
    assert header.split() == ["QUEUE", "SEND", "MS", "ROUND", "TRIP", "MS", "STATUS"]
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [
        (f"c1/{name}/{queue_id}", "OK") for name in ("red", "rocket") for queue_id in range(2)
    ]
    document = await brokers.json(*PROBE)
    assert [0 < each["sendSeconds"] <= each["roundTripSeconds"] < 10 for each in document["queues"]] == [True] * 4
    assert document["withoutTopic"] == []
    assert await brokers.redis.command("XLEN", f"{PROBE_TOPIC}:queue:0") == ":2"
    assert len(brokers.rocketmq.logs[PROBE_TOPIC, 0].records) == 2


async def test_no_group_is_used(brokers: BothBrokers) -> None:
    await brokers.json(*PROBE)
    assert not {Request.HEART_BEAT, Request.UPDATE_CONSUMER_OFFSET} & set(brokers.rocketmq.codes())
    assert (await brokers.json("groups"))["groups"] == []
    assert (await brokers.json("offsets"))["offsets"] == []


async def test_a_broker_that_is_down_fails_with_its_reason(brokers: BothBrokers) -> None:
    brokers.redis.kill()
    ended = await brokers.ctl(*PROBE)
    assert ended.code == 1
    assert [row.split()[-1] for row in ended.out.splitlines()[1:]] == ["FAILED", "FAILED", "OK", "OK"]
    assert ended.err.startswith("pointsmanctl: failed: c1/red/0, c1/red/1 (broker ")
    document = (await brokers.ctl("-o", "json", *PROBE)).document
    assert [each.get("error", {}).get("code") for each in document["queues"]] == ["BROKER_UNREACHABLE"] * 2 + [None] * 2


async def test_a_message_that_is_stored_and_not_served_is_a_failure(brokers: BothBrokers) -> None:
    brokers.rocketmq.answers[Request.PULL_MESSAGE] = Answer(Code.PULL_NOT_FOUND)
    ended = await brokers.ctl("--timeout", "0.3", *PROBE)
    assert ended.code == 1
    assert "the message was stored at offset 0, and not read within 0.3 s" in ended.err
    assert "c1/rocket/0, c1/rocket/1" in ended.err


async def test_a_broker_without_the_topic_or_permission_is_named(brokers: BothBrokers) -> None:
    async with remoting_peer(brokers.name_server.remoting_addr) as peer:
        for name, topics in (
            ("bare", {}),
            ("shut", {PROBE_TOPIC: topic_config(PROBE_TOPIC, perm=2, writeQueueNums=1, readQueueNums=1)}),
        ):
            body = register_body({"another": topic_config("another"), "more": topic_config("more"), **topics})
            peer.send(register(broker_ext(name, 0, f"10.0.0.9:{len(name)}", clusterName="c1"), body))
            assert (await peer.answer()).code == 0
        ended = await brokers.ctl(*PROBE)
    assert ended.code == 1
    assert [row.split()[0] for row in ended.out.splitlines() if row.endswith("NO TOPIC")] == ["c1/bare"]
    assert f"c1/bare (it does not have topic {PROBE_TOPIC})" in ended.err
    assert "consumers have no permission to read it" in ended.err


async def test_a_topic_that_is_missing_is_not_created(brokers: BothBrokers) -> None:
    ended = await brokers.ctl(*PROBE, "--topic", "other-probe")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "pointsmanctl: no broker has topic other-probe; create it with "
        "`pointsmanctl topic create other-probe --queues 1`\n"
    )
    assert "other-probe" not in (await brokers.ctl("topics")).out


async def test_a_topic_that_is_consumed_is_refused(brokers: BothBrokers) -> None:
    consumer = Consumer(brokers.agent.addr, "x@1")
    await consumer.beat(reads("billing", "orders"))
    ended = await brokers.ctl(*PROBE, "--topic", "orders")
    assert (ended.code, ended.out) == (1, "")
    assert "topic orders is consumed by billing: a probe would send to its members" in ended.err
    assert await brokers.redis.command("XLEN", "orders:queue:0") == ":0"
    await consumer.crash()


async def test_a_queue_of_redis_does_not_grow_without_end(brokers: BothBrokers) -> None:
    for _ in range(13):
        await brokers.store("red", 0, *[b"x"] * 100, topic=PROBE_TOPIC)
    await brokers.json(*PROBE)
    assert KEPT_MESSAGES <= int((await brokers.redis.command("XLEN", f"{PROBE_TOPIC}:queue:0"))[1:]) <= 1_100


async def test_the_help_has_the_keys_of_the_json(brokers: BothBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    assert undocumented_keys(await brokers.json(*PROBE), ["messages", "probe"], capsys=capsys) == set()
