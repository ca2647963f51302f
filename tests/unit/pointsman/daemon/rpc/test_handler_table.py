"""The common part of all calls, on the handlers as gRPC calls them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import weakref
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import grpc
import pytest
from google.rpc import status_pb2
from prometheus_client import CollectorRegistry

from pointsman.daemon.rpc.call_tallies import CallMetrics
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.handler_table import Ended, HandlerTable, Write
from pointsman.daemon.rpc.refused_calls import WINDOW_LINES, WINDOW_SECONDS
from pointsman.manual_clock import ManualClock
from pointsman.v1 import registration_service_pb2 as wire
from pointsman.wire.error_details import ErrorDetails, read_status
from pointsman.wire.refusals import FieldViolation, InvalidRequest, NotReady, Refusal

REGISTRATION = wire.DESCRIPTOR.services_by_name["RegistrationService"]
PEER = "ipv4:10.0.0.7:40000"


T = TypeVar("T")


class Aborted(Exception):
    """As gRPC ends a call that is aborted."""


class Context:
    """The part of a call's context that the table needs."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None
        self.details = ""
        self.metadata: Any = ()
        self.invoked_with: tuple[tuple[str, str | bytes], ...] | None = None
        self.reads = True
        self.written = asyncio.Event()
        self.written.set()

    def peer(self) -> str:
        return PEER

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...] | None:
        return self.invoked_with

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        return {}

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, metadata: Any) -> None:
        self.metadata = metadata

    async def abort_with_status(self, failed: Any) -> None:
        if not self.reads:
            await asyncio.Event().wait()
        if not self.written.is_set():
            raise grpc.aio.InternalError("GRPC_CALL_ERROR_TOO_MANY_OPERATIONS")
        self.code, self.details, self.metadata = failed.code, failed.details, failed.trailing_metadata
        raise Aborted

    async def write(self, response: bytes) -> None:  # noqa: ARG002
        """Nothing is written here, and a write that is cut off is still being sent."""
        await self.written.wait()

    @property
    def refused(self) -> ErrorDetails:
        ((_, packed),) = self.metadata
        return read_status(status_pb2.Status.FromString(packed))


class Servicer:
    """Does in each call what the test sets."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.peer: Peer | None = None
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def heartbeat(self, request: wire.HeartbeatRequest) -> wire.HeartbeatResponse:  # noqa: ARG002
        return await self._answer(wire.HeartbeatResponse())

    def update_topics(self, request: wire.UpdateTopicsRequest, peer: Peer) -> wire.UpdateTopicsResponse:
        self.peer = peer
        return wire.UpdateTopicsResponse(topic_count=len(request.changed))

    def unregister_broker(self, request: bytes) -> bytes:
        return request

    def report_queue_stats(self, request: wire.ReportQueueStatsRequest) -> wire.ReportQueueStatsResponse:
        raise NotImplementedError

    async def register_broker(self, requests: AsyncIterator[bytes], peer: Peer) -> wire.RegisterBrokerResponse:  # noqa: ARG002
        return await self._answer(wire.RegisterBrokerResponse())

    async def keep_alive(self, requests: AsyncIterator[bytes], write: Write, peer: Peer) -> None:  # noqa: ARG002
        await write(b"")
        await self._answer(None)

    async def _answer(self, response: T) -> T:
        self.entered.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return response


class Rig:
    """A table, its servicer, and calls as gRPC makes them."""

    def __init__(self, servicer: Any = None, **options: Any) -> None:
        self.servicer: Any = servicer or Servicer()
        self.metrics = CallMetrics("test", CollectorRegistry())
        self.clock = ManualClock()
        self.table = HandlerTable(clock=self.clock, metrics=self.metrics, **options)
        self.handlers = self.table.service(
            REGISTRATION, self.servicer, raw=frozenset({"UnregisterBroker"}), drains=True
        )

    def behaviour(self, method: str) -> Any:
        details: Any = type("Details", (), {"method": f"/{REGISTRATION.full_name}/{method}", "invocation_metadata": ()})
        handler: Any = self.handlers.service(details)
        return next(
            found
            for kind in ("unary_unary", "stream_unary", "stream_stream")
            if (found := getattr(handler, kind)) is not None
        )

    async def call(self, method: str, request: Any = b"", **metadata: str | bytes) -> tuple[Any, Context]:
        context = Context()
        context.invoked_with = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
        return await self.behaviour(method)(request, context), context

    def count(self, method: str, code: str) -> int:
        return self.metrics.rpcs.labels(method, code).count


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def no_requests() -> AsyncIterator[bytes]:
    return
    yield b""


async def test_an_answer_is_counted_and_timed(rig: Rig) -> None:
    response, context = await rig.call("Heartbeat")
    assert (response, context.code) == (b"", None)
    assert rig.count("Heartbeat", "OK") == 1
    assert sum(rig.metrics.seconds.labels("Heartbeat").counts) == 1


async def test_a_method_that_has_a_parameter_peer_is_given_the_caller(rig: Rig) -> None:
    request = wire.UpdateTopicsRequest()
    request.changed.add(topic="t")
    response, _ = await rig.call("UpdateTopics", request.SerializeToString())
    assert wire.UpdateTopicsResponse.FromString(response).topic_count == 1
    assert rig.servicer.peer == Peer("10.0.0.7:40000", "10.0.0.7:40000")


async def test_a_raw_method_receives_and_returns_bytes(rig: Rig) -> None:
    assert (await rig.call("UnregisterBroker", b"\xff"))[0] == b"\xff"


async def test_bytes_that_are_not_a_message_are_the_callers_error(rig: Rig) -> None:
    _, context = await rig.call("UpdateTopics", b"\xff\xff")
    assert context.code is grpc.StatusCode.INVALID_ARGUMENT
    assert context.details == "the request is not a pointsman.v1.UpdateTopicsRequest"
    assert context.refused.code == "UNREADABLE_REQUEST"
    assert rig.count("UpdateTopics", "INVALID_ARGUMENT") == 1


@pytest.mark.parametrize("method", ["Heartbeat", "RegisterBroker", "KeepAlive"])
async def test_a_refusal_becomes_its_status_with_code_facts_and_violations(rig: Rig, method: str) -> None:
    rig.servicer.error = InvalidRequest([FieldViolation("topic", "must not be empty: ''")])
    _, context = await rig.call(method)
    assert (context.code, context.details) == (grpc.StatusCode.INVALID_ARGUMENT, "topic must not be empty: ''")
    assert context.refused.code == "INVALID_REQUEST"
    assert [each.field for each in context.refused.violations] == ["topic"]
    rig.servicer.error = NotReady("later", state="loading")
    _, context = await rig.call(method)
    assert (context.code, context.refused.facts) == (grpc.StatusCode.UNAVAILABLE, {"state": "loading"})
    assert (rig.count(method, "INVALID_ARGUMENT"), rig.count(method, "UNAVAILABLE")) == (1, 1)


async def test_a_daemon_may_replace_a_refusal() -> None:
    seen: list[Refusal] = []

    def on_refusal(refusal: Refusal) -> Refusal:
        seen.append(refusal)
        return NotReady("not known yet", not_yet=refusal.code)

    rig = Rig(on_refusal=on_refusal)
    rig.servicer.error = InvalidRequest([FieldViolation("a", "b")])
    _, context = await rig.call("Heartbeat")
    assert (context.code, context.refused.facts) == (grpc.StatusCode.UNAVAILABLE, {"not_yet": "INVALID_REQUEST"})
    assert seen == [rig.servicer.error]


REFUSED_LOG = "pointsman.daemon.rpc.refused_calls"
TOO_LONG = "a" * 65


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    facts: dict[str, Any] = record.__dict__["facts"]
    return facts


@pytest.mark.parametrize("method", ["Heartbeat", "RegisterBroker", "KeepAlive"])
async def test_the_error_of_a_refused_call_and_one_log_line_have_the_same_id(
    rig: Rig, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, REFUSED_LOG)
    rig.servicer.error = InvalidRequest([FieldViolation("topic", "must not be empty: ''")])
    ids = {(await rig.call(method))[1].refused.request_id for _ in range(2)}
    assert [record.getMessage() for record in caplog.records] == ["call refused"] * 2
    assert {facts_of(record)["request_id"] for record in caplog.records} == ids
    assert facts_of(caplog.records[0]) == {
        "request_id": facts_of(caplog.records[0])["request_id"], "method": method, "status": "INVALID_ARGUMENT",
        "code": "INVALID_REQUEST", "reason": "topic must not be empty: ''", "peer": "10.0.0.7:40000",
    }  # fmt: skip


async def test_a_client_may_send_its_own_id(rig: Rig) -> None:
    rig.servicer.error = NotReady("later")
    assert (await rig.call("Heartbeat", x_request_id="checkout-4711"))[1].refused.request_id == "checkout-4711"


@pytest.mark.parametrize("sent", ["", "two words", "line\nbreak", "\x1b[2J", "Zürich", TOO_LONG, b"checkout"])
async def test_a_long_or_malformed_id_is_replaced(rig: Rig, sent: str | bytes) -> None:
    rig.servicer.error = NotReady("later")
    own = (await rig.call("Heartbeat", x_request_id=sent))[1].refused.request_id
    assert own != sent
    assert len(own) == 16


async def test_refusals_of_a_healthy_fleet_are_logged_at_debug(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.servicer.error = NotReady("later")
    caplog.set_level(logging.INFO, REFUSED_LOG)
    await rig.call("Heartbeat")
    assert not caplog.records
    caplog.set_level(logging.DEBUG, REFUSED_LOG)
    await rig.call("Heartbeat")
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


async def test_a_client_that_is_refused_in_a_loop_does_not_fill_the_log(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, REFUSED_LOG)
    rig.servicer.error = InvalidRequest([FieldViolation("topic", "must not be empty: ''")])
    for _ in range(1_000):
        await rig.call("Heartbeat")
    assert len(caplog.records) == WINDOW_LINES
    await rig.call("UpdateTopics", b"\xff\xff")
    assert len(caplog.records) == WINDOW_LINES + 1, "each code is bounded separately"
    await rig.clock.advance(WINDOW_SECONDS)
    for _ in range(2):
        await rig.call("Heartbeat")
    assert [facts_of(record).get("suppressed_lines") for record in caplog.records[-2:]] == [990, None]


@pytest.mark.parametrize("method", ["Heartbeat", "RegisterBroker", "KeepAlive"])
async def test_an_internal_error_leaves_only_an_id_on_the_wire(
    rig: Rig, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.servicer.error = RuntimeError("secret")
    _, context = await rig.call(method)
    assert (context.code, context.refused.code) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert context.details == f"internal error, request {context.refused.request_id}"
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.__dict__["facts"] == {"method": method, "request_id": context.refused.request_id}


@pytest.mark.parametrize("method", ["Heartbeat", "RegisterBroker", "KeepAlive"])
async def test_a_cancelled_call_is_counted(rig: Rig, method: str) -> None:
    rig.servicer.go.clear()
    calling = asyncio.create_task(rig.call(method))
    await rig.servicer.entered.wait()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    assert (rig.count(method, "CANCELLED"), rig.count(method, "OK")) == (1, 0)


@pytest.mark.parametrize("method", ["Heartbeat", "RegisterBroker", "KeepAlive"])
async def test_a_draining_table_refuses_until_the_drain_ends_and_a_closed_one_always(rig: Rig, method: str) -> None:
    rig.table.drain(NotReady("draining"))
    assert (await rig.call(method))[1].details == "draining"
    rig.table.drain(None)
    assert (await rig.call(method))[1].code is None
    rig.table.close(NotReady("stopping"))
    rig.table.drain(None)
    assert (await rig.call(method))[1].details == "stopping"


async def test_a_service_that_does_not_drain_is_served_while_others_do() -> None:
    rig = Rig()
    rig.handlers = rig.table.service(REGISTRATION, rig.servicer)
    rig.table.drain(NotReady("draining"))
    assert (await rig.call("Heartbeat"))[1].code is None
    assert (await rig.call("KeepAlive"))[1].code is None


@pytest.mark.parametrize("method", ["Heartbeat", "RegisterBroker", "KeepAlive"])
async def test_a_closed_table_is_quiet_once_the_last_call_is_over(rig: Rig, method: str) -> None:
    rig.servicer.go.clear()
    calling = asyncio.create_task(rig.call(method))
    await rig.servicer.entered.wait()
    rig.table.close(NotReady("stopping"))
    quiet = asyncio.create_task(rig.table.until_quiet())
    await asyncio.sleep(0)
    assert not quiet.done()
    rig.servicer.go.set()
    await calling
    await quiet
    await rig.table.until_quiet()


async def test_a_stream_that_the_server_ends_gets_the_reason(rig: Rig) -> None:
    rig.servicer.error = Ended(NotReady("stopping"))
    context = Context()
    with pytest.raises(Aborted):
        await rig.behaviour("KeepAlive")(no_requests(), context)
    assert (context.code, context.details) == (grpc.StatusCode.UNAVAILABLE, "stopping")
    assert (rig.count("KeepAlive", "UNAVAILABLE"), rig.count("KeepAlive", "OK")) == (1, 0)


async def test_a_client_that_does_not_read_holds_no_stream_open(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman.daemon.rpc.handler_table.ENDING_SECONDS", 0.01)
    rig.servicer.error = Ended(NotReady("stopping"))
    context = Context()
    context.reads = False
    with pytest.raises(asyncio.CancelledError):
        await rig.behaviour("KeepAlive")(no_requests(), context)


@pytest.mark.parametrize("reads", [True, False])
async def test_a_stream_that_ends_in_the_middle_of_a_write_gets_the_reason_after_it(
    monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    monkeypatch.setattr("pointsman.daemon.rpc.handler_table.ENDING_SECONDS", 0.1)
    rig = Rig(CutOff())
    context = Context()
    context.written.clear()
    if reads:
        asyncio.get_running_loop().call_later(0.05, context.written.set)
    with pytest.raises(Aborted if reads else asyncio.CancelledError):
        await rig.behaviour("KeepAlive")(no_requests(), context)
    assert context.code is (grpc.StatusCode.UNAVAILABLE if reads else None)


class CutOff(Servicer):
    """Ends each stream while it writes."""

    async def keep_alive(self, requests: AsyncIterator[bytes], write: Write, peer: Peer) -> None:  # noqa: ARG002
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await write(b"")
        raise Ended(NotReady("stopping"))


class Large:
    """An object that a call refers to while it runs."""


class Holding(Servicer):
    """Refuses every registration, and keeps a weak reference to its object."""

    held: weakref.ref[Large] | None = None

    async def register_broker(self, requests: AsyncIterator[bytes], peer: Peer) -> wire.RegisterBrokerResponse:  # noqa: ARG002
        large = Large()  # a refusal's frames hold it
        self.held = weakref.ref(large)
        try:
            assert large is None, "the cause of a refusal has its own frames"
        except AssertionError:
            raise InvalidRequest([FieldViolation("commit", "is missing")])  # noqa: B904
        return wire.RegisterBrokerResponse()


async def test_a_refused_call_leaves_no_garbage_cycles() -> None:
    rig = Rig(Holding())
    behaviour, context = rig.behaviour("RegisterBroker"), Context()
    gc.collect()
    gc.disable()
    try:
        assert await behaviour(no_requests(), context) == b""
        assert "commit" in context.details
        assert rig.servicer.held is not None
        assert rig.servicer.held() is None
    finally:
        gc.enable()
