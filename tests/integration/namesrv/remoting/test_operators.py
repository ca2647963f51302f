"""Changes by mqadmin: on the disk before the success response, checked as over gRPC, present after a restart."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from pointsman_namesrv.core.model import GroupKey
from tests.kit.broker.rocketmq.frames import ask, broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.name_server.gated_store import GatedStore
from tests.kit.name_server.in_process import running_name_server
from tests.kit.waiting import eventually

A = GroupKey("DefaultCluster", "broker-a")
PUT = {"namespace": "n", "key": "k", "value": "v"}
CHANGES = [
    pytest.param(100, PUT, id="put"),
    pytest.param(102, {"namespace": "n", "key": "there"}, id="delete-key"),
    pytest.param(205, {"brokerName": "broker-a"}, id="wipe"),
    pytest.param(327, {"brokerName": "broker-b"}, id="give-back"),
    pytest.param(216, {"topic": "TopicTest", "clusterName": "DefaultCluster"}, id="delete-topic"),
]


@asynccontextmanager
async def serving(clock: ManualClock, state: Path) -> AsyncIterator[tuple[NameServerApp, RemotingPeer]]:
    async with (
        running_name_server(clock=clock, snapshot=state, remoting=RemotingConfig(listen="127.0.0.1:0")) as app,
        remoting_peer(app.remoting_addr) as peer,
    ):
        yield app, peer


async def registered(peer: RemotingPeer, name: str = "broker-a", counter: int = 1) -> None:
    addr = f"10.0.0.{ord(name[-1])}:10911"
    peer.send(register(broker_ext(name, addr=addr), register_body(counter=counter)))
    assert (await peer.answer()).code == 0


async def prepared(peer: RemotingPeer) -> None:
    await registered(peer)
    await registered(peer, "broker-b")
    assert (await peer.ask(205, {"brokerName": "broker-b"})).code == 0
    assert (await peer.ask(100, PUT | {"key": "there"})).code == 0


async def shown(peer: RemotingPeer) -> object:
    """The state that these changes affect."""
    kv = (await peer.ask(219, {"namespace": "n"})).body
    route = await peer.ask(105, {"topic": "TopicTest"})
    return kv, route.code, route.body


@pytest.mark.parametrize(("code", "ext"), CHANGES)
async def test_a_change_gets_its_response_and_is_visible_once_it_is_saved(
    clock: ManualClock, tmp_path: Path, gated: list[GatedStore], code: int, ext: dict[str, str]
) -> None:
    async with serving(clock, tmp_path / "state") as (server, peer):
        await prepared(peer)
        (store,) = gated
        store.writes.clear()
        store.gate.clear()
        async with remoting_peer(server.remoting_addr) as other:
            before = await shown(other)
            peer.send(ask(code, ext, opaque=5) + ask(999, opaque=6))
            await eventually(lambda: store.writes)
            assert await shown(other) == before
            store.gate.set()
            answers = [await peer.answer(), await peer.answer()]
            assert [(answer.command.opaque, answer.code) for answer in answers] == [(5, 0), (6, 3)]
            assert await shown(other) != before


@pytest.mark.parametrize(("code", "ext"), CHANGES)
async def test_a_change_that_cannot_be_written_to_disk_is_not_made_and_fails_with_1(
    clock: ManualClock, tmp_path: Path, gated: list[GatedStore], code: int, ext: dict[str, str]
) -> None:
    async with serving(clock, tmp_path / "state") as (_, peer):
        await prepared(peer)
        before = await shown(peer)
        gated[0].refuses = OSError(errno.ENOSPC, "No space left on device")
        answer = await peer.ask(code, ext)
        gated[0].refuses = None
        assert answer.code == 1
        assert "could not be saved" in (answer.command.remark or "")
        assert "No space left on device" in (answer.command.remark or "")
        assert await shown(peer) == before


async def test_a_change_continues_when_its_connection_ends(
    clock: ManualClock, tmp_path: Path, gated: list[GatedStore]
) -> None:
    async with serving(clock, tmp_path / "state") as (server, peer):
        (store,) = gated
        store.gate.clear()
        async with remoting_peer(server.remoting_addr) as impatient:
            impatient.send(ask(100, PUT))
            await eventually(lambda: store.writes)
        store.gate.set()
        await eventually(lambda: server.core.kv.get("n", "k") == "v")
        assert (await peer.ask(101, {"namespace": "n", "key": "k"})).command.ext == {"value": "v"}


async def test_a_wipe_of_one_name_in_two_clusters_is_one_change(
    clock: ManualClock, tmp_path: Path, gated: list[GatedStore]
) -> None:
    async with serving(clock, tmp_path / "state") as (server, peer):
        await registered(peer)
        peer.send(
            register(
                broker_ext(addr="10.0.0.9:1") | {"clusterName": "c2"},
                register_body({"a": topic_config("a"), "b": topic_config("b")}),
            )
        )
        assert (await peer.answer()).code == 0
        (store,) = gated
        store.writes.clear()
        assert (await peer.ask(205, {"brokerName": "broker-a"})).command.ext == {"wipeTopicCount": "4"}
        assert len(store.writes) == 1
        assert set(server.core.overrides.wipes) == {A, GroupKey("c2", "broker-a")}
