"""Heartbeats on streams against a bare echo."""

from __future__ import annotations

import asyncio
import functools

import grpc

from tests.bench import messages
from tests.bench.report import Report
from tests.bench.servers import bare_server, name_server
from tests.bench.turns import Load, Turn, in_turns, repeat
from tests.bench.worker import worker

STREAMS = 32

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
            "bare": Turn(bare, beating([open_stream(bare_channel) for _ in beats], beats)),
        }
        costs = await in_turns(turns, report, title="heartbeats")
    report.figure(
        f"{STREAMS} streams, {len(answer)} bytes per response",
        f"{costs.ratio('ours', 'bare'):.2f} ({costs.median('ours'):.1f} against {costs.median('bare'):.1f} us each)",
    )


def open_stream(channel: grpc.aio.Channel) -> _Stream:
    """Open a keep-alive stream."""
    keep_alive: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(messages.KEEP_ALIVE)
    return keep_alive()


async def _beat(stream: _Stream, beat: bytes) -> bytes:
    await stream.write(beat)
    answer = await stream.read()
    assert isinstance(answer, bytes), "the stream ended"
    return answer


def beating(streams: list[_Stream], beats: list[bytes]) -> Load:
    """Send heartbeats continuously, one after the other on each stream."""

    async def load(seconds: float) -> int:
        agents = (
            repeat(functools.partial(_beat, stream, beat), seconds) for stream, beat in zip(streams, beats, strict=True)
        )
        return sum(await asyncio.gather(*agents))

    return load
