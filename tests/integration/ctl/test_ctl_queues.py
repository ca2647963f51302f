"""``pointsmanctl queues``: the busiest topics and queues, the longest lags, and what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.v1 import registration_service_pb2 as messages
from tests.kit.ctl.command import Ended, ctl
from tests.kit.name_server import wire
from tests.kit.name_server.peer import serving
from tests.kit.name_server.scripted_routes import refused_addr


def topic(name: str, *rates: float) -> messages.TopicTotals:
    return messages.TopicTotals(
        topic=name,
        queue_count=len(rates),
        idle_queue_count=rates.count(0.0),
        put_rate=sum(rates),
        highest_put_rate=max(rates),
        depth=100,
    )


def puts(name: str, *rates: float) -> list[messages.QueuePuts]:
    return [
        messages.QueuePuts(topic=name, queue_id=n, put_rate=rate, depth=25, bytes=1_000 * n)
        for n, rate in enumerate(rates)
        if rate
    ]


def lag(name: str, count: int, *, seconds: int) -> messages.QueueLag:
    return messages.QueueLag(group=name, topic="orders", queue_id=1, lag=count, oldest_unread=Duration(seconds=seconds))


HOT, EVEN = (0.0, 12.0, 0.0, 1.0), (5.0, 5.0)
STATS = messages.QueueStats(
    top_topics=[topic("orders", *HOT), topic("bills", *EVEN)],
    top_put_rates=[*puts("orders", *HOT), *puts("bills", *EVEN)],
    top_lags=[lag("left", 70, seconds=45), lag("g", 20, seconds=1)],
    top_groups=[
        messages.GroupTotals(group="g", topic="orders", queue_count=4, lag=20, member_count=2),
        messages.GroupTotals(group="left", topic="orders", queue_count=4, lag=70),
    ],
)


@pytest.fixture
async def addr() -> AsyncIterator[str]:
    """A name server with one measured broker and one that is not."""
    async with serving() as (server, peer):
        await peer.register("orders", who=wire.identity("b", addr="10.0.0.2:10911"))
        beat = wire.beat(await peer.register("orders", "bills"))
        live = messages.LiveQueues(stats=STATS, age=Duration(seconds=4)).SerializeToString()
        await peer.registration.Heartbeat(messages.HeartbeatRequest(beat=beat, live_queues=live))
        yield server.addr


async def queues(addr: str, *arguments: str) -> Ended:
    return await ctl("--namesrv", addr, "queues", *arguments)


def rows(printed: str) -> list[str]:
    return [" ".join(line.split()) for line in printed.splitlines()]


SKEW = (
    "KEY SKEW: queue 1 of topic orders on a gets 12.0 of 13.0 messages per second, 3.7 times the mean of the 4 queues"
)
NO_MEMBERS = "NO MEMBERS: group left lags by 70 messages in topic orders"


async def test_the_busiest_come_first_and_findings_say_what_to_do(addr: str) -> None:
    printed = await queues(addr)
    lines = rows(printed.out)

    assert printed.code == 0
    assert lines[: lines.index(SKEW)] == [
        "CLUSTER TOPIC QUEUES IDLE IN/S SKEW DEPTH",
        "c1 orders 4 2 13 3.7 100",
        "c1 bills 2 0 10 1.0 100",
        "",
        "CLUSTER BROKER TOPIC QUEUE IN/S DEPTH BYTES",
        "c1 a orders 1 12 25 1000",
        "c1 a bills 0 5.0 25 -",
        "c1 a bills 1 5.0 25 1000",
        "c1 a orders 3 1.0 25 3000",
        "",
        "CLUSTER BROKER GROUP TOPIC QUEUE LAG OLDEST",
        "c1 a left orders 1 70 45.0s",
        "c1 a g orders 1 20 1.0s",
        "",
    ]
    assert lines[lines.index(NO_MEMBERS) + 1] == "To do: the group has no members: start its consumers"
    assert lines[-2].startswith("NOT MEASURED: c1/b: no measurement: ")
    assert lines[-1].startswith("1 of 2 brokers measured, the oldest ")


async def test_hot_shows_what_has_a_finding_alone(addr: str) -> None:
    hot, cool = await queues(addr, "--hot"), await queues(addr, "bills", "--hot")
    lines = rows(hot.out)

    assert [line.split()[1] for line in lines if line.startswith("c1 ")] == ["orders", "a", "a", "a"]
    assert "c1 a left orders 1 70 45.0s" in lines
    assert SKEW in lines
    assert rows(cool.out)[0] == "no queue is hot, and no group needs action"


async def test_hot_keeps_to_the_limit_of_rows(addr: str) -> None:
    lines = rows((await queues(addr, "--hot", "--limit", "1")).out)
    assert SKEW in lines
    assert NO_MEMBERS in lines
    assert sum(line.startswith("c1 ") for line in lines) == 3
    cool = rows((await queues(addr, "--limit", "1")).out)
    assert sum(line.startswith("c1 ") for line in cool) == 3


async def test_hot_finds_a_group_with_a_short_lag_behind_many_others() -> None:
    """Its members are idle, and 20 other groups lag more."""
    stats = messages.QueueStats(
        top_groups=[
            messages.GroupTotals(group=f"g{n}", topic="orders", queue_count=4, lag=n, member_count=9 if n == 0 else 1)
            for n in range(20)
        ]
    )
    async with serving() as (server, peer):
        generation = await peer.register("orders")
        live = messages.LiveQueues(stats=stats).SerializeToString()
        await peer.registration.Heartbeat(messages.HeartbeatRequest(beat=wire.beat(generation), live_queues=live))
        printed = await queues(server.addr, "--hot", "--limit", "5")

    assert "IDLE MEMBERS: 5 of 9 members of group g0 have no queue of topic orders (4 queues)" in rows(printed.out)


async def test_one_topic_and_one_that_no_measurement_names(addr: str) -> None:
    one, none = await queues(addr, "bills", "--limit", "1"), await queues(addr, "nothing")

    assert [line for line in rows(one.out) if line.startswith("c1 ")] == [
        "c1 bills 2 0 10 1.0 100",
        "c1 a bills 0 5.0 25 -",
    ]
    assert none.code == 1
    assert "no measurement names topic nothing" in none.err
    assert "pointsmanctl route nothing" in none.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(("--cluster", "c9"), "c9"), (("a b",), "'a b'")],
)
async def test_a_wrong_name_is_an_error(addr: str, arguments: tuple[str, ...], text: str) -> None:
    printed = await queues(addr, *arguments)
    assert printed.code in {1, 2}
    assert text in printed.err


async def test_the_server_that_knows_most_brokers_is_shown_and_one_that_fails_named(addr: str) -> None:
    async with refused_addr() as gone:
        printed = await ctl("--namesrv", f"{gone},{addr}", "queues")
    assert printed.code == 1
    assert SKEW in rows(printed.out)
    assert gone in printed.out + printed.err


async def test_rocketmq_name_servers_do_not_know_it() -> None:
    printed = await ctl("--namesrv", "rocketmq://127.0.0.1:9", "queues")
    assert printed.code == 2
    assert "this command requires a name server of Pointsman" in printed.err
