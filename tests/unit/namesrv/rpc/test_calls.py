"""What a refused call leaves behind: nothing that waits for the garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import grpc

from pointsman.service.peers import Peer
from pointsman.v1.registration_service_pb2 import RegisterBrokerResponse
from pointsman.wire.violation import FieldViolation
from pointsman_namesrv.core.errors import InvalidRequest
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.metrics import Metrics
from pointsman_namesrv.rpc.calls import Calls
from pointsman_namesrv.rpc.server import REGISTRATION
from tests.fakes.manual_clock import ManualClock


class Large:
    """What a call holds while it runs."""


class Context:
    """As much of a call's context as a refusal needs."""

    def __init__(self) -> None:
        self.details = ""

    def peer(self) -> str:
        return "ipv4:10.0.0.7:40000"

    def peer_identities(self) -> None:
        return None

    def set_code(self, code: grpc.StatusCode) -> None:
        assert code is grpc.StatusCode.INVALID_ARGUMENT

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, metadata: object) -> None:
        assert metadata


class Servicer:
    """Refuses every registration, and remembers weakly what it held."""

    def __init__(self) -> None:
        self.held: weakref.ref[Large] | None = None

    async def register_broker(self, requests: AsyncIterator[bytes], peer: Peer) -> RegisterBrokerResponse:  # noqa: ARG002
        large = Large()  # a refusal's frames hold it
        self.held = weakref.ref(large)
        try:
            assert large is None, "the cause of a refusal has frames of its own"
        except AssertionError:
            raise InvalidRequest([FieldViolation("commit", "is missing")])  # noqa: B904
        return RegisterBrokerResponse()


async def no_requests() -> AsyncIterator[bytes]:
    return
    yield b""


async def test_a_refused_call_lets_go_of_what_it_held_at_once() -> None:
    servicer = Servicer()
    lifecycle = NodeLifecycle(started_at=0.0, warm_up_seconds=0.0)
    calls = Calls(lifecycle, clock=ManualClock(), metrics=Metrics(), record=lambda _: None)
    behaviour: Any = calls._collecting(REGISTRATION.methods_by_name["RegisterBroker"], servicer.register_broker)
    gc.collect()
    gc.disable()
    try:
        context = Context()
        assert await behaviour(no_requests(), context) == b""
        assert "commit" in context.details
        assert servicer.held is not None
        assert servicer.held() is None
    finally:
        gc.enable()
