"""The commands of "Operating messages", as pasted, against the fleet of "Getting started".

Each section has a test here, which makes the incident, pastes the section's blocks in their order and sees that it is
over.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.test_docs_as_pasted import DOCS, Fleet, blocks, fleet
from tests.kit.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(300)]

PAGE = "operating-messages.md"
SECTIONS = {
    "Look before you act",
    "A poison message",
    "A backlog to skip",
    "A wrong deploy, to replay from a time",
    "A hot queue",
    "A topic to grow",
    "A group to retire",
}
"""Those with a test."""

SEND = """
import asyncio
from pointsman_client import Message, Producer
from pointsman_client.redis_streams import RedisStreamsTransport

async def main():
    async with Producer("127.0.0.1:9876", transport=RedisStreamsTransport) as producer:
        for number in range({count}):
            await producer.send(Message("orders", f"order {{number}}".encode(), keys=(str(number),)))
"""

DIE = """
import asyncio
from pointsman_client import ConsumeFrom, Message, Producer, PushConsumer, Reject
from pointsman_client.redis_streams import RedisStreamsTransport

def listener(message):
    raise Reject("not an order" if message.body == b"poison" else "Timeout of the shop")

async def main():
    dead = []
    async with (
        Producer("127.0.0.1:9876", transport=RedisStreamsTransport) as producer,
        PushConsumer(
            "127.0.0.1:9876", group="billing", subscriptions={"orders": "fails"}, listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET, transport=RedisStreamsTransport,
            on_dead_letter=lambda message, _: dead.append(message),
        ),
    ):
        for key, body in (("4711", b"one"), ("4712", b"poison"), ("4713", b"three"), ("4714", b"four")):
            await producer.send(Message("orders", body, tags="fails", keys=(key,)))
        while len(dead) < 4:
            await asyncio.sleep(0.05)
"""
REPAIRED = """
import asyncio
from pointsman_client import PushConsumer
from pointsman_client.redis_streams import RedisStreamsTransport

keys = []

def listener(message):
    keys.append(message.keys[0])

async def main():
    async with PushConsumer(
        "127.0.0.1:9876", group="billing", subscriptions={"orders": "fails"}, listener=listener,
        transport=RedisStreamsTransport,
    ) as consumer:
        for _ in range(1_600):
            await asyncio.sleep(0.05)
            if len(keys) >= 3:
                break
        else:
            print(consumer.describe())
    print("processed", *sorted(keys))
"""


CONSUME = """
import asyncio
from pointsman_client import ConsumeFrom, PushConsumer
from pointsman_client.redis_streams import RedisStreamsTransport

async def listener(message):
    print("got", message.body.decode(), flush=True)

async def main():
    async with PushConsumer(
        "127.0.0.1:9876", group="billing", subscriptions={"orders": "*"}, listener=listener,
        transport=RedisStreamsTransport, consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await asyncio.Event().wait()

asyncio.run(main())
"""


HOT = """
import asyncio
from pointsman_client import ConsumeFrom, Message, MessageQueue, Producer, PushConsumer
from pointsman_client.redis_streams import RedisStreamsTransport

async def listener(message):
    pass

async def main():
    queue = MessageQueue("orders", "home", "broker-a", 2)
    async with (
        Producer("127.0.0.1:9876", transport=RedisStreamsTransport) as producer,
        PushConsumer(
            "127.0.0.1:9876", group="billing", subscriptions={"orders": "*"}, listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET, transport=RedisStreamsTransport, client_id="10.0.0.7@4711",
        ),
    ):
        while True:
            await producer.send_to(queue, Message("orders", b"hot", keys=("vip",)))
            await asyncio.sleep(0.02)
"""


@contextlib.contextmanager
def a_hot_queue_is_read(here: Fleet) -> Iterator[None]:
    """Send to one queue and consume, until the end of the block."""
    script, log = here.folder / "beside.py", here.folder / "beside.log"
    script.write_text(here.exchanged(HOT), encoding="utf-8")
    with log.open("w") as output, here.python(script, output) as process:
        try:
            member = "pointsmanctl group billing || true"
            until(lambda: "10.0.0.7@4711" in here.run(member) or process.poll() is not None, seconds=90)
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One fleet for all sections; each has its own groups and keys."""
    with fleet(tmp_path_factory.mktemp("operating")) as running:
        yield running


def paste(here: Fleet, heading: str) -> list[str]:
    """Run the blocks of a section in their order; return what each printed."""
    return [here.run(block) for block in blocks("bash", PAGE, heading)]


def pasted_commands(here: Fleet, heading: str) -> list[str]:
    """Run the commands of a section in their order; return what each printed."""
    return [here.run(line) for block in blocks("bash", PAGE, heading) for line in block.splitlines()]


def send(here: Fleet, count: int) -> None:
    """Send ``order 0`` to ``order COUNT-1``, with their numbers as keys."""
    here.run_python(SEND.format(count=count))


def test_every_section_has_a_test() -> None:
    page = (DOCS / PAGE).read_text(encoding="utf-8")
    assert set(re.findall(r"^## (.+)$", page, re.MULTILINE)) == SECTIONS


def test_look_before_you_act(here: Fleet) -> None:
    send(here, 4_712)
    peeked, found, body = paste(here, "Look before you act")
    # Those of the same millisecond have no order.
    assert re.search(r"order 47\d\d\n", peeked)
    (row,) = [line for line in found.splitlines() if "order 4711" in line]
    assert " 4711 " in row
    assert re.search(r"looked at \d+ of 4712 messages in 4 queues", found)
    assert re.fullmatch(r"order 47\d\d\n", body)
    (message,) = json.loads(here.run("pointsmanctl -o json messages find orders --key 0"))["messages"]
    assert (message["body"], message["keys"]) == ("order 0", ["0"])


def test_a_poison_message(here: Fleet) -> None:
    here.run_python(DIE)
    until(lambda: "billing" in here.run("pointsmanctl dlq list"), seconds=90)
    listed, shown, exported, plan, one, rest, again, left = pasted_commands(here, "A poison message")
    assert re.search(r"billing +\S+ +4 +4 ", listed)
    assert [word in shown for word in ("poison", "not an order", "Timeout of the shop", "4713")] == [True] * 4
    assert "4 dead letters of group billing exported" in exported
    assert "orders (1)" in plan
    assert "sent 1" in one
    assert "sent 2" in rest
    assert re.search(r"billing +\S+ +4 +1 ", again)
    assert "poison" in left
    assert "three" not in left
    assert "processed 4711 4713 4714\n" in here.run_python(REPAIRED)
    assert here.run("pointsmanctl changes").count("replay of dead letters of group billing") == 2


@contextlib.contextmanager
def consumer(here: Fleet) -> Iterator[Callable[[], list[str]]]:
    """A consumer of ``billing`` as a process; gives what it has printed."""
    script, log = here.folder / "consumer.py", here.folder / "consumer.log"
    script.write_text(here.exchanged(CONSUME), encoding="utf-8")
    log.unlink(missing_ok=True)
    with here.shell(f"exec python {script} > {log} 2>&1") as process:
        try:
            yield lambda: re.findall(r"^got (.+)$", log.read_text(), re.MULTILINE) if log.exists() else []
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def lag(here: Fleet) -> int:
    """Unread messages of ``billing``."""
    (total,) = json.loads(here.run("pointsmanctl -o json offsets billing"))["totals"]
    return int(total["lag"])


def test_a_backlog_to_skip(here: Fleet) -> None:
    send(here, 10)
    with consumer(here) as got:
        until(lambda: got() and lag(here) == 0, seconds=60)
    send(here, 20)
    behind, skipped, after = paste(here, "A backlog to skip")
    assert re.search(r"^billing +4 +20 ", behind, re.MULTILINE)
    assert "4 of 4 queues of orders get another offset, 20 messages skipped; group billing has no member" in skipped
    assert "home/broker-a/0: 4 queues reset" in skipped
    assert re.search(r"^billing +4 +0 ", after, re.MULTILINE)
    assert "offsets of group billing in topic orders" in here.run("pointsmanctl changes --since 10m")


def test_a_wrong_deploy_to_replay_from_a_time(here: Fleet) -> None:
    with consumer(here) as got:
        until(lambda: lag(here) == 0, seconds=60)
        read = len(got())
        plan, _ = paste(here, "A wrong deploy, to replay from a time")
        again = int(re.findall(r"(\d+) messages read again", plan)[0])
        assert again > 0
        until(lambda: len(got()) >= read + again, seconds=60)


def test_a_hot_queue(here: Fleet) -> None:
    with a_hot_queue_is_read(here):
        status, group, messages, pinned, lag, unpinned = pasted_commands(here, "A hot queue")
    rates = {
        int(queue): float(rate)
        for queue, rate in re.findall(r"^home/broker-a +(\d).* ([\d.]+) +rw$", status, re.MULTILINE)
    }
    assert rates[2] > 1
    assert [rates[queue] for queue in (0, 1, 3)] == [0.0] * 3
    assert "10.0.0.7@4711" in group
    assert messages.count("vip") == 20
    assert "10.0.0.7" in pinned
    assert re.search(r"billing +orders +home/broker-a/0 +2 ", lag)
    assert unpinned


def test_a_topic_to_grow(here: Fleet) -> None:
    with a_hot_queue_is_read(here):
        now, plan, grown, then, _, left, shrunk, after = pasted_commands(here, "A topic to grow")
    assert "home/broker-a: 4 queues, rw" in now
    assert "4 of 8 queues change (home/broker-a 4 -> 8)" in plan
    assert "rebalances: billing (1 member)" in plan
    assert "4 queues, rw -> 8 queues, rw" in grown
    assert "home/broker-a: 8 queues, rw" in then
    assert "give topic orders 8 queues" in here.run("pointsmanctl changes --since 10m")
    assert "queues 4 to 7 stay readable" in left
    assert "8 read queues, 4 write queues, rw -> 4 queues, rw" in shrunk
    assert "home/broker-a: 4 queues, rw" in after


def test_a_group_to_retire(here: Fleet) -> None:
    here.run_python(DIE.replace('"billing"', '"billing-v1"'))
    until(lambda: "billing-v1" in here.run("pointsmanctl dlq list"), seconds=90)
    send(here, 4)
    # A retired group is seen with the agents' next measurement of its lag.
    until(lambda: re.search(r"^billing-v1 .*NO MEMBERS", here.run("pointsmanctl groups"), re.MULTILINE), seconds=90)
    groups = json.loads(here.run("pointsmanctl -o json dlq list"))["groups"]
    (dead,) = (each["stored"] for each in groups if each["group"] == "billing-v1")
    shown, deleted, _ = paste(here, "A group to retire")
    assert "billing-v1" in shown
    # The group begins at the first message of the topic, and may die on those of another section, too.
    assert dead >= 4
    assert re.search(rf"lost with it: .*\b{dead} dead letters", deleted)
    assert "offsets of group billing-v1 deleted" in deleted
    assert re.search(r": \d+ queues? of retries and dead letters removed", deleted)
    assert "deletion of group billing-v1" in here.run("pointsmanctl changes --since 10m")
    until(lambda: "billing-v1" not in here.run("pointsmanctl groups"), seconds=90)
    assert "billing-v1" not in here.run("pointsmanctl dlq list")
