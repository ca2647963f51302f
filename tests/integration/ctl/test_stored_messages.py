"""Messages of both kinds of brokers, as the commands about messages read and send them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import grpc.aio
import pytest

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.v1 import broker_pb2
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_client import (
    BrokerError,
    BrokerRefusedError,
    BrokerUnreachableError,
    InvalidMessageError,
    Message,
    MessageQueue,
    NoBrokerUpError,
    QueueUnavailableError,
    TopicNotFoundError,
    UnreadableMessageError,
)
from pointsman_ctl.options.access_options import ACCESS_OPTIONS, Access, read_access
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.servers.stored_messages import (
    FIRST_PULL,
    PULL_BYTES,
    READER,
    BrokerKind,
    HeldQueue,
    RedisPackageMissingError,
    StaticTopicError,
    StoredMessages,
    of_every,
    outgoing,
)
from tests.kit.broker.redis.process import free_port, redis_process
from tests.kit.broker.rocketmq.fake_broker import FakeBroker
from tests.kit.broker.rocketmq.frames import broker_ext, mapping_info, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.broker.rocketmq.stored_messages import stored_message
from tests.kit.broker.under_test import BORN_AT
from tests.kit.certificates import Authority
from tests.kit.ctl.both_brokers import BothBrokers, both_brokers
from tests.kit.name_server import wire

pytestmark = pytest.mark.redis

KINDS = {"red": BrokerKind.REDIS, "rocket": BrokerKind.ROCKETMQ}
of_both = pytest.mark.parametrize("name", KINDS)


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[BothBrokers]:
    async with both_brokers(tmp_path) as found:
        yield found


@pytest.fixture
async def messages(brokers: BothBrokers) -> AsyncIterator[StoredMessages]:
    async with brokers.invocation().stored_messages() as found:
        yield found


async def queue_of(messages: StoredMessages, name: str, queue_id: int = 1) -> HeldQueue:
    held = [each for each in await messages.queues("orders") if each.queue.broker_name == name]
    return held[queue_id]


async def bodies(messages: StoredMessages, held: HeldQueue, begin: int, end: int) -> list[bytes]:
    return [message.body async for message in messages.read(held, begin, end)]


async def test_queues_have_the_kind_and_address_of_their_broker(messages: StoredMessages, brokers: BothBrokers) -> None:
    held = await messages.queues("orders")
    assert [(each.name, each.kind, each.addr) for each in held] == [
        (f"c1/{name}/{queue_id}", kind, brokers.addrs[name]) for name, kind in KINDS.items() for queue_id in range(2)
    ]
    assert all(each.is_readable and each.is_writable for each in held)
    assert await messages.queues("orders", "c1") == held


async def test_a_rocketmq_broker_that_an_agent_registered_is_read_as_one(
    messages: StoredMessages, brokers: BothBrokers
) -> None:
    facts = {"agent_version": "0.2.0", "agent_addr": "127.0.0.1:1"}
    async with FakeBroker() as other, grpc.aio.insecure_channel(brokers.name_server.addr) as channel:
        who = wire.identity("beside", addr=other.addr)
        request = wire.registration(wire.topic("bills", 1), who=who, **facts)  # type: ignore[arg-type]  # of the broker
        await RegistrationServiceStub(channel).RegisterBroker(request)
        (held,) = await messages.queues("bills")
        assert (held.kind, held.addr) == (BrokerKind.ROCKETMQ, other.addr)
        await messages.send(held, [outgoing(Message("bills", b"x"))])
        assert await bodies(messages, held, 0, 1) == [b"x"]
        # One that does not respond is shown as what its agent most often is beside.
        await other.stop()
        async with brokers.invocation().stored_messages() as again:
            assert [each.kind for each in await again.queues("bills")] == [BrokerKind.REDIS]
        await other.start()


@of_both
async def test_a_queue_is_read_within_bounds_without_a_trace(
    messages: StoredMessages, brokers: BothBrokers, name: str
) -> None:
    held = await queue_of(messages, name)
    assert await messages.bounds(held) == (0, 0)
    assert await bodies(messages, held, 0, 0) == []
    await brokers.store(name, 1, *(b"%d" % number for number in range(600)), tags="paid", keys=("4711",))

    assert await messages.bounds(held) == (0, 600)
    assert await bodies(messages, held, 0, 600) == [b"%d" % number for number in range(600)]
    assert await bodies(messages, held, 7, 9) == [b"7", b"8"]
    assert await bodies(messages, held, 598, 9_999) == [b"598", b"599"]
    first = await anext(messages.read(held, 0, 1))
    assert (first.tags, first.keys, first.queue) == ("paid", ("4711",), held.queue)
    pulls = [each.ext for each in brokers.rocketmq.requests if each.code == Request.PULL_MESSAGE]
    # Bit 1 of sysFlag commits an offset.
    assert {(each["consumerGroup"], int(each["sysFlag"]) & 1) for each in pulls} <= {(READER.group, 0)}
    assert Request.HEART_BEAT not in brokers.rocketmq.codes()
    assert Request.UPDATE_CONSUMER_OFFSET not in brokers.rocketmq.codes()


async def test_removed_messages_are_passed_over(messages: StoredMessages, brokers: BothBrokers) -> None:
    held = await queue_of(messages, "red")
    await brokers.store("red", 1, b"0", b"1", b"2", b"3")
    await brokers.redis.command("XDEL", "orders:queue:1", "0-1", "0-3")
    assert await messages.bounds(held) == (1, 4)
    assert await bodies(messages, held, 0, 4) == [b"1", b"3"]


@of_both
async def test_the_offset_of_a_time_is_that_of_the_first_message_from_then(
    messages: StoredMessages, brokers: BothBrokers, name: str
) -> None:
    held = await queue_of(messages, name)
    for second in range(3):
        await brokers.store(name, 1, b"%d" % second, born_at=BORN_AT + timedelta(seconds=second))
    moments = [BORN_AT + timedelta(seconds=seconds) for seconds in (-1, 1, 1.5, 9)]
    assert [await messages.offset_at(held, moment) for moment in moments] == [0, 1, 2, 3]


@of_both
async def test_a_pull_holds_no_more_than_its_bytes(messages: StoredMessages, brokers: BothBrokers, name: str) -> None:
    await brokers.store(name, 1, *[bytes(4 * 1024 * 1024)] * 5)
    held = await queue_of(messages, name)
    asked = list[int]()
    pull = messages._transport(held.kind).pull

    async def counted(*arguments: object, max_messages: int, **more: object) -> object:
        asked.append(max_messages)
        return await pull(*arguments, max_messages=max_messages, **more)  # type: ignore[arg-type]

    messages._transport(held.kind).pull = counted  # type: ignore[method-assign, assignment]
    assert len(await bodies(messages, held, 0, 5)) == 5
    assert asked == [FIRST_PULL, 1]
    await brokers.store(name, 0, *[bytes(1024 * 1024)] * 14)
    asked.clear()
    assert len(await bodies(messages, await queue_of(messages, name, 0), 0, 14)) == 14
    assert asked == [FIRST_PULL, PULL_BYTES // (1024 * 1024), 2]


async def test_an_unreadable_message_is_named_and_reading_continues_after_it(
    messages: StoredMessages, brokers: BothBrokers
) -> None:
    held = await queue_of(messages, "rocket")
    await brokers.rocketmq.append("orders", 1, [stored_message(b"0"), stored_message(b"1", offset=1, crc=7)])
    await brokers.rocketmq.append("orders", 1, [stored_message(b"2", offset=2)])
    found = list[bytes]()
    with pytest.raises(UnreadableMessageError) as raised:
        found += [message.body async for message in messages.read(held, 0, 3)]
    assert raised.value.offset == 1
    assert await bodies(messages, held, 2, 3) == [b"2"]


@of_both
async def test_a_message_is_sent_to_its_queue_and_no_queue_is_trimmed(
    messages: StoredMessages, brokers: BothBrokers, name: str
) -> None:
    await brokers.store(name, 1, b"before")
    held = await queue_of(messages, name)
    sent = outgoing(Message("orders", b"new", keys=("7",), properties={"by": "test"}), now=BORN_AT)
    receipt = await messages.send(held, [sent])
    assert receipt.queue_offsets == (1,)
    (found,) = [message async for message in messages.read(held, 1, 2)]
    assert (found.body, found.keys, dict(found.properties)) == (b"new", ("7",), {"by": "test"})
    assert (found.message_id, found.born_at) == (sent.message_id, BORN_AT)
    # A producer's limit would remove older messages.
    assert "MAXLEN" not in await brokers.redis.bulk("INFO", "commandstats")
    transport = messages._transport(BrokerKind.REDIS)
    assert transport._options.max_length is None  # type: ignore[attr-defined]


async def test_a_delay_is_refused_where_brokers_have_none(messages: StoredMessages) -> None:
    late = outgoing(Message("orders", b"x", deliver_at=BORN_AT), now=BORN_AT)
    with pytest.raises(InvalidMessageError, match="is not supported with Redis"):
        await messages.send(await queue_of(messages, "red"), [late])


async def register_more(brokers: BothBrokers, broker: dict[str, str], **topics: dict[str, object]) -> RemotingPeer:
    """Register another RocketMQ broker for as long as the connection stays open."""
    peer = await brokers.connections.enter_async_context(remoting_peer(brokers.name_server.remoting_addr))
    tables = {name: topic_config(name, **config) for name, config in (topics | {"another": {}}).items()}
    static = {name: mapping_info(broker["brokerName"], {0: 0}, topic=name) for name in topics if name == "fixed"}
    peer.send(register(broker, register_body(tables, topicQueueMappingInfoMap=static)))
    assert (await peer.answer()).code == 0
    return peer


async def test_a_queue_without_permission_takes_no_message(messages: StoredMessages, brokers: BothBrokers) -> None:
    shut = broker_ext("shut", 0, "10.0.0.7:10911", clusterName="c1")
    await register_more(brokers, shut, orders={"perm": 4, "readQueueNums": 3, "writeQueueNums": 1})
    shrunk = broker_ext("shrunk", 0, "10.0.0.8:10911", clusterName="c1")
    await register_more(brokers, shrunk, orders={"readQueueNums": 1, "writeQueueNums": 2})
    held = {each.name: each for each in await messages.queues("orders")}
    assert [(each.is_readable, each.is_writable) for name, each in held.items() if "shut" in name] == [
        (True, False)
    ] * 3
    assert [(each.is_readable, each.is_writable) for name, each in held.items() if "shrunk" in name] == [
        (True, True),
        (False, True),
    ]
    with pytest.raises(QueueUnavailableError, match="queue 0 of orders on c1/shut cannot be written: it has no write"):
        await messages.send(held["c1/shut/0"], [outgoing(Message("orders", b"x"))])


async def test_without_a_master_a_replica_is_read_and_takes_no_message(
    messages: StoredMessages, brokers: BothBrokers
) -> None:
    slave = broker_ext("slave", 2, "10.0.0.9:10911", clusterName="c1", enableActingMaster="true")
    await register_more(brokers, slave, orders={"readQueueNums": 1, "writeQueueNums": 1})
    (held,) = [each for each in await messages.queues("orders") if each.queue.broker_name == "slave"]
    assert (held.addr, held.is_readable, held.is_writable) == ("10.0.0.9:10911", True, False)


async def test_topics_without_queues_say_why(messages: StoredMessages, brokers: BothBrokers) -> None:
    with pytest.raises(TopicNotFoundError):
        await messages.queues("absent")
    await register_more(brokers, broker_ext("s", 0, "10.0.0.9:10911", clusterName="c1"), fixed={})
    with pytest.raises(StaticTopicError, match="use mqadmin"):
        await messages.queues("fixed")
    health = broker_pb2.BrokerHealth(status=broker_pb2.PROBE_STATUS_FAILING, ever_passed=True)
    out = wire.registration(wire.topic("gone"), who=wire.identity("out"), agent_version="0.2.0", health=health)
    async with grpc.aio.insecure_channel(brokers.name_server.addr) as channel:
        await RegistrationServiceStub(channel).RegisterBroker(out)
    with pytest.raises(NoBrokerUpError, match="c1/out/0"):
        await messages.queues("gone")


async def test_every_queue_has_its_result_or_its_failure(messages: StoredMessages, brokers: BothBrokers) -> None:
    await brokers.store("rocket", 0, b"x")
    held = await messages.queues("orders")
    brokers.redis.kill()
    found = [(each.name, result) for each, result in await of_every(held, messages.bounds)]
    assert [isinstance(result, BrokerUnreachableError) for _, result in found] == [True, True, False, False]
    assert found[2:] == [("c1/rocket/0", (0, 1)), ("c1/rocket/1", (0, 0))]


async def test_a_redis_account_comes_from_the_options(tmp_path: Path) -> None:
    async with both_brokers(tmp_path) as brokers:
        await brokers.redis.command("ACL", "SETUSER", "ops", "on", ">hunter2", "~*", "+@all")
        await brokers.redis.command("ACL", "SETUSER", "default", "off")
        async with brokers.invocation().stored_messages() as messages:
            held = await queue_of(messages, "red")
            with pytest.raises(BrokerRefusedError, match="check username and password"):
                await messages.bounds(held)
        access = Access(redis_username="ops", redis_password="hunter2")
        assert "hunter2" not in repr(access) + repr(access.to_redis())
        async with brokers.invocation(access).stored_messages() as messages:
            assert await messages.bounds(held) == (0, 0)


async def test_redis_brokers_are_connected_to_with_tls_and_a_client_certificate(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("server")
    port = free_port()
    options = ["--tls-port", str(port), "--tls-ca-cert-file", str(files.ca)]
    options += ["--tls-cert-file", str(files.certificate), "--tls-key-file", str(files.key)]
    held = HeldQueue(MessageQueue("orders", "c1", "red", 0), f"127.0.0.1:{port}", BrokerKind.REDIS)
    given = {"tls_ca": str(files.ca), "tls_certificate": str(files.certificate), "tls_key": str(files.key)}
    async with redis_process(tmp_path / "redis", options=options):
        for more, is_open in ((given | {"redis_tls": True}, True), ({"redis_tls": True}, False), (given, False)):
            access = read_access({**dict.fromkeys(ACCESS_OPTIONS, ""), **more})
            async with Invocation(("127.0.0.1:1",), "table", 5.0, access).stored_messages() as messages:
                if is_open:
                    await messages.send(held, [outgoing(Message("orders", b"x"))])
                    assert await bodies(messages, held, 0, 1) == [b"x"]
                    assert await messages.senders(held) != []
                else:
                    with pytest.raises(BrokerError):
                        await messages.bounds(held)
                    with pytest.raises(BrokerError):
                        await messages.senders(held)


async def test_without_the_redis_package_a_line_says_what_to_install(
    messages: StoredMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pointsman_client.redis_streams", None)
    with pytest.raises(RedisPackageMissingError, match=r"pip install 'pointsman-client\[redis\]'"):
        await messages.bounds(await queue_of(messages, "red"))
    assert await messages.bounds(await queue_of(messages, "rocket")) == (0, 0)
