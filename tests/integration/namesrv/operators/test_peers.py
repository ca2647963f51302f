"""Name servers of [peers]: compared in the background, and shown as equal, different or unreachable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from pointsman.daemon.access.access_settings import Grant
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1.admin_service_pb2_grpc import AdminServiceServicer, add_AdminServiceServicer_to_server
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import NameServerConfig, PeersConfig
from pointsman_namesrv.web import peer_comparison
from pointsman_namesrv.web.peer_comparison import PeerResult
from tests.kit.access_tokens import TokenFolder
from tests.kit.certificates import Authority
from tests.kit.http_answer import ask
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import peer_of, register_at
from tests.kit.tls_peers import tls_config
from tests.kit.waiting import eventually


def polled(*addrs: str) -> PeersConfig:
    return PeersConfig(name_servers=addrs, poll_seconds=0.1, timeout_seconds=30.0)


def result(app: NameServerApp) -> PeerResult:
    return app.parts.peers.results[0]


@pytest.mark.parametrize("peer_page", [1_000, 1])
async def test_a_peer_is_equal_until_a_route_or_a_setting_differs(
    peer_page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_comparison, "PEER_PAGE", peer_page)
    monkeypatch.setattr(peer_comparison, "WAIT_FOR_EACH_SECOND", 0.0)
    async with running_name_server() as other, running_name_server(peers=polled(other.addr)) as app:
        for addr in (other.addr, app.addr):
            await register_at(addr, "a", "b", "c")
        await eventually(lambda: (result(app).result, result(app).topics) == ("EQUAL", 3))

        async with peer_of(other.addr) as peer:
            await peer.admin.PutKv(admin.PutKvRequest(namespace="n", key="k", value="v", by="test"))
            await peer.admin.DeleteTopic(admin.DeleteTopicRequest(topic="c", force=True, by="test"))
            await eventually(lambda: result(app).differing == 1 and result(app).settings == 2)
            await eventually(lambda: result(app).in_a_row >= peer_comparison.PROBLEM_AFTER)

        assert app.metrics.registry.get_sample_value("pointsman_namesrv_peer_equal", {"peer": other.addr}) == 0
        status = (await ask(app.monitoring_port, "/v1/status?search=none")).document
        shown = status["nameServers"][0]
        assert (shown["result"], shown["differingTopics"], shown["differingSettings"]) == ("DIFFERS", 1, 2)
        assert set(shown["differing"]) == {"c", "kv n k", "hidden topic c1 a c"}
        assert f"Name server {other.addr} differs in 1 of 3 topics and 2 settings: see pointsmanctl diff." in [
            problem["text"] for problem in status["problems"]
        ]


async def test_a_node_in_its_own_list_is_recognised() -> None:
    async with running_name_server() as first:
        addr = first.addr
    async with running_name_server(listen=addr, peers=polled(addr)) as app:
        await eventually(lambda: result(app).result == "SELF")
        assert list(result(app).problems()) == []


async def test_a_peer_that_is_down_is_unreachable_until_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_comparison, "WAIT_FOR_EACH_SECOND", 0.0)
    async with running_name_server() as other:
        addr = other.addr
    async with running_name_server(peers=polled(addr)) as app:
        await eventually(lambda: "".join(result(app).problems()).startswith(f"Name server {addr} is unreachable"))
        assert result(app).detail.startswith("UNAVAILABLE: ")
        async with running_name_server(listen=addr):
            await eventually(lambda: result(app).result == "EQUAL")


async def test_a_draining_peer_is_compared_without_its_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_comparison, "WAIT_FOR_EACH_SECOND", 0.0)
    async with running_name_server() as other, running_name_server(peers=polled(other.addr)) as app:
        for addr in (other.addr, app.addr):
            await register_at(addr, "a")
        await eventually(lambda: result(app).brokers == {})
        async with peer_of(other.addr) as peer:
            await peer.admin.SetDrain(admin.SetDrainRequest(draining=True, by="test"))
        await eventually(lambda: result(app).brokers is None)
        assert (result(app).result, result(app).node_state) == ("EQUAL", "DRAINING")


class Liar(AdminServiceServicer):
    """Returns responses that no name server sends."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def GetNodeInfo(self, _request: Any, _context: Any) -> admin.GetNodeInfoResponse:  # noqa: N802
        return admin.GetNodeInfoResponse(node="\x1b[31m<b>")

    async def ListSettings(self, _request: Any, _context: Any) -> admin.ListSettingsResponse:  # noqa: N802
        return admin.ListSettingsResponse()

    async def ListRouteDigests(self, _request: Any, _context: Any) -> admin.ListRouteDigestsResponse:  # noqa: N802
        return admin.ListRouteDigestsResponse(next_page_token=self.token)


@pytest.mark.parametrize("token", ["same", "\x1b<script>"])
async def test_a_peer_with_malformed_responses_ends_only_its_own_comparison(token: str) -> None:
    server = grpc.aio.server()
    liar: Any = Liar  # not every call is implemented
    add_AdminServiceServicer_to_server(liar(token), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with running_name_server(peers=polled(f"127.0.0.1:{port}")) as app:
        await register_at(app.addr, "a", "z")
        await eventually(lambda: result(app).result == "UNREACHABLE")
        assert result(app).detail.startswith("its pages of digests cannot be read: ")
        assert result(app).detail.isprintable()
        assert (await ask(app.monitoring_port, "/v1/status")).status == 200
    await server.stop(None)


def test_peers_are_checked_with_the_configuration() -> None:
    config = PeersConfig(name_servers=("ns1", "ns2:1", "ns2:1"), poll_seconds=0.0)
    problems = list(config.problems())
    assert [problem.partition(":")[0] for problem in problems] == ["name_servers", "name_servers", "poll_seconds"]
    assert not list(NameServerConfig(peers=polled("ns1:9876")).peers.problems())


async def test_peers_with_grants_are_compared_over_tls_with_a_token(tmp_path: Path) -> None:
    files, tokens = Authority(tmp_path).issue("server"), TokenFolder(tmp_path, "ns")
    grants = tokens.settings(Grant(identity="ns", role="viewer"))
    token_file = tmp_path / "ns.token"
    token_file.write_text(tokens.tokens["ns"])
    token_file.chmod(0o600)
    async with running_name_server(tls=tls_config(files), access=grants) as other:
        with_token = replace(polled(other.addr), ca=str(files.ca), token_file=str(token_file))
        async with running_name_server(peers=with_token) as app:
            await eventually(lambda: result(app).result == "EQUAL")
        async with running_name_server(peers=replace(with_token, token_file="")) as app:
            await eventually(lambda: result(app).result == "UNREACHABLE")
            assert result(app).detail.startswith("UNAUTHENTICATED: ")
