"""Route queries against a bare handler with the same response size: static, changing every second, `unchanged`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import Mapping, Sequence

import grpc

from pointsman.daemon.rpc.listeners import GRPCIO, LANE
from pointsman.v1.route_service_pb2 import GetTopicRouteResponse
from tests.bench import messages
from tests.bench.http2_load import raw_channels, raw_load
from tests.bench.report import Report
from tests.bench.route_peers import PEERS
from tests.bench.servers import bare_server, name_server
from tests.bench.turns import Load, Turn, in_turns, repeat
from tests.bench.worker import Worker, worker

BROKERS = (2, 100)
CONCURRENCY = 32
CONNECTIONS = 32
IN_FLIGHT = (1, 16)
MOST_MICROSECONDS = {1: 20, 16: 8}
SHARES_OF_PEERS = {"grpc-go": 1 / 1.8, "etcd": 0.2}
"""Highest CPU time per query on the lane, as a share of that of another server."""
SHARE_OF_BARE = 0.9
NOISE = 0.05
"""Share by which two measurements of the same thing may differ on a shared machine."""


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject("Route queries: calls per CPU second of the server, as a share of a bare bytes handler's")
    for brokers in BROKERS:
        async with worker(name_server) as ours, worker(bare_server) as bare:
            await _measure(report, ours, bare, brokers=brokers)
    report.subject(
        f"The same on both listeners and other servers, {CONNECTIONS} connections: CPU time of the server per call"
    )
    for program, (name, _) in PEERS.items():
        if shutil.which(program) is None:
            print(f"  {name} is skipped: {program} is not in the PATH", flush=True)
    for brokers in BROKERS:
        async with worker(name_server) as grpcio, worker(name_server, listener=LANE) as lane:
            await _measure_listeners(report, {GRPCIO: grpcio, LANE: lane}, brokers=brokers)


async def _measure_listeners(report: Report, servers: Mapping[str, Worker], *, brokers: int) -> None:
    query = messages.query(messages.topic_name(0))
    async with contextlib.AsyncExitStack() as stack:
        turns: dict[str, Turn] = {}
        for name, server in servers.items():
            addr = await server.ask("addr")
            async with grpc.aio.insecure_channel(addr) as channel:
                for number in range(brokers):
                    await messages.register(channel, messages.registration(number, topics=1))
            channels = await stack.enter_async_context(raw_channels(addr, [query] * CONNECTIONS, method=messages.ROUTE))
            turns |= {f"{name}, {count}": Turn(server, raw_load(channels, count)) for count in IN_FLIGHT}
        async with grpc.aio.insecure_channel(await servers[LANE].ask("addr")) as channel:
            ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(messages.ROUTE)
            response = await ask(query)
        peers: list[str] = []
        for program, (name, start) in PEERS.items():
            if shutil.which(program) is not None:
                peer = await stack.enter_async_context(start(response))
                channels = await stack.enter_async_context(
                    raw_channels(peer.addr, [peer.message] * CONNECTIONS, method=peer.method)
                )
                turns |= {f"{name}, {count}": Turn(peer, raw_load(channels, count)) for count in IN_FLIGHT}
                peers.append(name)
        costs = await in_turns(turns, report, title=f"listeners, routes of {brokers} brokers")
    for count, name in itertools.product(IN_FLIGHT, peers):
        share = 1 / costs.ratio(f"{LANE}, {count}", f"{name}, {count}")
        report.figure(
            f"{brokers} brokers, {count} in flight, against {name}",
            f"{share:.2f} of its CPU time ({costs.median(f'{name}, {count}'):.1f} us)",
            target=f"{SHARES_OF_PEERS[name]:.2f}",
            is_met=share <= SHARES_OF_PEERS[name],
        )
    for count in IN_FLIGHT:
        ours, theirs = costs.median(f"{LANE}, {count}"), costs.median(f"{GRPCIO}, {count}")
        report.figure(
            f"{brokers} brokers, {count} in flight on each connection",
            f"{ours:.1f} us on the lane, {theirs:.1f} us on grpcio",
            target=f"at most {MOST_MICROSECONDS[count]} us",
            is_met=ours <= MOST_MICROSECONDS[count],
        )


async def _measure(report: Report, ours: Worker, bare: Worker, *, brokers: int) -> None:
    async with (
        grpc.aio.insecure_channel(await ours.ask("addr")) as channel,
        grpc.aio.insecure_channel(await bare.ask("addr")) as bare_channel,
    ):
        generations = [
            await messages.register(channel, messages.registration(number, topics=1)) for number in range(brokers)
        ]
        changing = messages.ChangingTopic(channel, 0, generations[0])
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(messages.ROUTE)
        query = messages.query(messages.topic_name(0))
        answer = await ask(query)
        digest = GetTopicRouteResponse.FromString(answer).route.revision.digest
        conditional = messages.query(messages.topic_name(0), known_digest=digest)
        await bare.ask("answer", answer)
        costs = await in_turns(
            {
                "bare": Turn(bare, queries(bare_channel, query)),
                "steady": Turn(ours, queries(channel, query)),
                "unchanged": Turn(ours, queries(channel, conditional)),
                # An even number of changes a round: `conditional` stays right.
                "changing": Turn(ours, _with_changes(queries(channel, query), changing)),
            },
            report,
            title=f"routes of {brokers} brokers",
        )
        assert GetTopicRouteResponse.FromString(await ask(conditional)).HasField("unchanged")
    size = f"{brokers} brokers, {len(answer):,} bytes"
    for name in ("steady", "changing"):
        share = costs.ratio(name, "bare")
        report.figure(
            f"{size}, {name}",
            f"{share:.2f} ({costs.median(name):.1f} against {costs.median('bare'):.1f} us per call)",
            target=f"at least {SHARE_OF_BARE}",
            is_met=share >= SHARE_OF_BARE,
        )
    speed = costs.ratio("unchanged", "steady")
    report.figure(
        f"{brokers} brokers, `unchanged` against the full response",
        f"{speed:.2f} times as many ({costs.median('unchanged'):.1f} against {costs.median('steady'):.1f} us per call)",
        target=f"no fewer, up to a noise of {NOISE:.0%}",
        is_met=speed >= 1 - NOISE,
    )


def queries(channel: grpc.aio.Channel, query: bytes, metadata: Sequence[tuple[str, str]] = ()) -> Load:
    """Query continuously, CONCURRENCY at a time."""
    ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(messages.ROUTE)

    async def load(seconds: float) -> int:
        return sum(
            await asyncio.gather(*(repeat(lambda: ask(query, metadata=metadata), seconds) for _ in range(CONCURRENCY)))
        )

    return load


def _with_changes(queries: Load, topic: messages.ChangingTopic) -> Load:
    async def change() -> None:
        for pause in (0.5, 1.0):
            await asyncio.sleep(pause)
            await topic.change()

    async def load(seconds: float) -> int:  # noqa: ARG001  # always two changes: see below
        # One change per second, and the second one reverts the first.
        calls, _ = await asyncio.gather(queries(2.0), change())
        return calls

    return load
