"""``pointsmanctl`` pins queues of a group to one member at every agent, shows the pins and ends them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from pointsman.manual_clock import ManualClock
from tests.kit.agent.group_clients import follows_pins, reads
from tests.kit.ctl.fleet import Fleet, a_fleet

A, B = "10.0.0.1@a", "10.0.0.2@b"
UNTIL = "until 2026-01-01 01:00:00 UTC"


@pytest.fixture
async def fleet(clock: ManualClock) -> AsyncIterator[Fleet]:
    async with a_fleet(clock) as fleet:
        yield fleet


async def join(fleet: Fleet, *client_ids: str) -> None:
    """Join at both masters, as clients do."""
    for client_id in client_ids:
        for agent in (fleet.one, fleet.two):
            await fleet.join(agent, client_id, follows_pins(reads("billing", "orders")))


async def test_the_pin_of_a_queue_is_sent_to_masters_and_replicas_shown_and_ended_everywhere(fleet: Fleet) -> None:
    await join(fleet, A, B)
    pinned = await fleet.ctl("pin", "billing", "--queue", "orders/a/1", "--to", "10.0.0.1", "--for", "1h")
    table, printed, listed = (
        await fleet.ctl("group", "billing"),
        await fleet.json("group", "billing", "--queues"),
        await fleet.json("groups"),
    )

    assert pinned.code == 0, pinned.err
    assert f"{fleet.one.addr} (c1/a/0): billing: orders/c1/a/1 to {A} {UNTIL}\n" in pinned.out
    assert f"{fleet.two.addr} (c1/b/0): billing: orders/c1/a/1 to {A} {UNTIL}\n" in pinned.out
    assert f"(c1/a/1): billing: orders/c1/a/1 to 10.0.0.1 {UNTIL}, without effect now\n" in pinned.out
    masters = sorted((fleet.one, fleet.two), key=lambda each: each.addr)
    where = ", ".join(f"{agent.addr} ({agent.broker})" for agent in masters)
    assert f"PINNED orders/c1/a/1 to {A} {UNTIL}: {where}\n" in table.out
    found = {
        "topic": "orders",
        "cluster": "c1",
        "brokerName": "a",
        "queueId": 1,
        "to": "10.0.0.1",
        "until": "2026-01-01T01:00:00.100Z",
        "clientId": A,
    }
    assert printed.document["queuePins"] == [{"agent": agent.addr, **found} for agent in masters]
    assert printed.document["agents"][0]["group"]["membership"]["queuePins"] == [found]
    assert listed.document["groups"][0]["flags"] == ["PINNED"]

    again = await fleet.json("pin", "billing", "--queue", "orders/c1/a/1", "--to", B, "--for", "1h")
    assert sorted(each["pin"]["clientId"] for each in again.document["agents"]) == ["", B, B]
    await fleet.ctl("pin", "billing", "--queue", "orders/b/0", "--to", B, "--for", "1h")
    ended = await fleet.ctl("unpin", "billing", "--queue", "orders/a/1")
    assert ended.out.count("billing: queue 1 of orders on a is not pinned\n") == 3
    for agent in (fleet.one, fleet.two, fleet.replica):
        assert [pin.queue.broker_name for pin in agent.groups.core.queue_pins.of("billing")] == ["b"]
    assert (await fleet.ctl("unpin", "billing")).code == 0
    assert not any(agent.groups.core.pinned_count for agent in (fleet.one, fleet.two, fleet.replica))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--queue", "none/a/0", "--to", A], "TOPIC_NOT_FOUND", "none"),
        (["--queue", "orders/z/0", "--to", A], "QUEUE_NOT_FOUND", "no queues on broker z; it has some on c1/a, c1/b"),
        (["--queue", "orders/c2/a/0", "--to", A], "QUEUE_NOT_FOUND", "no queues on broker c2/a"),
        (
            ["--queue", "orders/a/4", "--to", A],
            "QUEUE_NOT_FOUND",
            "topic orders on c1/a has 4 readable queues, numbered from 0, and no queue 4",
        ),
        (
            ["--queue", "orders/a/0", "--to", "10.0.0.9"],
            "MEMBER_NOT_FOUND",
            "10.0.0.9 is not a member of group billing",
        ),
    ],
)
async def test_a_queue_or_member_that_does_not_exist_is_named_and_nothing_is_pinned(
    fleet: Fleet, arguments: list[str], code: str, words: str
) -> None:
    await join(fleet, A)
    failed = await fleet.json("pin", "billing", *arguments, "--for", "1h")
    error = json.loads(failed.err)["error"]
    assert (failed.code, error["code"]) == (1, code)
    assert words in error["message"]
    assert not any(agent.groups.core.pinned_count for agent in (fleet.one, fleet.two, fleet.replica))


async def test_a_group_without_members_or_without_the_topic_is_not_pinned(fleet: Fleet) -> None:
    empty = await fleet.json("pin", "billing", "--queue", "orders/a/0", "--to", A, "--for", "1h")
    await fleet.join(fleet.one, A, follows_pins(reads("billing", "bills")))
    other = await fleet.json("pin", "billing", "--queue", "orders/a/0", "--to", A, "--for", "1h")
    errors = [json.loads(each.err)["error"] for each in (empty, other)]
    assert [each["code"] for each in errors] == ["GROUP_NOT_FOUND", "QUEUE_NOT_FOUND"]
    assert "group billing does not read topic orders; it reads bills" in errors[1]["message"]


async def test_a_client_that_does_not_follow_pins_is_named_by_pin_and_by_group(fleet: Fleet) -> None:
    await join(fleet, A)
    assert (await fleet.ctl("pin", "billing", "--queue", "orders/a/0", "--to", A, "--for", "1h")).code == 0
    for agent in (fleet.one, fleet.two):
        await fleet.join(agent, B, reads("billing", "orders"))
    refused = await fleet.ctl("pin", "billing", "--queue", "orders/a/1", "--to", A, "--for", "1h")
    assert refused.code == 1
    assert f"do not follow pins of queues: {B}" in refused.err
    shown = await fleet.ctl("group", "billing")
    suspended = (
        f"PINNED orders/c1/a/0 to {A} {UNTIL}, without effect now (the clients of {B} do not follow pins of queues)"
    )
    assert suspended in shown.out


async def test_one_agent_is_asked_directly_with_the_cluster_of_the_queue(fleet: Fleet) -> None:
    await join(fleet, A)
    pinned = await fleet.ctl(
        "pin", "billing", "--queue", "orders/c1/b/0", "--to", A, "--for", "1h", "--agent", fleet.one.addr
    )
    assert (pinned.code, pinned.err) == (0, "")
    assert [agent.groups.core.pinned_count for agent in (fleet.one, fleet.two)] == [1, 0]
