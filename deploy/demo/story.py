"""Common parts of the demos: printed waits, the report and its verdict, failures with a hint."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from deploy.demo.processes import Fleet, ProcessFailed, patience
from deploy.demo.verdict import Deeds, Instance, faults, longest_delay
from pointsman_client import NameServerClient, NotFoundError, PointsmanError, TopicRoute

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0
"""For each step; a fast machine needs a few seconds."""
REPORT_SECONDS = 600.0
"""Spark alone takes a minute to start on a busy machine."""
POLL_SECONDS = 0.1
TERMINATED = 128 + signal.SIGTERM


class DemoFailed(Exception):
    """The demo did not see what it should."""


class Story(ABC):
    """One run of a demo, with two name servers."""

    name: ClassVar[str]
    """Of the folder below ``.build``, in which each run has its own."""
    topic: ClassVar[str]
    brokers: ClassVar[frozenset[Instance]]
    flapping: ClassVar[Instance | None]
    """The broker that the report must find."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fleet = Fleet(folder)
        self.deeds = Deeds(flapping=self.flapping)
        self.first_day = datetime.now(UTC).date()
        self.started_at = time.monotonic()

    @abstractmethod
    async def run(self) -> None:
        """The whole story. Raises DemoFailed."""

    async def kill_all(self) -> None:
        """Leave nothing running."""
        await self.fleet.kill_all()

    def say(self, text: str) -> None:
        """Print what happens."""
        print(f"[{time.monotonic() - self.started_at:5.1f} s] {text}", flush=True)

    @asynccontextmanager
    async def clients(self, servers: list[str]) -> AsyncIterator[list[NameServerClient]]:
        """A client of each name server; what the first sees of the topic is printed."""
        async with AsyncExitStack() as stack:
            clients = [NameServerClient([addr], poll_name_server_interval_seconds=0.5) for addr in servers]
            for client in clients:
                await stack.enter_async_context(client)
            async with asyncio.TaskGroup() as tasks:
                watcher = tasks.create_task(self._print_route_changes(clients[0]))
                yield clients
                watcher.cancel()

    async def _print_route_changes(self, client: NameServerClient) -> None:
        async for change in client.route_changes(self.topic):
            self.say(f"    client: route of {self.topic} is now {_shown(change.new)}")

    async def until(self, clients: list[NameServerClient], expected: frozenset[Instance], what: str) -> None:
        """Wait until every name server routes to exactly the expected brokers, and print ``what``."""

        async def all_do() -> bool:
            return all([await self._routed(client) == expected for client in clients])

        await self.wait_for(all_do, what)

    async def wait_for(
        self,
        is_so: Callable[[], Awaitable[bool]],
        what: str,
        *,
        seconds: float = PATIENCE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """Wait for a condition, and print ``what``. Raises ProcessFailed."""
        async with patience(seconds, f"this: {what}; slow machine?"):
            while not await is_so():  # noqa: ASYNC110  # other processes decide
                await asyncio.sleep(poll_seconds)
        self.say(what)

    async def _routed(self, client: NameServerClient) -> frozenset[Instance]:
        try:
            route = await client.fetch_route(self.topic)
        except (NotFoundError, PointsmanError):
            return frozenset()
        return frozenset(
            (group.broker_name, replica.broker_id) for group in route.broker_datas for replica in group.replicas
        )

    def report_command(self) -> list[str]:
        """The command that reports on the history of this run, as far as it has come; of two days over midnight."""
        first_day, last_day = self.first_day.isoformat(), datetime.now(UTC).date().isoformat()
        days = (
            ["nightly", "--date", first_day]
            if first_day == last_day
            else ["backfill", "--from", first_day, "--to", last_day]
        )
        command = [sys.executable, "-m", "pointsman_report", *days]
        for number in (1, 2):
            command += ["--history", str(self.folder / "history" / f"namesrv-{number}")]
        return [
            *command,
            *("--warehouse", str(self.folder / "warehouse"), "--report", str(self.folder / "report")),
            *("--master", "local[2]"),
        ]

    async def report(self, *, also: str) -> None:
        """Run the nightly report and check it; ``also``: further text to print. Raises DemoFailed."""
        command = self.report_command()
        self.say(f"pointsman-report {' '.join(command[3 : command.index('--history')])}")
        process = await asyncio.create_subprocess_exec(*command, env=os.environ)
        try:
            async with patience(REPORT_SECONDS, "pointsman-report to end; slow machine?"):
                code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        # A broker that flaps, or a topic that could not be written, is a finding: 1 is what the report must return.
        if code != 1:
            raise DemoFailed(f"pointsman-report exited with {code}, expected was 1: there is something to find")
        report = self.folder / "report"
        found = json.loads((report / "report.json").read_text(encoding="utf-8"))
        wrong = list(faults(found, self.deeds, expected=self.brokers))
        if wrong:
            raise DemoFailed("\n".join(["the report is not what happened:", *wrong]))
        kills = sum(len(at) for at in self.deeds.kills.values())
        self.say(
            f"the report is right: {kills} kills, each an outage with its cause that counts against its broker, "
            f"noticed within {longest_delay(found, self.deeds):.1f} s; no incident; {also}"
        )
        self.say(f"the page: {report / 'report.html'}")


def _shown(route: TopicRoute | None) -> str:
    if route is None:
        return "gone"
    perms = {queues.broker_name: "rw" if queues.is_writable else "r" for queues in route.queue_datas}
    groups = (
        f"{group.broker_name}[{perms.get(group.broker_name, '-')}]"
        f" {{{', '.join(f'{r.broker_id}' + ('' if r.state == 'UP' else f' {r.state}') for r in group.replicas)}}}"
        for group in route.broker_datas
    )
    return "  ".join(groups)


async def main(story: type[Story]) -> int:
    """Run a demo in a fresh folder; print where its files are."""
    folder = ROOT / ".build" / story.name / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    demo = story(folder)
    logging.basicConfig(filename=folder / "logs" / "clients.log", format="%(asctime)s %(name)s: %(message)s")
    code = 0
    try:
        await demo.run()
    except* (DemoFailed, ProcessFailed, PointsmanError, TimeoutError) as failed:
        causes = "; ".join(str(error) or type(error).__name__ for error in _leaves(failed))
        print(f"the demo failed: {causes}", file=sys.stderr)
        print(f"logs: {folder / 'logs'}", file=sys.stderr)
        if (folder / "history").is_dir():
            command = shlex.join(demo.report_command())
            print(f"the history is kept; to continue with its report, run:\n  {command}", file=sys.stderr)
        code = 1
    finally:
        await demo.kill_all()
    return code


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def interruptible(story: type[Story]) -> int:
    """Run :func:`main` so that SIGTERM, like Ctrl-C, cancels it: its ``finally`` leaves nothing running."""
    running = asyncio.ensure_future(main(story))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return TERMINATED


def run_as_program(story: type[Story]) -> int:
    """Run a demo, and return the exit code."""
    try:
        return asyncio.run(interruptible(story))
    except KeyboardInterrupt:
        return 130
