"""Heartbeats on both listeners; on streams against a bare echo, and what a measurement of queues in one costs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Iterator

import grpc

from pointsman.daemon.rpc.listeners import GRPCIO, LANE
from pointsman.v1 import registration_service_pb2 as wire
from tests.bench import messages
from tests.bench.http2_load import RawChannel, RawStream, raw_channels, raw_load
from tests.bench.report import Report
from tests.bench.servers import bare_server, name_server
from tests.bench.turns import Load, Turn, in_turns, repeat
from tests.bench.worker import worker

STREAMS = 32
IN_FLIGHT = (1, 16)

_Stream = grpc.aio.StreamStreamCall[bytes, bytes]


async def measure(report: Report) -> None:
    """Print the figure."""
    report.subject("Heartbeats on a stream: heartbeats per CPU second of the server, as a share of a bare echo's")
    async with (
        worker(name_server) as ours,
        worker(bare_server) as bare,
        grpc.aio.insecure_channel(await ours.ask("addr")) as channel,
        grpc.aio.insecure_channel(await bare.ask("addr")) as bare_channel,
    ):
        generations = [
            await messages.register(channel, messages.registration(number, topics=1)) for number in range(STREAMS)
        ]
        beats = [messages.beat(number, generation) for number, generation in enumerate(generations)]
        ours_streams = [open_stream(channel) for _ in beats]
        answer = await _beat(ours_streams[0], beats[0])
        await bare.ask("answer", answer)
        turns = {
            "ours": Turn(ours, beating(ours_streams, beats)),
            "measured": Turn(ours, beating(ours_streams, beats, [_measured(beat) for beat in beats])),
            "bare": Turn(bare, beating([open_stream(bare_channel) for _ in beats], beats)),
        }
        costs = await in_turns(turns, report, title="heartbeats")
    report.figure(
        f"{STREAMS} streams, {len(answer)} bytes per response",
        f"{costs.ratio('ours', 'bare'):.2f} ({costs.median('ours'):.1f} against {costs.median('bare'):.1f} us each)",
    )

    # Every second one of these has the measurement; the bare echo's share of reading its bytes is in it, too.
    more = 2 * (costs.median("measured") - costs.median("ours"))
    report.figure(
        f"a measurement of {len(_measured(b''))} bytes in a heartbeat, share of a heartbeat's cost",
        f"{more / costs.median('ours'):.2f} ({more:.1f} us)",
        target="0.5",
        is_met=more <= 0.5 * costs.median("ours"),
    )
    await _measure_listeners(report)


async def _measure_listeners(report: Report) -> None:
    report.subject(
        f"Heartbeats on both listeners, {STREAMS} connections in ready bytes with a broker each: CPU time of the server"
    )
    kinds: dict[str, tuple[str, type[RawChannel]]] = {
        "unary": (messages.HEARTBEAT, RawChannel),
        "on a stream": (messages.KEEP_ALIVE, RawStream),
    }
    async with contextlib.AsyncExitStack() as stack:
        turns: dict[str, Turn] = {}
        for listener in (LANE, GRPCIO):
            server = await stack.enter_async_context(worker(name_server, listener=listener))
            addr = await server.ask("addr")
            async with grpc.aio.insecure_channel(addr) as channel:
                beats = [
                    messages.beat(number, await messages.register(channel, messages.registration(number, topics=1)))
                    for number in range(STREAMS)
                ]
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(messages.HEARTBEAT)
                response = wire.HeartbeatResponse.FromString(await call(beats[0]))
                assert response.answer.status == wire.BEAT_STATUS_OK
            for what, (method, kind) in kinds.items():
                channels = await stack.enter_async_context(raw_channels(addr, beats, method=method, kind=kind))
                turns |= {
                    f"{listener}, {what}, {count}": Turn(server, raw_load(channels, count)) for count in IN_FLIGHT
                }
        costs = await in_turns(turns, report, title="heartbeats, listeners")
    for what, count in itertools.product(kinds, IN_FLIGHT):
        lane, grpcio = (f"{listener}, {what}, {count}" for listener in (LANE, GRPCIO))
        report.figure(
            f"{what}, {count} in flight on each connection",
            f"{costs.median(lane):.1f} us on the lane, {costs.median(grpcio):.1f} us on grpcio: "
            f"{1 / costs.ratio(lane, grpcio):.2f}",
        )


def _measured(beat: bytes) -> bytes:
    """A heartbeat that carries a full measurement, as agents send it; protobuf merges the two parts."""
    entries = [f"topic-{number:02}-of-a-usual-length" for number in range(20)]
    stats = wire.QueueStats(
        queue_count=80,
        top_put_rates=[wire.QueuePuts(topic=each, queue_id=1, put_rate=1.5, depth=7, bytes=900) for each in entries],
        top_lags=[wire.QueueLag(group="billing", topic=each, lag=5, put_rate=1.5) for each in entries],
        top_topics=[wire.TopicTotals(topic=each, queue_count=4, put_rate=6, highest_put_rate=2) for each in entries],
        top_groups=[
            wire.GroupTotals(group="billing", topic=each, lag=5, put_rate=6, commit_rate=6) for each in entries
        ],
    )
    body = wire.LiveQueues(stats=stats).SerializeToString()
    return beat + wire.KeepAliveRequest(live_queues=body).SerializeToString()


def open_stream(channel: grpc.aio.Channel) -> _Stream:
    """Open a keep-alive stream."""
    keep_alive: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(messages.KEEP_ALIVE)
    return keep_alive()


async def _beat(stream: _Stream, beat: bytes) -> bytes:
    await stream.write(beat)
    answer = await stream.read()
    assert isinstance(answer, bytes), "the stream ended"
    return answer


def beating(streams: list[_Stream], *beats: list[bytes]) -> Load:
    """Send heartbeats continuously, one after the other on each stream; several lists take turns."""

    async def load(seconds: float) -> int:
        async def send(stream: _Stream, own: Iterator[bytes]) -> bytes:
            return await _beat(stream, next(own))

        agents = (
            repeat(functools.partial(send, stream, itertools.cycle(own)), seconds)
            for stream, own in zip(streams, zip(*beats, strict=True), strict=True)
        )
        return sum(await asyncio.gather(*agents))

    return load
