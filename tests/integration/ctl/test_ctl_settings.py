"""``settings`` and ``kv sync``: what operators set, as a file and from one real name server to another."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pointsman.daemon.access.access_settings import Grant
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman_ctl.commands import settings_copy
from pointsman_ctl.servers.name_servers import Key, PointsmanNameServer, Setting
from pointsman_namesrv.app import NameServerApp
from tests.kit.access_tokens import TokenFolder
from tests.kit.ctl.command import Ended, ctl, running_ctl
from tests.kit.ctl.keys import undocumented_keys
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import register_at
from tests.kit.name_server.scripted_routes import refused_addr

SET = (
    ("kv", "put", "LIMITS", "orders", "100"),
    ("order-topic", "set", "orders", "broker-a:4", "--yes"),
    ("guard", "hold", "--cluster", "c1", "--for", "30m"),
    ("maintenance", "on", "c1/broker-a", "--for", "2h", "--note", "new disks"),
    ("wipe-write-perm", "broker-a", "--cluster", "c1"),
)
LABELS = ("guard c1", "kv LIMITS/orders", "kv ORDER_TOPIC_CONFIG/orders", "maintenance c1/broker-a")
WIPED = "wiped permission c1/broker-a"


async def at(app: NameServerApp, *arguments: str) -> Ended:
    return await ctl("--namesrv", app.addr, *arguments)


async def register(app: NameServerApp) -> None:
    await register_at(app.addr, "orders", who=wire.identity("broker-a"))


async def equal(one: NameServerApp, two: NameServerApp) -> bool:
    made = await ctl("-o", "json", "diff", one.addr, two.addr)
    return bool(made.document["equal"])


@pytest.fixture
async def old() -> AsyncIterator[NameServerApp]:
    """A name server with a setting of every kind that is copied."""
    async with running_name_server() as app:
        await register(app)
        for command in SET:
            made = await at(app, *command)
            assert made.code == 0, made.err
        yield app


@pytest.fixture
async def new() -> AsyncIterator[NameServerApp]:
    async with running_name_server() as app:
        await register(app)
        yield app


async def test_a_new_name_server_gets_what_another_has_in_one_command(old: NameServerApp, new: NameServerApp) -> None:
    made = await at(new, "settings", "restore", "--from", old.addr, "--by", "ops", "--yes")
    again = await at(new, "settings", "restore", "--from", old.addr)

    assert (made.code, made.err) == (0, "")
    assert all(label in made.out for label in (*LABELS, WIPED))
    assert made.out.endswith(f"{new.addr}: 5 settings set\n")
    assert await equal(old, new)
    assert (again.code, again.out) == (0, f"node {new.addr}\nnothing to change\n{new.addr}: nothing to change\n")


async def test_every_change_is_in_the_history_of_the_server_with_its_author(tmp_path: Path, old: NameServerApp) -> None:
    async with running_name_server(history=tmp_path / "history") as new:
        await register(new)
        await at(new, "settings", "restore", "--from", old.addr, "--by", "ops", "--yes")
        changes = await at(new, "-o", "json", "changes")

    found = [(change["event"], change["by"]) for change in changes.document["changes"]]
    assert sorted(found) == [
        ("GUARD_ON", "ops"),
        ("KV_CHANGED", "ops"),
        ("KV_CHANGED", "ops"),
        ("MAINTENANCE_ON", "ops"),
        ("PERM_CHANGED", "ops"),
    ]


async def test_a_file_has_all_settings_and_a_restore_of_it_makes_servers_equal(
    tmp_path: Path, old: NameServerApp, new: NameServerApp
) -> None:
    file = tmp_path / "settings.json"
    dumped = await at(old, "settings", "dump", str(file))
    shown = await at(new, "settings", "restore", str(file), "--diff")
    untouched = await equal(old, new)
    restored = await at(new, "settings", "restore", str(file), "--yes")

    assert (dumped.code, dumped.out, dumped.err) == (0, f"5 settings of {old.addr} written to {file}\n", "")
    assert [row["kind"] for row in json.loads(file.read_text("utf-8"))["settings"]] == [
        *("GUARD", "KV", "KV", "MAINTENANCE", "WIPED_PERMISSION"),
    ]
    assert os.listdir(tmp_path) == ["settings.json"]
    assert (shown.code, shown.err, untouched) == (0, "", False)
    assert "maintenance c1/broker-a" in shown.out
    assert "new disks for 1h 59m" in shown.out
    assert "settings set" not in shown.out
    assert restored.code == 0, restored.err
    assert await equal(old, new)


async def test_the_file_can_be_a_pipe(old: NameServerApp) -> None:
    made = await at(old, "settings", "dump", "-")

    assert len(made.document["settings"]) == 5
    assert made.document["source"] == old.addr


async def test_a_setting_whose_time_is_over_is_not_restored(tmp_path: Path, new: NameServerApp) -> None:
    ended = {"kind": "MAINTENANCE", "name": ["c1", ""], "value": "racks", "endsAt": "2026-01-01T00:00:00+00:00"}
    file = written(tmp_path, [ended])

    made = await at(new, "settings", "restore", str(file), "--yes")

    assert made.code == 0
    assert "not set, because their time is over: maintenance c1\n" in made.out
    assert (await at(new, "maintenance", "list")).out.endswith("no maintenance window is open\n")


async def test_what_only_the_server_has_is_kept_and_listed(old: NameServerApp, new: NameServerApp) -> None:
    await at(new, "kv", "put", "OWN", "key", "1")

    made = await at(new, "settings", "restore", "--from", old.addr, "--yes")

    assert "kept, although the source does not have them: kv OWN/key\n" in made.out
    assert (await at(new, "kv", "get", "OWN", "key")).out == "1\n"


async def test_a_rejected_setting_keeps_no_other_from_being_set_and_the_same_command_finishes_it(
    old: NameServerApp,
) -> None:
    async with running_name_server() as empty:
        first = await at(empty, "settings", "restore", "--from", old.addr, "--yes")
        await register(empty)
        second = await at(empty, "settings", "restore", "--from", old.addr, "--yes")
        same = await equal(old, empty)

    assert first.code == 1
    assert f"{empty.addr}: 3 settings set, 2 not: guard c1 (" in first.out
    assert f"; {WIPED} (" in first.out
    assert second.code == 0, second.err
    assert second.out.endswith(f"{empty.addr}: 2 settings set\n")
    assert same


async def test_an_interrupted_restore_is_finished_by_the_same_command(
    old: NameServerApp, new: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("--namesrv", new.addr, "settings", "restore", "--from", old.addr, "--yes")
    call, calls, is_third = settings_copy._set, list[object](), asyncio.Event()

    async def two_and_no_third(server: PointsmanNameServer, key: Key, setting: Setting, **how: Any) -> None:
        calls.append(key)
        if len(calls) > 2:
            is_third.set()
            await asyncio.Event().wait()
        await call(server, key, setting, **how)

    monkeypatch.setattr(settings_copy, "_set", two_and_no_third)
    async with running_ctl(*command) as running:
        await asyncio.wait_for(is_third.wait(), 30)
        interrupted = await running.interrupted()
    monkeypatch.setattr(settings_copy, "_set", call)
    again = await ctl(*command)

    assert interrupted.code == 130
    assert again.code == 0, again.err
    assert again.out.endswith(f"{new.addr}: 3 settings set\n")
    assert await equal(old, new)


async def test_a_server_that_is_down_keeps_no_other_from_being_set(old: NameServerApp, new: NameServerApp) -> None:
    async with refused_addr() as down:
        command = ("--namesrv", f"{new.addr},{down}", "-o", "json", "settings", "restore", "--from", old.addr)
        made = await ctl(*command, "--yes")

    assert made.code == 1
    assert [server.get("set") for server in made.document["servers"]] == [5, None]
    assert down in made.err
    assert await equal(old, new)


async def test_without_a_terminal_a_restore_needs_yes(old: NameServerApp, new: NameServerApp) -> None:
    made = await at(new, "settings", "restore", "--from", old.addr)

    assert made.code == 2
    assert f"Change 5 settings at {new.addr}? No terminal for the confirmation: add --yes" in made.err
    assert not await equal(old, new)


async def test_a_dump_of_servers_that_differ_is_written_and_exits_with_1(
    tmp_path: Path, old: NameServerApp, new: NameServerApp
) -> None:
    file = tmp_path / "settings.json"
    made = await ctl("--namesrv", f"{old.addr},{new.addr}", "settings", "dump", str(file))
    async with refused_addr() as addr:
        down = await ctl("--namesrv", f"{addr},{old.addr}", "settings", "dump", str(file))
    refused = await at(old, "settings", "dump", str(tmp_path / "none" / "settings.json"))

    assert made.code == 1
    assert f"5 settings differ between {old.addr}, {new.addr}; compare them with" in made.err
    assert json.loads(file.read_text("utf-8"))["source"] == old.addr
    assert (down.code, down.out) == (1, f"5 settings of {old.addr} written to {file}\n")
    assert (refused.code, refused.err) == (
        1,
        f"pointsmanctl: {tmp_path}/none/settings.json cannot be written: No such file or directory\n",
    )


async def test_keys_are_copied_from_one_server_and_the_source_is_left_out(
    old: NameServerApp, new: NameServerApp
) -> None:
    both = ("--namesrv", f"{old.addr},{new.addr}")
    shown = await ctl(*both, "kv", "sync", "--from", old.addr, "--dry-run")
    made = await ctl(*both, "kv", "sync", "--from", old.addr, "--yes")
    alone = await at(old, "kv", "sync", "--from", old.addr, "--yes")

    assert shown.out.startswith(f"node {new.addr}\n")
    assert "guard" not in shown.out
    assert (made.code, made.out.splitlines()[-1]) == (0, f"{new.addr}: 2 settings set")
    assert (await at(new, "order-topic", "list")).out.endswith("orders  broker-a:4\n")
    assert (await at(new, "maintenance", "list")).out.endswith("no maintenance window is open\n")
    assert alone.code == 2
    assert f"{old.addr} is the only name server listed" in alone.err


async def test_names_of_rocketmqs_brokers_and_lists_of_name_servers_are_copied(
    old: NameServerApp, new: NameServerApp
) -> None:
    for app in (old, new):
        who = wire.identity("mq-1.example", addr="10.0.0.9:10911")
        await register_at(app.addr, "orders", who=who)
    assert (await at(old, "nsaddr", "set", "ns1:9876", "ns2:9876", "--yes")).code == 0
    wiped = await at(old, "-o", "json", "kv", "list")
    async with grpc.aio.insecure_channel(old.addr) as channel:
        request = admin.SetWritePermRequest(cluster="c1", broker_name="mq-1.example", by="ops")
        await AdminServiceStub(channel).SetWritePerm(request)

    made = await at(new, "settings", "restore", "--from", old.addr, "--yes")

    assert any(entry["value"] == "ns1:9876;ns2:9876" for entry in wiped.document["nodes"][0]["entries"])
    assert (made.code, made.err) == (0, "")
    assert "wiped permission c1/mq-1.example" in made.out
    assert await equal(old, new)


async def test_hidden_topics_are_named_and_not_copied(tmp_path: Path, new: NameServerApp) -> None:
    file = written(tmp_path, [{"kind": "HIDDEN_TOPIC", "name": ["c1", "broker-a", "orders"], "value": ""}])

    made = await at(new, "settings", "restore", str(file), "--yes")

    assert made.code == 0
    assert "not copied: hidden topic orders on c1/broker-a; see `pointsmanctl delete-topic --help`\n" in made.out
    assert (await at(new, "topics")).out == "orders\n"


async def test_the_keys_of_the_json_are_in_the_help(
    tmp_path: Path, old: NameServerApp, new: NameServerApp, capsys: pytest.CaptureFixture[str]
) -> None:
    await at(new, "kv", "put", "OWN", "key", "1")
    dumped = await at(old, "-o", "json", "settings", "dump", str(tmp_path / "settings.json"))
    restored = await at(new, "-o", "json", "settings", "restore", "--from", old.addr, "--yes")

    assert undocumented_keys(dumped.document, ["settings", "dump"], capsys=capsys) == set()
    assert undocumented_keys(restored.document, ["settings", "restore"], capsys=capsys) == set()


@pytest.mark.parametrize(
    ("role", "may_dump", "may_restore"),
    [
        ("viewer", True, False),
        ("client", False, False),
        ("broker", False, False),
        ("admin", True, True),
    ],
)
async def test_a_viewer_may_dump_and_an_admin_restore(
    tmp_path: Path, old: NameServerApp, role: str, may_dump: bool, may_restore: bool
) -> None:
    folder = TokenFolder(tmp_path, "me", "agent")
    rights: dict[str, Any] = {"cluster": "c1", "broker_name": "*"} if role == "broker" else {}
    grants = (Grant(role, identity="me", **rights), Grant("admin", identity="agent"))
    token = tmp_path / "token"
    token.write_text(folder.tokens["me"])
    file = tmp_path / "settings.json"
    await at(old, "settings", "dump", str(file))
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(running_name_server(access=folder.settings(*grants)))
        dumped = await at(app, "--token-file", str(token), "settings", "dump", str(tmp_path / "other.json"))
        restored = await at(app, "--token-file", str(token), "kv", "sync", "--from", old.addr, "--yes")

    assert dumped.code == (0 if may_dump else 1)
    assert restored.code == (0 if may_restore else 1)
    if not may_restore:
        assert f"token 'me' has the role {role}, the call needs admin" in restored.err


def written(folder: Path, settings: list[dict[str, Any]]) -> Path:
    """A file with these settings."""
    file = folder / "written.json"
    file.write_text(json.dumps({"version": 1, "settings": settings}))
    return file
