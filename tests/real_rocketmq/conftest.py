"""One name server and its RocketMQ brokers for all tests of this folder: starting them is slow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.rocketmq.processes import Broker, RocketMQ, Running, fetched, missing_programs
from tests.kit.waiting import until
from tests.leaks import nothing_left
from tests.real_rocketmq.name_server import Pointsman

MANY = 10_000
NEWEST = "5.5.0"
VERSIONS = (NEWEST, "5.3.3", "4.9.7")
"""What depends on the version of the broker is tested with each."""


@dataclass
class Fleet:
    """Brokers ``a`` (5.3.3, with a slave), ``many`` (5.3.3, with MANY topics) and ``old`` (4.9.7)."""

    name_server: Pointsman
    v5: RocketMQ
    v4: RocketMQ
    clients: ExitStack
    master: Broker
    slave: Broker
    many: Broker
    old: Broker

    def client(self, client: Running) -> Running:
        """Have a client ended with the test."""
        self.clients.callback(client.end)
        return client

    def until_whole(self) -> None:
        """Wait until every broker is registered."""
        expected = {"a": {"0", "1"}, "many": {"0"}, "old": {"0"}}
        for name, ids in expected.items():
            until(lambda: set(self.name_server.addrs(name)) == ids, seconds=60, what=f"broker {name}")  # noqa: B023


@dataclass(frozen=True)
class Jars:
    """Folders with the jars of each version, and where more is built."""

    v5: Path
    v4: Path
    newest: Path
    cache: Path

    def of(self, version: str) -> Path:
        """Return the folder of a version."""
        return next(lib for lib in (self.v5, self.v4, self.newest) if lib.name == version)


@pytest.fixture(scope="session")
def jars(request: pytest.FixtureRequest) -> Jars:
    """The folder that Maven filled. Skips where Java or Maven is not installed."""
    missing = missing_programs()
    if missing:
        pytest.skip(missing)
    cache = Path(request.config.cache.mkdir("rocketmq"))
    return Jars(fetched("5.3.3", cache), fetched("4.9.7", cache), fetched(NEWEST, cache), cache)


@pytest.fixture(autouse=True)
def no_leak() -> Iterator[None]:
    """Fail a test that leaks; processes that it restarted belong to a fleet."""
    with nothing_left(but="process"):
        yield


@pytest.fixture(scope="module")
def whole_fleet(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """All processes, each broker registered."""
    folder = tmp_path_factory.mktemp("rocketmq")
    with ExitStack() as stack:
        name_server = Pointsman(folder / "ns")
        stack.callback(name_server.stop)
        v5, v4 = (RocketMQ(lib, folder / lib.name, name_server.addr) for lib in (jars.v5, jars.v4))
        # A slave copies its master's topics once a minute: both have this one from the start.
        v5.topics_on_disk("a", 0, ["Seeded"])
        v5.topics_on_disk("a", 1, ["Seeded"])
        v5.topics_on_disk("many", 0, [f"topic-{i}" for i in range(MANY)])
        brokers = [v5.broker("a"), v5.broker("a", 1), v5.broker("many"), v4.broker("old")]
        for broker in brokers:
            stack.callback(broker.end)
        running = Fleet(name_server, v5, v4, ExitStack(), *brokers)
        running.until_whole()
        yield running


@pytest.fixture
def fleet(whole_fleet: Fleet) -> Iterator[Fleet]:
    """The processes, and clients that end with the test."""
    with whole_fleet.clients:
        yield whole_fleet
