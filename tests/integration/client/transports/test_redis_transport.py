"""The Redis transport beyond the common contract: refusals, foreign entries, connections, age."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.errors import (
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ResponseCode,
)
from pointsman_client.ports.transport import Transport
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.integration.client.transports.scripted_redis import endless_redis, scripted_redis
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.under_test import BORN_AT, QUEUE, READER, RedisBrokers, outgoing
from tests.kit.faults.cut_proxy import cut_proxy
from tests.kit.waiting import eventually, read_until

pytestmark = pytest.mark.redis

KEY = "orders:queue:3"


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[RedisBrokers]:
    found = RedisBrokers(tmp_path)
    yield found
    await found.close()


async def send(transport: Transport, addr: str, *bodies: str, timeout_seconds: float = 30.0) -> Any:
    return await transport.send(addr, QUEUE, [outgoing(body) for body in bodies], timeout_seconds=timeout_seconds)


def of_size(size: int) -> OutgoingMessage:
    return OutgoingMessage(Message("orders", b"x" * size), "id", BORN_AT)


async def pull(
    transport: Transport,
    addr: str,
    offset: int,
    *,
    wait_seconds: float = 0.0,
    timeout_seconds: float = 30.0,
    max_messages: int = 32,
) -> Any:
    return await transport.pull(
        addr,
        QUEUE,
        offset,
        max_messages=max_messages,
        wait_seconds=wait_seconds,
        timeout_seconds=timeout_seconds,
        reader=READER,
    )


async def refusal(call: Any) -> ResponseCode:
    with pytest.raises(BrokerRefusedError) as raised:
        await call
    return ResponseCode(raised.value.response_code)


@pytest.mark.parametrize("password", [None, "wrong"])
async def test_a_wrong_or_missing_password_is_a_permission_error(brokers: RedisBrokers, password: str | None) -> None:
    addr = await brokers.add("--requirepass", "right")
    transport = brokers.open(password=password)
    assert await refusal(send(transport, addr, "a")) is ResponseCode.NO_PERMISSION
    assert await refusal(pull(transport, addr, 0)) is ResponseCode.NO_PERMISSION
    await transport.close()
    assert (await send(brokers.open(password="right"), addr, "a")).queue_offsets == (0,)


@pytest.mark.parametrize("client", ["+client|id", ""])
async def test_a_user_without_scripts_and_unblock_is_served_too(brokers: RedisBrokers, client: str) -> None:
    addr = await brokers.add()
    rules = (
        f"on >pw ~orders:* +@read +@write +@transaction +@connection +xinfo -@scripting -client {client} +multi +exec"
    )
    await brokers.server(addr).command("ACL", "SETUSER", "app", *rules.split())
    transport = brokers.open(username="app", password="pw")
    await send(transport, addr, "a", "b")
    assert await transport.max_offset(addr, QUEUE, timeout_seconds=5) == 2
    assert await transport.min_offset(addr, QUEUE, timeout_seconds=5) == 0
    other = asyncio.create_task(
        transport.pull(
            addr,
            MessageQueue("orders", "c1", "a", 9),
            0,
            max_messages=1,
            wait_seconds=300,
            timeout_seconds=5,
            reader=READER,
        )
    )
    await asyncio.sleep(0.1)
    for offset in (2, 3):
        newcomer = asyncio.create_task(pull(transport, addr, offset, wait_seconds=300))
        await asyncio.sleep(0.1)
        await send(transport, addr, "c")
        async with asyncio.timeout(60):
            assert [message.body for message in (await newcomer).messages] == [b"c"]
    other.cancel()


async def test_a_key_that_is_not_a_stream_is_a_system_error(brokers: RedisBrokers) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await brokers.server(addr).command("SET", KEY, "text")
    for call in (
        send(transport, addr, "a"),
        send(transport, addr, "a", "b"),
        pull(transport, addr, 0),
        pull(transport, addr, 1, wait_seconds=1),
        transport.max_offset(addr, QUEUE, timeout_seconds=5),
    ):
        assert await refusal(call) is ResponseCode.SYSTEM_ERROR


async def test_an_entry_whose_id_is_not_an_offset_is_a_clear_error_once_it_is_reached(brokers: RedisBrokers) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a")
    await brokers.server(addr).command("XADD", KEY, "1700000000000-0", "body", "b")
    pulled = await pull(transport, addr, 0)
    assert ([message.body for message in pulled.messages], pulled.next_offset, pulled.trimmed) == ([b"a"], 1, 0)
    with pytest.raises(BrokerRefusedError, match="1700000000000-0, whose id is not an offset"):
        await pull(transport, addr, 1)
    with pytest.raises(BrokerRefusedError, match="ids are not offsets"):
        await send(transport, addr, "c")


async def test_entries_of_others_are_messages(brokers: RedisBrokers) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await brokers.server(addr).command("XADD", KEY, "0-*", "user", "7")
    await brokers.server(addr).command("XADD", KEY, "0-*", "body", "b", "born_at", "soon", "properties", "[")
    first, second = (await pull(transport, addr, 0)).messages
    assert (first.body, first.properties, first.message_id, first.born_at) == (b"", {"user": "7"}, f"{KEY}@0", None)
    assert (second.body, second.properties, second.born_at) == (b"b", {}, None)
    assert await transport.offset_at(addr, QUEUE, BORN_AT, timeout_seconds=5) == 0


async def test_deleted_entries_count_as_trimmed(brokers: RedisBrokers) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, *"abcde")
    await brokers.server(addr).command("XDEL", KEY, "0-2", "0-3")
    pulled = await pull(transport, addr, 0)
    assert [message.queue_offset for message in pulled.messages] == [0, 3, 4]
    assert (pulled.next_offset, pulled.trimmed) == (5, 2)


async def test_a_server_without_waitaof_is_refused_before_anything_is_written(brokers: RedisBrokers) -> None:
    transport, addr = brokers.open(wait_fsync=True), await brokers.add()
    with pytest.raises(BrokerRefusedError, match=r"wait_fsync requires Redis 7\.2 or later"):
        await send(transport, addr, "a")
    assert await transport.max_offset(addr, QUEUE, timeout_seconds=5) == 0


@pytest.mark.parametrize(
    ("synced", "replicas", "status"),
    [
        (1, 1, SendStatus.SEND_OK),
        (0, 1, SendStatus.FLUSH_DISK_TIMEOUT),
        (1, 0, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (0, 0, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_the_status_reports_a_missing_replica_before_a_missing_disk_flush(
    synced: int, replicas: int, status: SendStatus
) -> None:
    def answer(words: Sequence[bytes]) -> bytes:
        match words[0]:
            case b"XADD":
                return b"$3\r\n0-1\r\n"
            case b"WAITAOF":
                return b"*2\r\n:%d\r\n:0\r\n" % synced
            case b"WAIT":
                return b":%d\r\n" % replicas
            case b"INFO":
                return b"$18\r\nconnected_slaves:1\r\n"
        return b"+OK\r\n"

    async with scripted_redis(answer) as addr:
        transport = RedisStreamsTransport(wait_fsync=True, wait_replicas=1)
        assert (await send(transport, addr, "a")).status is status
        await transport.close()


async def test_a_replica_that_lags_is_a_flush_slave_timeout(brokers: RedisBrokers) -> None:
    transport = brokers.open(wait_replicas=1, wait_timeout_seconds=0.2)
    master, slave = await brokers.add(), await brokers.add()
    await brokers.replicate(master, slave)
    await read_until(lambda: send(transport, master, "a"), lambda found: found.status is SendStatus.SEND_OK)
    await brokers.hang(slave)
    began = asyncio.get_running_loop().time()
    receipts = await asyncio.gather(*(send(transport, master, "b") for _ in range(30)))
    assert {receipt.status for receipt in receipts} == {SendStatus.FLUSH_SLAVE_TIMEOUT}
    assert len({receipt.queue_offsets for receipt in receipts}) == 30
    # Those that come together wait together: one after another, they would take 6 s.
    assert asyncio.get_running_loop().time() - began < 3.0


async def test_a_full_memory_is_system_busy(brokers: RedisBrokers) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a")
    await brokers.server(addr).command("CONFIG", "SET", "maxmemory", "1")
    assert await refusal(send(transport, addr, "b")) is ResponseCode.SYSTEM_BUSY
    assert await refusal(send(transport, addr, "b", "c")) is ResponseCode.SYSTEM_BUSY
    assert await transport.max_offset(addr, QUEUE, timeout_seconds=5) == 1


async def test_a_master_without_its_replicas_and_a_replica_without_its_master_are_not_available(
    brokers: RedisBrokers,
) -> None:
    transport, addr = brokers.open(), await brokers.add("--min-replicas-to-write", "1")
    orphan = await brokers.add("--replica-serve-stale-data", "no")
    assert await refusal(send(transport, addr, "a")) is ResponseCode.SERVICE_NOT_AVAILABLE
    await brokers.server(orphan).command("REPLICAOF", "127.0.0.1", str(free_port()))
    assert await refusal(pull(transport, orphan, 0)) is ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_closed_port_a_name_without_address_and_another_protocol_are_unreachable() -> None:
    transport = RedisStreamsTransport()
    async with scripted_redis(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as http:
        for addr in (f"127.0.0.1:{free_port()}", "no-such-host.invalid:6379", http):
            for call in (send(transport, addr, "a"), pull(transport, addr, 0)):
                with pytest.raises(BrokerUnreachableError, match=addr):
                    await call
    await transport.close()


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        (b"$536870912\r\n", b"x" * 65_536),
        (b"*999999\r\n", b"$4\r\nxxxx\r\n" * 6_000),
        (b"*999999\r\n", b"*0\r\n" * 16_000),
        (b"", b"*2\r\n*0\r\n" * 8_000),
        (b"+", b"x" * 65_536),
    ],
    ids=["text", "array", "empty-arrays", "nested-arrays", "line"],
)
async def test_a_reply_without_an_end_costs_its_connection_and_no_memory(begin: bytes, again: bytes) -> None:
    async with endless_redis(begin, again) as server:
        transport = RedisStreamsTransport(max_reply_bytes=1_000_000)
        with pytest.raises(
            (BrokerTimeoutError, BrokerUnreachableError), match=r"a reply has more than 65664 bytes|Max nesting"
        ):
            await send(transport, server.addr, "a", timeout_seconds=60.0)
        # The limit, and what the buffers of both sides hold.
        assert server.bytes_sent < 12_000_000
        with pytest.raises(BrokerUnreachableError, match=r"a reply has more than 1000128 bytes|Max nesting"):
            await pull(transport, server.addr, 0, timeout_seconds=60.0)
        await transport.close()


@pytest.mark.parametrize("header", [b"*900000000\r\n", b"*1\r\n*900000000\r\n", b"*99999999999999\r\n"])
async def test_an_array_that_announces_millions_of_elements_is_not_made(header: bytes) -> None:
    async with endless_redis(header, b":1\r\n") as server:
        transport = RedisStreamsTransport()
        with pytest.raises((BrokerTimeoutError, BrokerUnreachableError), match="an array announces a million"):
            await send(transport, server.addr, "a", timeout_seconds=60.0)
        await transport.close()


async def test_an_array_that_does_not_fit_into_the_memory_costs_its_connection() -> None:
    async with endless_redis(b"*4294967295\r\n", b":1\r\n" * 1_000) as server:
        transport = RedisStreamsTransport()
        with pytest.raises(BrokerUnreachableError, match="the connection broke"):
            await pull(transport, server.addr, 0, timeout_seconds=60.0)
        await transport.close()


async def test_a_reply_without_an_end_to_the_password_costs_its_connection() -> None:
    async with endless_redis(b"$536870912\r\n", b"x" * 65_536) as server:
        transport = RedisStreamsTransport(password="secret")
        with pytest.raises(BrokerUnreachableError, match=r"cannot connect: .*a reply has more than 65536 bytes"):
            await send(transport, server.addr, "a", timeout_seconds=60.0)
        await transport.close()


async def test_replies_within_the_limit_are_read_one_by_one(brokers: RedisBrokers) -> None:
    transport, addr = brokers.open(max_reply_bytes=3_000_000), await brokers.add()
    bodies = [f"{number}" * 500_000 for number in range(5)]
    for body in bodies:
        await send(transport, addr, body)
    for number, body in enumerate(bodies):
        (message,) = (await pull(transport, addr, number, max_messages=1)).messages
        assert message.body == body.encode()
    many = await send(transport, addr, *(["x"] * 5_000))
    assert many.queue_offsets == tuple(range(5, 5_005))


async def test_a_pull_beyond_the_limit_fails_with_those_on_its_connection_until_it_requests_less(
    brokers: RedisBrokers,
) -> None:
    transport, addr = brokers.open(max_reply_bytes=1_000_000), await brokers.add()
    for _ in range(5):
        await transport.send(addr, QUEUE, [of_size(300_000)], timeout_seconds=30)
    for _ in range(2):
        pulls = (pull(transport, addr, 0, max_messages=count) for count in (5, 1))
        for failure in await asyncio.gather(*pulls, return_exceptions=True):
            assert isinstance(failure, BrokerUnreachableError)
            assert "a reply has more than 1000128 bytes" in failure.message
    assert len((await pull(transport, addr, 0, max_messages=3)).messages) == 3


@pytest.mark.parametrize("size", [64 * 1024, 256 * 1024])
async def test_large_messages_are_counted_as_small_ones_are_and_need_memory_for_their_size(
    brokers: RedisBrokers, size: int
) -> None:
    transport, addr = brokers.open(max_length=20), await brokers.add()
    for _ in range(60):
        await transport.send(addr, QUEUE, [of_size(size)], timeout_seconds=30)
    length, memory = [
        int((await brokers.server(addr).command(*words)).removeprefix(":"))
        for words in (("XLEN", KEY), ("MEMORY", "USAGE", KEY, "SAMPLES", "0"))
    ]
    assert 20 <= length <= 30
    assert 1.0 < memory / (length * size) < 1.3


async def test_a_connection_that_breaks_before_the_response_leaves_the_result_of_a_send_unknown(
    brokers: RedisBrokers,
) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a")
    await pull(transport, addr, 0)
    await brokers.hang(addr)
    sending, pulling = asyncio.create_task(send(transport, addr, "b")), asyncio.create_task(pull(transport, addr, 0))
    await asyncio.sleep(0.2)
    await brokers.take_down(addr)
    with pytest.raises(BrokerTimeoutError, match="connection broke"):
        await sending
    with pytest.raises(BrokerUnreachableError):
        await pulling


async def test_after_a_timeout_the_next_call_has_a_new_connection(brokers: RedisBrokers) -> None:
    addr = await brokers.add()
    transport = brokers.open()
    async with cut_proxy(brokers.server(addr).addr) as proxy:
        await send(transport, proxy.addr, "a")
        await pull(transport, proxy.addr, 0)
        proxy.cut()
        proxy.repair()
        with pytest.raises(BrokerTimeoutError):
            await send(transport, proxy.addr, "b", timeout_seconds=0.2)
        with pytest.raises(BrokerTimeoutError):
            await pull(transport, proxy.addr, 0, timeout_seconds=0.2)
        assert (await send(transport, proxy.addr, "c")).queue_offsets == (1,)
        assert len((await pull(transport, proxy.addr, 0)).messages) == 2
        assert proxy.connections == 4
        await transport.close()


async def test_each_of_several_calls_without_a_response_ends_at_its_deadline(brokers: RedisBrokers) -> None:
    addr = await brokers.add()
    transport = brokers.open()
    async with cut_proxy(brokers.server(addr).addr) as proxy:
        await send(transport, proxy.addr, "a")
        proxy.cut()
        began_at, ends = time.monotonic(), list[tuple[str, float]]()

        async def one(timeout_seconds: float) -> None:
            with pytest.raises(BrokerTimeoutError) as failed:
                await send(transport, proxy.addr, "b", timeout_seconds=timeout_seconds)
            ends.append((failed.value.message, time.monotonic() - began_at))

        await asyncio.gather(one(0.9), one(0.3), one(0.6))
        assert [text for text, _ in ends] == [f"no response within {seconds} s" for seconds in (0.3, 0.6, 0.9)]
        assert all(seconds >= wanted for (_, seconds), wanted in zip(ends, (0.3, 0.6, 0.9), strict=True))
        await transport.close()


async def test_a_caller_whose_own_deadline_comes_first_does_not_keep_a_silent_connection(brokers: RedisBrokers) -> None:
    addr = await brokers.add()
    transport = brokers.open()
    async with cut_proxy(brokers.server(addr).addr) as proxy:
        await send(transport, proxy.addr, "a")
        proxy.cut()
        proxy.repair()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await send(transport, proxy.addr, "b", timeout_seconds=0.2)
        await asyncio.sleep(0.05)
        assert (await send(transport, proxy.addr, "c")).queue_offsets == (1,)
        await transport.close()


async def test_a_broker_has_three_connections_for_any_number_of_calls(brokers: RedisBrokers) -> None:
    transport, addr = brokers.open(), await brokers.add()
    queues = [MessageQueue("orders", "c1", "a", number) for number in range(100)]
    waiting = [
        asyncio.create_task(
            transport.pull(addr, queue, 0, max_messages=1, wait_seconds=20, timeout_seconds=5, reader=READER)
        )
        for queue in queues
    ]
    await asyncio.gather(*(send(transport, addr, "a") for _ in range(100)))

    async def are_connected() -> bool:
        # Including this one; the server may notice late that an earlier one is closed.
        return "connected_clients:4\r\n" in await brokers.server(addr).bulk("INFO", "clients")

    await read_until(are_connected)
    assert sum(task.done() for task in waiting) <= 1  # that of the queue with messages
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_dropped_broker_is_disconnected(brokers: RedisBrokers) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a")
    await pull(transport, addr, 0)
    transport.forget(addr)
    await brokers.server(addr).until_info("clients", "connected_clients:1\r\n")


async def test_acknowledged_messages_are_there_after_a_kill(brokers: RedisBrokers) -> None:
    # With everysec, Redis delays the write after a slow fsync, for up to two seconds.
    transport, addr = brokers.open(), await brokers.add("--appendfsync", "always")
    taken: dict[int, str] = {}

    async def produce(name: str) -> None:
        for number in range(10_000):
            body = f"{name}-{number}"
            receipt = await send(transport, addr, body)
            taken[receipt.queue_offsets[0]] = body

    tasks = [asyncio.create_task(produce(str(name))) for name in range(8)]
    await eventually(lambda: len(taken) > 100)
    await brokers.take_down(addr)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, BrokerTimeoutError | BrokerUnreachableError) for end in ends), ends
    await brokers.bring_up(addr)
    found: dict[int, str] = {}
    while pulled := (await pull(transport, addr, len(found))).messages:
        found |= {message.queue_offset: message.body.decode() for message in pulled}
    assert {offset: found.get(offset) for offset in taken} == taken


async def test_messages_beyond_their_age_are_removed_after_a_send(brokers: RedisBrokers) -> None:
    clock = ManualClock(utc=BORN_AT)
    addr = await brokers.add()
    transport = RedisStreamsTransport(max_age_seconds=3600, clock=clock)
    brokers.transport = transport
    old = [outgoing(str(number), born_at=BORN_AT + timedelta(minutes=number)) for number in range(100)]
    await transport.send(addr, QUEUE, old, timeout_seconds=5)
    await clock.advance(7200)
    await send(transport, addr, "new")
    await eventually(lambda: transport.trimmed_by_age)
    first = await transport.min_offset(addr, QUEUE, timeout_seconds=5)
    # Complete nodes of ten are removed: those older than an hour, except the last of them.
    assert first == transport.trimmed_by_age
    assert 50 <= first <= 60


async def test_a_hanging_broker_does_not_delay_another(brokers: RedisBrokers) -> None:
    transport, hanging, well = brokers.open(), await brokers.add(), await brokers.add()
    await send(transport, hanging, "a")
    await brokers.hang(hanging)
    stuck = asyncio.create_task(send(transport, hanging, "b", timeout_seconds=60))
    await asyncio.sleep(0)
    await send(transport, well, "a")
    assert not stuck.done()
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck


def test_without_redis_py_one_line_names_what_to_install() -> None:
    program = "import sys; sys.modules['redis'] = None; import pointsman_client; import pointsman_client.memory\n"
    program += "import pointsman_client.redis_streams"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = ran.stderr.strip().splitlines()[-1]
    assert last == "ImportError: RedisStreamsTransport needs the redis package: pip install 'pointsman-client[redis]'"
