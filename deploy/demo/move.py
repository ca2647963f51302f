"""``make demo-move``: the steps of docs/moving-from-rocketmq.md with real processes, to Pointsman and back.

Four unmodified brokers, Java and Python clients move by their list of name servers alone, at the intervals that they
have by default. Brokers and Java clients ask for the list every two minutes, so a step takes up to five minutes: two
for the list, half a minute for a registration, two until an idle connection is closed.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from deploy.demo.processes import HOST, ProcessFailed
from deploy.demo.story import ROOT, DemoFailed, Story, run_as_program
from deploy.demo.verdict import message_faults
from deploy.rocketmq.processes import (
    Broker,
    Clients,
    PythonClients,
    RocketMQ,
    Running,
    failed,
    fetched,
    free_port,
    got,
    missing_programs,
    sent,
)
from pointsman.names import ROCKETMQ_SCHEME, split_addr
from pointsman_client import NameServerClient, PointsmanError

VERSION = "5.3.3"
CACHE = ROOT / ".build" / "rocketmq"
NODES = ("namesrv-1", "namesrv-2")
BROKERS = ("broker-a", "broker-b", "broker-c", "broker-d")
STEP_SECONDS = 420.0
"""Longest wait for the effects of one change of the list."""
START_TRIES = 3
CTL_SECONDS = 30
"""More than the default, for a busy machine."""
PROGRESS_SECONDS = 30.0
POLL_MILLIS = 30_000
"""Default of RocketMQ's clients."""
POLL_SECONDS = 1.0
MORE_THAN_ARE_SENT = 1_000_000
MILLISECONDS_BETWEEN = 100
MORE = 50
"""Messages that a producer must send after a step."""
ESTABLISHED = "01"


class MoveDemo(Story):
    """One run."""

    name = "demo-move"
    topic = ""  # one for each pair of clients, and no report
    brokers = frozenset()
    flapping = None

    def __init__(
        self, folder: Path, *, versions: Sequence[str] = (VERSION,) * len(BROKERS), cache: Path = CACHE
    ) -> None:
        """``versions``: of RocketMQ, one for each broker; a pair of Java clients has each, name servers the first."""
        super().__init__(folder)
        self._versions = versions
        self._cache = cache
        self._theirs = [f"{HOST}:{free_port()}" for _ in NODES]
        self._wires = [f"{HOST}:{free_port()}" for _ in NODES]
        self._lists = [f"{HOST}:{free_port()}" for _ in NODES]
        self._ours: list[str] = []
        self._upstream: list[Running] = []
        self._brokers: list[Broker] = []
        self._clients: dict[str, tuple[Running, Running]] = {}
        """Producer and consumer by what runs them."""
        self._failed_before = 0
        """Sends that failed while clients and brokers started."""

    async def kill_all(self) -> None:
        """Leave nothing running."""
        for running in (*self._upstream, *self._started):
            running.end()
        await super().kill_all()

    @property
    def _started(self) -> list[Running]:
        """What is never restarted."""
        return [*self._brokers, *(client for pair in self._clients.values() for client in pair)]

    async def run(self) -> None:
        """The steps. Raises DemoFailed."""
        missing = missing_programs()
        if missing:
            raise ProcessFailed(missing)
        self.say(f"RocketMQ {', '.join(sorted(set(self._versions)))} from Maven Central, where it is not yet here")
        jars = {each: await asyncio.to_thread(fetched, each, self._cache) for each in sorted(set(self._versions))}
        fleets = {
            each: RocketMQ(
                lib, self.folder / "rocketmq" / each, "", address_server=self._lists[0], poll_millis=POLL_MILLIS
            )
            for each, lib in jars.items()
        }
        await self._start_at_rocketmqs(fleets)

        self.say("step 1: Pointsman's name servers as well")
        await self._ctl("nsaddr", "add", *self._wires, "--yes")
        await self._until_registered(self._wires, "all brokers have registered at Pointsman's, too")
        await self._compare()

        self.say("step 2: Pointsman's alone")
        await self._ctl("nsaddr", "remove", *self._theirs, "--yes")
        await self._until_left(self._theirs, "RocketMQ's")
        for running in self._upstream:
            running.end(signal.SIGTERM, seconds=STEP_SECONDS)
        self.say("RocketMQ's name servers are stopped")
        await self._until_more_sent()

        self.say("step 3: back; RocketMQ's name servers run again, and both are in the list")
        first = fleets[self._versions[0]]
        self._upstream = [first.name_server(addr) for addr in self._theirs]
        await self._ctl("nsaddr", "add", *self._theirs, "--yes")
        await self._until_registered(self._theirs, "all brokers have registered at RocketMQ's again")
        await self._compare()

        self.say("step 4: RocketMQ's alone")
        await self._ctl("nsaddr", "remove", *self._wires, "--yes")
        await self._until_left(self._wires, "Pointsman's")
        await self._until_more_sent()
        await self._settle()

    async def _start_at_rocketmqs(self, fleets: dict[str, RocketMQ]) -> None:
        """Start everything, with lists of RocketMQ's name servers."""
        first = fleets[self._versions[0]]
        url = f"rocketmq+http://{self._lists[1]}/rocketmq/nsaddr"
        clients: dict[str, Clients] = {f"Java {version}": fleet for version, fleet in fleets.items()}
        clients["Python"] = PythonClients(self.folder / "python", url)
        self._upstream = [first.name_server(addr) for addr in self._theirs]
        for node, wire, lists in zip(NODES, self._wires, self._lists, strict=True):
            settings = {"remoting.listen": wire, "address_server.listen": lists}
            self._ours.append(await self.fleet.name_server(node, settings=settings))
        self.say(f"RocketMQ's name servers are {' and '.join(self._theirs)}, Pointsman's {' and '.join(self._wires)}")
        self.say(
            "step 0: the lists of both address servers have RocketMQ's; brokers and clients start with no other one"
        )
        await self._ctl("nsaddr", "set", *self._theirs, "--yes")
        for name, version in zip(BROKERS, self._versions, strict=True):
            # From the start: a new topic is on the brokers that its first messages went to.
            fleets[version].topics_on_disk(name, 0, [topic_of(each) for each in clients])
            # A loaded machine would let it refuse messages that waited for 0.2 s.
            broker = fleets[version].broker(name, registerNameServerPeriod="30000", waitTimeMillsInSendQueue="10000")
            self._brokers.append(broker)
        await self._until_registered(self._theirs, "four brokers have registered at RocketMQ's name servers")
        for each, of in clients.items():
            await self._start_pair(each, of)
        self._failed_before = len(self._failures())
        await self._until_more_sent()
        self._check_left(self._wires)

    async def _start_pair(self, name: str, clients: Clients) -> None:
        """Start a producer and a consumer, again if one ends: on a busy machine a first request may be too late."""
        topic = topic_of(name)
        for _ in range(START_TRIES):
            producer = clients.producer(topic, MORE_THAN_ARE_SENT, millis=MILLISECONDS_BETWEEN)
            consumer = clients.consumer(topic)
            self._clients[name] = producer, consumer

            async def is_running(producer: Running = producer, consumer: Running = consumer) -> bool:
                is_ended = not (producer.is_alive and consumer.is_alive)
                return is_ended or (bool(sent(producer)) and bool(got(consumer)))

            await self._step(is_running, f"{name}: a producer and a consumer are started")
            if producer.is_alive and consumer.is_alive:
                return
            self.say(f"    {producer.out} or {consumer.out} ended; both start again")
            producer.end()
            consumer.end()
        raise DemoFailed(f"{name}: a client ended; see {producer.out} and {consumer.out}")

    # --- checks -----------------------------------------------------------------------------------------------

    async def _until_registered(self, addrs: Sequence[str], what: str) -> None:
        async def are_all() -> bool:
            return all([await self._names(addr) == set(BROKERS) for addr in addrs])

        await self._step(are_all, what, lambda: "the brokers ask for the list every two minutes")

    async def _names(self, addr: str) -> set[str]:
        try:
            async with NameServerClient(f"{ROCKETMQ_SCHEME}{addr}") as client:
                clusters = await client.list_clusters()
        except PointsmanError:
            return set()
        return {group.broker_name for cluster in clusters for group in cluster.broker_datas}

    async def _compare(self) -> None:
        for theirs, ours in zip(self._theirs, self._ours, strict=True):
            words = ["diff", f"{ROCKETMQ_SCHEME}{theirs}", ours]

            async def is_equal(words: Sequence[str] = words) -> bool:
                # A name server that has just started gets the brokers' topics one broker after another.
                return (await self._run(*words))[0] == 0

            await self._step(is_equal, f"$ {shlex.join(['pointsmanctl', *words])}")
            self.say(f"    {(await self._run(*words))[1].strip()}")

    async def _until_left(self, addrs: Sequence[str], whose: str) -> None:
        async def are_left() -> bool:
            return not any(connections(addr) for addr in addrs)

        def shown() -> str:
            return f"connections: {', '.join(f'{addr} {connections(addr)}' for addr in addrs)}"

        await self._step(are_left, f"{whose} name servers have no connections", shown)

    def _check_left(self, addrs: Sequence[str]) -> None:
        if used := [addr for addr in addrs if connections(addr)]:
            raise DemoFailed(f"{', '.join(used)} should have no connections yet")

    async def _until_more_sent(self) -> None:
        before = {each: len(sent(producer)) for each, (producer, _) in self._clients.items()}

        async def have_sent() -> bool:
            return all(len(sent(producer)) >= before[each] + MORE for each, (producer, _) in self._clients.items())

        await self._step(have_sent, f"each producer sent {MORE} more messages")
        self._check_running()

    def _check_running(self) -> None:
        for running in self._started:
            if not running.is_alive:
                raise DemoFailed(f"a process ended; see {running.out}")
        if len(faults := self._failures()) > self._failed_before:
            raise DemoFailed("\n".join(["sends failed:", *faults]))

    def _failures(self) -> list[str]:
        return [line for producer, _ in self._clients.values() for line in failed(producer)]

    async def _settle(self) -> None:
        """Stop the producers, and compare what was sent with what was read."""
        self._check_running()
        for each, (producer, consumer) in self._clients.items():
            producer.end_sending()

            async def is_read(producer: Running = producer, consumer: Running = consumer) -> bool:
                return not producer.is_alive and sent(producer) <= set(got(consumer))

            await self._step(is_read, f"the producer of {each} ended, and its messages were read")
            unsure = [line.split()[1] for line in failed(producer)]
            if wrong := list(message_faults(sent(producer), unsure, got(consumer))):
                raise DemoFailed("\n".join(wrong))
            self.say(f"{each}: {len(sent(producer)):,} messages sent, 0 messages lost")
        if len(self._failures()) > self._failed_before or any(not broker.is_alive for broker in self._brokers):
            raise DemoFailed("\n".join(["a send failed or a broker ended:", *self._failures()]))
        self.say("0 sends failed in steps 1 to 4")
        self.say("no broker and no client was restarted")

    # --- waits and commands -------------------------------------------------------------------------------------

    async def _step(
        self, is_so: Callable[[], Awaitable[bool]], what: str, progress: Callable[[], str] | None = None
    ) -> None:
        """Wait for a condition, and print ``what``; every half minute check all processes, and print ``progress``."""
        shown_at = time.monotonic()

        async def is_so_now() -> bool:
            nonlocal shown_at
            if progress is not None and time.monotonic() - shown_at > PROGRESS_SECONDS:
                shown_at = time.monotonic()
                self._check_running()
                total = sum(len(sent(producer)) for producer, _ in self._clients.values())
                self.say(f"    {total:,} messages sent, 0 sends failed; {progress()}")
            return await is_so()

        await self.wait_for(is_so_now, what, seconds=STEP_SECONDS, poll_seconds=POLL_SECONDS)

    async def _ctl(self, *words: str) -> None:
        """Print and run a command at Pointsman's name servers, and print its output. Raises DemoFailed if it fails."""
        words = ("--namesrv", ",".join(self._ours), *words)
        self.say(f"$ {shlex.join(['pointsmanctl', *words])}")
        code, output = await self._run(*words)
        for line in output.splitlines():
            self.say(f"    {line}")
        if code:
            raise DemoFailed(f"pointsmanctl exited with {code}")

    async def _run(self, *words: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pointsman_ctl", "--timeout", f"{CTL_SECONDS}", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()


def topic_of(clients: str) -> str:
    """Return the topic of a pair of clients."""
    return f"orders-{clients.lower().replace(' ', '-').replace('.', '-')}"


def connections(addr: str) -> int:
    """Return the number of open connections to a port of this machine."""
    _, port = split_addr(addr)
    found = 0
    for file in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in file.read_text(encoding="ascii").splitlines()[1:] if file.exists() else ():
            _, local, _, state, *_ = line.split()
            found += state == ESTABLISHED and int(local.rpartition(":")[2], 16) == port
    return found


if __name__ == "__main__":
    sys.exit(run_as_program(MoveDemo))
