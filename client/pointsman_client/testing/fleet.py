"""Test fleet: real name server, real agents, brokers in memory, and time that the test advances."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pointsman.names import MAX_QUEUES
from pointsman_client.core.checks import check_name, check_number
from pointsman_client.memory import MemoryTransport
from pointsman_client.testing.agent_file import agent_file
from pointsman_client.testing.fleet_clock import FleetClock
from pointsman_client.testing.process import FleetProcess

STEP_SECONDS = 1.0
"""Step of advancing time; shorter than every deadline of the programs, so that a step causes no timeout."""
TICK_SECONDS = 0.1
"""Fleet time taken by starting or killing a broker. The name server coalesces changes for 0.05 s."""


@dataclass(frozen=True, slots=True)
class FleetBroker:
    """A broker of the fleet."""

    name: str
    """Name in this fleet, for killing and restarting it."""
    cluster: str
    broker_name: str
    """``name``, or that of its master for a replica."""
    broker_id: int
    addr: str
    topics: Mapping[str, int]
    zone: str


class TestFleet:
    """One real name server and any number of brokers, each a real agent with queues in memory.

    Name server and agents are the real programs; a fake could repeat errors of the client.

    ::

        def test_orders_survive_a_broker(pointsman):
            pointsman.add_broker("broker-a", topics={"orders": 4})
            pointsman.add_broker("broker-b", topics={"orders": 4})
            with Producer(pointsman.name_servers, transport=pointsman.transport, clock=pointsman.clock) as producer:
                pointsman.kill_broker("broker-a")
                pointsman.advance(130)
                producer.send(Message("orders", b"..."))

    Time does not pass until :meth:`advance` is called. Heartbeats, expiry, rebalances and isolations happen in the
    fleet's time, and so does the warm-up after :meth:`restart_broker`. A broker that was added needs no warm-up. In a
    test with an event loop ``advance`` and ``advance_until`` are awaited; the other methods are called as usual.
    """

    __test__ = False  # not a test, although its name matches

    def __init__(self) -> None:
        self.clock = FleetClock()
        """For ``clock=`` of producers and consumers under test."""
        self.transport = MemoryTransport(clock=self.clock)
        """For ``transport=`` of producers and consumers under test; connects to the brokers of this fleet."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._name_server: FleetProcess | None = None
        self._name_server_addr = ""
        self._agents: dict[str, FleetProcess] = {}
        self._brokers: dict[str, FleetBroker] = {}

    # Life cycle

    def start(self) -> Self:
        """Start the name server; a second call does nothing."""
        if self._name_server is None:
            self._folder = tempfile.TemporaryDirectory(prefix="pointsman-")
            self._name_server = FleetProcess("pointsman_namesrv.testing", (), folder=self.folder, name="name-server")
            self._name_server_addr = str(self._name_server.facts()["addr"])
        return self

    def close(self) -> None:
        """Kill all processes of the fleet."""
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

    # For code under test

    @property
    def name_servers(self) -> list[str]:
        """Addresses, for the first argument of producers and consumers under test."""
        return [self._name_server_addr]

    @property
    def folder(self) -> Path:
        """Folder of the programs' configuration and logs, while the fleet runs."""
        if self._folder is None:
            raise RuntimeError("the fleet is not running: use `with TestFleet() as fleet`")
        return Path(self._folder.name)

    @property
    def brokers(self) -> Sequence[FleetBroker]:
        """All brokers in the order in which they were added, including killed ones."""
        return tuple(self._brokers.values())

    @property
    def pids(self) -> list[int]:
        """Ids of the running processes: the name server, then the agents in the order of their start."""
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
        """Start a broker; returns when it is in the routes.

        ``topics``: number of queues by topic; the default of a replica are those of its master. ``replica_of``: name of
        a broker added before. The new one is its slave: it has the same queues and is read while its master is down.
        """
        check_name("broker", name)
        if name in self._brokers:
            raise ValueError(f"broker {name!r} was already added: use restart_broker() to start it again")
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
        """Kill a broker and its agent, without unregistering."""
        broker = self._added(name)
        agent = self._agents.pop(name, None)
        if agent is None:
            raise ValueError(f"broker {name!r} is not running")
        self.transport.take_down(broker.addr)
        agent.kill()
        self._tick()

    def restart_broker(self, name: str) -> None:
        """Start a killed broker again, with its messages; returns when it is in the routes."""
        broker = self._added(name)
        if name in self._agents:
            raise ValueError(f"broker {name!r} is running: call kill_broker() first")
        self.transport.bring_up(broker.addr)
        self._start_agent(broker, warm_up_seconds=30.0)

    def _added(self, name: str) -> FleetBroker:
        broker = self._brokers.get(name)
        if broker is None:
            there = ", ".join(self._brokers) or "none"
            raise ValueError(f"unknown broker {name!r}: call add_broker() first (added: {there})")
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
        """Advance time for name server, agents and all users of the fleet's clock, in steps of 1 s.

        In a test without an event loop, time has passed on return. In one with an event loop, ``await`` the result,
        since the code under test needs the loop. A call that waits in the fleet's time, such as ``poll``, returns only
        after an advance, so run it in a separate thread or task.
        """
        return _here_or_beside(lambda: self._advance(seconds, is_over=lambda: False))

    def advance_until(self, condition: Callable[[], object], *, at_most_seconds: float = 600.0) -> Awaitable[None]:
        """Advance time, as :meth:`advance` does, until the condition holds; it is checked every second.

        Raises TimeoutError if it does not hold after ``at_most_seconds`` of the fleet's time.
        """
        return _here_or_beside(lambda: self._advance_until(condition, at_most_seconds))

    def _advance_until(self, condition: Callable[[], object], at_most_seconds: float) -> None:
        self._advance(at_most_seconds, is_over=condition)
        if not condition():
            raise TimeoutError(f"condition not met within {at_most_seconds:g} s of fleet time")

    def _advance(self, seconds: float, *, is_over: Callable[[], object]) -> None:
        if not seconds >= 0:
            raise ValueError(f"seconds must be >= 0, got {seconds!r}")
        left = seconds
        while left > 0 and not is_over():
            step = min(left, STEP_SECONDS)
            left -= step
            self._advance_processes(step)
            self.clock.advance(step)

    def _tick(self) -> None:
        self._advance_processes(TICK_SECONDS)
        # The caller may be in the event loop whose tasks would have to settle.
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
        # Python's warning about a missing await contains the name of this function.
        await asyncio.to_thread(passing)

    return advance()


class _Passed(Awaitable[None]):
    """An awaitable that is already done."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()
