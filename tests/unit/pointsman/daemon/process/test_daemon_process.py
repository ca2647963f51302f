"""A daemon as a process: signals and exit codes, in real processes."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys

import pytest

from pointsman.daemon.process import daemon_process

PROGRAM = """
import asyncio, signal, sys
from pointsman.daemon.process import daemon_process

# The tests themselves may run under nohup.
signal.signal(signal.SIGHUP, signal.SIG_IGN if "nohup" in sys.argv else signal.SIG_DFL)

async def main(stop):
    print(type(asyncio.get_running_loop()).__module__, flush=True)
    await stop.wait()
    print("draining", flush=True)
    if "ask" in sys.argv:
        print(await asyncio.to_thread(sys.stdin.readline), flush=True)
    if "slow" in sys.argv:
        await asyncio.Event().wait()
    return 7

if "late" in sys.argv:
    def flush():
        print("flushing", flush=True)
        sys.stdin.readline()
    daemon_process.logs.flush = flush

reload = (lambda: print("reloaded", flush=True)) if "reload" in sys.argv else None
sys.exit(daemon_process.run(main, loop=sys.argv[1], on_hangup=reload))
"""


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(10):
        return (await process.stdout.readline()).decode().strip()


@pytest.mark.parametrize(("loop", "module"), [("uvloop", "uvloop"), ("asyncio", "asyncio.unix_events")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_requests_the_stop_and_main_gives_the_exit_code(loop: str, module: str, number: int) -> None:
    process = await start(loop)
    assert await line(process) == module
    process.send_signal(number)
    assert await line(process) == "draining"
    assert await process.wait() == 7


async def test_a_second_signal_ends_the_process_immediately() -> None:
    process = await start("uvloop", "slow")
    await line(process)
    process.send_signal(signal.SIGTERM)
    assert await line(process) == "draining"
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 130


@pytest.mark.parametrize("settings", [[], ["nohup"]])
async def test_a_hangup_does_not_stop_it_while_it_runs_or_drains(settings: list[str]) -> None:
    process = await start("uvloop", "ask", *settings)
    assert process.stdin is not None
    await line(process)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert await line(process) == "draining"
    process.send_signal(signal.SIGHUP)
    process.stdin.write(b"still here\n")
    assert await line(process) == "still here"
    assert await process.wait() == 7


async def test_a_hangup_after_the_loop_is_closed_does_not_change_the_exit_code() -> None:
    process = await start("uvloop", "late")
    assert process.stdin is not None
    await line(process)
    process.send_signal(signal.SIGTERM)
    assert await line(process) == "draining"
    assert await line(process) == "flushing"
    process.send_signal(signal.SIGHUP)
    process.stdin.write(b"go\n")
    assert await process.wait() == 7


async def test_a_hangup_may_mean_something_else() -> None:
    process = await start("uvloop", "reload")
    await line(process)
    process.send_signal(signal.SIGHUP)
    assert await line(process) == "reloaded"
    process.send_signal(signal.SIGTERM)
    assert await line(process) == "draining"
    assert await process.wait() == 7


@pytest.mark.parametrize(
    ("limit", "warns"),
    [(1_024, True), (19_999, True), (20_000, False), (65_536, False), (resource.RLIM_INFINITY, False)],
)
def test_a_low_limit_of_open_files_is_a_warning_at_the_start(
    limit: int, warns: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    with caplog.at_level(logging.WARNING):
        daemon_process.warn_of_few_files(20_000)
    assert [record.facts for record in caplog.records] == ([{"limit": limit}] if warns else [])  # type: ignore[attr-defined]


def test_a_sandbox_that_hides_the_limit_causes_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(_: int) -> tuple[int, int]:
        raise PermissionError

    monkeypatch.setattr(resource, "getrlimit", forbid)
    daemon_process.warn_of_few_files(daemon_process.FEW_FILES)
