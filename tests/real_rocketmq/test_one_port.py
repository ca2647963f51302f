"""RocketMQ's broker and clients in Java and Go, and clients of gRPC, on the one port of a name server."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from deploy.rocketmq.processes import GoClients, RocketMQ, built_go_client, failed, got, missing_go, sent
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from tests.kit.waiting import until
from tests.real_rocketmq.conftest import Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

ALL = {f"m{i}" for i in range(10)}


def brokers_by_grpc(addr: str, topic: str) -> set[str]:
    with grpc.insecure_channel(addr) as channel:
        route = RouteServiceStub(channel).GetTopicRoute(GetTopicRouteRequest(topic=topic), timeout=30).route
    return {broker.broker_name for broker in route.broker_datas}


def test_brokers_and_clients_of_both_wires_use_one_port(jars: Jars, tmp_path: Path) -> None:
    if missing := missing_go():
        pytest.skip(missing)
    with ExitStack() as stack:
        server = Pointsman(tmp_path / "ns", shares_port=True)
        stack.callback(server.stop)
        assert server.grpc_addr == server.addr
        java = RocketMQ(jars.v5, tmp_path / "v5", server.addr)
        go = GoClients(built_go_client(jars.cache), tmp_path / "go", server.addr)
        stack.callback(java.broker("a").end)
        until(lambda: set(server.addrs("a")) == {"0"}, what="the broker")

        for topic, sending, reading in (("OfJava", java, go), ("OfGo", go, java)):
            producer = sending.producer(topic, 10)
            stack.callback(producer.end)
            until(lambda: sent(producer) == ALL, what=f"messages of {topic} sent")  # noqa: B023
            assert failed(producer) == []
            assert brokers_by_grpc(server.addr, topic) == {"a"}
            consumer = reading.consumer(topic)
            stack.callback(consumer.end)
            until(lambda: set(got(consumer)) == ALL, what=f"messages of {topic} read")  # noqa: B023

        # Producers that run on over a restart of the port, and a client of gRPC beside them.
        producers = [clients.producer("OfJava", 40, millis=200) for clients in (java, go)]
        for producer in producers:
            stack.callback(producer.end)
        until(lambda: all(len(sent(producer)) >= 5 for producer in producers), what="the first messages")
        server.restart(signal.SIGTERM)
        assert brokers_by_grpc(server.addr, "OfJava") == {"a"}
        until(lambda: not any(producer.is_alive for producer in producers), what="the producers to end")
        assert [sent(producer) for producer in producers] == [{f"m{i}" for i in range(40)}] * 2
        until(lambda: set(server.addrs("a")) == {"0"}, what="the broker")
        assert server.errors() == []
