"""The aggregation of docs/queue-planning.md: right when messages are delivered again, in batches with other borders."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.consumer.pull_consumer import PullConsumer
from pointsman_client.core.message import Message, OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.core.sharding import SubShards
from tests.kit.client.consumer_setup import Setup, consumer_setup
from tests.kit.client.memory_group import addr_of, queue_of, route_of

PAGE = Path(__file__).parents[2].joinpath("docs/queue-planning.md").read_text(encoding="utf-8")
BORN_AT = datetime(2026, 1, 1, tzinfo=UTC)
LARGE, SMALL = "big-customer", "other-customer"
QUEUES = [queue_of(number) for number in range(8)]
AMOUNTS = range(1, 201)


class ByOffsets:
    """What the page advises against: a batch is known by its first and last offset."""

    def __init__(self) -> None:
        self.total = 0
        self._seen: set[tuple[MessageQueue, int, int]] = set()

    def add(self, messages: Sequence[ReceivedMessage]) -> None:
        batches = defaultdict[MessageQueue, list[ReceivedMessage]](list)
        for message in messages:
            batches[message.queue].append(message)
        for queue, batch in batches.items():
            borders = (queue, batch[0].queue_offset, batch[-1].queue_offset)
            if borders not in self._seen:
                self._seen.add(borders)
                self.total += sum(int(message.body) for message in batch if message.keys[0] == LARGE)


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """The names of the page's code."""
    (code,) = (
        block for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) if "def add" in block
    )
    names: dict[str, Any] = {}
    exec(code, names)
    return names


@pytest.fixture
def database(example: dict[str, Any]) -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:")
    opened.executescript(example["TABLES"])
    yield opened
    opened.close()


def sent() -> list[tuple[MessageQueue, OutgoingMessage]]:
    """Amounts of both customers, those of the large one in four sub-shards."""
    queue_of_key = SubShards({LARGE: 4}).over(QUEUES)
    return [
        (
            queue_of_key.queue_of(customer, second=f"order-{amount}"),
            OutgoingMessage(Message("orders", b"%d" % amount, keys=(customer,)), f"{customer}-{amount}", BORN_AT),
        )
        for customer in (LARGE, SMALL)
        for amount in AMOUNTS
    ]


async def poll(setup: Setup, consumer: PullConsumer) -> Sequence[ReceivedMessage]:
    polling = asyncio.ensure_future(consumer.poll(timeout_seconds=1.0))
    await setup.clock.advance(1)
    return await polling


@pytest.mark.parametrize(("first_size", "second_size"), [(7, 5), (64, 31), (5, 64)])
async def test_parts_of_two_members_are_right_after_one_of_them_ended_between_add_and_commit(
    example: dict[str, Any], database: sqlite3.Connection, first_size: int, second_size: int
) -> None:
    by_offsets = ByOffsets()

    def add(messages: Sequence[ReceivedMessage]) -> int:
        example["add"](database, messages)
        by_offsets.add(messages)
        return len(messages)

    async with consumer_setup(ManualClock()) as setup:
        setup.routes.set(route_of("orders", {"a": len(QUEUES)}))
        for queue, message in sent():
            await setup.brokers.transport.send(addr_of("a"), queue, [message], timeout_seconds=5)
        first = await setup.join_pulling("x", auto_commit=False, max_poll_messages=first_size)
        await setup.clock.advance(1)
        assert sum([add(await poll(setup, first)) for _ in range(3)]) > 0
        await first.close()
        assert not any(setup.group.offsets.values())
        members = [
            await setup.join_pulling(name, auto_commit=False, max_poll_messages=second_size) for name in ("y", "z")
        ]
        await setup.clock.advance(30)
        delivered = 0
        while delivered < 2 * len(AMOUNTS):
            for member in members:
                delivered += add(await poll(setup, member))
                await member.commit()
        assert all(member.assignment for member in members)

    parts = database.execute("SELECT count(*) FROM parts WHERE customer = ?", (LARGE,)).fetchone()
    assert parts == (4,)
    assert example["total"](database, LARGE) == example["total"](database, SMALL) == sum(AMOUNTS)
    assert by_offsets.total > sum(AMOUNTS)


async def test_the_program_of_the_page_commits_what_it_has_added(
    example: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with consumer_setup(ManualClock()) as setup:

        def in_memory(_: str, **options: Any) -> PullConsumer:
            more = {"transport": setup.brokers.transport, "make_coordination": setup.group.coordinate}
            return PullConsumer(
                setup.routes, **options | more, clock=setup.clock, consume_from=ConsumeFrom.FIRST_OFFSET
            )

        monkeypatch.setitem(example, "PullConsumer", in_memory)
        setup.routes.set(route_of("orders", {"a": len(QUEUES)}))
        for queue, message in sent():
            await setup.brokers.transport.send(addr_of("a"), queue, [message], timeout_seconds=5)
        program = asyncio.create_task(example["main"]())
        await setup.until(lambda: sum(setup.group.offsets.values()) == 2 * len(AMOUNTS))
        program.cancel()
        await setup.until(program.done)
        with contextlib.closing(sqlite3.connect("totals.db")) as written:
            assert example["total"](written, LARGE) == sum(AMOUNTS)


def test_any_redelivery_from_an_earlier_offset_leaves_the_totals(
    example: dict[str, Any], database: sqlite3.Connection
) -> None:
    rng = random.Random(7)
    queues = defaultdict[MessageQueue, list[ReceivedMessage]](list)
    for queue, message in sent():
        offset = len(queues[queue])
        queues[queue].append(ReceivedMessage(message.message, queue, offset, message.message_id, message.born_at))
        if rng.random() < 0.1:  # a send that was retried, and stored twice
            queues[queue].append(queues[queue][-1]._replace(queue_offset=offset + 1))
    for messages in queues.values():
        at = 0
        while at < len(messages):
            end = at + rng.randint(1, 20)
            example["add"](database, messages[at:end])
            at = end if rng.random() < 0.6 else rng.randint(0, at)
    assert example["total"](database, LARGE) == example["total"](database, SMALL) == sum(AMOUNTS)
    assert example["total"](database, "unknown") == 0


def test_a_failed_batch_leaves_nothing(example: dict[str, Any], database: sqlite3.Connection) -> None:
    good, bad = (
        ReceivedMessage(Message("orders", body, keys=(LARGE,)), QUEUES[0], offset, f"id-{offset}", BORN_AT)
        for offset, body in enumerate((b"5", b"not a number"))
    )
    with pytest.raises(ValueError, match="invalid literal"):
        example["add"](database, [good, bad])
    assert example["total"](database, LARGE) == 0
    example["add"](database, [good])
    assert example["total"](database, LARGE) == 5
