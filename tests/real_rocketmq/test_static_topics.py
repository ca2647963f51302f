"""Static topics of unmodified RocketMQ 5.5.0, next to its own name server: mqadmin, Java clients, remapping.

In the order of the file, because the processes are shared.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from deploy.rocketmq.processes import RocketMQ, Running, free_port, got, sent, sent_to
from pointsman_client import Message, NameServerClient, NoWritableQueueError, Producer, RequestRejectedError
from pointsman_client.rocketmq import RocketmqTransport
from tests.kit.waiting import until
from tests.real_rocketmq.conftest import Jars
from tests.real_rocketmq.name_server import NameServer, Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC, QUEUES = "Static", 8


@dataclass
class Fleet:
    """Brokers ``a`` and ``b``, registered with both name servers, and mqadmin and clients of each."""

    ours: Pointsman
    java: NameServer
    at_ours: RocketMQ
    at_java: RocketMQ
    clients: ExitStack
    sent: set[str] = field(default_factory=set)

    @property
    def both(self) -> tuple[RocketMQ, RocketMQ]:
        return self.at_ours, self.at_java

    def client(self, client: Running) -> Running:
        """Have a client ended with the fleet."""
        self.clients.callback(client.end)
        return client

    def until_equal(self, led_by: dict[str, int]) -> None:
        """Wait until both name servers give the same route, with these numbers of logical queues by broker."""
        until(partial(leads, self.java, led_by), what=f"{led_by} at RocketMQ's own name server")
        until(partial(leads, self.ours, led_by), what=f"{led_by} here")
        assert route(self.ours) == route(self.java)

    def admin(self, *command: str) -> list[str]:
        """Run a command of mqadmin at both, and return what both printed, which must be the same."""
        here, there = (printed(each.admin(*command)) for each in self.both)
        assert here == there
        return here


def printed(output: str) -> list[str]:
    """What a command printed, without its log."""
    return [line for line in output.splitlines() if not re.match(r"\d{4}-\d\d-\d\d ", line)]


def route(server: NameServer) -> dict[str, Any]:
    code, body = server.ask(105, topic=TOPIC, acceptStandardJsonOnly="true")
    assert code in {0, 17}
    for part in ("brokerDatas", "queueDatas"):
        body[part].sort(key=lambda data: data["brokerName"])
    return dict(body)


def logical_queues(server: NameServer) -> set[tuple[str, int]]:
    """Broker name and id of each logical queue in the route."""
    mappings = route(server)["topicQueueMappingByBroker"]
    return {(name, int(logical)) for name, each in mappings.items() for logical in each["currIdMap"]}


def leads(server: NameServer, led_by: dict[str, int]) -> bool:
    code, body = server.ask(105, topic=TOPIC, acceptStandardJsonOnly="true")
    table = body.get("topicQueueMappingByBroker", {}) if code == 0 else {}
    return {name: len(each["currIdMap"]) for name, each in table.items()} == led_by


@pytest.fixture(scope="module")
def fleet(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("static")
    with ExitStack() as stack:
        ours, java = Pointsman(folder / "ns"), NameServer(f"127.0.0.1:{free_port()}")
        stack.callback(ours.stop)
        both = RocketMQ(jars.newest, folder / "fleet", f"{ours.addr};{java.addr}")
        stack.callback(both.name_server(java.addr).end)
        until(java.is_there, what="RocketMQ's name server")
        for name in ("a", "b"):
            stack.callback(both.broker(name).end)
        at_ours, at_java = (RocketMQ(jars.newest, folder / server.addr, server.addr) for server in (ours, java))
        for server in (ours, java):
            until(lambda: server.addrs("a") and server.addrs("b"), seconds=150, what="both brokers")  # noqa: B023
        yield Fleet(ours, java, at_ours, at_java, stack.enter_context(ExitStack()))


def test_a_topic_that_mqadmin_makes_has_the_route_that_rocketmqs_name_server_gives(fleet: Fleet) -> None:
    fleet.at_ours.admin("updateStaticTopic", "-t", TOPIC, "-c", "C", "-qn", str(QUEUES))
    fleet.until_equal({"a": QUEUES // 2, "b": QUEUES // 2})
    listed = "\n".join(fleet.admin("topicRoute", "-t", TOPIC, "-l"))
    assert "a" in listed
    shown = "\n".join(fleet.admin("topicRoute", "-t", TOPIC))
    assert '"topicQueueMappingByBroker"' in shown
    assert '"scope":"__global__"' in re.sub(r"\s", "", shown)


def test_java_clients_address_logical_queues_and_read_what_was_sent(fleet: Fleet) -> None:
    consumers = [
        fleet.client(each.consumer(TOPIC, group=f"G{n}")) for n, each in enumerate((fleet.at_ours, fleet.at_java))
    ]
    until(lambda: all("started" in consumer.said() for consumer in consumers), what="the consumers")
    producer = fleet.client(fleet.at_ours.producer(TOPIC, 40))
    fleet.sent = {f"m{number}" for number in range(40)}
    until(lambda: sent(producer) == fleet.sent, what="messages sent")
    # A receipt has the real broker and the logical queue; each broker has four physical ones, 0 to 3.
    assert sent_to(producer) == logical_queues(fleet.ours)
    assert {queue for _, queue in sent_to(producer)} == set(range(QUEUES))
    until(lambda: [set(got(consumer)) for consumer in consumers] == [fleet.sent] * 2, what="messages read")
    for consumer in consumers:
        consumer.end()


def test_queues_that_mqadmin_moves_are_followed_by_producers_and_consumers(fleet: Fleet) -> None:
    consumer = fleet.client(fleet.at_ours.consumer(TOPIC, group="Moving"))
    until(lambda: set(got(consumer)) == fleet.sent, what="the messages so far")
    producer = fleet.client(fleet.at_ours.producer(TOPIC, 2_000, millis=50))
    until(lambda: sent_to(producer) == logical_queues(fleet.ours), what="messages to all queues")
    fleet.at_ours.admin("remappingStaticTopic", "-t", TOPIC, "-b", "b")
    fleet.until_equal({"a": 0, "b": QUEUES})
    fleet.admin("topicRoute", "-t", TOPIC, "-l")
    until(lambda: sent_to(producer) >= logical_queues(fleet.ours), what="messages to the moved queues")
    producer.end_sending()
    until(lambda: not producer.is_alive, what="the producer to end")
    assert sent(producer) == {f"m{number}" for number in range(len(sent(producer)))}
    # The messages of before have the same names as the first of these.
    expected = Counter([*fleet.sent, *sent(producer)])
    until(lambda: Counter(got(consumer)) >= expected, what="all messages read")


def test_a_name_server_that_was_killed_has_the_mapping_at_its_start(fleet: Fleet) -> None:
    before = route(fleet.ours)
    fleet.ours.restart(signal.SIGKILL)
    assert route(fleet.ours) == before == route(fleet.java)


async def test_the_client_refuses_a_static_topic_from_either_wire(fleet: Fleet) -> None:
    async with NameServerClient(f"rocketmq://{fleet.ours.addr}") as client:
        with pytest.raises(
            RequestRejectedError, match=f"{TOPIC} is a static topic, which this client does not support"
        ):
            await client.topic_route(TOPIC)
    async with Producer(fleet.ours.grpc_addr, transport=RocketmqTransport) as producer:
        with pytest.raises(NoWritableQueueError, match="it is a static topic, which this client does not support"):
            await producer.send(Message(TOPIC, b"x"))
        assert (await producer.client.topic_route(TOPIC)).is_static


def test_mqadmin_shows_why_settings_cannot_be_changed(fleet: Fleet) -> None:
    output = fleet.at_ours.admin("updateNamesrvConfig", "-k", "listenPort", "-v", "1")
    assert "CODE: 16" in output
    assert "settings are a file: change it and restart this name server" in output


def test_another_connection_does_not_unregister_a_broker_and_is_refused(fleet: Fleet) -> None:
    both_up = 'pointsman_namesrv_brokers{cluster="C",role="master",state="UP"}'
    until(lambda: fleet.ours.metric(both_up) == 2, what="the brokers to register on connections after the restart")
    addr = fleet.ours.addrs("a")["0"]
    assert fleet.ours.ask(104, clusterName="C", brokerName="a", brokerId="0", brokerAddr=addr)[0] == 1
    assert fleet.ours.addrs("a") == {"0": addr}
    assert fleet.ours.errors() == []


def test_a_deleted_static_topic_that_is_made_again_as_an_ordinary_one_has_no_mapping(fleet: Fleet) -> None:
    assert "success" in fleet.at_ours.admin("deleteTopic", "-c", "C", "-t", TOPIC)
    until(lambda: not fleet.ours.perms(TOPIC), what="the topic to be deleted")
    assert "success" in fleet.at_ours.admin("updateTopic", "-c", "C", "-t", TOPIC, "-r", "2", "-w", "2")
    until(lambda: fleet.ours.perms(TOPIC).keys() == {"a", "b"}, what="the topic")
    assert "topicQueueMappingByBroker" not in route(fleet.ours)
    # RocketMQ's own never forgets a mapping.
    assert "topicQueueMappingByBroker" in route(fleet.java)
    assert fleet.ours.metric("pointsman_namesrv_remoting_topics_skipped_total") == 0
