"""Clients of grpc-go, @grpc/grpc-js, tonic and grpc-java with a name server on the lane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from pointsman.daemon.lane.lane_server import LaneServer
from pointsman.daemon.rpc.listeners import LANE
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman_namesrv.app import NameServerApp
from tests.kit.certificates import Authority
from tests.kit.name_server.in_process import running_name_server
from tests.kit.tls_peers import tls_config
from tests.kit.waiting import eventually
from tests.peers.peer_process import PROGRAMS, Outcome, PeerProcess, built, missing, peer_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]  # of which a first build is most

REGISTER = "RegistrationService/RegisterBroker"
KEEP_ALIVE = "RegistrationService/KeepAlive"
ROUTE = "RouteService/GetTopicRoute"
WATCH = "RouteService/WatchTopicRoutes"
LIST = "RouteService/ListTopics"
MANY_CALLS = 500
MANY_TOPICS, CHUNK = 9_000, 1_000
"""Both messages and responses are larger than the windows of every client."""
DEADLINE_MILLIS = 300

Status = grpc.StatusCode
Fields = dict[str, Any]


@pytest.fixture(scope="module", params=list(PROGRAMS))
def language(request: pytest.FixtureRequest) -> str:
    """The language of a client that can be built here."""
    chosen: str = request.param
    if why := missing(chosen):
        pytest.skip(why)
    built(chosen)
    return chosen


@pytest.fixture(params=["plaintext", "tls"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> TlsConfig:
    return TlsConfig() if request.param == "plaintext" else tls_config(authority.issue("server"), mutual=False)


@pytest.fixture
async def server(tls: TlsConfig, caplog: pytest.LogCaptureFixture) -> AsyncIterator[NameServerApp]:
    async with running_name_server(tls=tls, listener=LANE) as app:
        yield app
        assert lane(app).shared.excesses.counts == {}, "a usual client reaches a limit"
    assert "error" not in caplog.text


@pytest.fixture
async def client(
    server: NameServerApp, language: str, tls: TlsConfig, authority: Authority
) -> AsyncIterator[PeerProcess]:
    async with connected(server.addr, language, tls, authority) as process:
        yield process


@asynccontextmanager
async def connected(addr: str, language: str, tls: TlsConfig, authority: Authority) -> AsyncIterator[PeerProcess]:
    async with peer_process(language, addr, authority.file if tls.is_on else None) as process:
        yield process


def lane(app: NameServerApp) -> LaneServer:
    server = app.server._server
    assert isinstance(server, LaneServer)
    return server


def identity(name: str) -> Fields:
    return {"cluster": "c1", "brokerName": name, "brokerId": 0, "addr": f"10.0.0.{len(name)}:10911"}


def registration(name: str, *chunks: Sequence[str]) -> list[Fields]:
    """The requests of a registration, one for each chunk of topics."""
    requests: list[Fields] = [
        {"topics": [{"topic": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for topic in chunk]}
        for chunk in chunks
    ]
    requests[0]["broker"] = {"identity": identity(name), "dataVersion": {"counter": "1"}}
    requests[-1]["commit"] = {"topicCount": sum(map(len, chunks)), "chunkCount": len(chunks)}
    return requests


def brokers(response: Outcome) -> list[str]:
    assert response.code is Status.OK, response
    return [each["brokerName"] for each in response.response["route"]["brokerDatas"]]


def watched(*topics: str) -> Fields:
    return {"topics": [{"topic": topic} for topic in topics]}


async def register(client: PeerProcess, name: str, language: str) -> None:
    """Register a broker. tonic does not wait for a connection, and cancels the call that finds GOAWAY on one."""
    async with asyncio.timeout(30):
        while (registered := await client.call(REGISTER, *registration(name, ["orders"]))).code is not Status.OK:
            assert (language, registered.code) in {("rust", Status.CANCELLED), ("rust", Status.UNAVAILABLE)}
            await asyncio.sleep(0.05)


async def test_registrations_stream_and_routes_are_unary(client: PeerProcess) -> None:
    registered = await client.call(REGISTER, *registration("a", ["orders"], ["bills"]))
    assert registered.code is Status.OK, registered
    assert int(registered.response["generation"]) > 0
    for topic in ("orders", "bills"):
        assert brokers(await client.call(ROUTE, {"topic": topic})) == ["a"]


async def test_an_error_has_its_details(client: PeerProcess) -> None:
    unknown = await client.call(ROUTE, {"topic": "nothing"})
    assert (unknown.code, unknown.reasons) == (Status.NOT_FOUND, ("TOPIC_NOT_FOUND",))
    assert "nothing" in unknown.message
    invalid = await client.call(ROUTE, {"topic": "no spaces, please: é"})
    assert (invalid.code, invalid.reasons) == (Status.INVALID_ARGUMENT, ("INVALID_REQUEST",))
    uncommitted = [each | {"commit": None} for each in registration("a", ["orders"], ["bills"])]
    refused = await client.call(REGISTER, *uncommitted)
    assert refused.code is Status.INVALID_ARGUMENT, refused


async def test_heartbeats_stream_both_ways_and_end_with_the_client(client: PeerProcess) -> None:
    registered = await client.call(REGISTER, *registration("a", ["orders"]))
    beat = {
        "identity": identity("a"),
        "generation": registered.response["generation"],
        "dataVersion": {"counter": "1"},
    }
    await client.open(KEEP_ALIVE)
    for _ in range(20):
        await client.send({"beat": beat})
        assert (await client.receive()).response["answer"]["status"] == "BEAT_STATUS_OK"
    await client.half_close()
    assert (await client.receive()).code is Status.OK


async def test_a_watch_has_each_change_until_it_is_cancelled(server: NameServerApp, client: PeerProcess) -> None:
    await client.open(WATCH, watched("orders"))
    assert (await client.receive()).response["absent"]["topics"] == ["orders"]
    assert "synced" in (await client.receive()).response
    for known in (["a"], ["a", "bb"]):
        await client.call(REGISTER, *registration(known[-1], ["orders"]))
        assert brokers(await client.receive()) == known
    assert server.parts.hub.count == 1
    await client.cancel()
    assert (await client.receive()).code is Status.CANCELLED
    await eventually(lambda: server.parts.hub.count == 0)


async def test_a_deadline_ends_a_watch_on_both_sides(server: NameServerApp, client: PeerProcess) -> None:
    await client.open(WATCH, watched("orders"), millis=DEADLINE_MILLIS)
    while (news := await client.receive()).code is Status.OK:
        assert news.response
    assert news.code is Status.DEADLINE_EXCEEDED
    await eventually(lambda: server.parts.hub.count == 0)


async def test_large_messages_and_many_calls_at_a_time(client: PeerProcess) -> None:
    names = [f"{'a-topic-with-a-long-name' * 4}-{number:05}" for number in range(MANY_TOPICS)]
    chunks = [names[at : at + CHUNK] for at in range(0, MANY_TOPICS, CHUNK)]
    registered = await client.call(REGISTER, *registration("a", *chunks))
    assert registered.code is Status.OK, registered
    assert (await client.call(LIST, {"pageSize": 10_000})).response["topics"] == names
    topics = [names[0], "nothing"] * (MANY_CALLS // 2)
    found = await client.calls(ROUTE, [{"topic": topic} for topic in topics])
    assert sorted(each.name for each in found.codes) == ["NOT_FOUND"] * (MANY_CALLS // 2) + ["OK"] * (MANY_CALLS // 2)


async def test_after_goaway_a_watch_continues_and_calls_have_a_new_connection(
    server: NameServerApp, client: PeerProcess, language: str
) -> None:
    await register(client, "a", language)
    await client.open(WATCH, watched("orders"))
    assert brokers(await client.receive()) == ["a"]
    assert "synced" in (await client.receive()).response
    [draining] = lane(server)._connections
    draining.drain()
    await eventually(lambda: draining.pinged_at is None, what="the acknowledgement of the drain")
    await register(client, "bb", language)
    assert brokers(await client.receive()) == ["a", "bb"]
    assert lane(server).connection_count == 2
    await client.cancel()
    assert (await client.receive()).code is Status.CANCELLED
    await eventually(lambda: lane(server).connection_count == 1)


async def test_a_client_reconnects_to_a_server_that_was_stopped(
    language: str, tls: TlsConfig, authority: Authority
) -> None:
    async with running_name_server(tls=tls, listener=LANE) as first:
        addr = first.addr
        serving = connected(addr, language, tls, authority)
        client = await serving.__aenter__()
        await register(client, "a", language)
        await client.open(WATCH, watched("orders"))
        assert brokers(await client.receive()) == ["a"]
        assert "synced" in (await client.receive()).response
    try:
        ended = await client.receive()
        assert ended.code is Status.UNAVAILABLE, ended
        async with running_name_server(tls=tls, listener=LANE, listen=addr):
            await register(client, "a", language)
            assert brokers(await client.call(ROUTE, {"topic": "orders"})) == ["a"]
    finally:
        await serving.__aexit__(None, None, None)
