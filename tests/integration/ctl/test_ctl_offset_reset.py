"""``pointsmanctl offsets reset``, ``skip`` and ``clone`` at real agents."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.offsets.stored_offsets import StoreFailed
from pointsman_client.core.allocation import Averagely
from pointsman_client.pointsman_grpc.agents.group_settings import own_settings
from tests.kit.agent.group_clients import reads
from tests.kit.agent.in_route import WholeAgent, whole_agents
from tests.kit.ctl.command import Ended, ctl
from tests.kit.ctl.fleet import Fleet, a_fleet
from tests.kit.history.rows import rows_in
from tests.kit.name_server.in_process import running_name_server
from tests.kit.waiting import eventually

A, B = "10.0.0.1@a", "10.0.0.2@b"
BY = ("--by", "ann", "--yes")


def put(agent: WholeAgent, committed: Mapping[int, int], *, group: str = "billing") -> None:
    """Queues of ``bills`` have the messages 10 to 99; the group has committed these offsets."""
    for queue_id in range(2):
        agent.ends.first[QueueKey("bills", queue_id)] = 10
        agent.ends.table[QueueKey("bills", queue_id)] = 100
    agent.offsets.commit(group, {QueueKey("bills", queue_id): offset for queue_id, offset in committed.items()})


def held(*agents: WholeAgent, group: str = "billing") -> list[dict[int, int]]:
    """The committed offsets of ``bills`` at each agent, by queue."""
    return [
        {queue.queue_id: offset for queue, offset in each.offsets.of_group(group).items() if queue.topic == "bills"}
        for each in agents
    ]


@pytest.fixture
async def fleet(clock: ManualClock) -> AsyncIterator[Fleet]:
    async with a_fleet(clock) as made:
        put(made.one, {0: 40, 1: 50})
        put(made.two, {0: 60})
        yield made


async def test_the_plan_shows_what_is_and_what_will_be_and_a_dry_run_changes_nothing(fleet: Fleet) -> None:
    group = reads("billing", "bills")
    group.settings.CopyFrom(own_settings(Averagely(), is_ordered=False, started_at=fleet.one.clock.utc_now()))
    await fleet.join(fleet.one, A, group)
    await fleet.join(fleet.one, B, reads("billing", "bills"), reads("other", "orders"))
    command = ("offsets", "reset", "billing", "bills", "--to", "-15", "--dry-run")
    shown, printed = await asyncio.gather(fleet.ctl(*command), fleet.json(*command))
    assert shown == Ended(
        0,
        "QUEUE   COMMITTED        NEW  DIFFERENCE  MIN  MAX\n"
        "c1/a/0         40         25         -15   10  100\n"
        "c1/a/1         50         35         -15   10  100\n"
        "c1/b/0         60         45         -15   10  100\n"
        "c1/b/1          -  unchanged           -   10  100\n"
        "3 of 4 queues of bills get another offset, 45 messages read again; group billing has 2 members online\n"
        f"1 member older than resets, to restart because they do not follow one while they run: {B}\n",
        "",
    )
    plan = printed.document["plan"]
    assert plan["queues"][0] == {
        "queue": "c1/a/0",
        "server": fleet.one.addr,
        "committedOffset": 40,
        "newOffset": 25,
        "difference": -15,
        "minOffset": 10,
        "maxOffset": 100,
        "isChanged": True,
    }
    assert plan["members"] == [{"clientId": A, "followsReset": True}, {"clientId": B, "followsReset": False}]
    assert (printed.document["dryRun"], printed.document["servers"], printed.document["recorded"]) == (True, [], [])
    assert held(fleet.one, fleet.two) == [{0: 40, 1: 50}, {0: 60}]


@pytest.mark.parametrize(
    ("to", "one", "two"),
    [
        (["earliest"], {0: 10, 1: 10}, {0: 10, 1: 10}),
        (["latest"], {0: 100, 1: 100}, {0: 100, 1: 100}),
        (["45"], {0: 45, 1: 45}, {0: 45, 1: 45}),
        (["5000"], {0: 100, 1: 100}, {0: 100, 1: 100}),
        (["0"], {0: 10, 1: 10}, {0: 10, 1: 10}),
        (["+45"], {0: 85, 1: 95}, {0: 100}),
        (["a/1=44", "c1/b/1=55"], {0: 40, 1: 44}, {0: 60, 1: 55}),
        (["earliest", "--queue", "1"], {0: 40, 1: 10}, {0: 60, 1: 10}),
        (["earliest", "--queue", "a/1", "--queue", "c1/b/0"], {0: 40, 1: 10}, {0: 10}),
    ],
)
async def test_each_target_sets_the_offsets_that_it_names(
    fleet: Fleet, to: list[str], one: dict[int, int], two: dict[int, int]
) -> None:
    targets = [word for each in to for word in (("--to", each) if "=" in each else (each,))]
    targets = targets if "=" in to[0] else ["--to", *targets]
    ended = await fleet.json("offsets", "reset", "billing", "bills", *targets, *BY)
    assert ended.code == 0, ended.err
    assert held(fleet.one, fleet.two) == [one, two]
    assert all(each["changed"] for each in ended.document["servers"])


async def test_a_reset_raises_the_epoch_and_the_same_command_again_changes_nothing(fleet: Fleet) -> None:
    ended = await fleet.ctl("offsets", "skip", "billing", "bills", *BY)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-2:] == ["c1/a/0: 2 queues reset", "c1/b/0: 2 queues reset"]
    epoch = fleet.one.offsets.epoch("billing", QueueKey("bills", 0))
    assert epoch > 0
    again = await fleet.json("offsets", "skip", "billing", "bills", *BY)
    assert (again.code, again.document["servers"]) == (0, [])
    assert fleet.one.offsets.epoch("billing", QueueKey("bills", 0)) == epoch


async def test_a_member_is_notified(fleet: Fleet) -> None:
    member = await fleet.join(fleet.one, A, reads("billing", "bills"))
    await fleet.ctl("offsets", "skip", "billing", "bills", *BY)
    assert list((await member.answer()).reset_groups) == ["billing"]


async def test_an_expected_offset_that_has_moved_refuses_the_reset_everywhere(fleet: Fleet) -> None:
    command = ("offsets", "reset", "billing", "bills", "--to", "latest", *BY)
    moved = await fleet.ctl(*command, "--expect", "a/1=49")
    assert (moved.code, held(fleet.one, fleet.two)) == (1, [{0: 40, 1: 50}, {0: 60}])
    assert "queue c1/a/1 is at offset 50, not at the expected 49: nothing was reset" in moved.err
    several = await fleet.ctl(*command, "--expect", "50")
    assert several.code == 2
    assert "--expect 50 is for one queue, and 4 are chosen: use QUEUE=OFFSET" in several.err
    one = await fleet.ctl(*command, "--queue", "a/1", "--expect", "50")
    assert (one.code, held(fleet.one)) == (0, [{0: 40, 1: 100}])


async def test_an_offset_that_moves_after_the_plan_is_refused_by_the_agent(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = fleet.one.replica_offsets
    get = offsets.get
    calls = 0

    def moving(group: str, queues: Any, **how: Any) -> dict[QueueKey, int]:
        nonlocal calls
        calls += 1
        if calls == 2:  # the first is that of the plan
            fleet.one.offsets.commit("billing", {QueueKey("bills", 1): 51})
        return get(group, queues, **how)

    monkeypatch.setattr(offsets, "get", moving)
    ended = await fleet.ctl(
        "offsets", "reset", "billing", "bills", "--to", "latest", "--queue", "a/1", "--expect", "50", *BY
    )
    assert (ended.code, held(fleet.one)) == (1, [{0: 40, 1: 51}])
    assert "is at offset 51 in queue 1 of topic bills, not at 50: nothing was reset" in ended.out + ended.err


@pytest.mark.parametrize("to", ["latest", "earliest"])
async def test_a_broker_whose_messages_are_not_known_is_named_and_an_offset_can_be_given(fleet: Fleet, to: str) -> None:
    fleet.two.ends.problem = "redis is away"
    command = ("offsets", "reset", "billing", "bills", "--to")
    ended = await fleet.ctl(*command, to, *BY)
    assert (ended.code, held(fleet.two)) == (1, [{0: 60}])
    assert "c1/b/0: not reset: where the messages of queue c1/b/0 begin and end" in ended.out
    assert "c1/a/0: 2 queues reset" in ended.out
    ended = await fleet.ctl(*command, "77", "--queue", "b/0", *BY)
    assert (ended.code, held(fleet.two)) == (0, [{0: 77}])


async def test_a_reset_that_could_not_be_stored_is_stored_by_the_same_command(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_: object) -> dict[OffsetKey, int]:
        raise StoreFailed("the disk is full")

    command = ("offsets", "reset", "billing", "bills", "--to", "latest", "--queue", "a/0", *BY)
    with monkeypatch.context() as failing:
        failing.setattr(fleet.one.flusher._store, "write", full)
        failed = await fleet.ctl(*command)
    assert (failed.code, "cannot be stored yet, so send it again: the disk is full" in failed.out + failed.err) == (
        1,
        True,
    )
    assert fleet.one.offsets.unwritten
    again = await fleet.ctl(*command)
    assert (again.code, "c1/a/0: 1 queue reset" in again.out, fleet.one.offsets.unwritten) == (0, True, 0)
    done = await fleet.json(*command)
    assert (done.code, done.document["servers"]) == (0, [])


async def test_a_clone_gives_another_group_the_same_offsets(fleet: Fleet) -> None:
    ended = await fleet.json("offsets", "clone", "billing", "billing-v2", "bills", *BY)
    assert ended.code == 0, ended.err
    assert held(fleet.one, fleet.two, group="billing-v2") == [{0: 40, 1: 50}, {0: 60}]
    assert [each["difference"] for each in ended.document["plan"]["queues"]] == [None, None, None, None]


async def test_a_broadcasting_group_a_group_or_topic_that_no_broker_knows_and_an_unknown_queue_are_refused(
    fleet: Fleet,
) -> None:
    await fleet.join(fleet.one, A, reads("audit", "bills", model=wire.MESSAGE_MODEL_BROADCASTING))
    to = ("--to", "latest", *BY)
    broadcasting = await fleet.ctl("offsets", "reset", "audit", "bills", *to)
    assert (broadcasting.code, "group audit broadcasts" in broadcasting.err) == (1, True)
    unknown = await fleet.ctl("offsets", "reset", "biling", "bills", *to)
    assert "group biling has neither an offset of topic bills nor a member" in unknown.err
    topic = await fleet.ctl("offsets", "reset", "billing", "bils", *to)
    assert "no broker that responded has topic bils" in topic.err
    queue = await fleet.ctl("offsets", "reset", "billing", "bills", *to, "--queue", "a/7")
    assert "topic bills has no queue a/7" in queue.err
    assert held(fleet.one, fleet.two) == [{0: 40, 1: 50}, {0: 60}]


async def test_an_agent_that_does_not_respond_is_named_and_the_others_are_reset(fleet: Fleet) -> None:
    await fleet.two.server.stop(0.0)
    ended = await fleet.ctl("--timeout", "1", "offsets", "reset", "billing", "bills", "--to", "latest", *BY)
    assert (ended.code, held(fleet.one)) == (1, [{0: 100, 1: 100}])
    assert "c1/b/0: not reset:" in ended.out
    assert "c1/a/0: 2 queues reset" in ended.out
    again = await fleet.json("--timeout", "1", "offsets", "reset", "billing", "bills", "--to", "latest", *BY)
    assert again.code == 1
    assert json.loads(again.err)["error"]["code"] == "NOT_RESET"


async def test_a_reset_is_in_the_history_with_what_undoes_it(clock: ManualClock, tmp_path: Path) -> None:
    async with (
        running_name_server(history=tmp_path) as app,
        whole_agents(("a", 0), clock=clock, name_servers=[app]) as (agent,),
    ):
        put(agent, {0: 40, 1: 50})
        ended = await ctl("--namesrv", app.addr, "offsets", "skip", "billing", "bills", *BY)
        assert ended.code == 0, ended.err

        def row() -> dict[str, Any] | None:
            return next((row for row in rows_in(tmp_path) if row["event"] == "BROKER_DATA_CHANGED"), None)

        await eventually(lambda: row() is not None)
        recorded = (row() or {})["detail"]
        assert (recorded["what"], recorded["by"]) == ("offsets of group billing in topic bills", "ann")
        assert (recorded["before"], recorded["after"]) == (
            {"c1/a/0": 40.0, "c1/a/1": 50.0},
            {"c1/a/0": 100.0, "c1/a/1": 100.0},
        )
        undone = await ctl("--namesrv", app.addr, *shlex.split(recorded["undo"])[1:], *BY)
        assert (undone.code, held(agent)) == (0, [{0: 40, 1: 50}])
