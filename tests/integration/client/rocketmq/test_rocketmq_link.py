"""One connection to a RocketMQ broker, on sockets, against a broker that misbehaves."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import ANSWER_FLAG, BINARY_FORM, JSON_FORM, Command, encode
from pointsman_client.errors import BrokerTimeoutError, BrokerUnreachableError, ClientClosedError
from pointsman_client.rocketmq import AccessKey, broker_connection, broker_link
from pointsman_client.rocketmq.broker_connection import Reply, Response
from pointsman_client.rocketmq.broker_link import Link
from pointsman_client.rocketmq.request_frames import request_head
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from tests.kit.broker.rocketmq.fake_broker import Answer, FakeBroker
from tests.kit.certificates import Authority
from tests.kit.tls_peers import context
from tests.kit.waiting import eventually

HEART_BEAT = Request.HEART_BEAT
SECONDS = 10.0


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        broker.answers[HEART_BEAT] = Answer()
        broker.handlers[99] = lambda command, body: Answer(ext=dict(command.ext), body=body)
        yield broker


@pytest.fixture
async def open_link(broker: FakeBroker) -> AsyncIterator[Callable[..., Link]]:
    links: list[Link] = []

    def open_link(addr: str = "", *, options: RocketmqOptions | None = None, **more: Any) -> Link:
        links.append(Link(addr or broker.addr, options or RocketmqOptions(), **more))
        return links[-1]

    yield open_link
    for link in links:
        await link.close()


async def echo(link: Link, text: str, *, timeout_seconds: float = SECONDS, is_read: bool = False) -> str:
    response = await link.request(99, {"text": text}, timeout_seconds=timeout_seconds, is_read=is_read)
    return response.command.ext["text"]


async def send_one_way(link: Link, body: bytes = b"") -> None:
    deadline = asyncio.get_running_loop().time() + SECONDS
    connection = link.connection or await link.connect(deadline)
    connection.send_one_way(request_head(99, {}, is_one_way=True), body, deadline)


async def test_a_request_is_answered_with_the_version(broker: FakeBroker, open_link: Callable[..., Link]) -> None:
    for form in (JSON_FORM, BINARY_FORM):
        broker.form = form
        link = open_link()
        assert (link.version, link.is_idle) == (0, True)
        command, body = await link.request(99, {"a": "ü"}, b"body", timeout_seconds=SECONDS)
        assert (command.code, command.ext, body, link.version) == (0, {"a": "ü"}, b"body", 479)
    assert (broker.requests[0].language, broker.requests[0].version) == ("PYTHON", 479)


async def test_answers_find_their_requests_in_any_order_and_number(
    broker: FakeBroker, open_link: Callable[..., Link]
) -> None:
    link = open_link()
    broker.held.add(99)
    waiting = [asyncio.create_task(echo(link, str(number))) for number in range(50)]
    await broker.until_held(50)
    broker.release(reverse=True)
    assert await asyncio.gather(*waiting) == [str(number) for number in range(50)]
    broker.held.clear()
    broker.doubled.add(99)
    assert [await echo(link, str(number)) for number in range(5)] == [str(number) for number in range(5)]
    assert broker.connections == 1


async def test_requests_of_one_turn_are_written_together(
    open_link: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = open_link()
    await echo(link, "first")
    assert link.connection is not None
    transport = link.connection._transport
    assert transport is not None
    written: list[int] = []
    write = transport.write

    def count(data: bytes) -> None:
        written.append(len(data))
        write(data)

    monkeypatch.setattr(transport, "write", count)
    await asyncio.gather(*(echo(link, str(number)) for number in range(30)))
    assert len(written) == 1


async def test_one_way_requests_get_no_answer(broker: FakeBroker, open_link: Callable[..., Link]) -> None:
    link = open_link()
    await send_one_way(link, b"x")
    await broker.until_asked(99)
    assert broker.requests[0].flag == 2
    assert await echo(link, "still matched") == "still matched"


async def test_a_request_is_not_written_after_its_deadline(broker: FakeBroker, open_link: Callable[..., Link]) -> None:
    link = open_link()
    await echo(link, "first")
    for _ in range(2):
        with pytest.raises(BrokerUnreachableError, match="the timeout ended before the request was sent"):
            await echo(link, "late", timeout_seconds=0.0)
        assert await echo(link, "next") == "next"
    assert (broker.connections, len(broker.requests)) == (1, 3)


async def test_a_silent_broker_ends_a_request_in_time_and_its_connection(
    broker: FakeBroker, open_link: Callable[..., Link]
) -> None:
    link = open_link()
    await echo(link, "a")
    broker.is_hanging = True
    with pytest.raises(BrokerTimeoutError, match=r"no response within 0\.0\d+ s of the request"):
        await echo(link, "b", timeout_seconds=0.05)
    broker.is_hanging = False
    assert await echo(link, "c") == "c"
    assert broker.connections == 2
    await eventually(lambda: len(broker.peers) == 1)


async def test_a_frame_without_an_end_ends_the_connection(
    broker: FakeBroker, open_link: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_connection, "FRAME_SECONDS", 0.05)
    link = open_link()
    await echo(link, "a")
    (writer,) = broker.peers
    # The length of a frame of 8 MiB: all responses become its body.
    writer.write(bytes([0, 128, 0, 0, 0, 0, 0, 2]))
    with pytest.raises(BrokerTimeoutError):
        await echo(link, "swallowed", timeout_seconds=0.2)
    assert await echo(link, "next") == "next"
    assert broker.connections == 2


async def test_a_request_that_is_slow_alone_leaves_the_connection(
    broker: FakeBroker, open_link: Callable[..., Link]
) -> None:
    link = open_link()
    broker.dropped.add(HEART_BEAT)
    slow = asyncio.create_task(link.request(HEART_BEAT, {}, timeout_seconds=0.3))
    while not slow.done():
        await echo(link, "others")
        await asyncio.sleep(0.02)
    with pytest.raises(BrokerTimeoutError):
        await slow
    assert await echo(link, "after") == "after"
    assert broker.connections == 1


async def test_late_answers_are_dropped(broker: FakeBroker, open_link: Callable[..., Link]) -> None:
    link = open_link()
    await echo(link, "connected")
    broker.held.add(99)
    with pytest.raises(BrokerTimeoutError):
        await echo(link, "late", timeout_seconds=0.05)
    cancelled = asyncio.create_task(echo(link, "cancelled"))
    await broker.until_held(2)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    broker.held.clear()
    broker.release()
    assert await echo(link, "next") == "next"


async def test_a_request_that_was_cancelled_still_finds_a_silent_connection(
    broker: FakeBroker, open_link: Callable[..., Link]
) -> None:
    link = open_link()
    await echo(link, "a")
    broker.is_hanging = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await echo(link, "b", timeout_seconds=0.1)
    await eventually(lambda: link.connection is None)


async def test_a_connection_that_breaks_fails_what_changes_something_and_repeats_what_reads(
    broker: FakeBroker, open_link: Callable[..., Link]
) -> None:
    lost: list[int] = []
    link = open_link(on_lost=lambda: lost.append(1))
    broker.held.add(99)
    await link.request(HEART_BEAT, {}, timeout_seconds=SECONDS)
    reading = asyncio.create_task(echo(link, "read", is_read=True))
    writing = asyncio.create_task(echo(link, "write"))
    await broker.until_held(2)
    broker.held.clear()
    broker.close_connections()
    with pytest.raises(BrokerTimeoutError, match="connection"):
        await writing
    assert await reading == "read"
    assert (broker.connections, lost) == (2, [1])


async def test_an_answer_that_is_cut_off_breaks_the_connection(
    broker: FakeBroker, open_link: Callable[..., Link]
) -> None:
    link = open_link()
    broker.cut.add(99)
    with pytest.raises(BrokerTimeoutError, match="it closed the connection"):
        await echo(link, "write")
    with pytest.raises(BrokerUnreachableError, match="it closed the connection"):
        await echo(link, "read", is_read=True)
    broker.cut.clear()
    assert await echo(link, "whole") == "whole"


async def test_a_server_of_another_protocol_is_named(open_link: Callable[..., Link]) -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        link = open_link(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(BrokerUnreachableError, match="it does not send RocketMQ frames"):
            await echo(link, "a", is_read=True)
        await link.close()


async def test_requests_are_signed(broker: FakeBroker, open_link: Callable[..., Link]) -> None:
    account = AccessKey("RocketMQ12", "12345678ab")
    link = open_link(options=RocketmqOptions(access_key=account))
    await link.request(HEART_BEAT, {"a": "b"}, b"body", timeout_seconds=SECONDS)
    assert [command.ext for command in broker.requests] == [account.signed({"a": "b"}, b"body")]


async def test_tls_needs_the_authority_of_the_broker(tmp_path: Path, open_link: Callable[..., Link]) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    files = authority.issue("broker")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.certificate, files.key)
    async with FakeBroker(tls=tls) as broker:
        broker.handlers[99] = lambda command, body: Answer(ext=dict(command.ext), body=body)
        link = open_link(broker.addr, options=RocketmqOptions(tls=context(authority.file)))
        assert await echo(link, "encrypted") == "encrypted"
        await link.close()
        wrong = open_link(broker.addr, options=RocketmqOptions(tls=context(other.file)))
        with pytest.raises(BrokerUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await echo(wrong, "a")
        plain = open_link(broker.addr)
        with pytest.raises(BrokerUnreachableError):
            await echo(plain, "a", is_read=True)


@contextmanager
def tls_broker_that_ends_as_java(folder: Path) -> Iterator[tuple[str, Path, threading.Event]]:
    """It answers one request, and then no ``close_notify``. The event is set when the client's socket is closed."""
    authority = Authority(folder)
    files = authority.issue("broker")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.certificate, files.key)
    ended = threading.Event()

    def serve() -> None:
        with server.accept()[0] as plain, plain.dup() as raw, tls.wrap_socket(plain, server_side=True) as encrypted:
            encrypted.recv(65_536)
            encrypted.sendall(encode(Command(code=Code.SUCCESS, opaque=1, flag=ANSWER_FLAG)))
            while raw.recv(65_536):
                pass
            ended.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", authority.file, ended
        thread.join(SECONDS)


@pytest.mark.parametrize("way", ["close", "retire", "cancelled"])
async def test_the_end_of_a_tls_connection_does_not_wait_for_a_broker_that_does_not_answer_it(
    way: str, tmp_path: Path, open_link: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_link, "CLOSE_SECONDS", 3_600.0)
    with tls_broker_that_ends_as_java(tmp_path) as (addr, ca, ended):
        link = open_link(addr, options=RocketmqOptions(tls=context(ca)))
        await link.request(HEART_BEAT, {}, timeout_seconds=SECONDS)
        if way == "retire":
            link.retire()
        elif way == "cancelled":
            await send_one_way(link)
            closing = asyncio.create_task(link.close())
            await asyncio.sleep(0.05)
            closing.cancel()
        async with asyncio.timeout(SECONDS):
            if way == "close":
                await link.close()
            assert await asyncio.to_thread(ended.wait, SECONDS)


@pytest.mark.parametrize("addr", ["127.0.0.1:1", "no port", "nowhere.invalid:10911", "127.0.0.1:99999"])
async def test_a_broker_that_cannot_be_reached(open_link: Callable[..., Link], addr: str) -> None:
    link = open_link(addr)
    for _ in range(2):
        with pytest.raises(BrokerUnreachableError, match="cannot connect"):
            await echo(link, "a")
    assert link.is_idle


async def test_callers_that_connect_share_one_connection_and_one_may_be_cancelled(
    broker: FakeBroker, open_link: Callable[..., Link]
) -> None:
    link = open_link()
    callers = [asyncio.create_task(echo(link, str(number))) for number in range(5)]
    await asyncio.sleep(0)
    callers[0].cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    assert [caller.result() for caller in callers[1:]] == ["1", "2", "3", "4"]
    assert broker.connections == 1


async def test_an_idle_connection_is_closed_before_the_broker_does(
    broker: FakeBroker, open_link: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_connection, "IDLE_SECONDS", 0.1)
    lost: list[int] = []
    link = open_link(on_lost=lambda: lost.append(1))
    await echo(link, "a")
    await eventually(lambda: not broker.peers)
    assert await echo(link, "b") == "b"
    assert (broker.connections, lost) == (2, [])


async def test_bounds_on_requests_in_flight_and_on_bytes(broker: FakeBroker, open_link: Callable[..., Link]) -> None:
    broker.held.add(99)
    few = open_link(options=RocketmqOptions(max_in_flight=2))
    waiting = [asyncio.create_task(echo(few, str(number))) for number in range(2)]
    await broker.until_held(2)
    with pytest.raises(BrokerUnreachableError, match="2 requests are in flight"):
        await echo(few, "third")
    broker.release()
    assert await asyncio.gather(*waiting) == ["0", "1"]

    small = open_link(options=RocketmqOptions(max_unsent_bytes=100_000))
    outcomes = await asyncio.gather(
        *(small.request(HEART_BEAT, {}, bytes(60_000), timeout_seconds=SECONDS) for _ in range(4)),
        return_exceptions=True,
    )
    assert [isinstance(each, Response) for each in outcomes] == [True, True, False, False]
    assert "more than 100000 bytes are unsent" in str(outcomes[2])
    await small.request(HEART_BEAT, {}, timeout_seconds=SECONDS)


async def test_a_peer_that_reads_nothing_blocks_no_memory(open_link: Callable[..., Link]) -> None:
    peers: list[asyncio.Transport] = []

    class ReadsNothing(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            peers.append(transport)

    server = await asyncio.get_running_loop().create_server(ReadsNothing, "127.0.0.1", 0)
    addr = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    link = open_link(addr, options=RocketmqOptions(max_unsent_bytes=100_000))

    async def send_on() -> None:
        while True:
            await send_one_way(link, bytes(90_000))
            await asyncio.sleep(0)

    with pytest.raises(BrokerUnreachableError, match="bytes are unsent"):
        await send_on()
    await link.close()
    peers[0].abort()
    server.close()
    await server.wait_closed()


async def test_requests_of_the_broker_reach_the_handler(broker: FakeBroker, open_link: Callable[..., Link]) -> None:
    seen: list[tuple[int, str, bytes]] = []
    later: list[Callable[[Reply], None]] = []

    def handle(command: Command, body: bytes, reply: Callable[[Reply], None]) -> None:
        seen.append((command.code, command.ext.get("consumerGroup", ""), body))
        if command.code == Request.GET_CONSUMER_RUNNING_INFO:
            later.append(reply)
        if command.code == Request.CONSUME_MESSAGE_DIRECTLY:
            raise RuntimeError("a fault of the handler")

    link = open_link(on_request=handle)
    await echo(link, "a")
    ids_changed = Command(code=Request.NOTIFY_CONSUMER_IDS_CHANGED, opaque=1, flag=2, ext={"consumerGroup": "g"})
    broker.push(ids_changed)
    broker.push(Command(code=Request.GET_CONSUMER_RUNNING_INFO, opaque=1, ext={"consumerGroup": "g"}), b"x")
    broker.push(Command(code=Request.CONSUME_MESSAGE_DIRECTLY, opaque=243))
    assert await echo(link, "between") == "between"
    await eventually(lambda: len(broker.replies) == 1)
    later[0](Reply(body=b"info"))
    await eventually(lambda: len(broker.replies) == 2)
    assert seen == [(40, "g", b""), (307, "g", b"x"), (309, "", b"")]
    (failed, _), (info, body) = broker.replies
    assert (failed.code, failed.opaque, failed.remark) == (1, 243, "a fault of the handler")
    assert (info.code, info.opaque, body) == (0, 1, b"info")
    await link.close()
    later[0](Reply())


async def test_replies_to_a_connection_that_broke_are_dropped_without_a_log_line_for_each(
    broker: FakeBroker, open_link: Callable[..., Link], caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[int] = []

    def handle(command: Command, _: bytes, reply: Callable[[Reply], None]) -> None:
        assert link.connection is not None or handled
        if link.connection is not None:
            link.connection.abort()
        handled.append(command.code)
        reply(Reply())

    link = open_link(on_request=handle)
    await echo(link, "a")
    for writer in broker.peers:
        writer.write(encode(Command(code=Request.GET_CONSUMER_RUNNING_INFO)) * 20)
    await eventually(lambda: len(handled) == 20)
    assert not caplog.messages


async def test_without_a_handler_the_broker_learns_that_nothing_is_supported(
    broker: FakeBroker, open_link: Callable[..., Link]
) -> None:
    link = open_link()
    await echo(link, "a")
    broker.push(Command(code=Request.GET_CONSUMER_RUNNING_INFO, opaque=9))
    broker.push(Command(code=Request.NOTIFY_CONSUMER_IDS_CHANGED, opaque=10, flag=2))
    await eventually(lambda: bool(broker.replies))
    await echo(link, "b")
    assert [(command.code, command.opaque) for command, _ in broker.replies] == [(Code.REQUEST_CODE_NOT_SUPPORTED, 9)]


async def test_retired_means_another_connection_for_what_comes_after(
    broker: FakeBroker, open_link: Callable[..., Link]
) -> None:
    link = open_link()
    broker.held.add(99)
    waiting = asyncio.create_task(echo(link, "before"))
    await broker.until_held()
    link.retire()
    await link.request(HEART_BEAT, {}, timeout_seconds=SECONDS)
    assert (broker.connections, len(broker.peers)) == (2, 2)
    broker.release()
    assert await waiting == "before"
    await eventually(lambda: len(broker.peers) == 1)


async def test_what_was_sent_before_a_retirement_arrives(broker: FakeBroker, open_link: Callable[..., Link]) -> None:
    link = open_link()
    await echo(link, "a")
    await send_one_way(link, b"last")
    link.retire()
    await broker.until_asked(99, 2)
    await eventually(lambda: not broker.peers)


class SlowReader(asyncio.Protocol):
    """A broker that reads nothing until the test resumes it."""

    def __init__(self) -> None:
        self.received = 0
        self.transport: asyncio.Transport | None = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.set()


@pytest.fixture
async def slow_reader() -> AsyncIterator[tuple[SlowReader, str]]:
    reader = SlowReader()
    server = await asyncio.get_running_loop().create_server(lambda: reader, "127.0.0.1", 0)
    yield reader, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert reader.transport is not None
    reader.transport.abort()
    server.close()
    await server.wait_closed()


async def test_closing_writes_one_way_requests_first(
    slow_reader: tuple[SlowReader, str], open_link: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_link, "CLOSE_SECONDS", SECONDS)
    reader, addr = slow_reader
    link = open_link(addr)
    for _ in range(8):
        await send_one_way(link, bytes(1_000_000))
        await asyncio.sleep(0)
    await send_one_way(link, bytes(1_000_000))
    closing = asyncio.create_task(link.close())
    await eventually(lambda: reader.transport is not None)
    assert reader.transport is not None
    reader.transport.resume_reading()
    await closing
    await reader.ended.wait()
    assert reader.received > 9_000_000


async def test_closing_gives_up_on_a_broker_that_reads_nothing(
    slow_reader: tuple[SlowReader, str], open_link: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_link, "CLOSE_SECONDS", 0.05)
    _, addr = slow_reader
    link = open_link(addr)
    await send_one_way(link, bytes(20_000_000))
    await link.close()
    assert link.is_idle


@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_connection_that_is_given_up_ends_although_the_broker_reads_nothing(
    slow_reader: tuple[SlowReader, str],
    open_link: Callable[..., Link],
    monkeypatch: pytest.MonkeyPatch,
    is_silent: bool,
) -> None:
    monkeypatch.setattr(broker_connection, "LINGER_SECONDS", 0.05)
    _, addr = slow_reader
    link = open_link(addr)
    await link.connect(asyncio.get_running_loop().time() + SECONDS)
    if is_silent:
        with pytest.raises(BrokerTimeoutError):
            await link.request(99, {}, bytes(20_000_000), timeout_seconds=0.05)
    else:
        await send_one_way(link, bytes(20_000_000))
        link.retire()
    await eventually(lambda: link.is_idle)


async def test_callers_that_wait_for_a_connection_are_bounded(
    slow_reader: tuple[SlowReader, str], open_link: Callable[..., Link]
) -> None:
    _, addr = slow_reader
    # It never answers the TLS handshake.
    link = open_link(addr, options=RocketmqOptions(max_in_flight=2, tls=ssl.create_default_context()))
    waiting = [asyncio.create_task(echo(link, "a", timeout_seconds=seconds)) for seconds in (SECONDS, 0.05)]
    await asyncio.sleep(0)
    with pytest.raises(BrokerUnreachableError, match="2 requests wait for the connection"):
        await echo(link, "third")
    with pytest.raises(BrokerUnreachableError, match="not connected within the timeout of the call"):
        await waiting[1]
    with pytest.raises(BrokerUnreachableError, match="not connected within"):
        await echo(link, "third", timeout_seconds=0.01)
    await link.close()
    with pytest.raises(ClientClosedError):
        await waiting[0]


async def test_closing_ends_all_calls_for_good(broker: FakeBroker, open_link: Callable[..., Link]) -> None:
    lost: list[int] = []
    link, connecting = open_link(on_lost=lambda: lost.append(1)), open_link()
    broker.held.add(99)
    calls = [asyncio.create_task(echo(link, "a"))]
    await broker.until_asked(99)
    calls.append(asyncio.create_task(echo(connecting, "b")))
    await asyncio.sleep(0)
    await asyncio.gather(link.close(), connecting.close())
    for call in calls:
        with pytest.raises(ClientClosedError):
            await call
    for each in (link, connecting):
        with pytest.raises(ClientClosedError):
            await echo(each, "c")
        await each.close()
    assert lost == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("compress_level", 10),
        ("compress_from_bytes", 0),
        ("max_in_flight", 0),
        ("connect_timeout_seconds", 0.0),
        ("tls", True),
        ("access_key", "RocketMQ12"),
        ("producer_group", "a b"),
    ],
)
def test_options_out_of_bounds_are_refused(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=option):
        RocketmqOptions(**{option: value})  # type: ignore[arg-type]
