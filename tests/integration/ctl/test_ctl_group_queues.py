"""``pointsmanctl group``: who reads which queue, and which member is stuck, falls behind or has nothing to read."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_agent.core.measured_queue_stats import GroupLoad
from pointsman_agent.core.queue import QueueKey
from tests.kit.agent.group_clients import reads
from tests.kit.ctl.fleet import Fleet, a_fleet

A, B = "10.0.0.1@a", "10.0.0.2@b"


@pytest.fixture
async def fleet(clock: ManualClock) -> AsyncIterator[Fleet]:
    async with a_fleet(clock) as fleet:
        yield fleet


def reading(*queues: wire.QueueReading) -> wire.GroupReading:
    return wire.GroupReading(group="g", topics=[wire.TopicReading(topic="orders", queues=queues)], retries=3)


async def test_groups_show_what_they_have_to_read_and_those_without_members(fleet: Fleet) -> None:
    await fleet.join(fleet.one, A, reads("g"))
    await fleet.join(fleet.two, A, reads("g"))
    fleet.one.progress.end_round(
        {"g": GroupLoad(90, 12.0, 2.5, 1, 0), "read": GroupLoad(), "left": GroupLoad(7, 0.0, None)}
    )
    fleet.two.progress.end_round({"g": GroupLoad(10, 3.0, 3.0, 0, 1)})
    printed, document = await fleet.ctl("groups"), (await fleet.json("groups")).document

    assert printed.out == (
        "GROUP  MEMBERS  AGENTS  LAG  IN/S  OUT/S  MODEL       TOPICS  FLAGS\n"
        "g            1     2/2  100    15    5.5  CLUSTERING  orders  STUCK BEHIND\n"
        "left         0     1/2    7     0      -  -           -       NO MEMBERS\n"
    )
    fleet.one.offsets.commit("left", {QueueKey("orders", 3): 93})
    fleet.one.ends.table[QueueKey("orders", 3)] = 100
    one = await fleet.ctl("group", "left")
    assert (one.code, one.out) == (1, "")
    assert "consumer group left has no members and 7 unread messages at the 2 agents" in one.err
    g, left = document["groups"]
    numbers = ("lag", "putRate", "commitRate", "behindQueues", "stuckQueues")
    assert [g[name] for name in numbers] == [100, 15.0, 5.5, 1, 1]
    assert [left[name] for name in (*numbers, "flags")] == [7, 0.0, None, 0, 0, ["NO MEMBERS"]]


async def test_a_member_that_hangs_is_named_with_the_place_where_it_stands_and_one_without_queues_is_idle(
    fleet: Fleet, clock: ManualClock
) -> None:
    a = await fleet.join(fleet.one, A, reads("g"))
    b = await fleet.join(fleet.one, B, reads("g"))
    hangs = wire.QueueReading(queue_id=0, position=6, committed=4, in_flight=2, oldest_call=Duration(seconds=30))
    await a.beat(readings=[reading(hangs, wire.QueueReading(queue_id=1, position=9, committed=9))])
    await b.beat(readings=[reading()])
    fleet.one.offsets.commit("g", {QueueKey("orders", 0): 4, QueueKey("orders", 1): 9})
    fleet.one.ends.table |= {QueueKey("orders", 0): 100, QueueKey("orders", 1): 9}
    await clock.advance(60.0)

    printed = await fleet.ctl("group", "g")
    where = "c1/a/0"
    assert printed.code == 0
    assert f"STUCK: {A} stands at offset 4 of queue 0 of orders on {where}: a listener call has run for 90.0s" in (
        printed.out.splitlines()
    )
    first, second = (line for line in printed.out.splitlines() if line.startswith(("10.0.0.1", "10.0.0.2")))
    assert (first.split()[-1], second.split()[-1]) == ("STUCK", "IDLE")
    assert "OWNER" not in printed.out

    printed = await fleet.ctl("group", "g", "--queues")
    rows = [" ".join(line.split()) for line in printed.out.splitlines() if line.startswith("orders")]
    assert rows == [f"orders {where} 0 {A} 96 - - - - - 90.0s STUCK", f"orders {where} 1 {A} 0 - - - - - - -"]

    document = (await fleet.json("group", "g")).document
    assert [(each["queueId"], each["clientId"], each["standing"]) for each in document["queues"]] == [
        (0, A, "STUCK_CALL"),
        (1, A, None),
    ]
    assert [(each["flags"], each["retries"]) for each in document["members"]] == [(["STUCK"], 3), (["IDLE"], 3)]
