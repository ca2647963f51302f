"""Hostile input costs only its own call: the process continues to serve, and what is stored is clean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from hypothesis import settings
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2, broker_pb2, registration_service_pb2, route_service_pb2
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_namesrv.app import NameServerApp
from pointsman_report.cli import main
from tests.kit.faults import hostile
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer, serving
from tests.kit.waiting import eventually


def canary(channel: grpc.Channel) -> Callable[[], None]:
    """Make a check that a route is there which must be."""
    ask = RouteServiceStub(channel)

    def check() -> None:
        answer = ask.GetTopicRoute(route_service_pb2.GetTopicRouteRequest(topic="canary"), timeout=50)
        assert [broker.broker_name for broker in answer.route.broker_datas] == ["canary"]

    return check


async def violations(call: Any) -> dict[str, str]:
    """The violations that a refused call names, by field."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    rich = rpc_status.from_call(refused.value)
    assert rich is not None
    bad = error_details_pb2.BadRequest()
    for detail in rich.details:
        if detail.Unpack(bad):
            return {violation.field: violation.description for violation in bad.field_violations}
    raise AssertionError("it names no field")


@pytest.mark.timeout(900)  # a search: Hypothesis ends shrinking by itself after 300 s
async def test_no_bytes_of_a_request_cause_an_internal_error(server: NameServerApp, peer: Peer) -> None:
    who = wire.identity(name="canary", cluster="canary", addr="10.9.9.9:1")
    await peer.register("canary", who=who)

    def hammered() -> int:
        with grpc.insecure_channel(server.addr) as channel:
            check, admin = canary(channel), AdminServiceStub(channel)

            def after_batch() -> None:
                # A frame may have drained the node, which is not an error.
                admin.SetDrain(admin_service_pb2.SetDrainRequest(draining=False, by="test"), timeout=50)
                check()

            return hostile.hammer(server.addr, batch=50, after_batch=after_batch).total()

    assert await asyncio.to_thread(hammered) >= settings().max_examples


async def test_bytes_that_are_not_grpc_cost_only_their_own_connection(server: NameServerApp, peer: Peer) -> None:
    await peer.register("canary")
    for opening in hostile.wrong_bytes(seed=1, count=20):
        await hostile.send_bytes(server.addr, opening)
    await peer.route.GetTopicRoute(route_service_pb2.GetTopicRouteRequest(topic="canary"), timeout=50)


async def test_connections_that_send_a_byte_per_second_delay_no_other(server: NameServerApp, peer: Peer) -> None:
    await peer.register("canary")
    slow = [asyncio.create_task(hostile.trickle(server.addr, hostile.PREFACE, seconds=3)) for _ in range(50)]
    while not all(task.done() for task in slow):
        await peer.route.GetTopicRoute(route_service_pb2.GetTopicRouteRequest(topic="canary"), timeout=10)
        await asyncio.sleep(0.1)
    assert [task.result() for task in slow] == [None] * 50


NAMES = {
    "": "must not be empty",
    "x" * 263: "has 263 characters, at most 262 are allowed",
    "a\x00b": "may hold only letters, digits and %|_-.+: 'a\\x00b'",
    "оrders": "may hold only letters, digits and %|_-.+: '\\u043erders'",  # noqa: RUF001  # a Cyrillic o
    "\u202egnp": "may hold only letters, digits and %|_-.+: '\\u202egnp'",
}
ADDRS = {
    "": "must not be empty",
    "10.0.0.1:١": "has no port number after the colon",  # noqa: RUF001  # an Arabic digit
    "../x:1": "has no valid host before the port",
    "h" * 400 + ":1": "has 402 characters, at most 300 are allowed",
}


@pytest.mark.parametrize("name", list(NAMES), ids=range(len(NAMES)))
async def test_a_hostile_name_is_refused_by_field_and_shown_in_plain_ascii(peer: Peer, name: str) -> None:
    reg, route, admin = peer.registration, peer.route, peer.admin
    who = wire.identity(name=name, cluster=name)
    calls: dict[str, Any] = {
        "broker.identity.broker_name": reg.RegisterBroker(wire.registration(who=who)),
        "broker.identity.cluster": reg.RegisterBroker(wire.registration(who=who)),
        "topics[0].topic": reg.RegisterBroker(wire.registration(wire.topic(name))),
        "beat.identity.broker_name": reg.Heartbeat(
            registration_service_pb2.HeartbeatRequest(beat=wire.beat(1, who=who))
        ),
        "identity.cluster": reg.UnregisterBroker(
            registration_service_pb2.UnregisterBrokerRequest(identity=who, generation=1, reason=1)  # type: ignore[arg-type]  # SHUTDOWN
        ),
        "removed[0]": reg.UpdateTopics(
            registration_service_pb2.UpdateTopicsRequest(identity=wire.identity(), generation=1, removed=[name])
        ),
        "topic": route.GetTopicRoute(route_service_pb2.GetTopicRouteRequest(topic=name)),
        "broker_name": admin.EvictBroker(
            admin_service_pb2.EvictBrokerRequest(cluster="c1", broker_name=name, by="test")
        ),
        "namespace": admin.PutKv(admin_service_pb2.PutKvRequest(namespace=name, key="k", value="v", by="test")),
        "key": admin.PutKv(admin_service_pb2.PutKvRequest(namespace="n", key=name, value="v", by="test")),
    }
    for field, call in calls.items():
        found = await violations(call)
        assert found[field].startswith(NAMES[name]), field
        assert all(char.isascii() and char.isprintable() for text in found.values() for char in text)


@pytest.mark.parametrize("addr", list(ADDRS), ids=range(len(ADDRS)))
async def test_a_hostile_address_is_refused_by_field(peer: Peer, addr: str) -> None:
    found = await violations(peer.registration.RegisterBroker(wire.registration(who=wire.identity(addr=addr))))
    assert found["broker.identity.addr"].startswith(ADDRS[addr])
    if addr:
        more = wire.registration(ha_addr=addr, agent_addr=addr, filter_servers=[addr])
        found = await violations(peer.registration.RegisterBroker(more))
        assert set(found) == {"broker.ha_addr", "broker.agent_addr", "broker.filter_servers[0]"}


async def test_a_megabyte_of_labels_or_of_headers_is_refused_and_kept_nowhere(
    server: NameServerApp, peer: Peer
) -> None:
    labels = {f"k{number}": "x" * 1_000 for number in range(1_000)}
    found = await violations(peer.registration.RegisterBroker(wire.registration(labels=labels)))
    assert found["broker.labels"].startswith("may hold at most 32")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.route.GetTopicRoute(
            route_service_pb2.GetTopicRouteRequest(topic="t"), metadata=[("x-much", "x" * 1024 * 1024)], timeout=5
        )
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert list(server.core.members()) == []


@pytest.fixture
async def kept(clock: ManualClock, tmp_path: Path) -> AsyncIterator[tuple[NameServerApp, Peer]]:
    async with serving(clock=clock, history=tmp_path) as (server, peer):
        yield server, peer


async def test_the_longest_and_strangest_allowed_values_are_unchanged_in_history_and_metrics(
    kept: tuple[NameServerApp, Peer], tmp_path: Path, clock: ManualClock
) -> None:
    server, peer = kept
    strange = 'x"} 1 \\ {"event":"EXPIRED"} 🚂 оrders <script> ${jndi} %s'  # noqa: RUF001  # a Cyrillic o
    who = wire.identity(name="%|_-" * 31 + "abc", cluster="Z" * 262, addr="[fe80::1%eth0]:65535")
    more: dict[str, Any] = {"zone": strange, "host": strange, "broker_version": strange, "incarnation": strange}
    accepted = await peer.registration.RegisterBroker(
        wire.registration(wire.topic("x" * 262, queues=65_535, perm=15), who=who, labels={strange: strange}, **more)
    )
    failing = wire.beat(accepted.generation, who=who, probe=broker_pb2.PROBE_STATUS_FAILING)
    failing.health.detail = strange
    await peer.registration.Heartbeat(registration_service_pb2.HeartbeatRequest(beat=failing))
    await clock.advance(10)

    families = list(text_string_to_metric_families(generate_latest(server.metrics.registry).decode()))
    values = {value for family in families for sample in family.samples for value in sample.labels.values()}
    assert "Z" * 262 in values
    assert not any(strange in value or "\n" in value for value in values)
    assert not any(
        sample.name == "pointsman_namesrv_ready" and sample.value != 1 for f in families for sample in f.samples
    )

    await eventually(lambda: any("PROBE_FAILED" in path.read_text() for path in tmp_path.rglob("*.jsonl")))
    files = sorted(map(str, tmp_path.rglob("*.jsonl")))  # noqa: ASYNC240  # small files
    assert main(["validate", *files]) == 0
    text = "".join(Path(file).read_text(encoding="utf-8") for file in files)  # noqa: ASYNC240  # as above
    assert all(char.isprintable() or char == "\n" for char in text)
    assert strange.replace("\\", "\\\\").replace('"', '\\"') in text


@pytest.mark.parametrize("text", ["a\x00b", "a\nb", "\x1b[31m", "\u202eevil", "\u2028", "\ufeffx", "x" * 1_025])
async def test_text_that_could_deceive_a_reader_of_the_history_is_refused_by_field(peer: Peer, text: str) -> None:
    more: dict[str, Any] = dict.fromkeys(("zone", "host", "broker_version", "agent_version", "incarnation"), text)
    found = await violations(peer.registration.RegisterBroker(wire.registration(labels={"k": text}, **more)))
    assert set(found) == {f"broker.{name}" for name in more} | {"broker.labels['k']"}
    beat = wire.beat(1)
    beat.health.detail = text
    found = await violations(peer.registration.Heartbeat(registration_service_pb2.HeartbeatRequest(beat=beat)))
    assert set(found) == {"beat.health.detail"}
