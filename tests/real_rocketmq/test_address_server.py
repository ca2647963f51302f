"""Brokers and clients of RocketMQ that have their name servers from an address server move without a restart.

They ask it every two minutes, which decides how long these tests take.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.rocketmq.processes import RocketMQ, failed, free_port, got, sent
from tests.kit.waiting import until
from tests.real_rocketmq.conftest import Jars
from tests.real_rocketmq.name_server import NameServer, Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(900)]

ROUTES = 'pointsman_namesrv_remoting_requests_total{code="105",result="0"}'
CONNECTIONS = "pointsman_namesrv_remoting_connections"
ROUND_SECONDS = 180.0
"""A refresh of the list, two minutes, and what follows from it."""


def set_list(server: Pointsman, *addrs: str) -> None:
    """Have brokers and clients use these name servers."""
    done = ctl("--namesrv", server.grpc_addr, "nsaddr", "set", *addrs, "--yes")
    assert done.returncode == 0, done.stderr


def ctl(*words: str) -> subprocess.CompletedProcess[str]:
    """Run pointsmanctl."""
    command = [sys.executable, "-m", "pointsman_ctl", *words]
    return subprocess.run(command, check=False, timeout=120, capture_output=True, text=True)


IN, BACK = "in", "back"


@pytest.mark.parametrize(("version", "way"), [("5.3.3", IN), ("4.9.7", BACK)])
def test_a_fleet_moves_between_rocketmqs_name_server_and_pointsman_by_its_list_alone(
    jars: Jars, tmp_path: Path, version: str, way: str
) -> None:
    with ExitStack() as stack:
        lists = f"127.0.0.1:{free_port()}"
        ours = Pointsman(tmp_path / "ns", settings={"address_server.listen": lists})
        stack.callback(ours.stop)
        theirs = NameServer(f"127.0.0.1:{free_port()}")
        rocketmq = RocketMQ(jars.of(version), tmp_path / "rocketmq", "", address_server=lists)
        upstream = rocketmq.name_server(theirs.addr)
        stack.callback(upstream.end)
        until(theirs.is_there, what="RocketMQ's name server")
        first, second = (theirs, ours) if way == IN else (ours, theirs)
        set_list(ours, first.addr)

        # A loaded machine would let it refuse messages that waited for 0.2 s.
        broker = rocketmq.broker("a", waitTimeMillsInSendQueue="10000")
        stack.callback(broker.end)
        until(lambda: set(first.addrs("a")) == {"0"}, what="the broker at the first name server")
        producer = rocketmq.producer("Moved", 1_000_000)
        stack.callback(producer.end)
        until(lambda: len(sent(producer)) > 10, what="the first messages")
        consumer = rocketmq.consumer("Moved")
        stack.callback(consumer.end)
        until(lambda: len(set(got(consumer))) > 10, what="the first messages read")
        assert second.addrs("a") == {}

        set_list(ours, first.addr, second.addr)
        until(lambda: set(second.addrs("a")) == {"0"}, seconds=ROUND_SECONDS, what="the broker at the second one")
        compared = ctl("diff", f"rocketmq://{theirs.addr}", ours.grpc_addr)
        assert compared.returncode == 0, compared.stdout
        set_list(ours, second.addr)
        if way == IN:
            until(lambda: ours.metric(CONNECTIONS) >= 3, seconds=ROUND_SECONDS, what="broker and clients at Pointsman")
            upstream.end()
        else:
            until(lambda: is_left(ours), seconds=ROUND_SECONDS, what="Pointsman without clients")
        before = len(sent(producer))
        until(lambda: len(sent(producer)) > before + 100, what="messages after the move")

        producer.end_sending()
        until(lambda: not producer.is_alive, what="the producer's end")
        until(lambda: set(got(consumer)) == sent(producer), what="all messages read")
        assert failed(producer) == []
        assert broker.is_alive
        assert ours.errors() == []


def is_left(server: Pointsman) -> bool:
    """Whether no client asks for routes for three of its intervals."""
    before = server.metric(ROUTES)
    time.sleep(6.0)
    return 0 < server.metric(ROUTES) == before
