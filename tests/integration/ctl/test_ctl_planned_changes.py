"""A planned change: shown, confirmed, recorded at real name servers, made at each server, and its answers printed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import click
import pytest
from google.protobuf.struct_pb2 import Value
from rich.text import Text

from pointsman.v1 import admin_service_pb2 as admin
from pointsman_client import BrokerTimeoutError
from pointsman_ctl.commands.planned_change import PlannedChange, carry_out
from pointsman_ctl.commands.server_changes import Outcome
from pointsman_ctl.options.command_options import Consent
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.servers.server_calls import NodeResponse
from pointsman_namesrv.app import NameServerApp
from tests.kit.ctl.command import ctl
from tests.kit.history.rows import rows_in
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.scripted_routes import refused_addr

CONSENT = Consent("ann", yes=True, dry_run=False)
WHAT = "offsets of group billing in topic orders"
UNDO = "pointsmanctl offsets reset billing orders --to 7"
PLAN = PlannedChange(
    "Reset the offsets?",
    {"queues": 2},
    [Text("2 queues")],
    admin.RecordChangeRequest(
        what=WHAT, group="billing", topic="orders", after=Value(number_value=9), before=Value(number_value=7), undo=UNDO
    ),
)


@dataclass
class Brokers:
    """Counts how often it is changed, and answers for two brokers."""

    answers: Sequence[NodeResponse[Outcome]] = (
        NodeResponse("broker-a:9880", Outcome("1 queue reset", facts={"queues": 1}), None),
        NodeResponse("broker-b:9880", Outcome("nothing to reset", changed=False), None),
    )
    changed: int = 0
    before: Callable[[], Awaitable[None]] | None = None

    async def apply(self) -> Sequence[NodeResponse[Outcome]]:
        """Make the change."""
        if self.before is not None:
            await self.before()
        self.changed += 1
        return self.answers


@dataclass
class Ran:
    """A run, its output and its exit code."""

    code: int
    out: str
    err: str


async def run(
    addrs: Sequence[str],
    brokers: Brokers,
    *,
    plan: PlannedChange = PLAN,
    consent: Consent = CONSENT,
    output: str = "json",
) -> Ran:
    loop, out, err = asyncio.get_running_loop(), StringIO(), StringIO()

    def command() -> int:
        with ExitStack() as stack:
            stack.enter_context(redirect_stdout(out))
            stack.enter_context(redirect_stderr(err))
            in_loop = lambda calls: asyncio.run_coroutine_threadsafe(calls, loop).result()  # noqa: E731
            stack.enter_context(patch.object(asyncio, "run", in_loop))
            stack.enter_context(patch("sys.stdin", StringIO()))
            return carry_out(Invocation(tuple(addrs), output, 3.0), plan, brokers.apply, consent)

    return Ran(await asyncio.to_thread(command), out.getvalue(), err.getvalue())


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[NameServerApp, NameServerApp]]:
    async with running_name_server(history=tmp_path / "one") as one, running_name_server() as two:
        yield one, two


async def test_a_change_is_recorded_at_every_name_server_before_it_is_made(
    pair: tuple[NameServerApp, NameServerApp], tmp_path: Path
) -> None:
    addrs = [app.addr for app in pair]

    async def is_recorded() -> None:
        assert "BROKER_DATA_CHANGED" in [row["event"] for row in rows_in(tmp_path / "one")]

    brokers = Brokers(before=is_recorded)
    ran = await run(addrs, brokers)

    assert (ran.code, brokers.changed) == (0, 1)
    assert json.loads(ran.out) == {
        "plan": {"queues": 2},
        "dryRun": False,
        "recorded": [{"addr": addrs[0], "inHistory": True}, {"addr": addrs[1], "inHistory": False}],
        "servers": [
            {"addr": "broker-a:9880", "changed": True, "queues": 1},
            {"addr": "broker-b:9880", "changed": False},
        ],
    }
    assert f"{addrs[1]}: the history is off" in ran.err
    shown = (await ctl("--namesrv", addrs[0], "-o", "json", "changes")).document["changes"]
    assert [(each["what"], each["by"], each["before"], each["after"], each["undo"]) for each in shown] == [
        (WHAT, "ann", 7, 9, UNDO)
    ]


@pytest.mark.parametrize("output", ["json", "table"])
async def test_a_dry_run_shows_the_plan_and_changes_nothing(
    pair: tuple[NameServerApp, NameServerApp], output: str
) -> None:
    brokers = Brokers()
    ran = await run([pair[0].addr], brokers, consent=replace(CONSENT, dry_run=True, yes=False), output=output)
    assert (ran.code, brokers.changed, ran.err) == (0, 0, "")
    if output == "json":
        assert json.loads(ran.out) == {"plan": {"queues": 2}, "dryRun": True, "recorded": [], "servers": []}
    else:
        assert ran.out == "2 queues\n"


async def test_an_empty_plan_needs_no_consent(pair: tuple[NameServerApp, NameServerApp]) -> None:
    brokers = Brokers()
    ran = await run([pair[0].addr], brokers, plan=replace(PLAN, is_empty=True), consent=replace(CONSENT, yes=False))
    assert (ran.code, brokers.changed, json.loads(ran.out)["servers"]) == (0, 0, [])


async def test_without_a_terminal_yes_is_needed(pair: tuple[NameServerApp, NameServerApp]) -> None:
    brokers = Brokers()
    with pytest.raises(click.UsageError, match=r"Reset the offsets\? No terminal for the confirmation: add --yes"):
        await run([pair[0].addr], brokers, consent=replace(CONSENT, yes=False))
    assert brokers.changed == 0


async def test_a_change_that_no_name_server_records_is_not_made() -> None:
    brokers = Brokers()
    async with refused_addr() as away:
        ran = await run([away], brokers)
    assert (ran.code, brokers.changed, ran.out) == (1, 0, "")


async def test_a_change_that_one_name_server_records_is_made_and_fails_with_the_other_named(
    pair: tuple[NameServerApp, NameServerApp],
) -> None:
    brokers = Brokers()
    async with refused_addr() as away:
        ran = await run([pair[0].addr, away], brokers)
    assert (ran.code, brokers.changed) == (1, 1)
    assert json.loads(ran.out)["recorded"][1]["error"]["code"] == "NAME_SERVER_FAILED"
    assert f"1 of 2 name servers failed: {away}" in json.loads(ran.err.splitlines()[-1])["error"]["message"]


async def test_a_broker_that_fails_is_named_beside_those_that_are_done(
    pair: tuple[NameServerApp, NameServerApp],
) -> None:
    failed: NodeResponse[Outcome] = NodeResponse(
        "broker-b:9880", None, BrokerTimeoutError("broker-b:9880", "no response")
    )
    ran = await run([pair[0].addr], Brokers((Brokers.answers[0], failed)), output="table")
    assert ran.code == 1
    assert ran.out.splitlines()[:2] == ["2 queues", "broker-a:9880: 1 queue reset"]
    assert "1 of 2 servers failed: broker-b:9880" in ran.err


async def test_rocketmqs_name_servers_record_nothing_which_is_said() -> None:
    brokers = Brokers()
    ran = await run(["rocketmq://127.0.0.1:9876"], brokers)
    assert (ran.code, brokers.changed, json.loads(ran.out)["recorded"]) == (0, 1, [])
    assert json.loads(ran.err)["warning"]["code"] == "NOT_RECORDED"
