"""A heartbeat with a measurement behind it, recognised without decoding it; events as the history has them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from google.protobuf.message import DecodeError

from pointsman.manual_clock import ManualClock
from pointsman.v1.registration_service_pb2 import KeepAliveRequest
from pointsman_namesrv.history.row import Record, to_rows
from pointsman_namesrv.rpc.broker_codec import broker_event, live_queues_behind
from pointsman_namesrv.rpc.past_queries import past_event
from tests.kit.name_server import events, wire

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


@pytest.mark.parametrize("silence", [2.9496, 2.9504, 0.0004])
def test_the_times_of_an_event_are_those_that_its_row_has_after_a_restart(silence: float) -> None:
    event = events.broker_event()
    assert event.broker is not None
    event = replace(event, interval=silence, broker=replace(event.broker, state_for=silence))
    at = ManualClock().utc_now() + timedelta(milliseconds=7)
    (row,) = to_rows(Record(event, at, 0, 1, 1), node="n:1", boot_id="b")

    live, past = broker_event(event, event_at=at, seq=1), past_event(row)

    assert (live.interval, live.state_for) == (past.interval, past.state_for)
