"""RocketMQ's wire against RocketMQ's own name server 5.3.3, in turns: routes, registrations, the fleet's questions."""

from __future__ import annotations

import socket
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from deploy.rocketmq.processes import RocketMQ, Running, fetched, free_port, missing_programs
from pointsman.names import split_addr
from tests.bench import remoting_peers
from tests.bench.report import Report
from tests.bench.servers import OtherProgram, name_server
from tests.bench.turns import Load, Server, Turn, in_turns
from tests.bench.worker import Worker, worker

VERSION = "5.3.3"
JVM = ("-XX:+UseG1GC", "-Xms512m", "-Xmx512m")
"""G1 as in RocketMQ's own script, with a smaller heap (there 4 GB)."""
JARS = Path(__file__).parents[2] / ".build" / "rocketmq"
START_SECONDS = 60.0
WARM_UP_SECONDS = 30.0

BROKERS = 100
TOPICS = {2: "OfTwo", BROKERS: "OfAll"}
SHARES = {(2, 1): 0.4, (2, 16): 0.3, (BROKERS, 1): 0.15, (BROKERS, 16): 0.1}
"""Of Java's CPU time, by brokers of the route and requests under way on each connection."""

LARGE_TOPICS = 10_000
REGISTRATIONS = 10
"""Per turn; an even number, because every change is changed back."""
CHANGED_SHARES = {0: 0.2, 1: 2.0, LARGE_TOPICS: 2.0}
"""Of Java's CPU time, by how many topics are changed."""
LONGEST_HOLD_SECONDS = 0.002
HOLD_TURNS = 5
"""The median counts: any machine delays a process sometimes."""

FLEET = 1_000
FLEET_SECONDS = 10.0
FLEET_TURNS = 2
FLEET_SHARE = 0.05
"""Of a core."""


class _Java(OtherProgram):
    """The name server of RocketMQ, as a server that is measured."""

    def __init__(self, process: Running, addr: str) -> None:
        super().__init__(process.pid)
        self.addr = addr


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(f"RocketMQ's wire, against RocketMQ's own name server {VERSION}")
    missing = missing_programs()
    if missing:
        print(f"  skipped: {missing}", flush=True)
        return
    # The servers stop first: connections are never ended by the brokers.
    async with (
        worker(remoting_peers.brokers, LARGE_TOPICS) as brokers,
        worker(remoting_peers.clients) as clients,
        worker(name_server) as ours,
    ):
        with java_name_server() as java:
            servers: dict[str, tuple[Server, str]] = {
                "ours": (ours, await ours.ask("remoting_addr")),
                "java": (java, java.addr),
            }
            await _Bench(report, servers, clients=clients, brokers=brokers).measure()


@contextmanager
def java_name_server() -> Iterator[_Java]:
    """Run RocketMQ's name server."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        addr = f"127.0.0.1:{free_port()}"
        process = RocketMQ(fetched(VERSION, JARS), Path(folder), addr).name_server(addr, jvm=JVM)
        stack.callback(process.end)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(split_addr(addr)).close()
                break
            except OSError:
                assert process.is_alive, process.said()
                assert time.monotonic() < deadline, f"not ready within {START_SECONDS:g} s"
                time.sleep(0.1)
        yield _Java(process, addr)


class _Bench:
    def __init__(
        self, report: Report, servers: Mapping[str, tuple[Server, str]], *, clients: Worker, brokers: Worker
    ) -> None:
        self._report = report
        self._servers = servers
        self._clients = clients
        self._brokers = brokers

    async def measure(self) -> None:
        await self._join([["OfTwo", "OfAll"] if number < 2 else ["OfAll"] for number in range(BROKERS)])
        await self._warm_up()
        for brokers, depth in SHARES:
            await self._routes(brokers, depth)
        for changed in CHANGED_SHARES:
            await self._registrations(changed)
        await self._hold()
        await self._fleet()

    async def _join(self, topics: list[list[str]]) -> None:
        """Add brokers with these topics to both."""
        for _, addr in self._servers.values():
            await self._brokers.ask("join", addr, topics)

    async def _warm_up(self) -> None:
        """Warm up Java's JIT compiler."""
        _, java = self._servers["java"]
        for brokers, depth in SHARES:
            self._report.progress(f"warming Java: route of {brokers} brokers, {depth} under way")
            await self._clients.ask("load", java, TOPICS[brokers], depth, WARM_UP_SECONDS / len(SHARES))
        self._report.progress("warming Java: registrations")
        for changed in CHANGED_SHARES:
            await self._brokers.ask("register_large", java, 3 * REGISTRATIONS, changed)

    async def _routes(self, brokers: int, depth: int) -> None:
        topic, asked = TOPICS[brokers], {name: list[remoting_peers.Asked]() for name in self._servers}
        for _, addr in self._servers.values():
            body, size = await self._clients.ask("read", addr, 105, {"topic": topic})
            assert len(body["brokerDatas"]) == len(body["queueDatas"]) == brokers, body

        def load(name: str) -> Load:
            async def ask(seconds: float) -> int:
                answer = await self._clients.ask("load", self._servers[name][1], topic, depth, seconds)
                assert answer.answer_bytes >= size
                asked[name].append(answer)
                return int(answer.answers)

            return ask

        what = f"route of {brokers} brokers, {depth} under way"
        costs = await in_turns(
            {name: Turn(server, load(name)) for name, (server, _) in self._servers.items()}, self._report, title=what
        )
        share, most = costs.ratio("java", "ours"), SHARES[brokers, depth]
        # The first is in_turns' own warm-up.
        speed = {name: statistics.median(each.answers / each.seconds for each in asked[name][1:]) for name in asked}
        p99 = {name: statistics.median(each.p99 * 1e3 for each in asked[name][1:]) for name in asked}
        self._report.figure(
            f"{what}, {size:,} bytes",
            f"{share:.2f} of Java's CPU time ({costs.median('ours'):.1f} against {costs.median('java'):.1f} us), "
            f"{speed['ours']:,.0f} against {speed['java']:,.0f} per second",
            target=f"at most {most}",
            is_met=share <= most,
        )
        self._report.figure(
            f"{what}, p99",
            f"{p99['ours']:.1f} against {p99['java']:.1f} ms",
            target="not above Java's",
            is_met=p99["ours"] <= p99["java"],
        )

    async def _registrations(self, changed: int) -> None:
        def load(addr: str) -> Load:
            async def ask(_: float) -> int:
                return int(await self._brokers.ask("register_large", addr, REGISTRATIONS, changed))

            return ask

        what = f"{LARGE_TOPICS:,} topics registered, {changed:,} changed"
        costs = await in_turns(
            {name: Turn(server, load(addr)) for name, (server, addr) in self._servers.items()}, self._report, title=what
        )
        share, most = costs.ratio("java", "ours"), CHANGED_SHARES[changed]
        self._report.figure(
            what,
            f"{share:.2f} of Java's CPU time ({costs.median('ours') / 1e3:.1f} against "
            f"{costs.median('java') / 1e3:.1f} ms)",
            target=f"at most {most}",
            is_met=share <= most,
        )

    async def _hold(self) -> None:
        ours, addr = self._servers["ours"]
        holds = []
        for _ in range(HOLD_TURNS):
            await ours.ask("probe", 0.0)
            for changed in CHANGED_SHARES:
                await self._brokers.ask("register_large", addr, REGISTRATIONS, changed)
            _, busiest = await ours.ask("longest_hold")
            holds.append(busiest)
        hold = statistics.median(holds)
        self._report.figure(
            f"longest hold of the loop in {REGISTRATIONS} of each",
            f"{hold * 1e3:.1f} ms of CPU time ({min(holds) * 1e3:.1f} to {max(holds) * 1e3:.1f} in {HOLD_TURNS} turns)",
            target=f"at most {LONGEST_HOLD_SECONDS * 1e3:g}",
            is_met=hold <= LONGEST_HOLD_SECONDS,
        )

    async def _fleet(self) -> None:
        self._report.progress(f"{FLEET:,} brokers")
        await self._join([[] for _ in range(FLEET - BROKERS)])
        sizes = {}
        for name, (_, addr) in self._servers.items():
            body, sizes[name] = await self._clients.ask("read", addr, 106, {})
            assert len(body["brokerAddrTable"]) == FLEET
        shares: dict[str, list[float]] = {name: [] for name in self._servers}
        for turn in range(FLEET_TURNS + 1):
            for name, (server, addr) in self._servers.items():
                self._report.progress(f"{FLEET:,} brokers ask {name}, turn {turn} of {FLEET_TURNS}")
                before = await server.ask("cpu")
                await self._brokers.ask("poll", addr, FLEET_SECONDS, sizes[name])
                shares[name].append((await server.ask("cpu") - before) / FLEET_SECONDS)
        # The first is a warm-up.
        ours, java = (statistics.median(shares[name][1:]) for name in ("ours", "java"))
        self._report.figure(
            f"{FLEET:,} brokers, each sends 106 every {remoting_peers.POLL_SECONDS:g} s",
            f"{ours:.1%} against {java:.1%} of a core, {sizes['ours']:,} bytes per response",
            target=f"at most {FLEET_SHARE:.0%}",
            is_met=ours <= FLEET_SHARE,
        )
        memory = [await server.ask("rss") / 1e6 for server, _ in self._servers.values()]
        self._report.figure(
            f"memory with {FLEET:,} brokers and {LARGE_TOPICS:,} topics", f"{memory[0]:.0f} against {memory[1]:.0f} MB"
        )
