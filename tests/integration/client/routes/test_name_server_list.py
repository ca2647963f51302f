"""Clients that have their name servers from an address server: which ones they use, and what a bad list changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pointsman.manual_clock import ManualClock
from pointsman.name_servers import list_sources
from pointsman.name_servers.list_follower import RETRY_SECONDS
from pointsman.names import ROCKETMQ_SCHEME
from pointsman_client import (
    AccessKey,
    Credentials,
    InvalidOptionError,
    MetricsHook,
    NameServerClient,
    NameServersUnavailableError,
    sync,
)
from pointsman_client.prometheus import PrometheusMetrics
from pointsman_client.routes import name_server_list
from pointsman_client.routes.name_server_list import JITTER, REFRESH_SECONDS
from pointsman_namesrv.config import AddressServerConfig
from tests.kit.broker.rocketmq.name_server import rocketmq_name_server, route_body
from tests.kit.certificates import Authority
from tests.kit.faults.cut_proxy import cut_proxy
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.list_server import ListServer
from tests.kit.name_server.scripted_routes import ScriptedRouteServer, broker_data, scripted_route_server, topic_route
from tests.kit.tls_peers import context, tls_config
from tests.kit.waiting import eventually

TOPIC = "orders"
CALL_SECONDS = 3.0


@pytest.fixture
def lists() -> Iterator[ListServer]:
    server = ListServer()
    yield server
    server.stop()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have lists read every 50 ms."""
    monkeypatch.setattr(name_server_list, "REFRESH_SECONDS", 0.05)


class Reads(MetricsHook):
    """The result of each read that ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def name_server_list_read(self, *, result: str) -> None:
        self.ended.append(result)


@asynccontextmanager
async def two_servers() -> AsyncIterator[tuple[ScriptedRouteServer, ScriptedRouteServer]]:
    """Name servers with different routes of the topic."""
    async with scripted_route_server() as first, scripted_route_server() as second:
        first.routes[TOPIC] = topic_route(groups=[broker_data("first")])
        second.routes[TOPIC] = topic_route(groups=[broker_data("second")])
        yield first, second


def listing(lists: ListServer, *servers: ScriptedRouteServer) -> None:
    lists.body = ";".join(server.addr for server in servers).encode()


def counted(registry: CollectorRegistry, result: str) -> float | None:
    return registry.get_sample_value("pointsman_client_name_server_list_reads_total", {"result": result})


async def brokers(client: NameServerClient) -> set[str]:
    return {group.broker_name for group in (await client.fetch_route(TOPIC)).broker_datas}


async def test_a_first_lookup_waits_for_the_list_and_uses_its_servers(lists: ListServer) -> None:
    async with two_servers() as (first, _), NameServerClient(lists.url) as client:
        listing(lists, first)
        await client.wait_until_ready([TOPIC])
        assert client.name_servers == (first.addr,)
        assert client.name_server_in_use == first.addr
        assert client.describe(TOPIC)["nameServers"] == [first.addr]
        assert not client.is_rocketmq


@pytest.mark.usefixtures("often")
async def test_a_topic_that_is_iterated_over_before_there_is_a_list_is_watched_once_there_is_one(
    lists: ListServer,
) -> None:
    lists.status, reads = 404, Reads()
    async with two_servers() as (first, _), NameServerClient(lists.url, metrics_hook=reads) as client:
        changes = client.route_changes(TOPIC)
        await eventually(lambda: len(reads.ended) > 3, what="reads")
        listing(lists, first)
        lists.status = 200
        change = await anext(changes)
        assert change.new is not None
        await eventually(lambda: first.open_watches == [{TOPIC}], what="a watch")


@pytest.mark.usefixtures("often")
async def test_a_changed_list_moves_lookups_and_the_watch_and_closes_the_connection_to_a_removed_server(
    lists: ListServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_servers() as (first, second), cut_proxy(first.addr) as proxy:
        lists.body = proxy.addr.encode()
        async with NameServerClient(lists.url) as client:
            await client.topic_route(TOPIC)
            await eventually(lambda: first.open_watches, what="a watch at the first server")

            lists.body = f"{proxy.addr};{second.addr}".encode()
            await eventually(lambda: len(client.name_servers) == 2, what="the longer list")
            assert client.name_server_in_use == proxy.addr

            listing(lists, second)
            with caplog.at_level(logging.INFO):
                await eventually(lambda: client.name_servers == (second.addr,), what="the shorter list")
                await eventually(lambda: second.open_watches and not first.open_watches, what="a moved watch")
            before = ", ".join(sorted([proxy.addr, second.addr]))
            assert f"name server list changed from {before} to {second.addr}" in caplog.text
            assert await brokers(client) == {"second"}
            await eventually(lambda: not proxy.is_used, what="a closed connection")


async def test_a_call_to_a_server_that_is_removed_ends_before_its_connection_is_closed(
    clock: ManualClock, lists: ListServer
) -> None:
    reads = Reads()
    async with two_servers() as (first, second), cut_proxy(first.addr) as proxy:
        lists.body = proxy.addr.encode()
        async with NameServerClient(lists.url, clock=clock, watch_routes=False, metrics_hook=reads) as client:
            await client.topic_route(TOPIC)
            await eventually(lambda: reads.ended, what="the first read")
            first.hang()
            calling = asyncio.create_task(brokers(client))
            await first.called(2)
            listing(lists, second)
            # The list is read up to a tenth earlier; what counts is when it was.
            step = CALL_SECONDS / 8
            await eventually(lambda: client.name_servers == (second.addr,), clock=clock, step=step, what="the new list")
            await clock.advance(CALL_SECONDS / 2)
            first.recover()
            assert await calling == {"first"}
            await clock.advance(CALL_SECONDS / 2)
            await eventually(lambda: not proxy.is_used, what="a closed connection")


async def test_the_list_is_read_every_30_s_or_up_to_a_tenth_earlier(clock: ManualClock, lists: ListServer) -> None:
    reads = Reads()
    async with NameServerClient(lists.url, clock=clock, metrics_hook=reads):
        for times in (1, 2, 3):
            await eventually(lambda: len(reads.ended) == times, what="the read")  # noqa: B023
            await clock.advance(REFRESH_SECONDS * (1 - JITTER) - 0.1)
            assert len(lists.asked) == times
            await clock.advance(REFRESH_SECONDS * JITTER + 0.1)
    assert set(reads.ended) == {"ok"}


async def test_without_a_list_a_lookup_fails_in_time_with_the_reason_and_a_later_list_is_used(
    clock: ManualClock, lists: ListServer
) -> None:
    lists.status, reads = 404, Reads()
    async with two_servers() as (first, _), NameServerClient(lists.url, clock=clock, metrics_hook=reads) as client:
        await eventually(lambda: reads.ended, what="the first read")
        looking = asyncio.create_task(client.topic_route(TOPIC))
        await clock.advance(RETRY_SECONDS)
        await eventually(lambda: len(reads.ended) == 2, what="the second read")
        await clock.advance(CALL_SECONDS - RETRY_SECONDS - 0.1)
        assert not looking.done()
        await clock.advance(0.2)
        with pytest.raises(NameServersUnavailableError) as raised:
            await looking
        assert str(raised.value) == (
            f"no name server responded: {lists.url}: no list of name servers: HTTP 404, expected 200 (UNAVAILABLE)"
        )
        listing(lists, first)
        lists.status = 200
        await clock.advance(RETRY_SECONDS)
        await eventually(lambda: client.name_servers, what="the list")
        assert await brokers(client) == {"first"}


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, b"", "the list has no address"),
        (200, b"\xff\x00garbage", "ordinal not in range"),
        (200, b"<html>", "has the address '<html>'"),
        (200, b" " * 70_000, "is longer than 65536 bytes"),
        (200, b"a:1;" * 17, "has 17 addresses, at most 16"),
        (500, b"a:1", "HTTP 500, expected 200"),
        (302, b"a:1", "HTTP 302, expected 200"),
        (404, b"a:1", "HTTP 404, expected 200"),
    ],
    ids=["empty", "garbage", "page", "endless", "seventeen", "failing", "redirection", "no-list"],
)
@pytest.mark.usefixtures("often")
async def test_what_is_not_a_list_changes_nothing_and_is_logged_once(
    lists: ListServer,
    caplog: pytest.LogCaptureFixture,
    status: int,
    body: bytes,
    problem: str,
) -> None:
    registry = CollectorRegistry()
    async with two_servers() as (first, _):
        listing(lists, first)
        async with NameServerClient(lists.url, metrics_hook=PrometheusMetrics(registry)) as client:
            await client.topic_route(TOPIC)
            lists.status, lists.body, lists.location = status, body, lists.url
            with caplog.at_level(logging.WARNING):
                await eventually(lambda: problem in caplog.text, what="the log")
                asked = len(lists.asked)
                await eventually(lambda: len(lists.asked) > asked + 2, what="two more reads")
            assert client.name_servers == (first.addr,)
            assert await brokers(client) == {"first"}
            text = [record.getMessage() for record in caplog.records if "list cannot be read" in record.getMessage()]
            assert (counted(registry, "ok") or 0) >= 1
            assert (counted(registry, "failed") or 0) >= 2
            assert len(text) == 1
            assert text[0].startswith(f"name server list cannot be read; {first.addr} stays in use: {lists.url}: ")


@pytest.mark.usefixtures("often")
async def test_a_server_that_sends_a_byte_now_and_then_changes_nothing(
    lists: ListServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            while not ended.wait(0.05):
                handler.wfile.write(b"a")

    monkeypatch.setattr(list_sources, "HTTP_SECONDS", 0.5)
    async with two_servers() as (first, _):
        listing(lists, first)
        async with NameServerClient(lists.url) as client:
            await client.topic_route(TOPIC)
            lists.send = trickle
            await eventually(lambda: "no complete response within 0.5 s" in caplog.text, what="the log")
            assert client.name_servers == (first.addr,)
            assert await brokers(client) == {"first"}
        ended.set()


def test_a_blocking_client_has_the_list_as_well(lists: ListServer) -> None:
    async def move() -> None:
        async with two_servers() as (first, second):
            listing(lists, first, second)

            def work() -> tuple[str, ...]:
                with sync.NameServerClient(lists.url) as client:
                    client.wait_until_ready([TOPIC])
                    return client.name_servers

            assert await asyncio.to_thread(work) == tuple(sorted([first.addr, second.addr]))

    asyncio.run(move())


@pytest.mark.usefixtures("often")
async def test_a_list_of_rocketmqs_name_servers_is_queried_over_their_protocol_and_a_removed_one_is_left(
    lists: ListServer,
) -> None:
    async with rocketmq_name_server() as first, rocketmq_name_server() as second:
        for server, broker in ((first, "first"), (second, "second")):
            server.routes[TOPIC] = route_body(broker)
        lists.body = first.addr.removeprefix(ROCKETMQ_SCHEME).encode()
        async with NameServerClient(f"rocketmq+{lists.url}", lookup_timeout_seconds=1.0) as client:
            assert client.is_rocketmq
            assert not client.name_servers
            assert await brokers(client) == {"first"}
            assert client.name_servers == (first.addr,)
            lists.body = second.addr.removeprefix(ROCKETMQ_SCHEME).encode()
            await eventually(lambda: client.name_server_in_use == second.addr, what="the other server")
            assert await brokers(client) == {"second"}
            await eventually(lambda: not first.is_used, what="a closed connection")


def test_with_a_token_a_list_in_plaintext_is_refused_unless_the_name_servers_are_verified(
    tmp_path: Path, lists: ListServer, authority: Authority
) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken")
    plain = Credentials(token_file=str(token))
    with pytest.raises(InvalidOptionError, match="is not encrypted, so servers of a forged list would get the token"):
        NameServerClient(lists.url, credentials=plain)
    with pytest.raises(InvalidOptionError, match="is not encrypted"):
        sync.NameServerClient(lists.url, credentials=plain)
    NameServerClient(lists.url.replace("http", "https"), credentials=plain)
    NameServerClient(lists.url, credentials=Credentials(token_file=str(token), ca=str(authority.file)))
    NameServerClient(f"rocketmq+{lists.url}", rocketmq_access_key=AccessKey("ann", "s3cret"))


@pytest.mark.parametrize("kind", ["", "rocketmq+"])
async def test_https_is_verified_by_the_settings_of_the_connections_to_name_servers(
    authority: Authority, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    on, tls = AddressServerConfig(listen="127.0.0.1:0", tls=True), tls_config(authority.issue("server"))
    async with running_name_server(address_server=on, tls=tls) as app:
        app.core.kv.put("NSADDR", "nsaddr", "ns1:9876")
        url = f"{kind}https://localhost:{app.address_server_port}/rocketmq/nsaddr"
        verified = (
            NameServerClient(url, rocketmq_tls=context(authority.file))
            if kind
            else NameServerClient(url, credentials=Credentials(ca=str(authority.file)))
        )
        async with verified:
            await eventually(lambda: verified.name_servers, what="the list")
        async with NameServerClient(url, lookup_timeout_seconds=0.5) as unverified:
            await eventually(lambda: "certificate verify failed" in caplog.text, what="the log")
            with pytest.raises(NameServersUnavailableError, match="certificate verify failed"):
                await unverified.topic_route(TOPIC)
            assert unverified.name_servers == ()
