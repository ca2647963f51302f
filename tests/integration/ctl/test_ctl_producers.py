"""``producers``: who is connected to a Redis broker and a RocketMQ broker to send."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from tests.kit.broker.rocketmq.fake_broker import Answer
from tests.kit.ctl.both_brokers import BothBrokers, both_brokers
from tests.kit.ctl.keys import undocumented_keys

pytestmark = pytest.mark.redis
JAVA = {"clientId": "10.0.0.9@7", "language": "JAVA", "version": 479}


def everyone(*groups: str) -> Answer:
    at = int(1_000 * (time.time() - 90))
    producer = {**JAVA, "remoteIP": "/10.0.0.9:4711", "lastUpdateTimestamp": at}
    return Answer(body=json.dumps({"data": {group: [producer] for group in groups}}).encode())


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[BothBrokers]:
    async with both_brokers(tmp_path) as found:
        found.rocketmq.answers[Request.GET_ALL_PRODUCER_INFO] = everyone("b", "a", "CLIENT_INNER_PRODUCER")
        yield found


async def test_connections_that_send_are_listed_with_their_brokers(brokers: BothBrokers) -> None:
    await brokers.redis.command("XADD", "orders:queue:0", "0-*", "body", "gone")  # this connection is closed
    assert (await brokers.json("producers", "orders"))["brokers"][0]["producers"] == []
    await brokers.store("red", 0, b"x")
    red, rocket = (await brokers.json("producers", "orders"))["brokers"]
    (sender,) = red["producers"]
    assert (red["broker"], sender["group"], sender["user"]) == ("c1/red", None, "default")
    assert sender["addr"].startswith("127.0.0.1:")
    assert sender["idleSeconds"] < 60
    assert rocket["broker"] == "c1/rocket"
    assert [each["group"] for each in rocket["producers"]] == ["a", "b"]
    java = rocket["producers"][0]
    assert (java["clientId"], java["addr"], java["client"]) == ("10.0.0.9@7", "10.0.0.9:4711", "JAVA 5.3.3")
    assert 90 <= java["idleSeconds"] < 150

    table = await brokers.ctl("producers", "orders")
    header, *rows, note = table.out.splitlines()
    assert header.split() == ["BROKER", "GROUP", "CLIENT", "ID", "ADDR", "CLIENT", "USER", "IDLE"]
    assert [row.split()[0] for row in rows] == ["c1/red", "c1/rocket", "c1/rocket"]
    assert note.startswith("brokers do not know the topics of a producer")


async def test_a_group_is_asked_for_as_mqadmin_does(brokers: BothBrokers) -> None:
    connection = {**JAVA, "clientAddr": "10.0.0.9:4711"}
    brokers.rocketmq.handlers[Request.GET_PRODUCER_CONNECTION_LIST] = lambda command, _: (
        Answer(body=json.dumps({"connectionSet": [connection]}).encode())
        if command.ext == {"producerGroup": "a-service"}
        else Answer(Code.SYSTEM_ERROR, remark="the producer group[absent] not exist")
    )
    _, rocket = (await brokers.json("producers", "orders", "--group", "a-service"))["brokers"]
    (java,) = rocket["producers"]
    assert (java["group"], java["clientId"], java["idleSeconds"]) == ("a-service", "10.0.0.9@7", None)
    _, rocket = (await brokers.json("producers", "orders", "--group", "absent"))["brokers"]
    assert rocket["producers"] == []
    assert (await brokers.ctl("producers", "orders", "--group", "absent")).out == "no producer is connected\n"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(Code.REQUEST_CODE_NOT_SUPPORTED), "it does not list the producers of all groups: give --group"),
        (Answer(Code.NO_PERMISSION, remark="denied"), "GET_ALL_PRODUCER_INFO (328): 16: denied"),
        (Answer(body=b'{"data":{"a":[{"clientId":7}]}}'), "the response to GET_ALL_PRODUCER_INFO (328) cannot be read"),
        (Answer(body=b"\x00"), "the response to GET_ALL_PRODUCER_INFO (328) cannot be read"),
    ],
)
async def test_a_broker_that_fails_is_named_beside_the_others(brokers: BothBrokers, answer: Answer, words: str) -> None:
    brokers.rocketmq.answers[Request.GET_ALL_PRODUCER_INFO] = answer
    ended = await brokers.ctl("-o", "json", "producers", "orders")
    assert ended.code == 1
    assert [each["broker"] for each in ended.document["brokers"]] == ["c1/red", "c1/rocket"]
    assert "c1/rocket (" in ended.err
    assert words in ended.err


async def test_what_redis_refuses_is_named_with_what_to_do(brokers: BothBrokers, tmp_path: Path) -> None:
    await brokers.redis.command("ACL", "SETUSER", "ops", "on", ">hunter2", "~*", "+@all", "-client|list")
    await brokers.redis.command("ACL", "SETUSER", "default", "off")
    ended = await brokers.ctl("producers", "orders")
    assert (ended.code, "give --redis-password-file" in ended.err) == (1, True)
    password = tmp_path / "password"
    password.write_text("hunter2\n")
    account = {"POINTSMAN_REDIS_USERNAME": "ops", "POINTSMAN_REDIS_PASSWORD_FILE": str(password)}
    ended = await brokers.ctl("producers", "orders", **account)
    assert (ended.code, "permit the user CLIENT LIST" in ended.err) == (1, True)
    brokers.redis.kill()
    ended = await brokers.ctl("producers", "orders", **account)
    assert "check that the broker runs and is reachable from here" in ended.err


async def test_a_hostile_name_does_not_reach_the_terminal(brokers: BothBrokers) -> None:
    brokers.rocketmq.answers[Request.GET_ALL_PRODUCER_INFO] = everyone("\x1b[2J")
    assert "\x1b" not in (await brokers.ctl("producers", "orders")).out


async def test_the_help_has_the_keys_of_the_json(brokers: BothBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    await brokers.store("red", 0, b"x")
    assert undocumented_keys(await brokers.json("producers", "orders"), ["producers"], capsys=capsys) == set()
