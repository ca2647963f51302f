"""Two name servers in one run, one with mTLS: route queries, heartbeats, RocketMQ's wire, new connections, memory."""

from __future__ import annotations

import asyncio
import functools
import ssl
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc

from tests.bench import heartbeats, messages
from tests.bench.report import Report
from tests.bench.routes import queries
from tests.bench.servers import name_server
from tests.bench.turns import Costs, Load, Turn, in_turns, repeat
from tests.bench.worker import Worker, worker
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.certificates import Authority
from tests.kit.tls_peers import channel, context, tls_config

STREAMS = 32
CONNECTIONS = 8
IDLE_CONNECTIONS = 500
ROUTE = 105


@dataclass(frozen=True)
class _Side:
    """One of the two servers, and how to reach it."""

    server: Worker
    channel: grpc.aio.Channel
    remoting_addr: str
    context: ssl.SSLContext | None
    beats: Load
    peers: list[RemotingPeer]


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject("TLS: calls per CPU second of the server under mTLS, as a share of those in plaintext")
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        config, own = tls_config(authority.issue("server"), mutual=True), authority.issue("client", "client.example")
        async with (
            worker(name_server) as plain,
            worker(name_server, config) as secured,
            grpc.aio.insecure_channel(await plain.ask("addr")) as plain_channel,
            channel(await secured.ask("addr"), authority.file, own) as secured_channel,
            AsyncExitStack() as stack,
        ):
            sides = {
                "plaintext": await _side(stack, plain, plain_channel, None),
                "TLS": await _side(stack, secured, secured_channel, context(authority.file, own)),
            }
            await _measure(report, sides)


async def _side(stack: AsyncExitStack, server: Worker, to_it: grpc.aio.Channel, tls: ssl.SSLContext | None) -> _Side:
    generations = [await messages.register(to_it, messages.registration(n, topics=1)) for n in range(STREAMS)]
    beats = [messages.beat(number, generation) for number, generation in enumerate(generations)]
    addr = await server.ask("remoting_addr")
    peers = [await stack.enter_async_context(remoting_peer(addr, tls)) for _ in range(CONNECTIONS)]
    streams = [heartbeats.open_stream(to_it) for _ in beats]
    return _Side(server, to_it, addr, tls, heartbeats.beating(streams, beats), peers)


async def _measure(report: Report, sides: Mapping[str, _Side]) -> None:
    query = messages.query(messages.topic_name(0))
    loads = {
        "route queries over gRPC": lambda side: queries(side.channel, query),
        "heartbeats on a stream": lambda side: side.beats,
        "route queries over RocketMQ's wire": lambda side: _asking(side.peers),
        "new connections over RocketMQ's wire": _connecting,
    }
    for title, load in loads.items():
        turns = {name: Turn(side.server, load(side)) for name, side in sides.items()}
        _print(report, title, await in_turns(turns, report, title=title))
    for name, side in sides.items():
        before = await side.server.ask("rss")
        async with AsyncExitStack() as idle:
            for _ in range(IDLE_CONNECTIONS):
                peer = await idle.enter_async_context(remoting_peer(side.remoting_addr, side.context))
                await peer.ask(ROUTE, {"topic": messages.topic_name(0)})
            size = (await side.server.ask("rss") - before) / IDLE_CONNECTIONS
        report.figure(f"memory per connection, RocketMQ's wire, {name}", f"{size / 1e3:.1f} kB")


def _print(report: Report, title: str, costs: Costs) -> None:
    each = " against ".join(f"{costs.median(name):.1f}" for name in ("TLS", "plaintext"))
    report.figure(title, f"{costs.ratio('TLS', 'plaintext'):.2f} ({each} us)")


def _asking(peers: list[RemotingPeer]) -> Load:
    async def load(seconds: float) -> int:
        ask = {"topic": messages.topic_name(0)}
        return sum(await asyncio.gather(*(repeat(functools.partial(peer.ask, ROUTE, ask), seconds) for peer in peers)))

    return load


def _connecting(side: _Side) -> Load:
    async def connect() -> None:
        async with remoting_peer(side.remoting_addr, side.context) as peer:
            await peer.ask(ROUTE, {"topic": messages.topic_name(0)})

    async def load(seconds: float) -> int:
        return await repeat(connect, seconds)

    return load
