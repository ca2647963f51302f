"""A heartbeat with a measurement behind it, recognised without decoding the heartbeat."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from pointsman.v1.registration_service_pb2 import KeepAliveRequest
from pointsman_namesrv.rpc.broker_codec import live_queues_behind
from tests.kit.name_server import wire

ONE = KeepAliveRequest(beat=wire.beat(7))
BEAT = ONE.SerializeToString()


@pytest.mark.parametrize("body", [b"", b"x", b"x" * 127, b"x" * 5_000], ids=len)
def test_the_measurement_behind_the_bytes_of_the_last_heartbeat_is_found(body: bytes) -> None:
    request = KeepAliveRequest(beat=ONE.beat, live_queues=body).SerializeToString()
    assert live_queues_behind(request, BEAT) == body


@pytest.mark.parametrize(
    "request_",
    [
        KeepAliveRequest(beat=wire.beat(8)).SerializeToString(),
        KeepAliveRequest(live_queues=b"x").SerializeToString() + BEAT,
        BEAT + KeepAliveRequest(beat=wire.beat(8), live_queues=b"x").SerializeToString(),
        BEAT[:-1],
    ],
    ids=["another", "another order", "two heartbeats", "cut"],
)
def test_other_bytes_must_be_decoded(request_: bytes) -> None:
    assert live_queues_behind(request_, BEAT) is None


def test_bytes_that_are_no_message_are_an_error() -> None:
    with pytest.raises(DecodeError):
        live_queues_behind(BEAT + b"\x12\xff", BEAT)
