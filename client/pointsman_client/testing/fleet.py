"""A fleet for tests of applications: real name server, real agents, brokers in memory, and time that a test moves."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pointsman.wire.names import MAX_QUEUES
from pointsman_client.core.checks import check_name, check_number
from pointsman_client.testing.agent_file import agent_file
from pointsman_client.testing.fleet_clock import FleetClock
from pointsman_client.testing.process import FleetProcess
from pointsman_client.transports.memory import MemoryTransport

STEP_SECONDS = 1.0
"""In which time passes: shorter than every deadline of the programs, so that an answer is never late by our doing."""
TICK_SECONDS = 0.1
"""What starting or killing a broker takes of the fleet's time: the name server gathers changes for 0.05 s."""


@dataclass(frozen=True, slots=True)
class FleetBroker:
    """A broker of the fleet."""

    name: str
    """By which it is killed and restarted."""
    cluster: str
    broker_name: str
    """Its own name, or that of the master it is a replica of."""
    broker_id: int
    addr: str
    topics: Mapping[str, int]
    zone: str


class TestFleet:
    """One real name server and any number of brokers, each a real agent beside queues in memory.

    Name server and agents are the programs themselves: a fake would repeat the client's own mistakes.

    ::

        def test_orders_survive_a_broker(pointsman):
            pointsman.add_broker("broker-a", topics={"orders": 4})
            pointsman.add_broker("broker-b", topics={"orders": 4})
            with Producer(pointsman.name_servers, transport=pointsman.transport, clock=pointsman.clock) as producer:
                pointsman.kill_broker("broker-a")
                pointsman.advance(130)
                producer.send(Message("orders", b"..."))

    Time stands still until :meth:`advance` moves it: beats, expiry, rebalances, isolations happen as they would, in
    the fleet's time. Warm-ups too, after :meth:`restart_broker`; a broker that was added counts as one that has been
    there for long. In a test with an event loop ``advance`` and ``advance_until`` are awaited, the others
    called as ever.
    """

    __test__ = False  # not a test, whatever pytest thinks of its name

    def __init__(self) -> None:
        self.clock = FleetClock()
        """For ``clock=`` of whatever is tested."""
        self.transport = MemoryTransport(clock=self.clock)
        """For ``transport=`` of whatever is tested; it knows the brokers of this fleet."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._name_server: FleetProcess | None = None
        self._name_server_addr = ""
        self._agents: dict[str, FleetProcess] = {}
        self._brokers: dict[str, FleetBroker] = {}

    # Life

    def start(self) -> Self:
        """Start the name server; a second call changes nothing."""
        if self._name_server is None:
            self._folder = tempfile.TemporaryDirectory(prefix="pointsman-")
            self._name_server = FleetProcess("pointsman_namesrv.testing", (), folder=self.folder, name="name-server")
            self._name_server_addr = str(self._name_server.facts()["addr"])
        return self

    def close(self) -> None:
        """Kill whatever runs."""
        running = self._running()
        self._agents, self._name_server = {}, None
        for process in running:
            process.kill()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.close)
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # What is tested connects to

    @property
    def name_servers(self) -> list[str]:
        """For the first argument of whatever is tested."""
        return [self._name_server_addr]

    @property
    def folder(self) -> Path:
        """Where configuration and logs of the programs are, while the fleet runs."""
        if self._folder is None:
            raise RuntimeError("the fleet does not run: use `with TestFleet() as fleet`")
        return Path(self._folder.name)

    @property
    def brokers(self) -> Sequence[FleetBroker]:
        """All that were added, in that order, killed ones too."""
        return tuple(self._brokers.values())

    @property
    def pids(self) -> list[int]:
        """Process ids of what runs: the name server, then the agents in the order of their start."""
        return [process.pid for process in self._running()]

    # Brokers

    def add_broker(
        self,
        name: str,
        topics: Mapping[str, int] | None = None,
        *,
        replica_of: str | None = None,
        zone: str = "",
        cluster: str = "DefaultCluster",
    ) -> FleetBroker:
        """Start a broker; returns when its routes are answered.

        ``topics``: queues by topic; a replica without them has its master's. ``replica_of`` names a broker that was
        added before: the new one holds the same queues and is read while its master is away.
        """
        check_name("broker", name)
        if name in self._brokers:
            raise ValueError(f"broker {name!r} is there already: restart_broker() starts it again")
        for topic, queues in (topics or {}).items():
            check_name("topic", topic)
            check_number(f"topics[{topic!r}]", queues, at_least=0, at_most=MAX_QUEUES)
        master = self._added(replica_of) if replica_of is not None else None
        taken = [each.broker_id for each in self._brokers.values() if master and each.broker_name == master.broker_name]
        broker = FleetBroker(
            name=name,
            cluster=master.cluster if master else cluster,
            broker_name=master.broker_name if master else name,
            broker_id=max(taken, default=-1) + 1,
            addr=f"{name.lower()}.test:10911",
            topics=dict(topics or (master.topics if master else {})),
            zone=zone,
        )
        if master is not None:
            self.transport.replicate(master.addr, broker.addr)
        self.transport.set_queues(broker.addr, broker.topics)
        self._start_agent(broker, warm_up_seconds=0.0)
        self._brokers[name] = broker
        return broker

    def kill_broker(self, name: str) -> None:
        """Kill a broker and its agent at once, without a word to anybody."""
        broker = self._added(name)
        agent = self._agents.pop(name, None)
        if agent is None:
            raise ValueError(f"broker {name!r} does not run")
        self.transport.take_down(broker.addr)
        agent.kill()
        self._tick()

    def restart_broker(self, name: str) -> None:
        """Start a broker that was killed, with what it had; returns when its routes are answered."""
        broker = self._added(name)
        if name in self._agents:
            raise ValueError(f"broker {name!r} runs: kill_broker() first")
        self.transport.bring_up(broker.addr)
        self._start_agent(broker, warm_up_seconds=30.0)

    def _added(self, name: str) -> FleetBroker:
        broker = self._brokers.get(name)
        if broker is None:
            there = ", ".join(self._brokers) or "none"
            raise ValueError(f"broker {name!r} was not added: add_broker() adds one (there are: {there})")
        return broker

    def _start_agent(self, broker: FleetBroker, *, warm_up_seconds: float) -> None:
        file = self.folder / f"{broker.name}.toml"
        file.write_text(
            agent_file(
                broker_section={
                    "cluster": broker.cluster,
                    "name": broker.broker_name,
                    "id": broker.broker_id,
                    "addr": broker.addr,
                    "zone": broker.zone,
                },
                name_servers=self.name_servers,
                offsets=str(self.folder / f"{broker.name}.offsets.db"),
                warm_up_seconds=warm_up_seconds,
                topics=broker.topics,
            ),
            encoding="utf-8",
        )
        with ExitStack() as undo:
            agent = FleetProcess("pointsman_agent.testing", [str(file)], folder=self.folder, name=broker.name)
            undo.callback(agent.kill)
            agent.facts()
            undo.pop_all()
        self._agents[broker.name] = agent
        self._tick()

    # Time

    def advance(self, seconds: float) -> Awaitable[None]:
        """Let time pass for name server, agents and everything that has the fleet's clock, in steps of a second.

        In a test without an event loop it has passed on return. In one with an event loop ``await`` what it returns:
        the tested code needs the loop meanwhile. Whatever waits in the fleet's time waits until somebody does this, so
        let a ``poll`` run in a thread or a task of its own.
        """
        return _here_or_beside(lambda: self._advance(seconds, is_over=lambda: False))

    def advance_until(self, condition: Callable[[], object], *, at_most_seconds: float = 600.0) -> Awaitable[None]:
        """Let time pass, as :meth:`advance` does, until the condition holds, which is looked at each second.

        Raises TimeoutError when it does not hold after ``at_most_seconds`` of the fleet's time.
        """
        return _here_or_beside(lambda: self._advance_until(condition, at_most_seconds))

    def _advance_until(self, condition: Callable[[], object], at_most_seconds: float) -> None:
        self._advance(at_most_seconds, is_over=condition)
        if not condition():
            raise TimeoutError(f"what was waited for did not come within {at_most_seconds:g} s of the fleet's time")

    def _advance(self, seconds: float, *, is_over: Callable[[], object]) -> None:
        if not seconds >= 0:
            raise ValueError(f"time passes forwards: seconds = {seconds!r}")
        left = seconds
        while left > 0 and not is_over():
            step = min(left, STEP_SECONDS)
            left -= step
            self._advance_processes(step)
            self.clock.advance(step)

    def _tick(self) -> None:
        self._advance_processes(TICK_SECONDS)
        # Whoever calls may be the very loop whose tasks would have to settle.
        self.clock.advance(TICK_SECONDS, settle=False)

    def _advance_processes(self, seconds: float) -> None:
        running = self._running()
        for process in running:
            process.order_advance(seconds)
        for process in running:
            process.advanced()

    def _running(self) -> list[FleetProcess]:
        return [process for process in (self._name_server, *self._agents.values()) if process is not None]


def _here_or_beside(passing: Callable[[], None]) -> Awaitable[None]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        passing()
        return _Passed()

    async def advance() -> None:
        # Its name stands in Python's warning when it was never awaited.
        await asyncio.to_thread(passing)

    return advance()


class _Passed(Awaitable[None]):
    """Nothing left to wait for."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()
