"""What clients of other gRPC libraries sent, once more to both listeners: the same responses.

Recorded by ``python -m tests.peers.record_clients`` from the libraries that ``tests/peers`` names, 2026-11-29.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pointsman.daemon.lane.lane_server import LaneServer
from pointsman.http2.frame_codec import PREFACE, FrameType
from pointsman.wire.channel_options import SERVER_OPTIONS
from tests.kit.http2.client_frames import frames_of
from tests.kit.http2.fixed_responses import fixed_responses
from tests.kit.http2.scripted_client import exchange

RECORDED = {
    each.stem: each.read_bytes() for each in sorted((Path(__file__).parents[2] / "fixtures" / "grpc_clients").iterdir())
}
CALLS = 6
PATIENCE_SECONDS = 30.0


@pytest.fixture
async def addrs() -> AsyncIterator[list[str]]:
    """The addresses of grpcio's server and of the lane."""
    servers: list[Any] = [grpc.aio.server(options=SERVER_OPTIONS), LaneServer(SERVER_OPTIONS, {})]
    for server in servers:
        server.add_generic_rpc_handlers(fixed_responses())
    ports = [server.add_insecure_port("127.0.0.1:0") for server in servers]
    for server in servers:
        await server.start()
    yield [f"127.0.0.1:{port}" for port in ports]
    for server in servers:
        await server.stop(0)


def replayed(content: bytes) -> list[bytes]:
    """Return the preface and each frame, without those that end a stream or the connection, and PING: here all are sent
    at the same time, before the responses for which the client sent them."""
    parts = [PREFACE]
    at = len(PREFACE)
    for each in frames_of(content[at:]):
        end = at + 9 + len(each.payload)
        if each.kind not in {FrameType.RST_STREAM, FrameType.GOAWAY, FrameType.PING}:
            parts.append(content[at:end])
        at = end
    return parts


@pytest.mark.parametrize("client", RECORDED)
async def test_a_recorded_client_gets_the_same_responses_from_both_listeners(addrs: list[str], client: str) -> None:
    content = RECORDED[client]
    assert content.startswith(PREFACE)
    streams = sorted({each.stream_id for each in frames_of(content[len(PREFACE) :]) if each.kind is FrameType.HEADERS})
    assert len(streams) == CALLS
    for parts in ([b"".join(replayed(content))], replayed(content)):
        by_grpcio, by_lane = await asyncio.gather(
            *(exchange(addr, parts, streams=streams, patience=PATIENCE_SECONDS) for addr in addrs)
        )
        assert [each.goaway for each in (by_grpcio, by_lane)] == [None, None]
        assert [by_lane.responses[each].status for each in streams] == [0, 0, 5, 0, 0, 0]
        for stream_id in streams:
            ours, theirs = by_lane.responses[stream_id], by_grpcio.responses[stream_id]
            assert (ours.head | (ours.trailers or {}), ours.content) == (
                theirs.head | (theirs.trailers or {}),
                theirs.content,
            )
