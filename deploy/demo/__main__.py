"""``make demo``: a small fleet on this machine, faults injected, and the nightly report that must show them.

All of it is real: name servers, agents, redis-server processes, signals, files, Spark. Only the intervals are those of
a demo: heartbeats every second, an expiry of four seconds, a grace of one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from deploy.demo.processes import Fleet, ProcessFailed, Redis, patience
from deploy.demo.traffic import traffic
from deploy.demo.verdict import AGENT_LOST, PROCESS_DIED, Deeds, Instance, faults, longest_delay
from pointsman_client import NameServerClient, NotFoundError, PointsmanError, TopicRoute

ROOT = Path(__file__).parents[2]
TOPIC = "orders"
FLAPS = 5
START_LENIENCE_SECONDS = 5.0
"""For an expiry after its start, a name server gives a broken stream the whole expiry."""
PATIENCE_SECONDS = 120.0
"""For each step; a fast machine needs a few seconds."""
REPORT_SECONDS = 600.0
"""Spark alone takes a minute to start on a busy machine."""
POLL_SECONDS = 0.1
TERMINATED = 128 + signal.SIGTERM
PAUSE_SECONDS = 1.2
"""Between two faults, so that the client, which polls twice a second, sees each."""

A, A_REPLICA, B, C = ("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-c", 0)
ALL_BROKERS: set[Instance] = {A, A_REPLICA, B, C}


class DemoFailed(Exception):
    """The demo did not see what it should."""


class Demo:
    """One run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fleet = Fleet(folder)
        self.deeds = Deeds(flapping=C)
        self.first_day = datetime.now(UTC).date()
        self.started_at = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started_at:5.1f} s] {text}", flush=True)

    async def run(self) -> None:
        """The whole story. Raises DemoFailed."""
        servers = [await self.fleet.name_server(f"namesrv-{number}") for number in (1, 2)]
        self.say(f"two name servers serve at {' and '.join(servers)}")
        serving_since = time.monotonic()
        redis = await self._brokers(servers)
        clients = [NameServerClient([addr], poll_name_server_interval_seconds=0.5) for addr in servers]
        for client in clients:
            await client.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                watcher = tasks.create_task(self._print_route_changes(clients[0]))
                await self._until(clients, ALL_BROKERS, "all four brokers are in the routes")
                await asyncio.sleep(max(0.0, serving_since + START_LENIENCE_SECONDS - time.monotonic()))
                async with traffic(servers, TOPIC) as messages:
                    self.say(f"a producer and a group of two consumers work on {TOPIC}")
                    await self._faults(clients, redis)
                    self.say(await messages.settled(seconds=PATIENCE_SECONDS))
                watcher.cancel()
        finally:
            for client in clients:
                await client.close()
        await self._stop()
        await self._report()

    async def _brokers(self, servers: list[str]) -> dict[Instance, Redis]:
        redis: dict[Instance, Redis] = {A: await self.fleet.redis("redis-a-master")}
        redis[A_REPLICA] = await self.fleet.redis("redis-a-replica", replica_of=redis[A])
        redis[B] = await self.fleet.redis("redis-b")
        redis[C] = await self.fleet.redis("redis-c")
        self.agents = {
            instance: await self.fleet.agent(*instance, redis[instance], servers, zone=f"zone-{number}")
            for number, instance in enumerate((A, A_REPLICA, B, C), 1)
        }
        self.say("four redis-server processes run, an agent beside each: broker-a with a replica, broker-b, broker-c")
        return redis

    async def _faults(self, clients: list[NameServerClient], redis: dict[Instance, Redis]) -> None:
        await self._kill_and_bring_back(clients, A, "the redis master", redis[A])
        self.say("SIGKILL the agent of broker-b")
        self.deeds.note(B, datetime.now(UTC), cause=AGENT_LOST)
        await self.agents[B].kill()
        await self._until(clients, ALL_BROKERS - {B}, "broker-b is out of the routes")
        await self.agents[B].start()
        await self._until(clients, ALL_BROKERS, "its next agent has registered it again")
        for number in range(1, FLAPS + 1):
            await self._kill_and_bring_back(clients, C, f"the redis, {number} of {FLAPS},", redis[C])

    async def _kill_and_bring_back(
        self, clients: list[NameServerClient], instance: Instance, what: str, redis: Redis
    ) -> None:
        name = instance[0]
        self.say(f"SIGKILL {what} of {name}")
        self.deeds.note(instance, datetime.now(UTC), cause=PROCESS_DIED)
        await redis.kill()
        await self._until(clients, ALL_BROKERS - {instance}, f"{name}/{instance[1]} is out of the routes")
        await asyncio.sleep(PAUSE_SECONDS)
        await redis.start()
        if not await self.fleet.until_redis_answers(redis):
            raise DemoFailed(f"redis of {name} did not start again; its log is {redis.log}")
        await self._until(clients, ALL_BROKERS, f"{name}/{instance[1]} is back")
        await asyncio.sleep(PAUSE_SECONDS)

    async def _print_route_changes(self, client: NameServerClient) -> None:
        async for change in client.route_changes(TOPIC):
            self.say(f"    client: route of {TOPIC} is now {_shown(change.new)}")

    async def _until(self, clients: list[NameServerClient], expected: set[Instance], what: str) -> None:
        """Wait until every name server routes to exactly the expected brokers."""
        async with patience(PATIENCE_SECONDS, f"this: {what}; slow machine?"):
            for client in clients:
                while await _routed(client) != expected:  # noqa: ASYNC110  # it is another process that decides
                    await asyncio.sleep(POLL_SECONDS)
        self.say(what)

    async def _stop(self) -> None:
        for kind in ("agent", "namesrv", "redis"):
            await self.fleet.stop(kind)
        self.say("everything is stopped")

    def report_command(self) -> list[str]:
        """The command that reports on the history of this run, as far as it has come; of two days over midnight."""
        first_day, last_day = self.first_day.isoformat(), datetime.now(UTC).date().isoformat()
        days = (
            ["nightly", "--date", first_day]
            if first_day == last_day
            else ["backfill", "--from", first_day, "--to", last_day]
        )
        command = [sys.executable, "-m", "spark_jobs", *days]
        for number in (1, 2):
            command += ["--history", str(self.folder / "history" / f"namesrv-{number}")]
        return [
            *command,
            *("--warehouse", str(self.folder / "warehouse"), "--report", str(self.folder / "report")),
            *("--master", "local[2]"),
        ]

    async def _report(self) -> None:
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
        # A flapping broker is a finding: 1 is what the report must return.
        if code != 1:
            raise DemoFailed(f"pointsman-report exited with {code}, expected was 1: there is something to find")
        report = self.folder / "report"
        found = json.loads((report / "report.json").read_text(encoding="utf-8"))
        wrong = list(faults(found, self.deeds, expected=ALL_BROKERS))
        if wrong:
            raise DemoFailed("\n".join(["the report is not what happened:", *wrong]))
        kills = sum(len(at) for at in self.deeds.kills.values())
        self.say(
            f"the report is right: {kills} kills, each an outage with its cause that counts against its broker, "
            f"noticed within {longest_delay(found, self.deeds):.1f} s; no incident; broker-c flaps"
        )
        self.say(f"the page: {report / 'report.html'}")


async def _routed(client: NameServerClient) -> set[Instance]:
    try:
        route = await client.fetch_route(TOPIC)
    except (NotFoundError, PointsmanError):
        return set()
    return {(group.broker_name, replica.broker_id) for group in route.broker_datas for replica in group.replicas}


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


async def main() -> int:
    """Run the demo in a fresh folder; print where its files are."""
    folder = ROOT / ".build" / "demo" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    demo = Demo(folder)
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
        await demo.fleet.kill_all()
    return code


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def interruptible() -> int:
    """Run :func:`main` so that SIGTERM, like Ctrl-C, cancels it: its ``finally`` leaves nothing running."""
    running = asyncio.ensure_future(main())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return TERMINATED


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(interruptible()))
    except KeyboardInterrupt:
        sys.exit(130)
