"""The observer beside two of RocketMQ's own name servers, one of which loses a broker to the network."""

from __future__ import annotations

import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.rocketmq.processes import Broker, RocketMQ, Running, free_port
from tests.kit.faults.network_namespace import Namespace, network_namespace
from tests.kit.history.rows import rows_in
from tests.kit.operations.prometheus_process import prometheus
from tests.kit.waiting import read_until, until
from tests.real_rocketmq.conftest import Jars
from tests.real_rocketmq.name_server import NameServer

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(600)]

COMMAND = Path(sys.executable).with_name("pointsman-observe")
START_SECONDS = 180.0
SHOWN_SECONDS = 5.0
SILENT = {"enableSlaveActingMaster": "true"}
"""With it a broker beats each second, and its name server drops it after 10 s of silence instead of 120."""


class Observed:
    """Two name servers of RocketMQ, two brokers that reach each by a separate link, an observer."""

    def __init__(self, jars: Jars, folder: Path, network: Namespace, stack: ExitStack) -> None:
        self.folder = folder
        self.network = network
        self._stack = stack
        ports = [free_port(), free_port()]
        self.servers = [NameServer(f"{network.host(link)}:{port}") for link, port in zip((1, 2), ports, strict=True)]
        addrs = ";".join(server.addr for server in self.servers)
        self._rocketmq = RocketMQ(jars.of("5.3.3"), folder / "rocketmq", addrs)
        inside = RocketMQ(jars.of("5.3.3"), folder / "inside", addrs, inside=network.inside)
        self.running = [self._rocketmq.name_server(server.addr) for server in self.servers]
        for each in self.running:
            stack.callback(each.end)
        for server in self.servers:
            until(server.is_there, what="RocketMQ's name server")
        inside.topics_on_disk("cut", 0, ["Cut-1", "Cut-2"])
        self._rocketmq.topics_on_disk("near", 0, ["Near"])
        elsewhere = {"brokerIP1": network.peer(1), "brokerIP2": network.peer(1), "bindAddress": "0.0.0.0"}
        self.brokers: list[Broker] = [inside.broker("cut", 0, **SILENT, **elsewhere)]
        self.brokers.append(self._rocketmq.broker("near", 0, **SILENT))
        for broker in self.brokers:
            stack.callback(broker.end)
        self.port = free_port()
        words = [word for server in self.servers for word in ("--namesrv", server.addr)]
        options = ["--history", str(folder / "history"), "--monitoring", f"127.0.0.1:{self.port}"]
        self.observer = Running([str(COMMAND), *words, *options, "--log-format", "json"], folder / "observer")
        stack.callback(self.observer.end)
        until(self.is_whole, seconds=START_SECONDS, what="both brokers at both name servers")

    def is_whole(self) -> bool:
        """Whether both brokers are listed by both name servers."""
        return [self.sample("brokers", server) for server in self.servers] == [2.0, 2.0]

    def sample(self, name: str, server: NameServer) -> float | None:
        """Return a metric of a name server."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5.0) as page:
                lines = [line.rpartition(" ") for line in page.read().decode().splitlines()]
        except OSError:
            return None  # it starts
        wanted = f'pointsman_observe_{name}{{name_server="{server.addr}"}}'
        return next((float(value) for each, _, value in lines if each == wanted), None)

    def restart_name_server(self, place: int) -> None:
        """Kill one, and start it again with nothing in its tables."""
        self.running[place].end()
        until(lambda: self.sample("up", self.servers[place]) == 0.0, what="the observer notices")
        self.running[place] = self._rocketmq.name_server(self.servers[place].addr)
        self._stack.callback(self.running[place].end)

    def events(self, kind: str) -> set[tuple[str, str]]:
        """Return name server and broker of each event of a kind in the history."""
        rows = rows_in(self.folder / "history")
        return {(row["node"], row["broker_name"]) for row in rows if row["event"] == kind}


@pytest.fixture
def observed(jars: Jars, tmp_path: Path) -> Iterator[Observed]:
    with ExitStack() as stack:
        network = stack.enter_context(network_namespace(2))
        yield Observed(jars, tmp_path, network, stack)


async def test_a_broker_cut_off_from_one_name_server_is_shown_in_seconds_and_alerts(
    observed: Observed, tmp_path: Path
) -> None:
    first, second = observed.servers
    until(
        lambda: observed.events("TOPICS") >= {(first.addr, "cut"), (second.addr, "cut")},
        seconds=START_SECONDS,
        what="its topics are known",
    )
    async with prometheus(tmp_path, {"pointsman-observe": f"127.0.0.1:{observed.port}"}) as monitor:
        await monitor.await_series("pointsman_observe_up == 1", 2)
        for name in ("brokers_missing", "routes_differing"):
            assert [observed.sample(name, server) for server in observed.servers] == [0.0, 0.0]

        observed.network.cut(2)
        until(lambda: second.addrs("cut") == {}, seconds=150.0, what="the name server drops the silent broker")
        dropped_at = time.monotonic()
        until(lambda: observed.sample("brokers_missing", second) == 1.0, what="the observer shows it")
        assert time.monotonic() - dropped_at < SHOWN_SECONDS
        assert observed.sample("brokers_missing", first) == 0.0
        until(lambda: observed.sample("routes_differing", second), what="its topics differ")
        print(f"shown after {time.monotonic() - dropped_at:.1f} s with its topics")
        for alert in ("PointsmanObservedBrokersMissing", "PointsmanObservedRoutesDiffer"):
            fires = await read_until(lambda: monitor.firing(alert))  # noqa: B023
            assert second.addr in {each["name_server"] for each in fires}

        observed.network.repair(2)
        until(lambda: second.addrs("cut"), what="the broker registers again")
        for name in ("brokers_missing", "routes_differing"):
            until(lambda: observed.sample(name, second) == 0.0, what=f"{name} is 0 again")  # noqa: B023
    assert observed.events("EXPIRED") == {(second.addr, "cut")}


def test_a_name_server_that_is_killed_and_started_again_is_not_a_departure_of_a_broker(observed: Observed) -> None:
    observed.restart_name_server(1)
    until(lambda: observed.sample("brokers", observed.servers[1]) == 2.0, seconds=150.0, what="both brokers again")
    assert observed.events("EXPIRED") == set()
    assert observed.sample("brokers_missing", observed.servers[1]) == 0.0
    log = "\n".join(observed.observer.said())
    assert "routes of this name server differ" not in log
