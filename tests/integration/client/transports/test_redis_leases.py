"""Leases at real Redis servers beyond the common contract: what is stored, and the permissions that they need."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman.redis_queues import lease_group, stream_key
from pointsman_client.core.lease import MAX_INVISIBLE_SECONDS
from pointsman_client.errors import BrokerRefusedError, ResponseCode
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.integration.client.transports.test_lease_contract import LONG_SECONDS, Group, bodies
from tests.kit.broker.under_test import QUEUE, RedisBrokers

pytestmark = pytest.mark.redis

KEY, NAME = stream_key(QUEUE.topic, QUEUE.queue_id), lease_group("billing")
SECURITY_PAGE = Path(__file__).parents[4] / "docs" / "security.md"


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[RedisBrokers]:
    found = RedisBrokers(tmp_path)
    yield found
    await found.close()


PENDING = "local row = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1)[1] return table.concat(row, ' ')"


async def pending(brokers: RedisBrokers, addr: str) -> list[str]:
    """The first pending entry: id, consumer, idle milliseconds, deliveries."""
    return (await brokers.server(addr).bulk("EVAL", PENDING, "1", KEY, NAME)).split(" ")


async def test_a_lease_is_an_idle_time_that_reaches_twelve_hours_at_its_end(brokers: RedisBrokers) -> None:
    group = Group(brokers, await brokers.add())
    await group.send("a")
    await group.begin()
    await group.pop(seconds=LONG_SECONDS)
    _, consumer, idle, deliveries = await pending(brokers, group.addr)
    assert (consumer, deliveries) == ("members", "1")
    assert 0 <= int(idle) - 1000 * (MAX_INVISIBLE_SECONDS - LONG_SECONDS) < 1000 * LONG_SECONDS


async def test_the_longest_lease_begins_with_an_idle_time_of_nothing(brokers: RedisBrokers) -> None:
    group = Group(brokers, await brokers.add())
    await group.send("a")
    await group.begin()
    await group.pop(seconds=MAX_INVISIBLE_SECONDS)
    assert int((await pending(brokers, group.addr))[2]) < 60_000


async def test_a_destroyed_group_leases_nothing_any_longer(brokers: RedisBrokers) -> None:
    group = Group(brokers, await brokers.add())
    await group.send("a")
    await group.begin()
    assert await group.backlog() is not None
    assert await brokers.server(group.addr).command("XGROUP", "DESTROY", KEY, NAME) == ":1"
    assert await group.backlog() is None


def documented_acl() -> list[str]:
    """Keys and commands of the user in docs/security.md."""
    text = SECURITY_PAGE.read_text(encoding="utf-8")
    section = text[text.index("## Redis\n") : text.index("Applications do not write offsets")]
    return re.findall(r"(?<=[` ])[~+][^` \n]+", section[: section.index("Add `+wait")])


async def test_the_documented_permissions_are_enough(brokers: RedisBrokers) -> None:
    addr = await brokers.add()
    rules = ["on", ">pw", *documented_acl()]
    assert "+xack" in rules
    assert (await brokers.server(addr).command("ACL", "SETUSER", "app", *rules)) == "+OK"
    group = Group(brokers, addr, username="app", password="pw")
    await group.send("a", "b")
    await group.begin()
    first, second = (await group.pop()).messages
    await group.change(second, seconds=LONG_SECONDS)
    await group.wait(0.05)
    await group.ack(first)
    backlog = await group.backlog()
    assert backlog is not None
    assert backlog.unfinished == 1


async def test_a_user_without_them_gets_an_error_that_names_the_commands(brokers: RedisBrokers) -> None:
    addr = await brokers.add()
    await brokers.server(addr).command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@read", "+@connection", "+xadd")
    group = Group(brokers, addr, username="app", password="pw")
    with pytest.raises(BrokerRefusedError, match="for leases EVAL_RO, EVAL, XGROUP, XREADGROUP, XPENDING") as refusal:
        await group.pop()
    assert refusal.value.response_code == ResponseCode.NO_PERMISSION


async def test_an_entry_of_another_program_with_a_foreign_id_is_named(brokers: RedisBrokers) -> None:
    group = Group(brokers, await brokers.add())
    await group.begin()
    await brokers.server(group.addr).command("XADD", KEY, "5-1", "body", "a")
    with pytest.raises(BrokerRefusedError, match=r"has the entry 5-1, whose id is not an offset"):
        await group.pop()


async def test_messages_of_one_reply_are_those_of_their_queue(brokers: RedisBrokers) -> None:
    group = Group(brokers, await brokers.add())
    assert isinstance(group.transport, RedisStreamsTransport)
    await group.send(*map(str, range(40)))
    await group.begin()
    found = [bodies(await group.pop(15)) for _ in range(3)]
    assert [len(each) for each in found] == [15, 15, 10]
    assert sorted(int(body) for each in found for body in each) == list(range(40))
