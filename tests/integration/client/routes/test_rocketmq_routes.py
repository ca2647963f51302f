"""Routes over the remoting protocol: from Pointsman's port, and from a RocketMQ name server that misbehaves."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.frames import MAX_FRAME_BYTES, Command
from pointsman_client import (
    AccessDeniedError,
    AccessKey,
    ClientClosedError,
    ClusterNotFoundError,
    Credentials,
    InvalidOptionError,
    NameServerClient,
    NameServersUnavailableError,
    Producer,
    PullConsumer,
    RequestRejectedError,
    RouteChange,
    TopicNotFoundError,
    sync,
)
from pointsman_client.core.route import BrokerData, TopicRoute
from pointsman_client.rocketmq import RocketmqTransport
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.name_server import (
    Respond,
    RocketmqNameServer,
    reply,
    rocketmq_name_server,
    route_body,
)
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.certificates import Authority
from tests.kit.faults.cut_proxy import cut_proxy
from tests.kit.name_server.in_process import running_name_server
from tests.kit.tls_peers import context, tls_config
from tests.kit.waiting import eventually

TOPIC = "TopicTest"


@pytest.fixture
async def pointsman() -> AsyncIterator[NameServerApp]:
    """Brokers a (with a slave, in zone east) and b (west) in one cluster, c in another."""
    brokers = (
        broker_ext("a", 0, "10.0.0.1:10911", __ZONE_NAME="east", enableActingMaster="true"),
        broker_ext("a", 1, "10.0.0.2:10911", __ZONE_NAME="east", enableActingMaster="true"),
        broker_ext("b", 0, "10.0.0.3:10911", __ZONE_NAME="west"),
        broker_ext("c", 0, "[fd00::4]:10911", clusterName="Second"),
    )
    topics = register_body({TOPIC: topic_config(TOPIC, perm=7, topicSysFlag=1), "Other": topic_config("Other")})
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_name_server(remoting=RemotingConfig(listen="127.0.0.1:0")))
        for broker in brokers:
            peer = await stack.enter_async_context(remoting_peer(server.remoting_addr))
            peer.send(register(broker, topics))
            assert (await peer.answer()).code == 0
        yield server


def without_grpc_only(groups: tuple[BrokerData, ...]) -> tuple[BrokerData, ...]:
    """Leave out what the remoting protocol does not have."""
    return tuple(
        replace(group, replicas=tuple(replace(each, ha_addr="", agent_addr="") for each in group.replicas))
        for group in groups
    )


def comparable(route: TopicRoute) -> TopicRoute:
    return replace(
        route,
        revision=replace(route.revision, boot=0, counter=0, digest=b""),
        broker_datas=without_grpc_only(route.broker_datas),
    )


async def test_routes_topics_and_clusters_are_those_of_grpc(pointsman: NameServerApp) -> None:
    async with (
        NameServerClient([pointsman.addr]) as grpc_client,
        NameServerClient([f"rocketmq://{pointsman.remoting_addr}"]) as client,
    ):
        assert comparable(await client.topic_route(TOPIC)) == comparable(await grpc_client.topic_route(TOPIC))
        assert await client.publish_queues(TOPIC) == await grpc_client.publish_queues(TOPIC)
        assert await client.subscribe_queues(TOPIC) == await grpc_client.subscribe_queues(TOPIC)
        for part in ({"zone": "EAST"}, {"zone": "nowhere"}, {"cluster": "Second"}, {"cluster": "Second", "zone": "x"}):
            route, expected = await client.fetch_route(TOPIC, **part), await grpc_client.fetch_route(TOPIC, **part)
            assert comparable(route) == comparable(expected)
        for cluster in ("", "Second"):
            assert await client.list_topics(cluster) == await grpc_client.list_topics(cluster)
            for ours, expected_cluster in zip(
                await client.list_clusters(cluster), await grpc_client.list_clusters(cluster), strict=True
            ):
                assert ours.cluster == expected_cluster.cluster
                assert ours.broker_datas == without_grpc_only(expected_cluster.broker_datas)
        for each in (client, grpc_client):
            await each.wait_until_ready([TOPIC])
            await each.wait_until_ready()
            with pytest.raises(TopicNotFoundError):
                await each.topic_route("nowhere")
            with pytest.raises(TopicNotFoundError):
                await each.fetch_route(TOPIC, cluster="nowhere", zone="east")
            with pytest.raises(ClusterNotFoundError):
                await each.list_topics("nowhere")
            with pytest.raises(ClusterNotFoundError):
                await each.list_clusters("nowhere")


async def test_a_name_server_that_warms_up_is_not_ready() -> None:
    async with (
        running_name_server(remoting=RemotingConfig(listen="127.0.0.1:0"), warm_up_seconds=600.0) as server,
        NameServerClient(f"rocketmq://{server.remoting_addr}") as client,
    ):
        with pytest.raises(NameServersUnavailableError, match="it closed the connection"):
            await client.wait_until_ready(timeout_seconds=0.1)


async def test_a_client_with_a_zone_has_the_same_routes_over_both_protocols(pointsman: NameServerApp) -> None:
    async with (
        NameServerClient([pointsman.addr], zone="east") as grpc_client,
        NameServerClient([f"rocketmq://{pointsman.remoting_addr}"], zone="east") as client,
    ):
        route = await client.topic_route(TOPIC)
        assert comparable(route) == comparable(await grpc_client.topic_route(TOPIC))
        assert [group.broker_name for group in route.broker_datas] == ["a"]


async def test_a_client_describes_what_it_polls(pointsman: NameServerApp) -> None:
    addr = f"rocketmq://{pointsman.remoting_addr}"
    async with NameServerClient(addr) as client:
        await client.topic_route(TOPIC)
        document = client.describe(TOPIC)

    assert client.is_rocketmq
    assert client.name_servers == (addr,)
    assert (document["nameServers"], document["nameServerInUse"], document["sourceNode"]) == ([addr], addr, addr)
    assert (document["watched"], document["stale"]) == (False, False)


# A RocketMQ name server that the test scripts


@pytest.fixture
async def server() -> AsyncIterator[RocketmqNameServer]:
    async with rocketmq_name_server() as running:
        running.routes["orders"] = route_body("a", "b")
        yield running


async def test_a_poll_reports_changes_and_nothing_when_nothing_changed(
    server: RocketmqNameServer, clock: ManualClock
) -> None:
    async with NameServerClient(server.addr, clock=clock, poll_jitter=0.0) as client:
        changes: list[RouteChange] = []
        client.on_route_change(changes.append)
        await client.topic_route("orders")
        server.routes["orders"] = route_body("b", "a")
        await eventually(lambda: len(server.requests) >= 3, clock=clock, step=10.0)
        assert len(changes) == 1
        server.routes["orders"] = route_body("a", "b", perm=4)
        await eventually(lambda: len(changes) == 2, clock=clock, step=10.0)
        assert await client.publish_queues("orders") == ()
        assert server.connections == 1
        assert {code for code, _ in server.requests} == {105}


async def test_the_name_server_in_use_stays_until_it_fails(server: RocketmqNameServer) -> None:
    async with rocketmq_name_server() as other:
        other.routes["orders"] = route_body("a", "b")
        addrs = [server.addr, other.addr]
        async with NameServerClient(addrs, shuffle_name_servers=False) as client:
            for _ in range(3):
                await client.refresh("orders")
            assert (len(server.requests), len(other.requests)) == (3, 0)
            server.respond = lambda request: reply(request, code=1, remark="name server not ready")
            await client.refresh("orders")
            await client.refresh("orders")
            assert (len(server.requests), len(other.requests)) == (4, 2)
            assert client.name_server_in_use == other.addr


async def test_the_removal_of_a_broker_needs_a_second_name_server(server: RocketmqNameServer) -> None:
    async with rocketmq_name_server() as other:
        other.routes["orders"] = route_body("a", "b")
        async with NameServerClient([server.addr, other.addr], shuffle_name_servers=False) as client:
            await client.topic_route("orders")
            server.routes["orders"] = route_body("a")
            assert (await client.refresh("orders")).stale
            other.routes["orders"] = route_body("a")
            route = await client.refresh("orders")
            assert ([group.broker_name for group in route.broker_datas], route.stale) == (["a"], False)


async def test_a_name_server_that_restarted_does_not_remove_topics(server: RocketmqNameServer) -> None:
    """It knows no topic until the brokers register again. RocketMQ's client continues with the known route, too."""
    registered: dict[str, object] = {}

    def restarted(request: Command) -> bytes:
        if request.code == 106:
            return reply(request, json.dumps({"brokerAddrTable": registered}).encode())
        return server.usual(request)

    server.respond = restarted
    async with NameServerClient([server.addr]) as client:
        route = await client.topic_route("orders")
        del server.routes["orders"]
        with pytest.raises(NameServersUnavailableError, match="it may have restarted"):
            await client.refresh("orders")
        assert await client.topic_route("orders") == route
        with pytest.raises(TopicNotFoundError):
            await client.topic_route("unknown")
        # A broker of the topic is registered without it: the topic was deleted.
        registered["a"] = {"brokerName": "a", "cluster": "c1", "brokerAddrs": {"0": "a.test:10911"}}
        with pytest.raises(TopicNotFoundError):
            await client.refresh("orders")


def cut_in_a_frame(request: Command) -> bytes:
    return reply(request, b"x" * 1000)[:200]


BAD_RESPONSES: dict[str, tuple[Respond, str]] = {
    "closes": (lambda _: None, "it closed the connection"),
    "code 1": (
        lambda request: reply(request, code=1, remark="name server not ready"),
        "GET_ROUTEINFO_BY_TOPIC (105): SYSTEM_ERROR 1: name server not ready",
    ),
    "code 3": (lambda request: reply(request, code=3), "is not a name server, or runs an older version"),
    "unknown code": (lambda request: reply(request, code=4711), "response code 4711: no reason given"),
    "long remark": (lambda request: reply(request, code=2, remark="x" * 9999), f"SYSTEM_BUSY 2: {'x' * 300}"),
    "no JSON": (lambda request: reply(request, b"<html>"), "the body b'<html>' is not JSON"),
    "bad field": (
        lambda request: reply(request, b'{"queueDatas":[{"brokerName":7}]}'),
        "GET_ROUTEINFO_BY_TOPIC (105) cannot be read: queueDatas[0].brokerName = 7, must be a string",
    ),
    "no frame": (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not send RocketMQ frames"),
    "large frame": (lambda _: (MAX_FRAME_BYTES + 1).to_bytes(4, "big"), "does not send RocketMQ frames"),
    "silence": (lambda _: b"", "no response within"),
    "half a frame": (cut_in_a_frame, "no response within"),
    "another request's response": (
        lambda request: reply(replace(request, opaque=request.opaque + 1), b"{}"),
        "no response within",
    ),
}
CODES = {
    "code 1": (1, "name server not ready"),
    "code 3": (3, ""),
    "unknown code": (4711, ""),
    "long remark": (2, "x" * 300),
}
"""Code and remark of the error, of the responses that have them."""


@pytest.mark.parametrize("kind", BAD_RESPONSES)
async def test_a_bad_response_is_explained_and_the_next_name_server_is_used(
    server: RocketmqNameServer, kind: str
) -> None:
    server.respond, problem = BAD_RESPONSES[kind]
    async with rocketmq_name_server() as other:
        async with NameServerClient(server.addr, lookup_timeout_seconds=0.5) as client:
            with pytest.raises(NameServersUnavailableError) as caught:
                await client.topic_route("orders")
            (failure,) = caught.value.failures
            assert str(failure).startswith(f"{server.addr}: ")
            assert problem in str(failure)
            assert failure.status.name not in str(failure)
            assert (failure.response_code, failure.remark) == CODES.get(kind, (None, ""))
            if kind == "half a frame":
                server.close_connections()
            server.respond = server.usual
            assert await client.publish_queues("orders")
        server.respond, _ = BAD_RESPONSES[kind]
        other.routes["orders"] = route_body("a")
        addrs = [server.addr, other.addr]
        async with NameServerClient(addrs, shuffle_name_servers=False, lookup_timeout_seconds=5.0) as client:
            assert len(await client.publish_queues("orders")) == 4


async def test_a_name_server_that_denies_access_says_why(server: RocketmqNameServer) -> None:
    server.respond = lambda request: reply(request, code=16, remark="no such account")
    async with rocketmq_name_server() as other:
        async with NameServerClient(server.addr) as client:
            with pytest.raises(AccessDeniedError) as caught:
                await client.topic_route("orders")
        assert str(caught.value) == (
            f"{server.addr} refused: GET_ROUTEINFO_BY_TOPIC (105): NO_PERMISSION 16: no such account; "
            "set rocketmq_access_key to an account that may do this"
        )
        other.routes["orders"] = route_body("a")
        async with NameServerClient([server.addr, other.addr], shuffle_name_servers=False) as client:
            assert len(await client.publish_queues("orders")) == 4


async def test_requests_are_signed_by_the_account(server: RocketmqNameServer) -> None:
    account = AccessKey("billing", "secret")
    async with Producer(server.addr, rocketmq_access_key=account) as producer:
        assert await producer.client.publish_queues("orders")
        _, ext = server.requests[0]
        unsigned = {name: value for name, value in ext.items() if name not in {"AccessKey", "Signature"}}
        assert ext == account.signed(unsigned, b"")
        assert cast("RocketmqTransport", producer._resources.transport).options.access_key is account
    async with NameServerClient(server.addr) as client:
        await client.topic_route("orders")
    assert "AccessKey" not in server.requests[-1][1]


def test_an_account_is_an_option_for_rocketmq_name_servers() -> None:
    account = AccessKey("billing", "secret")
    with pytest.raises(
        InvalidOptionError, match=r"^rocketmq_access_key = .* is for rocketmq:// addresses only"
    ) as caught:
        NameServerClient("a:1", rocketmq_access_key=account)
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidOptionError, match=r"^rocketmq_access_key = .* must be set on the client passed in"):
        Producer(NameServerClient("rocketmq://a:1"), rocketmq_access_key=account)
    for refused in (
        lambda: NameServerClient("a:1", rocketmq_access_key="secret"),  # type: ignore[arg-type]
        lambda: Producer(NameServerClient("rocketmq://a:1"), rocketmq_access_key="secret"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidOptionError, match=r"^rocketmq_access_key = <class 'str'>"):
            refused()
    with pytest.raises(InvalidOptionError, match=r"^access_key = <class 'str'> must be an AccessKey or None"):
        NameServerClient("rocketmq://a:1", rocketmq_access_key="secret")  # type: ignore[arg-type]
    assert (
        sync.Producer("rocketmq://a:1", rocketmq_access_key=account).client.inner._options.rocketmq_access_key
        is account
    )


async def test_a_name_server_that_cannot_be_reached_is_named() -> None:
    async with NameServerClient("rocketmq://127.0.0.1:1") as client:
        with pytest.raises(NameServersUnavailableError, match=r"rocketmq://127\.0\.0\.1:1: cannot connect: Connection"):
            await client.topic_route("orders")
    async with NameServerClient("rocketmq://name.invalid") as client:
        with pytest.raises(
            NameServersUnavailableError, match=r"rocketmq://name\.invalid:9876: cannot connect: host name"
        ):
            await client.topic_route("orders")


async def test_a_connection_that_the_name_server_closed_is_opened_again(server: RocketmqNameServer) -> None:
    async with NameServerClient(server.addr) as client:
        for _ in range(2):
            await client.refresh("orders")
            server.close_connections()
        await client.refresh("orders")
        assert server.connections == 3


async def test_a_cut_name_server_costs_one_timeout_and_is_used_again_after_the_repair(
    server: RocketmqNameServer,
) -> None:
    async with (
        cut_proxy(server.addr.removeprefix("rocketmq://")) as proxy,
        NameServerClient(f"rocketmq://{proxy.addr}", lookup_timeout_seconds=0.5) as client,
    ):
        route = await client.topic_route("orders")
        proxy.cut()
        with pytest.raises(NameServersUnavailableError, match="no response within"):
            await client.refresh("orders")
        assert await client.topic_route("orders") == route
        proxy.repair()
        assert (await client.refresh("orders")).is_same_as(route)


async def test_a_static_topic_is_rejected(server: RocketmqNameServer) -> None:
    server.routes["orders"] = route_body("a") | {"topicQueueMappingByBroker": {"a": {"totalQueues": 4}}}
    async with NameServerClient(server.addr) as client:
        with pytest.raises(RequestRejectedError, match="orders is a static topic, which this client does not support"):
            await client.topic_route("orders")


async def test_close_ends_a_query_that_waits(server: RocketmqNameServer) -> None:
    server.respond = lambda _: b""
    client = await NameServerClient(server.addr, lookup_timeout_seconds=60.0).start()
    waiting = asyncio.create_task(client.list_clusters())
    await eventually(lambda: server.requests)
    await client.close()
    with pytest.raises(ClientClosedError):
        await waiting


# What is built on the client


async def test_producers_and_consumers_use_the_rocketmq_transport_by_default(server: RocketmqNameServer) -> None:
    async with Producer(server.addr) as producer, NameServerClient(server.addr) as client:
        assert isinstance(producer._resources.transport, RocketmqTransport)
        assert await producer.client.publish_queues("orders")
        PullConsumer(client, group="billing", subscriptions={"orders": "*"})
    with pytest.raises(InvalidOptionError, match=r"^transport = None must be a transport"):
        PullConsumer("a:1", group="billing", subscriptions={"orders": "*"})


async def test_the_blocking_client_has_the_same_routes(server: RocketmqNameServer) -> None:
    def look_up() -> int:
        with sync.NameServerClient(server.addr) as client, sync.Producer(client) as producer:
            return len(producer.client.publish_queues("orders"))

    assert await asyncio.to_thread(look_up) == 8


async def test_tls_is_that_of_name_servers_and_of_the_default_transport(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("server")
    tls = context(files.ca)
    remoting = RemotingConfig(listen="127.0.0.1:0", tls="required")
    async with running_name_server(tls=tls_config(files), remoting=remoting) as server:
        addr = f"rocketmq://{server.remoting_addr}"
        for transport in (None, RocketmqTransport):
            async with Producer(addr, rocketmq_tls=tls, transport=transport) as producer:
                await producer.client.wait_until_ready(timeout_seconds=10.0)
                assert await producer.client.list_topics() == ()
                assert cast("RocketmqTransport", producer._resources.transport).options.tls is tls
        for other, problem in ((None, "it closed the connection"), (ssl.create_default_context(), "cannot connect: ")):
            async with NameServerClient(addr, rocketmq_tls=other) as client:
                with pytest.raises(NameServersUnavailableError, match=problem):
                    await client.list_topics()


def test_tls_is_an_option_for_each_kind_of_name_server() -> None:
    with pytest.raises(InvalidOptionError, match=r"^credentials = .* are not for rocketmq:// addresses: use rocketmq_"):
        NameServerClient("rocketmq://a:1", credentials=Credentials(tls=True))
    tls = ssl.create_default_context()
    with pytest.raises(InvalidOptionError, match=r"^rocketmq_tls = .* is for rocketmq:// addresses only: use cred"):
        NameServerClient("a:1", rocketmq_tls=tls)
    with pytest.raises(InvalidOptionError, match=r"^rocketmq_tls = .* must be set on the client passed in"):
        Producer(NameServerClient("rocketmq://a:1"), rocketmq_tls=tls)
    with pytest.raises(InvalidOptionError, match=r"^tls = True must be an ssl\.SSLContext"):
        NameServerClient("rocketmq://a:1", rocketmq_tls=True)  # type: ignore[arg-type]
    assert sync.Producer("rocketmq://a:1", rocketmq_tls=tls).client.inner._options.rocketmq_tls is tls
