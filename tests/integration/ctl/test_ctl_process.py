"""``pointsmanctl`` as a process: a command of each task, terminals, pipes, and Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pointsman.clock import SystemClock
from pointsman_ctl.command_line import TASKS
from pointsman_namesrv.app import NameServerApp
from tests.kit.agent.in_route import WholeAgent, whole_agents
from tests.kit.ctl.command import ctl
from tests.kit.ctl.process import ctl_process, ended, environment, started
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import register_at
from tests.kit.waiting import eventually

XTERM = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
ONE_OF_EACH_TASK = {
    "Topics and brokers": (["topics"], "orders\n"),
    "Consumer groups": (["groups"], "no consumer group"),
    "Maintenance and outages": (["guard", "hold", "--cluster", "c1"], "HOLD"),
    "Name servers": (["health"], " READY\n"),
    "Configuration": (["kv", "put", "LIMITS", "orders", "100"], "LIMITS orders"),
}


@pytest.fixture
async def name_server() -> AsyncIterator[NameServerApp]:
    async with running_name_server() as app:
        yield app


@asynccontextmanager
async def one_broker(name_server: NameServerApp) -> AsyncIterator[WholeAgent]:
    async with whole_agents(("a", 0), clock=SystemClock(), name_servers=[name_server]) as (agent,):
        yield agent


class Terminal:
    """A terminal for a process, and its output."""

    def __init__(self) -> None:
        self._outside, self.inside = pty.openpty()
        os.set_blocking(self._outside, False)
        self.seen = bytearray()
        self._more = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._outside, self._read)

    async def shows(self, words: bytes) -> None:
        """Wait until the terminal shows this text."""
        async with asyncio.timeout(30):
            while words not in self.seen:
                self._more.clear()
                await self._more.wait()

    def type(self, words: bytes) -> None:
        """Type them."""
        os.write(self._outside, words)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._outside)
        os.close(self._outside)
        os.close(self.inside)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self.seen.extend(os.read(self._outside, 65_536))
        self._more.set()


@pytest.fixture
async def terminal() -> AsyncIterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def test_each_task_of_the_help_has_a_command_here() -> None:
    assert list(ONE_OF_EACH_TASK) == [task for task, _ in TASKS]


@pytest.mark.parametrize("task", ONE_OF_EACH_TASK)
async def test_a_command_of_each_task_runs_as_a_process(name_server: NameServerApp, task: str) -> None:
    arguments, words = ONE_OF_EACH_TASK[task]
    async with one_broker(name_server):
        made = await ctl_process(*arguments, POINTSMAN_NAMESRV=name_server.addr)

    assert (made.code, made.err) == (0, "")
    assert words in made.out


async def test_colours_appear_on_a_terminal(name_server: NameServerApp, terminal: Terminal) -> None:
    await register_at(name_server.addr, "orders")
    process = await started("--namesrv", name_server.addr, "clusters", out=terminal.inside, env=XTERM)
    assert (await ended(process)).code == 0
    await terminal.shows(b"\x1b[32mUP")


async def test_a_reader_that_closes_the_pipe_gets_no_traceback(name_server: NameServerApp) -> None:
    # More than the 64 KiB that a pipe holds.
    await register_at(name_server.addr, *(f"{number:0127}" for number in range(1_000)))
    process = await asyncio.create_subprocess_shell(
        f"{sys.executable} -m pointsman_ctl --namesrv {name_server.addr} topics | head -1",
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()

    assert (out, err) == (b"0" * 127 + b"\n", b"")


async def test_ctrl_c_ends_a_watch_quietly(name_server: NameServerApp) -> None:
    await register_at(name_server.addr, "orders")
    process = await started("--namesrv", name_server.addr, "-o", "json", "watch", "orders")
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert json.loads(await process.stdout.readline())["topic"] == "orders"
        process.send_signal(signal.SIGINT)
    finally:
        made = await ended(process)

    assert (made.code, made.out, made.err.strip()) == (130, "", "")


async def test_top_on_a_terminal_has_its_own_screen_and_gives_it_back(
    name_server: NameServerApp, terminal: Terminal
) -> None:
    await register_at(name_server.addr, "orders")
    process = await started("--namesrv", name_server.addr, "top", env=XTERM, out=terminal.inside)
    try:
        await terminal.shows(b"UPTIME")
        process.send_signal(signal.SIGINT)
    finally:
        made = await ended(process)
    await terminal.shows(b"\x1b[?1049l")

    assert (made.code, made.err.strip()) == (130, "")
    assert terminal.seen.startswith(b"\x1b[?1049h")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
async def test_tab_completes_the_name_of_a_topic_in_bash(name_server: NameServerApp, terminal: Terminal) -> None:
    await register_at(name_server.addr, "orders")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = await asyncio.create_subprocess_exec(
        *("bash", "--norc", "--noprofile", "-i"),
        stdin=terminal.inside,
        stdout=terminal.inside,
        stderr=terminal.inside,
        env={**environment(), **XTERM, "PATH": path, "POINTSMAN_NAMESRV": name_server.addr},
        start_new_session=True,
    )
    try:
        # The quotes distinguish the output from the echo of the input.
        terminal.type(b'eval "$(_POINTSMANCTL_COMPLETE=bash_source pointsmanctl)"; echo rea""dy\n')
        await terminal.shows(b"ready")
        terminal.type(b"pointsmanctl route or\t")
        await terminal.shows(b"pointsmanctl route orders")
    finally:
        shell.kill()
        await shell.wait()


async def test_on_a_terminal_the_operator_is_prompted_before_a_topic_is_hidden(
    name_server: NameServerApp, terminal: Terminal
) -> None:
    await register_at(name_server.addr, "orders")
    terminal.type(b"y\n")
    process = await started("--namesrv", name_server.addr, "delete-topic", "orders", "--force", stdin=terminal.inside)
    made = await ended(process)

    assert made.code == 0
    assert "Hide topic orders in every cluster, so that its clients lose their route? [y/N]:" in made.err
    assert "hidden on c1/a" in made.out


async def test_ctrl_c_aborts_a_drain_and_the_agent_undoes_it(name_server: NameServerApp) -> None:
    async with one_broker(name_server) as agent:
        agent.groups_may_stop.clear()
        process = await started("--namesrv", name_server.addr, "drain-broker", "c1/a/0", "--yes")
        await eventually(lambda: agent.stopped_groups)
        second = await ctl("--namesrv", name_server.addr, "drain-broker", "c1/a/0", "--yes")
        process.send_signal(signal.SIGINT)
        made = await ended(process)
        async with asyncio.timeout(10):
            await agent.served_groups_again.wait()
        await eventually(lambda: not agent.drainer.state)
        route = await ctl("--namesrv", name_server.addr, "-o", "json", "route", "orders")

    assert second.code == 1
    assert "the drain of this broker is held by" in second.err
    assert made.code == 130
    assert "drain aborted; the agent reverts it unless" in made.err
    assert [data["perm"] for data in route.document["queueDatas"]] == [6]
