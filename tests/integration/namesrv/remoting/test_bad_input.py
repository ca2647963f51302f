"""Foreign, faulty and greedy traffic on the port: it gets a response or is closed, is counted, affects no other."""

from __future__ import annotations

import asyncio
import struct
import zlib
from contextlib import AsyncExitStack

import pytest

from pointsman.daemon import waiting_bytes
from pointsman.daemon.http_server import CannotListen
from pointsman.daemon.waiting_bytes import FRAME_SECONDS, RELIEF_SECONDS, SLOW_SECONDS
from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.frames import BINARY_FORM, MAX_FRAME_BYTES
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig, RoutesConfig
from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.core.staging import COMING_IN_LIMIT
from pointsman_namesrv.remoting import remoting_server as shell
from tests.kit.broker.rocketmq import frames as recorded
from tests.kit.broker.rocketmq.frames import ask, broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.waiting import eventually

A = GroupKey("DefaultCluster", "broker-a")


def closed(server: NameServerApp, cause: str) -> float:
    name = "pointsman_namesrv_remoting_connections_closed_total"
    return server.metrics.registry.get_sample_value(name, {"cause": cause}) or 0.0


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "http"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "tls"),
        (b"\x00\x00\x00\x02xx", "length"),
        (MAX_FRAME_BYTES.to_bytes(4, "big"), "length"),
        (struct.pack(">II", 20, 30), "length"),
        (struct.pack(">II", 20, 2 << 24 | 4) + bytes(16), "encoding"),
        (struct.pack(">II", 8, 4) + b"oops", "header"),
        (struct.pack(">II", 8, BINARY_FORM << 24 | 4) + b"oops", "header"),
        (struct.pack(">II", 4, 0), "header"),
        (b"PROXY TCP4 " + b"1" * 200, "proxy"),
    ],
)
async def test_bytes_that_are_not_a_frame_close_the_connection_without_a_response(
    server: NameServerApp, data: bytes, cause: str
) -> None:
    async with remoting_peer(server.remoting_addr) as stranger, remoting_peer(server.remoting_addr) as client:
        stranger.send(data)
        await stranger.until_closed()
        assert await client.is_answered()
    assert closed(server, cause) == 1


async def test_responses_before_a_bad_frame_are_sent(rocketmq: RemotingPeer) -> None:
    rocketmq.send(ask(106) + b"GET / HTTP/1.1\r\n\r\n")
    assert (await rocketmq.answer()).code == 0
    await rocketmq.until_closed()


async def test_a_proxy_header_is_skipped(rocketmq: RemotingPeer) -> None:
    rocketmq.send(b"PROXY TCP4 10.0.0.1 10.0.0.2 50000 9876\r\n")
    assert await rocketmq.is_answered()


async def test_a_frame_cut_anywhere_waits_for_its_end(server: NameServerApp) -> None:
    data = recorded.request("105_producer533_r0")
    for cut in range(1, len(data), 7):
        async with remoting_peer(server.remoting_addr) as peer:
            peer.send(data[:cut])
            await asyncio.sleep(0)
            peer.send(data[cut:])
            assert (await peer.answer()).code == 17


@pytest.mark.parametrize(
    "name", ["103_broker533_1topic_r0", "104_broker533_r0", "105_producer533_r0", "322_broker533b_r0"]
)
async def test_flipped_bits_get_a_response_or_close_the_connection(server: NameServerApp, name: str) -> None:
    data = recorded.request(name)
    for at in range(0, len(data), 5):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        async with remoting_peer(server.remoting_addr) as peer:
            peer.send(bytes(flipped))
            peer.writer.write_eof()
            await peer.drain_to_end()
    async with remoting_peer(server.remoting_addr) as peer:
        assert await peer.is_answered()


async def test_one_way_on_everything_that_was_recorded(rocketmq: RemotingPeer) -> None:
    for name in recorded.REQUESTS:
        rocketmq.send(recorded.request(name).replace(b'"flag":0', b'"flag":2'))
    assert await rocketmq.is_answered()


@pytest.mark.parametrize(
    "ext",
    [
        {"brokerAddr": "nowhere"},
        {"brokerAddr": "10.0.0.1:99999"},
        {"brokerName": ""},
        {"brokerName": "a b"},
        {"brokerName": "x" * 300},
        {"clusterName": "\ud800"},
        {"brokerId": "9" * 30},
        {"brokerId": "99999999999"},
        {"brokerId": ""},
        {"bodyCrc32": "x"},
        {"heartbeatTimeoutMillis": "soon"},
    ],
)
async def test_an_absurd_field_gets_a_response_with_its_name(
    rocketmq: RemotingPeer, server: NameServerApp, ext: dict[str, str]
) -> None:
    rocketmq.send(register(ext))
    answer = await rocketmq.answer()
    assert answer.code == 1
    assert answer.command.remark
    assert not server.core.routes.groups


async def test_odd_but_harmless_fields_cost_themselves(rocketmq: RemotingPeer, server: NameServerApp) -> None:
    odd = {"haServerAddr": "null", "heartbeatTimeoutMillis": "999999999999", "__ZONE_NAME": "a\nb", "more": "x"}
    rocketmq.send(register(odd))
    assert (await rocketmq.answer()).code == 0
    registration = server.core.routes.groups[A].replicas[0].registration
    assert (registration.ha_addr, registration.zone, registration.expiry) == ("", "", 3_600.0)


async def test_a_bad_topic_costs_itself_and_is_counted(rocketmq: RemotingPeer, server: NameServerApp) -> None:
    body = register_body({"good": topic_config("good"), "bad topic": topic_config("bad topic"), "none": {"perm": "x"}})
    rocketmq.send(register(body=body))
    assert (await rocketmq.answer()).code == 0
    assert (await rocketmq.ask(206)).json() == {"topicList": ["good"]}
    assert server.metrics.registry.get_sample_value("pointsman_namesrv_remoting_topics_skipped_total") == 2


async def test_a_zip_bomb_is_refused(rocketmq: RemotingPeer) -> None:
    rocketmq.send(register(body=zlib.compress(bytes(80_000_000))))
    answer = await rocketmq.answer()
    assert answer.code == 1
    assert "inflates to more than" in (answer.command.remark or "")


async def test_a_compressed_registration_is_read_with_any_header(rocketmq: RemotingPeer) -> None:
    def sized(text: bytes) -> bytes:
        return struct.pack(">i", len(text)) + text

    topics = [b"TopicTest 8 8 6 SINGLE_TAG {}", b"TBW102 8 8 7 SINGLE_TAG"]
    version = b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}'
    parts = [sized(version), struct.pack(">i", len(topics)), *map(sized, topics), sized(b"[]"), struct.pack(">i", 0)]
    rocketmq.send(register({"compressed": "false"}, zlib.compress(b"".join(parts))))
    assert (await rocketmq.answer()).code == 0
    assert (await rocketmq.ask(206)).json() == {"topicList": ["TBW102", "TopicTest"]}


async def test_one_name_in_two_clusters_is_given_once(rocketmq: RemotingPeer) -> None:
    for cluster, addr in (("c1", "10.0.0.1:1"), ("c2", "10.0.0.2:1")):
        rocketmq.send(register(broker_ext(addr=addr) | {"clusterName": cluster}))
        assert (await rocketmq.answer()).code == 0
    route = (await rocketmq.ask(105, {"topic": "TopicTest"})).json()
    assert [data["cluster"] for data in route["brokerDatas"]] == ["c1"]
    assert len(route["queueDatas"]) == 1
    info = (await rocketmq.ask(106)).json()
    assert info["clusterAddrTable"] == {"c1": ["broker-a"], "c2": ["broker-a"]}
    assert info["brokerAddrTable"]["broker-a"]["cluster"] == "c1"


# --- bounds -------------------------------------------------------------------------------------------------------


def half_frame(size: int) -> bytes:
    """The beginning of a large frame."""
    return struct.pack(">II", 10_000_000, 100) + bytes(size - 8)


async def test_frames_that_never_end_are_bounded_together_and_a_fast_one_only_waits(
    server: NameServerApp, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(server).coming_in.bound = 300_000
    monkeypatch.setattr(waiting_bytes, "MOST_COMING_IN", 5.0)  # one read may be that much
    table = {f"a-topic-with-a-long-name-{i}": topic_config("t") for i in range(2_000)}
    frame = register(body=register_body(table))
    assert len(frame) > 200_000
    async with (
        remoting_peer(server.remoting_addr) as slow,
        remoting_peer(server.remoting_addr) as slower,
        remoting_peer(server.remoting_addr) as broker,
    ):
        slow.send(half_frame(150_000))
        slower.send(half_frame(100_000))
        await eventually(lambda: running(server).coming_in.total == 250_000)
        broker.send(frame[:150_000])
        await eventually(lambda: running(server).coming_in.total > 300_000)
        assert closed(server, "limit") == 0, "none of them is slow yet"
        await clock.advance(SLOW_SECONDS + RELIEF_SECONDS)
        await slower.until_closed()
        broker.send(frame[150_000:])
        answering = asyncio.create_task(broker.answer())
        await eventually(answering.done, clock=clock, step=0.005)
        assert answering.result().code == 0
        assert closed(server, "limit") <= 2
        async with remoting_peer(server.remoting_addr) as client:
            assert await client.is_answered()
    await eventually(lambda: server.metrics.registry.get_sample_value("pointsman_namesrv_remoting_connections") == 0)
    assert running(server).coming_in.total == 0
    assert not running(server).coming_in._incomplete


async def test_half_frames_keep_no_broker_out(
    server: NameServerApp, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(server).coming_in.bound = 400_000
    monkeypatch.setattr(waiting_bytes, "MOST_COMING_IN", 5.0)  # one read may be that much
    table = {f"a-topic-with-a-long-name-{i}": topic_config("t") for i in range(1_000)}
    async with AsyncExitStack() as open_:
        for size in [100_000] * 4 + [10_000] * 40:
            idle = await open_.enter_async_context(remoting_peer(server.remoting_addr))
            idle.send(half_frame(size))
        await clock.advance(SLOW_SECONDS)
        brokers = [await open_.enter_async_context(remoting_peer(server.remoting_addr)) for _ in range(10)]
        for number, broker in enumerate(brokers):
            broker.send(register(broker_ext(f"broker-{number}", addr=f"10.0.0.{number}:1"), register_body(table)))
        answers = [asyncio.create_task(broker.answer()) for broker in brokers]
        await eventually(lambda: all(each.done() for each in answers), clock=clock, step=0.005)
        assert {each.result().code for each in answers} == {0}


async def test_a_frame_has_a_time_limit_and_then_a_rate(server: NameServerApp, clock: ManualClock) -> None:
    async with (
        remoting_peer(server.remoting_addr) as idle,
        remoting_peer(server.remoting_addr) as steady,
        remoting_peer(server.remoting_addr) as dripping,
    ):
        idle.send(ask(999)[:-1])
        dripping.send(half_frame(8))
        steady.send(half_frame(1_000_000))
        await eventually(lambda: running(server).coming_in.total > 1_000_000)
        for _ in range(round(FRAME_SECONDS / shell.POLL_INTERVAL_SECONDS) + 1):
            dripping.send(b"x")
            await asyncio.sleep(0.05)
            await clock.advance(shell.POLL_INTERVAL_SECONDS)
        await idle.until_closed()
        await dripping.until_closed()
        assert closed(server, "slow") == 2
        assert len(running(server)._connections) == 1, "a megabyte at 32 kB/s takes 40 s"
        await eventually(lambda: closed(server, "slow") == 3, clock=clock, step=1.0)
        assert clock.monotonic() > 10 + (1_000_000 - 65_536) / 32_000
        await steady.until_closed()


async def test_a_pause_of_this_process_is_not_counted(server: NameServerApp, clock: ManualClock) -> None:
    request = ask(999)
    async with remoting_peer(server.remoting_addr) as peer:
        peer.send(request[:-1])
        await eventually(lambda: running(server).coming_in.total)
        clock.now += 60.0
        await clock.advance(shell.POLL_INTERVAL_SECONDS)
        assert closed(server, "slow") == 0
        peer.send(request[-1:])
        assert (await peer.answer()).code == 3


def running(server: NameServerApp) -> shell.RemotingServer:
    assert server.parts.remoting is not None
    return server.parts.remoting


async def test_clients_that_do_not_read_are_not_read_either_and_have_a_common_limit(server: NameServerApp) -> None:
    running(server).unsent.bound = 6_000_000
    table = {f"a-topic-with-a-long-name-{i}": topic_config("t") for i in range(2_000)}
    async with remoting_peer(server.remoting_addr) as broker:
        broker.send(register(body=register_body(table)))
        assert (await broker.answer()).code == 0
        async with remoting_peer(server.remoting_addr) as deaf:
            deaf.send(ask(206) * 1_000)
            await eventually(lambda: any(c.unsent for c in running(server)._connections))
            most = max(c.unsent for c in running(server)._connections)
            assert most < 2_000_000
            assert await broker.is_answered()
        running(server).unsent.bound = 100
        async with remoting_peer(server.remoting_addr) as deaf:
            deaf.send(ask(206) * 1_000)
            await eventually(lambda: closed(server, "limit") == 1)
            assert await broker.is_answered()


async def test_clients_that_read_nothing_of_a_large_response_keep_out_none_that_reads(
    server: NameServerApp, clock: ManualClock
) -> None:
    running(server).unsent.bound = 3_000_000
    table = {f"{'a-topic-with-a-long-name' * 4}-{i}": topic_config("t") for i in range(15_000)}
    async with AsyncExitStack() as open_:
        broker = await open_.enter_async_context(remoting_peer(server.remoting_addr))
        broker.send(register(body=register_body(table)))
        assert (await broker.answer()).code == 0
        few = dict(list(table.items())[:7_000])
        broker.send(register(broker_ext("broker-b", addr="10.0.0.2:1", clusterName="small"), register_body(few)))
        assert (await broker.answer()).code == 0
        size = len((await broker.ask(206)).body)
        assert size > 1_500_000
        for _ in range(60):
            deaf = await open_.enter_async_context(remoting_peer(server.remoting_addr))
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a stream
            deaf.send(ask(224, {"cluster": "small"}) * 20)
        await asyncio.sleep(0.1)
        await clock.advance(1.0)
        async with remoting_peer(server.remoting_addr) as late:  # it has the most unread bytes, for a moment
            late.writer.transport.pause_reading()  # type: ignore[attr-defined]  # as above
            late.send(ask(206, opaque=1) * 10)
            await asyncio.sleep(0.1)
            late.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
            for _ in range(10):
                answering = asyncio.create_task(late.answer())
                await eventually(answering.done, clock=clock, step=0.005)
                assert len(answering.result().body) == size
        for _ in range(10):
            async with remoting_peer(server.remoting_addr) as client:
                answering = asyncio.create_task(client.ask(206))
                await eventually(answering.done, clock=clock, step=0.005)
                assert len(answering.result().body) == size
        assert running(server).unsent.total < 4_000_000
    await eventually(lambda: server.metrics.registry.get_sample_value("pointsman_namesrv_remoting_connections") == 0)
    assert running(server).unsent.total == 0


async def test_large_responses_are_sent_in_order_and_whole(server: NameServerApp) -> None:
    table = {f"a-topic-with-a-long-name-{i}": topic_config("t") for i in range(5_000)}
    async with remoting_peer(server.remoting_addr) as peer:
        peer.send(register(body=register_body(table)))
        assert (await peer.answer()).code == 0
        for opaque in range(1, 201):
            peer.send(ask(206 if opaque % 2 else 999, opaque=opaque))
        bodies = set()
        for opaque in range(1, 201):
            answer = await peer.answer()
            assert answer.command.opaque == opaque
            bodies.add(answer.body)
        assert len(bodies) == 2
        assert len(max(bodies, key=len)) > 64 * 1024


class TestFewConnections:
    @pytest.fixture
    def remoting_config(self) -> RemotingConfig:
        return RemotingConfig(listen="127.0.0.1:0", max_connections=3)

    async def test_connections_that_only_sent_a_heartbeat_of_a_broker_are_closed_like_others(
        self, server: NameServerApp
    ) -> None:
        async with AsyncExitStack() as open_:
            broker = await open_.enter_async_context(remoting_peer(server.remoting_addr))
            broker.send(register())
            assert (await broker.answer()).code == 0
            beat = {"brokerName": "broker-a", "brokerAddr": broker_ext()["brokerAddr"], "clusterName": "DefaultCluster"}
            for _ in range(6):
                greedy = await open_.enter_async_context(remoting_peer(server.remoting_addr))
                assert (await greedy.ask(904, beat)).code == 0
            assert len(running(server)._connections) <= 4
            for _ in range(3):
                async with remoting_peer(server.remoting_addr) as client:
                    assert await client.is_answered()

    async def test_at_the_limit_connections_without_a_request_are_closed_first_and_brokers_stay(
        self, server: NameServerApp, clock: ManualClock
    ) -> None:
        async with remoting_peer(server.remoting_addr) as broker, remoting_peer(server.remoting_addr) as client:
            broker.send(register())
            assert (await broker.answer()).code == 0
            await clock.advance(1)
            assert await client.is_answered()
            await clock.advance(1)
            async with (
                remoting_peer(server.remoting_addr) as idle,
                remoting_peer(server.remoting_addr) as newcomer,
            ):
                assert await newcomer.is_answered()
                await idle.until_closed()
                async with remoting_peer(server.remoting_addr) as another:
                    assert await another.is_answered()
                    await client.until_closed()
                assert await broker.is_answered()
        assert closed(server, "limit") == 2


async def test_an_idle_connection_is_closed(server: NameServerApp, clock: ManualClock) -> None:
    async with remoting_peer(server.remoting_addr) as idle, remoting_peer(server.remoting_addr) as busy:
        assert await idle.is_answered()
        for _ in range(26):
            await clock.advance(5)
            assert await busy.is_answered()
        await idle.until_closed()
    assert closed(server, "idle") == 1


class TestFewBrokers:
    @pytest.fixture
    def routes_config(self) -> RoutesConfig:
        return RoutesConfig(max_brokers=200, max_topics=700)

    async def test_a_connection_that_registers_very_many_brokers_leaves_capacity_for_others(
        self, server: NameServerApp
    ) -> None:
        async with remoting_peer(server.remoting_addr) as greedy, remoting_peer(server.remoting_addr) as other:
            for i in range(300):
                greedy.send(register(broker_ext(f"broker-{i}", addr=f"10.0.{i // 250}.{i % 250}:1"), opaque=i))
            answers = [await greedy.answer() for _ in range(300)]
            assert [answer.code for answer in answers] == [0] * 200 + [1] * 100
            assert (answers[-1].command.remark or "").startswith("broker: this name server allows at most 200 brokers")
            other.send(register(broker_ext("other", addr="10.9.0.1:1")))
            assert (await other.answer()).code == 0
            # Its own brokers are served as before.
            greedy.send(register(broker_ext("broker-7", addr="10.0.0.7:1")))
            assert (await greedy.answer()).code == 0
        refused = {"limit": "brokers"}
        assert server.metrics.registry.get_sample_value("pointsman_namesrv_limits_exceeded_total", refused) == 100

    async def test_more_topics_than_the_node_may_hold_are_refused_with_the_limit(self, server: NameServerApp) -> None:
        async with remoting_peer(server.remoting_addr) as broker:
            many = {f"t{i}": topic_config(f"t{i}") for i in range(701)}
            broker.send(register(body=register_body(many)))
            refused = await broker.answer()
            assert refused.code == 1
            assert "at most 700 topics" in (refused.command.remark or "")
            assert not server.core.routes.groups
            broker.send(register())
            assert (await broker.answer()).code == 0


async def test_incoming_registrations_use_bounded_memory(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = server.parts.registration.calls._memory
    monkeypatch.setattr(bound, "bound", 1_000_000)
    body = register_body({f"t{i}": topic_config(f"t{i}") for i in range(4_000)})
    bomb = zlib.compress(struct.pack(">I", 30_000_000) + bytes(30_000_000))
    async with remoting_peer(server.remoting_addr) as broker, remoting_peer(server.remoting_addr) as other:
        broker.send(register(body=body))
        refused = await broker.answer()
        assert refused.code == 1
        assert COMING_IN_LIMIT in (refused.command.remark or "")
        broker.send(register(body=bomb))
        refused = await broker.answer()
        assert COMING_IN_LIMIT in (refused.command.remark or "")
        other.send(register())
        assert (await other.answer()).code == 0
    assert bound.total == 0


async def test_each_broker_is_bound_to_its_latest_connection_only(server: NameServerApp) -> None:
    async with remoting_peer(server.remoting_addr) as first, remoting_peer(server.remoting_addr) as second:
        for peer in (first, second, first):
            for i in range(5):
                peer.send(register(broker_ext(f"broker-{i}", addr=f"10.0.0.{i}:1")))
                assert (await peer.answer()).code == 0
            held = sorted(len(connection.held) for connection in running(server)._connections)
            assert held == [0, 5]
        assert await first.is_answered()
    await eventually(lambda: not running(server)._brokers._bound)


async def test_an_address_in_use_is_named(server: NameServerApp) -> None:
    with pytest.raises(CannotListen, match="is it this machine's address, and free"):
        running(server).bind(server.remoting_addr)


async def test_requests_that_are_never_equal_do_not_grow_the_cache(
    rocketmq: RemotingPeer, server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman_namesrv.remoting.requests.KNOWN_REQUESTS", 20)
    for i in range(100):
        assert (await rocketmq.ask(105, {"topic": f"t{i}"})).code == 17
    assert len(running(server).requests._known) == 20


@pytest.mark.parametrize(
    ("second", "answered"),
    [(b' "opaque" :7', [7, 7, 7]), (b'"opaque":7', [7, 7, 7]), (b'"extFields":{"opaque":7}', [7, 8, 7])],
)
async def test_a_repeated_opaque_is_left_to_the_parser(
    rocketmq: RemotingPeer, second: bytes, answered: list[int]
) -> None:
    for first, opaque in zip((7, 8, 7), answered, strict=True):
        header = b'{"code":106,"opaque":%d,"flag":0,%b}' % (first, second)
        rocketmq.send((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
        assert (await rocketmq.answer()).command.opaque == opaque


async def test_an_internal_error_gets_a_response_and_is_logged(
    rocketmq: RemotingPeer, server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(server.core.routes, "route", fails)
    answer = await rocketmq.ask(105, {"topic": "TopicTest"})
    assert answer.code == 1
    assert (answer.command.remark or "").startswith("internal error, request ")
    assert await rocketmq.is_answered()
