"""A producer and its sends: attempts, broker faults, deadlines and errors. Real sockets to a scripted name server."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.client import NameServerClient
from pointsman_client.core.fault_strategy import OLDER_FAULT_RULES
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.errors import (
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClientClosedError,
    ClientNotStartedError,
    InvalidAddressError,
    InvalidMessageError,
    InvalidNameError,
    InvalidOptionError,
    MessageTooLargeError,
    NameServersUnavailableError,
    NoWritableQueueError,
    ResponseCode,
    SendFailedError,
    TooManyInFlightError,
    TopicNotFoundError,
)
from pointsman_client.producer.producer import Producer
from tests.kit.client.producing import ADDRS, A, B, C, SendCallback, Shop, producing, put_route
from tests.kit.client.scripted_transport import Call, ScriptedTransport
from tests.kit.name_server.scripted_routes import (
    ScriptedRouteServer,
    broker_data,
    refused_addr,
    scripted_route_server,
    topic_route,
)
from tests.kit.waiting import eventually

HELLO = Message("orders", b"hello", "new", ("4711",), {"zone": "z1"})


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRouteServer]:
    async with scripted_route_server() as server:
        yield server


# Sends that go well


async def test_a_message_is_sent_and_the_result_names_the_queue(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        first, second = [await shop.producer.send(HELLO) for _ in range(2)]

        (call, _) = shop.transport.calls
        assert (call.addr, call.queue) == (ADDRS[first.queue.broker_name], first.queue)
        assert (first.status, first.queue_offset, first.tries, first.is_parked) == (SendStatus.SEND_OK, 0, 1, False)
        (outgoing,) = shop.transport.written[first.queue]
        assert (outgoing.message, outgoing.message_id) == (HELLO, first.message_id)
        assert outgoing.born_at == shop.clock.utc_now()
        assert len({first.message_id, second.message_id}) == 2
        assert (uuid.UUID(first.message_id).version, len(first.message_id)) == (4, 32)
        assert shop.heard.sends == [("SEND_OK", 1)] * 2


class LowestRandom(random.Random):
    def getrandbits(self, _k: int, /) -> int:
        return 0


async def test_an_id_with_leading_zeros_has_all_its_digits(server: ScriptedRouteServer) -> None:
    async with producing(server, rng=LowestRandom()) as shop:
        result = await shop.producer.send(HELLO)
        assert result.message_id == uuid.UUID(int=0, version=4).hex


async def test_w5_messages_take_turns_over_all_queues_of_both_brokers(server: ScriptedRouteServer) -> None:
    put_route(server, "b", "a", read=8, write=8, perm=7)
    async with producing(server) as shop:
        for _ in range(16):
            await shop.producer.send(HELLO)

        expected = [f"a:{i}" for i in range(8)] + [f"b:{i}" for i in range(8)]
        start = expected.index(shop.transport.places[0])
        assert shop.transport.places == expected[start:] + expected[:start]


async def test_a_batch_goes_to_one_queue_in_its_order(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        results = await shop.producer.send_batch([Message("orders", str(number).encode()) for number in range(3)])

        (call,) = shop.transport.calls
        assert call.bodies == (b"0", b"1", b"2")
        assert [result.queue_offset for result in results] == [0, 1, 2]
        assert len({result.message_id for result in results}) == 3


# Sends that do not


async def test_w6_after_a_failure_another_broker_is_tried(server: ScriptedRouteServer) -> None:
    for fault_tolerance in (False, True):
        async with producing(server, send_latency_fault_enable=fault_tolerance) as shop:
            shop.transport.unreachable(A)
            results = [await shop.producer.send(HELLO) for _ in range(4)]

            assert {result.queue.broker_name for result in results} == {"b"}
            for call, following in pairwise(shop.transport.calls):
                assert call.addr != A or following.addr == B


async def test_w7_a_dead_broker_is_skipped_during_its_isolation_and_then_tried_again(
    server: ScriptedRouteServer,
) -> None:
    async with producing(server) as shop:
        shop.transport.unreachable(A)
        for _ in range(4):
            await shop.producer.send(HELLO)
        assert shop.transport.places.count("a:0") + shop.transport.places.count("a:1") == 1
        assert shop.heard.isolations == [("a", 10.0)]
        assert set(shop.heard.hits) == {"a"}

        shop.clock.now += 10.0
        for _ in range(4):
            await shop.producer.send(HELLO)

        assert shop.transport.places.count("a:0") + shop.transport.places.count("a:1") == 2


async def test_w7_without_fault_tolerance_a_dead_broker_is_tried_repeatedly(server: ScriptedRouteServer) -> None:
    async with producing(server, send_latency_fault_enable=False) as shop:
        shop.transport.unreachable(A)
        for _ in range(4):
            await shop.producer.send(HELLO)

        assert sum(call.addr == A for call in shop.transport.calls) >= 2
        assert shop.heard.isolations == []


async def test_w8_the_older_preset_can_be_chosen(server: ScriptedRouteServer) -> None:
    async with producing(server, fault_rules=OLDER_FAULT_RULES) as shop:
        shop.transport.unreachable(A)
        for _ in range(4):
            await shop.producer.send(HELLO)

        assert shop.heard.isolations == [("a", 600.0)]


async def test_that_a_broker_is_left_out_is_logged_with_its_cause_once_an_isolation(
    server: ScriptedRouteServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with producing(server) as shop:
        shop.transport.unreachable(A)
        await asyncio.gather(*(shop.producer.send(HELLO) for _ in range(20)))
        logged = [record for record in caplog.records if record.name.endswith("producer.sender")]
        assert [(record.levelname, record.message) for record in logged] == [
            ("WARNING", f"broker c1/a isolated for 10 s: broker {A}: connection refused")
        ]


async def test_w9_with_every_broker_isolated_a_send_still_finds_one(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        shop.transport.unreachable(A, B)
        with pytest.raises(SendFailedError):
            await shop.producer.send(HELLO)
        shop.transport.recover(A, B)

        assert (await shop.producer.send(HELLO)).tries == 1


def test_w16_settings_have_their_usual_names_and_defaults() -> None:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(Producer).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    assert defaults["retry_times_when_send_failed"] == 2
    assert defaults["retry_times_when_send_async_failed"] == 2
    assert defaults["send_latency_fault_enable"] is True
    assert defaults["send_msg_timeout_seconds"] == 3.0
    assert defaults["poll_name_server_interval_seconds"] == 30.0
    assert defaults["max_message_size"] == 4 * 1024 * 1024
    assert defaults["retry_another_broker_when_not_store_ok"] is False


async def test_w16_two_retries_make_three_attempts_and_the_error_has_each(server: ScriptedRouteServer) -> None:
    put_route(server, "a", "b", "c", write=1)
    async with producing(server) as shop:
        shop.transport.unreachable(A)
        shop.transport.refuse(ResponseCode.SYSTEM_BUSY, B)
        shop.transport.late(C)
        with pytest.raises(SendFailedError, match=r"Send \[3\] times, still failed") as failure:
            await shop.producer.send(HELLO)

        tries = failure.value.tries
        kinds = {"a": BrokerUnreachableError, "b": BrokerRefusedError, "c": BrokerTimeoutError}
        assert len(tries) == 3
        assert all(type(each.error) is kinds[each.broker_name] for each in tries)
        assert all(each.addr == ADDRS[each.broker_name] for each in tries)
        assert all(one.broker_name != two.broker_name for one, two in pairwise(tries))
        assert failure.value.__cause__ is tries[-1].error
        assert not failure.value.timed_out
        assert shop.heard.sends == [("SEND_FAILED", 3)]


async def test_a_no_that_another_broker_would_repeat_ends_the_send(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        shop.transport.refuse(ResponseCode.MESSAGE_ILLEGAL, A, B)
        with pytest.raises(SendFailedError) as failure:
            await shop.producer.send(HELLO)

        assert len(failure.value.tries) == 1


async def test_codes_to_retry_can_be_added(server: ScriptedRouteServer) -> None:
    async with producing(server, retry_response_codes=[ResponseCode.MESSAGE_ILLEGAL]) as shop:
        shop.transport.refuse(ResponseCode.MESSAGE_ILLEGAL, A, B)
        with pytest.raises(SendFailedError) as failure:
            await shop.producer.send(HELLO)

        assert len(failure.value.tries) == 3


@pytest.mark.parametrize(("again", "tries"), [(False, 1), (True, 3)])
async def test_a_message_not_fully_stored_goes_to_another_broker_only_if_configured(
    server: ScriptedRouteServer, again: bool, tries: int
) -> None:
    async with producing(server, retry_another_broker_when_not_store_ok=again) as shop:
        shop.transport.answer(SendStatus.FLUSH_SLAVE_TIMEOUT, A, B)
        result = await shop.producer.send(HELLO)

        assert (result.status, result.tries) == (SendStatus.FLUSH_SLAVE_TIMEOUT, tries)


async def test_an_error_of_the_transport_is_a_failed_attempt(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        shop.transport.break_down(KeyError("scripted"), A, B)
        with pytest.raises(SendFailedError, match="the transport raised KeyError") as failure:
            await shop.producer.send(HELLO)

        assert isinstance(failure.value.tries[0].error.__cause__, KeyError)


async def test_a_transport_that_hangs_ends_with_the_deadline(server: ScriptedRouteServer) -> None:
    async with producing(server, clock=None) as shop:
        shop.transport.hang(A, B)
        await shop.producer.client.topic_route("orders")
        began_at = time.monotonic()
        with pytest.raises(SendFailedError) as failure:
            await shop.producer.send(HELLO, timeout_seconds=0.2)

        assert 0.15 < time.monotonic() - began_at < 2.0
        assert failure.value.timed_out
        assert [type(each.error) for each in failure.value.tries] == [BrokerTimeoutError]


async def test_a_timeout_per_request_leaves_time_for_the_other_attempts(server: ScriptedRouteServer) -> None:
    async with producing(server, clock=None, send_msg_max_timeout_per_request_seconds=0.1) as shop:
        shop.transport.hang(A)
        results = [await shop.producer.send(HELLO, timeout_seconds=3.0) for _ in range(4)]

        assert {result.queue.broker_name for result in results} == {"b"}
        assert max(result.tries for result in results) == 2


async def test_a_last_try_gets_all_the_time_that_is_left(server: ScriptedRouteServer) -> None:
    async with producing(server, send_msg_max_timeout_per_request_seconds=0.1) as shop:
        shop.transport.unreachable(A, B)
        with pytest.raises(SendFailedError):
            await shop.producer.send(HELLO)

        assert [call.timeout_seconds for call in shop.transport.calls] == pytest.approx([0.1, 0.1, 3.0])


async def test_by_default_a_broker_that_hangs_takes_no_more_than_half_of_the_time(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        await shop.producer.send(HELLO)
        await shop.producer.send(HELLO)

        assert {call.timeout_seconds for call in shop.transport.calls} == {1.5}


async def test_the_tries_share_one_deadline(server: ScriptedRouteServer) -> None:
    async with producing(server, send_msg_max_timeout_per_request_seconds=None) as shop:
        shop.transport.unreachable(A, B)

        def take_a_second_and_a_half() -> None:
            shop.clock.now += 1.5

        shop.transport.before_answer = take_a_second_and_a_half
        with pytest.raises(SendFailedError) as failure:
            await shop.producer.send(HELLO)

        assert [call.timeout_seconds for call in shop.transport.calls] == pytest.approx([3.0, 1.5])
        assert failure.value.timed_out


# The route


async def test_a_failed_send_requests_the_route_immediately_and_does_not_wait_for_it(
    server: ScriptedRouteServer,
) -> None:
    async with producing(server) as shop:
        await shop.producer.send(HELLO)
        calls = server.calls["GetTopicRoute"]
        server.hang()
        shop.transport.unreachable(A)
        for _ in range(4):
            await shop.producer.send(HELLO)
        await server.called(calls + 1)
        server.recover()


async def test_an_unknown_topic_is_reported_as_unknown(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        with pytest.raises(TopicNotFoundError, match="bills"):
            await shop.producer.send(Message("bills", b"1"))
        assert shop.heard.sends == [("TOPIC_NOT_FOUND", 0)]


@pytest.mark.parametrize(
    ("perm", "broker_id", "why"),
    [(4, 0, "broker a has no write permission"), (6, 1, "broker a has no master")],
)
async def test_the_error_for_a_topic_without_a_writable_queue_gives_the_reason(
    server: ScriptedRouteServer, perm: int, broker_id: int, why: str
) -> None:
    server.routes["orders"] = topic_route(groups=[broker_data("a", {broker_id: A}, cluster="c1")], perm=perm)
    async with producing(server) as shop:
        with pytest.raises(NoWritableQueueError, match=why):
            await shop.producer.send(HELLO)


async def test_a_topic_that_got_its_first_writable_queue_is_found_at_the_next_send(
    server: ScriptedRouteServer,
) -> None:
    put_route(server, "a", perm=4)
    async with producing(server) as shop:
        with pytest.raises(NoWritableQueueError):
            await shop.producer.send(HELLO)
        put_route(server, "a", "b", perm=6)

        assert (await shop.producer.send(HELLO)).status is SendStatus.SEND_OK


async def test_it_is_reported_when_no_name_server_responds() -> None:
    async with refused_addr() as closed, Producer([closed], transport=ScriptedTransport()) as producer:
        with pytest.raises(NameServersUnavailableError):
            await producer.send(HELLO)


async def test_a_name_server_that_hangs_ends_with_the_sends_deadline(server: ScriptedRouteServer) -> None:
    async with producing(server, clock=None) as shop:
        server.hang()
        with pytest.raises(SendFailedError, match="no broker was tried") as failure:
            await shop.producer.send(HELLO, timeout_seconds=0.1)
        assert failure.value.timed_out
        server.recover()


async def test_known_brokers_are_used_while_all_name_servers_are_down(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        await shop.producer.send(HELLO)
        server.fail_with(grpc.StatusCode.UNAVAILABLE)

        assert (await shop.producer.send(HELLO)).status is SendStatus.SEND_OK


# Background


async def test_the_detector_finds_a_broker_again_that_could_not_be_reached(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        shop.transport.unreachable(A)
        for _ in range(4):
            await shop.producer.send(HELLO)
        assert isolation_of_a(shop)["reachable"] is False

        await shop.clock.advance(3.0)
        await eventually(lambda: len(shop.transport.probes) == 1)
        ((addr, queue, seconds),) = shop.transport.probes
        assert (addr, queue.topic, queue.queue_id, seconds) == (A, "orders", 0, 0.2)
        assert isolation_of_a(shop)["reachable"] is False

        shop.transport.recover(A)
        await shop.clock.advance(3.0)
        await eventually(lambda: len(shop.transport.probes) == 2)
        await shop.clock.advance(0.0)
        assert isolation_of_a(shop)["reachable"] is True
        assert isolation_of_a(shop)["available"] is False


async def test_without_the_detector_nothing_is_probed(server: ScriptedRouteServer) -> None:
    async with producing(server, start_detector_enable=False) as shop:
        shop.transport.unreachable(A)
        for _ in range(4):
            await shop.producer.send(HELLO)
        await shop.clock.advance(9.0)

        assert shop.transport.probes == []
        assert isolation_of_a(shop)["reachable"] is True


def isolation_of_a(shop: Shop) -> dict[str, object]:
    return next(each for each in isolations(shop) if each["brokerName"] == "a")


def isolations(shop: Shop) -> list[dict[str, object]]:
    described = shop.producer.client.describe("orders")["isolations"]
    assert isinstance(described, list)
    return described


async def test_a_broker_that_left_the_routes_is_dropped(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        shop.transport.unreachable(A)
        for _ in range(4):
            await shop.producer.send(HELLO)
        put_route(server, "b", "c", write=2)
        await shop.producer.client.refresh("orders")
        await shop.clock.advance(3.0)
        put_route(server, "a", "b", write=2)
        await shop.producer.client.refresh("orders")

        assert [each["brokerName"] for each in isolations(shop)] == ["b"]
        await eventually(lambda: A in shop.transport.forgotten)


# Asynchronous and one-way sends


async def test_an_asynchronous_send_returns_immediately_and_calls_its_callback(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        callback = SendCallback()
        shop.producer.send_async(HELLO, callback)
        assert shop.transport.calls == []
        await shop.transport.called(1)
        await shop.clock.advance(0.0)

        assert [result.status for result in callback.results] == [SendStatus.SEND_OK]


async def test_an_asynchronous_send_is_retried_after_failed_connections_and_not_after_a_refusal(
    server: ScriptedRouteServer,
) -> None:
    async with producing(server) as shop:
        callback = SendCallback()
        shop.transport.unreachable(A, B)
        shop.producer.send_async(HELLO, callback)
        await shop.transport.called(3)
        await shop.clock.advance(0.0)
        shop.transport.refuse(ResponseCode.SYSTEM_BUSY, A, B)
        shop.producer.send_async(HELLO, callback)
        await shop.transport.called(4)
        await shop.clock.advance(0.0)

        assert [len(error.tries) for error in callback.errors if isinstance(error, SendFailedError)] == [3, 1]


async def test_a_callback_that_raises_breaks_nothing(server: ScriptedRouteServer) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    async with producing(server) as shop:

        def fail(ended: object) -> None:
            raise KeyError(ended)

        shop.producer.send_async(HELLO, fail)
        await shop.transport.called(1)
        await shop.clock.advance(0.0)

        assert [type(fault) for fault in faults] == [KeyError]
        assert (await shop.producer.send(HELLO)).tries == 1


async def test_a_one_way_send_is_one_attempt_and_reports_no_result(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        shop.transport.unreachable(A, B)
        shop.producer.send_oneway(HELLO)
        await shop.transport.called(1)
        await shop.clock.advance(0.0)

        assert len(shop.transport.calls) == 1
        assert shop.heard.sends == [("SEND_FAILED", 1)]


class OneWayTransport(ScriptedTransport):
    """Also sends without responses; ``behaviour`` says what fails."""

    def __init__(self) -> None:
        super().__init__()
        self.one_way: list[Call] = []

    async def send_one_way(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> None:
        self.one_way.append(Call(addr, queue, tuple(each.message.body for each in messages), timeout_seconds))
        await self._enter(addr)
        if addr in self.behaviour:
            self.behaviour[addr]()


async def until_reported(shop: Shop, sends: int) -> None:
    await eventually(lambda: len(shop.heard.sends) == sends)


async def test_a_one_way_send_awaits_no_response_where_the_transport_can(server: ScriptedRouteServer) -> None:
    transport = OneWayTransport()
    async with producing(server, transport=transport) as shop:
        for _ in range(4):
            shop.producer.send_oneway(HELLO)
        await until_reported(shop, 4)

        assert transport.calls == []
        assert [call.addr for call in transport.one_way].count(A) == 2
        assert len({call.queue for call in transport.one_way}) == 4
        assert transport.one_way[0].bodies == (HELLO.body,)
        assert shop.heard.sends == [("UNCONFIRMED", 1)] * 4
        assert {outcome for _, outcome in shop.heard.tries} == {"UNCONFIRMED"}


async def test_a_failed_one_way_send_isolates_the_broker_and_is_not_repeated(server: ScriptedRouteServer) -> None:
    transport = OneWayTransport()
    transport.unreachable(A)
    async with producing(server, transport=transport) as shop:
        for sent in range(1, 7):
            shop.producer.send_oneway(HELLO)
            await until_reported(shop, sent)

        assert sorted(shop.heard.sends) == [("SEND_FAILED", 1)] + [("UNCONFIRMED", 1)] * 5
        assert [call.addr for call in transport.one_way].count(A) == 1
        assert [broker for broker, _ in shop.heard.isolations] == ["a"]


async def test_one_way_sends_without_a_route_or_with_a_refused_message_are_reported(
    server: ScriptedRouteServer,
) -> None:
    transport = OneWayTransport()
    transport.break_down(InvalidMessageError("properties", "DELAY", "is reserved"), A, B)
    async with producing(server, transport=transport) as shop:
        shop.producer.send_oneway(HELLO)
        await until_reported(shop, 1)
        shop.producer.send_oneway(Message("unknown", b"x"))
        await until_reported(shop, 2)

        assert shop.heard.sends == [("INVALID_MESSAGE", 0), ("TOPIC_NOT_FOUND", 0)]
        assert shop.heard.isolations == []


@pytest.mark.parametrize("bound", [{"back_pressure_for_async_send_num": 2}, {"back_pressure_for_async_send_size": 40}])
async def test_unawaited_sends_are_bounded(server: ScriptedRouteServer, bound: dict[str, int]) -> None:
    async with producing(server, **bound, close_timeout_seconds=0.4) as shop:
        shop.transport.hang(A, B)
        callback = SendCallback()
        shop.producer.send_async(HELLO, callback)
        shop.producer.send_oneway(HELLO)
        with pytest.raises(TooManyInFlightError, match="2 messages with 36 bytes are in flight"):
            shop.producer.send_async(HELLO, callback)


async def test_a_coroutine_function_is_refused_as_a_callback(server: ScriptedRouteServer) -> None:
    async def wrong(_: object) -> None: ...

    async with producing(server) as shop:
        with pytest.raises(InvalidOptionError, match="must not be async"):
            shop.producer.send_async(HELLO, wrong)


# Bad input


@pytest.mark.parametrize("name_servers", [[], "", [" "]])
def test_an_empty_list_of_name_servers_is_refused(name_servers: list[str] | str) -> None:
    with pytest.raises(InvalidAddressError, match="no name server given"):
        Producer(name_servers, transport=ScriptedTransport)


async def test_an_invalid_message_is_refused_before_any_request(server: ScriptedRouteServer) -> None:
    async with producing(server, max_message_size=10) as shop:
        with pytest.raises(InvalidNameError):
            await shop.producer.send(Message.unchecked("no such.topic", b"1"))
        with pytest.raises(InvalidMessageError, match="body"):
            await shop.producer.send(Message.unchecked("orders", b""))
        with pytest.raises(MessageTooLargeError, match="11 bytes, at most 10"):
            await shop.producer.send(Message("orders", b"12345678901"))
        with pytest.raises(MessageTooLargeError):
            await shop.producer.send_batch([Message("orders", b"123456")] * 2)
        with pytest.raises(InvalidMessageError, match="at least one"):
            await shop.producer.send_batch([])
        with pytest.raises(InvalidMessageError, match="in the same batch"):
            await shop.producer.send_batch([Message("orders", b"1"), Message("bills", b"2")])
        with pytest.raises(InvalidMessageError):
            shop.producer.send_async(Message.unchecked("orders", b""), SendCallback())

        assert not server.calls["GetTopicRoute"]


async def test_a_timeout_must_be_a_positive_time(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        with pytest.raises(InvalidOptionError, match="timeout_seconds"):
            await shop.producer.send(HELLO, timeout_seconds=0)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("send_msg_timeout_seconds", 0.0),
        ("send_msg_max_timeout_per_request_seconds", -1.0),
        ("retry_times_when_send_failed", -1),
        ("max_message_size", 0),
        ("back_pressure_for_async_send_num", 0),
        ("close_timeout_seconds", float("inf")),
        ("on_unavailable", "parks"),
    ],
)
def test_a_setting_out_of_bounds_is_named(setting: str, value: object) -> None:
    settings: dict[str, object] = {setting: value}
    with pytest.raises(InvalidOptionError, match=setting):
        Producer(["ns:9876"], transport=ScriptedTransport, **settings)  # type: ignore[arg-type]


# Life


async def test_a_producer_is_of_no_use_before_its_start_and_after_its_end(server: ScriptedRouteServer) -> None:
    producer = Producer([server.addr], transport=ScriptedTransport)
    with pytest.raises(ClientNotStartedError):
        await producer.send(HELLO)
    async with producer:
        await producer.start()
    with pytest.raises(ClientClosedError):
        await producer.send(HELLO)
    with pytest.raises(ClientClosedError):
        await producer.start()
    await producer.close()


async def test_what_a_producer_made_is_closed_with_it_and_nothing_else(server: ScriptedRouteServer) -> None:
    made: list[ScriptedTransport] = []

    def make() -> ScriptedTransport:
        made.append(ScriptedTransport())
        return made[-1]

    put_route(server, "a")
    shared = ScriptedTransport()
    async with NameServerClient([server.addr]) as client:
        async with Producer(client, transport=make) as one, Producer(client, transport=shared) as two:
            await one.send(HELLO)
            await two.send(HELLO)
        assert [transport.closed for transport in (*made, shared)] == [1, 0]
        assert (await client.topic_route("orders")).topic == "orders"


async def test_closing_waits_for_sends_in_flight(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        callback = SendCallback()
        for _ in range(50):
            shop.producer.send_async(HELLO, callback)
        awaited = asyncio.create_task(shop.producer.send(HELLO))
        await asyncio.sleep(0)
        await shop.producer.close()

        assert len(callback.results) == 50
        assert (await awaited).tries == 1


async def test_closing_ends_in_bounded_time_and_leaves_no_task(server: ScriptedRouteServer) -> None:
    before = asyncio.all_tasks()
    async with producing(server, close_timeout_seconds=0.4, clock=ManualClock()) as shop:
        shop.transport.hang(A, B)
        callback = SendCallback()
        shop.producer.send_async(HELLO, callback)
        shop.producer.send_oneway(HELLO)
        await shop.transport.called(2)
        async with asyncio.timeout(30):
            await shop.producer.close()

        assert callback.codes == ["CLIENT_STATE"]
    await asyncio.sleep(0)
    assert [task.get_name() for task in asyncio.all_tasks() - before if "pointsman" in task.get_name()] == []
