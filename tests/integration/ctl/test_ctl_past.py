"""``pointsmanctl`` asks real name servers about their past: routes, brokers, events and changes."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pointsman_namesrv.app import NameServerApp
from tests.kit.ctl.command import Ended, ctl
from tests.kit.ctl.keys import undocumented_keys
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import register_at
from tests.kit.waiting import eventually

BROKERS = {"broker-a": "10.0.0.1:10921", "broker-b": "10.0.0.2:10921"}


@dataclass
class Pair:
    """Two name servers with the same brokers, and their histories."""

    one: NameServerApp
    two: NameServerApp
    folder: Path

    async def ctl(self, *arguments: str) -> Ended:
        return await ctl("--namesrv", f"{self.one.addr},{self.two.addr}", *arguments)

    async def json(self, *arguments: str) -> Ended:
        return await self.ctl("-o", "json", *arguments)

    async def now(self) -> str:
        """A moment after all events so far, once they are on the disk."""
        await asyncio.sleep(0.01)
        at = datetime.now(UTC).isoformat()
        await asyncio.sleep(0.01)
        return at

    async def recorded(self, event: str, *, by_each: int) -> None:
        """Wait until each history has this number of rows of an event."""

        def is_there(folder: str) -> bool:
            return [row["event"] for row in rows_in(self.folder / folder)].count(event) >= by_each

        await eventually(lambda: is_there("one") and is_there("two"))


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with (
        running_name_server(history=tmp_path / "one") as one,
        running_name_server(history=tmp_path / "two") as two,
    ):
        for app in (one, two):
            for name, addr in BROKERS.items():
                await register_at(app.addr, "orders", who=wire.identity(name, addr=addr))
        yield Pair(one, two, tmp_path)


async def test_a_route_is_shown_as_it_was_and_where_the_servers_disagreed(pair: Pair) -> None:
    both = await pair.now()
    assert (await ctl("--namesrv", pair.two.addr, "evict", "c1/broker-a/0")).code == 0
    differ = await pair.now()
    assert (await ctl("--namesrv", pair.one.addr, "evict", "c1/broker-a/0")).code == 0
    await pair.recorded("UNREGISTERED", by_each=1)

    then, between = await pair.json("route", "orders", "--at", both), await pair.json("route", "orders", "--at", differ)
    unknown = await pair.ctl("route", "payments", "--at", both)

    assert (then.code, then.document["outcome"]) == (0, "route")
    assert [(each["broker_name"], each["agreed"]) for each in then.document["brokers"]] == [
        ("broker-a", True),
        ("broker-b", True),
    ]
    assert len(then.document["name_servers"]) == 2
    assert between.code == 1
    assert [each["agreed"] for each in between.document["brokers"]] == [False, True]
    views = between.document["brokers"][0]["views"]
    assert sorted(view["queues"] is None for view in views) == [False, True]
    text = (await pair.ctl("route", "orders", "--at", differ)).out
    assert "c1/broker-a: the name servers disagreed" in text
    assert (unknown.code, "unknown topic at that time" in unknown.out) == (1, True)
    assert (await pair.ctl("route", "orders", "--at", both, "--zone", "z1")).code == 2
    assert (await pair.ctl("route", "orders", "--at", "2199-01-01T00:00Z")).code == 2


async def test_why_shows_a_broker_as_it_was(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    up = await pair.now()
    assert (await pair.ctl("evict", "c1/broker-a/0", "--by", "ann")).code == 0
    gone = await pair.now()
    await pair.recorded("UNREGISTERED", by_each=1)

    before, after = await pair.json("why", "broker-a", "--at", up), await pair.json("why", "broker-a", "--at", gone)
    text = await pair.ctl("why", "broker-a", "--at", gone)

    assert (before.code, after.code, before.document["agreed"]) == (0, 0, True)
    for then, state, events in (
        (before, "UP", ["REGISTERED"]),
        (after, "GONE", ["REGISTERED", "UNREGISTERED"]),
    ):
        for node in then.document["nodes"]:
            assert [(each["brokerAddr"], each["state"]) for each in node["replicas"]] == [(BROKERS["broker-a"], state)]
            assert [each["event"] for each in node["events"]] == events
            assert node["nodeState"] == "READY"
    assert text.out.count("c1/broker-a 0 at 10.0.0.1:10921: GONE since ") == 2
    assert "UNREGISTERED ADMIN, planned" in text.out
    assert (await pair.ctl("why", "nothing", "--at", up)).code == 1
    assert not undocumented_keys(after.document, ["why"], "brokers", capsys=capsys)


async def test_events_are_merged_over_name_servers_and_filtered(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    await ctl("--namesrv", pair.one.addr, "evict", "c1/broker-a/0", "--by", "ann")
    await pair.ctl("maintenance", "on", "c1/broker-b", "--for", "10m", "--by", "bob")
    await pair.recorded("MAINTENANCE_ON", by_each=1)

    every = await pair.json("events")
    text = (await pair.ctl("events", "--broker", "broker-a")).out

    seen = {(each["event"], each["brokerName"]): len(each["nodes"]) for each in every.document["events"]}
    assert seen == {
        ("NAMESRV_STARTED", None): 1,
        ("NAMESRV_READY", None): 1,
        ("REGISTERED", "broker-a"): 2,
        ("REGISTERED", "broker-b"): 2,
        ("UNREGISTERED", "broker-a"): 1,
        ("MAINTENANCE_ON", "broker-b"): 2,
    }
    moments = [each["eventAt"] for each in every.document["events"]]
    assert moments == sorted(moments, key=datetime.fromisoformat)
    assert [line.split()[2] for line in text.splitlines()[1:]] == ["REGISTERED", "UNREGISTERED"]
    assert "only " in text
    filters = {
        ("--broker", "broker-b"): {"REGISTERED", "MAINTENANCE_ON"},
        ("--by", "bob"): {"MAINTENANCE_ON"},
        ("--kind", "registered", "--kind", "TOPICS"): {"REGISTERED", "TOPICS"},
        ("--cluster", "c2"): set(),
        ("--topic", "orders", "--cluster", "c1"): {"REGISTERED", "UNREGISTERED", "MAINTENANCE_ON"},
        ("--topic", "payments"): set(),
        ("--until", "1h"): set(),
    }
    for words, wanted in filters.items():
        found = await pair.json("events", *words)
        assert {each["event"] for each in found.document["events"]} == wanted, words
    assert (await pair.ctl("events", "--kind", "BANANA")).code == 1
    assert not undocumented_keys(every.document, ["events"], "why", "brokers", capsys=capsys)


async def test_events_come_in_pages_that_fit_together(pair: Pair) -> None:
    for number in range(12):
        await pair.ctl("kv", "put", "LIMITS", "orders", str(number), "--by", "ann")
    await pair.recorded("KV_CHANGED", by_each=12)

    newest = await pair.ctl("events", "--kind", "KV_CHANGED", "--limit", "5")

    lines = [line for line in newest.out.splitlines() if "KV_CHANGED" in line]
    assert ["value 11" in lines[-1], "value 7" in lines[0], len(lines)] == [True, True, 5]
    assert "there are older ones" in newest.out


async def test_changes_show_old_and_new_values_and_the_command_that_undoes_them(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    await pair.ctl("kv", "put", "LIMITS", "orders", "100", "--by", "ann")
    await pair.ctl("kv", "put", "LIMITS", "orders", "200", "--by", "bob")
    await ctl("--namesrv", pair.two.addr, "wipe-write-perm", "broker-b", "--cluster", "c1", "--by", "bob")
    await pair.ctl("guard", "hold", "--cluster", "c1", "--by", "ann")
    await pair.recorded("GUARD_ON", by_each=1)

    every = await pair.json("changes")
    text = (await pair.ctl("changes")).out

    shown = [
        (each["what"], each["by"], each["before"], each["after"], len(each["nodes"]))
        for each in every.document["changes"]
    ]
    assert shown == [
        ("key orders of LIMITS", "ann", None, "100", 2),
        ("key orders of LIMITS", "bob", "100", "200", 2),
        ("write permission", "bob", True, False, 1),
        ("guard", "ann", {"mode": "AUTO"}, {"mode": "HOLD"}, 2),
    ]
    assert "only " in text
    assert [each["by"] for each in (await pair.json("changes", "--by", "bob")).document["changes"]] == ["bob", "bob"]
    for change in reversed(every.document["changes"]):
        undone = await pair.ctl(*shlex.split(change["undo"])[1:])
        assert undone.code == 0, undone.err
    assert pair.one.core.kv.entries() == pair.two.core.kv.entries() == []
    assert not pair.two.core.overrides.wipes
    assert pair.one.core.guard.setting("c1") is None
    assert not undocumented_keys(every.document, ["changes"], capsys=capsys)


async def test_a_name_server_without_history_says_so_and_the_others_answer(pair: Pair) -> None:
    at = await pair.now()
    await pair.recorded("REGISTERED", by_each=2)
    async with running_name_server() as without:
        found = await ctl("-o", "json", "--namesrv", f"{pair.one.addr},{without.addr}", "route", "orders", "--at", at)

    assert found.code == 1
    assert found.document["outcome"] == "route"
    assert [node.get("error", {}).get("code") for node in found.document["nodes"]] == [None, "HISTORY_OFF"]
