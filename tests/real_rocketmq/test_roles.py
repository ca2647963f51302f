"""Brokers that hang, and brokers that come back as another replica: their former state is removed from the routes.

In the order of the file, because the processes are shared.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from deploy.rocketmq.processes import Broker, RocketMQ
from tests.kit.waiting import pause, until
from tests.real_rocketmq.conftest import Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(300)]

MASTER = {"brokerId": "0", "brokerRole": "ASYNC_MASTER"}


@dataclass
class Pair:
    """A name server, and two replicas of broker ``r``."""

    name_server: Pointsman
    first: Broker
    second: Broker

    def until_routed(self, **expected: Broker) -> None:
        """Wait until the replicas are exactly these, by ``id0``, ``id1``, and the topic is written at the master."""
        addrs = {number.removeprefix("id"): broker.addr for number, broker in expected.items()}
        until(lambda: self.name_server.addrs("r") == addrs, what=f"the replicas {addrs}")
        until(lambda: self.name_server.perms("Seeded") == {"r": 6 if "0" in addrs else 4}, what="the permission")


def slave(broker_id: int) -> dict[str, str]:
    return {"brokerId": str(broker_id), "brokerRole": "SLAVE"}


@pytest.fixture(scope="module")
def pair(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("roles")
    with ExitStack() as stack:
        name_server = Pointsman(folder / "ns")
        stack.callback(name_server.stop)
        rocketmq = RocketMQ(jars.v5, folder / "5.3.3", name_server.addr)
        for broker_id in (0, 1):
            rocketmq.topics_on_disk("r", broker_id, ["Seeded"])
        running = Pair(name_server, rocketmq.broker("r", 0), rocketmq.broker("r", 1))
        for broker in (running.first, running.second):
            stack.callback(broker.end)
        running.until_routed(id0=running.first, id1=running.second)
        yield running


def test_a_hung_broker_expires_by_silence_and_comes_back(pair: Pair) -> None:
    server = pair.name_server
    pause(pair.first.pid)
    try:
        pair.until_routed(id1=pair.second)
        # Its connection was open all the time.
        until(lambda: server.events("r")[-1] == ("EXPIRED", "SILENCE"), what="the history")
    finally:
        pair.first.send(signal.SIGCONT)
    pair.until_routed(id0=pair.first, id1=pair.second)
    until(lambda: server.events("r")[-1][0] == "REGISTERED", what="the history")
    assert ("EXPIRED", "SILENCE") not in server.events("r", 1)


def test_a_slave_restarted_under_another_id_is_removed_under_the_old_one(pair: Pair) -> None:
    pair.second.end()
    pair.second.start_again(**slave(2))
    pair.until_routed(id0=pair.first, id2=pair.second)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_slave_restarted_as_the_master_takes_its_place(pair: Pair, number: signal.Signals) -> None:
    """With SIGKILL, the new roles are registered while the old ones are still in their grace."""
    master, other = pair.first, pair.second
    for broker in (master, other):
        broker.send(number)
    for broker in (master, other):
        broker.end(number)
    other.start_again(**MASTER)
    master.start_again(**slave(1))
    pair.until_routed(id0=other, id1=master)
    if number is signal.SIGKILL:
        time.sleep(12)  # the grace of those that were killed is over
        assert pair.name_server.addrs("r") == {"0": other.addr, "1": master.addr}
    pair.first, pair.second = other, master
