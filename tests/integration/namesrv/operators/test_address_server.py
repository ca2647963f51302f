"""Lists of name servers over HTTP, as RocketMQ's brokers and clients ask for them."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

import pytest

from pointsman.v1 import admin_service_pb2 as admin
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import AddressServerConfig
from tests.kit.certificates import Authority
from tests.kit.http_answer import ask
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import peer_of
from tests.kit.refusal import refusal_of
from tests.kit.tls_peers import context, tls_config

ON = AddressServerConfig(listen="127.0.0.1:0")
PATH = "/rocketmq/nsaddr"


async def put(app: NameServerApp, value: str, key: str = "nsaddr") -> None:
    async with peer_of(app.addr) as peer:
        await peer.admin.PutKv(admin.PutKvRequest(namespace="NSADDR", key=key, value=value, by="ann"))


def asked(app: NameServerApp, result: str) -> float:
    name = "pointsman_namesrv_address_list_requests_total"
    return app.metrics.registry.get_sample_value(name, {"result": result}) or 0.0


async def test_a_list_is_text_and_a_unit_has_its_own_whatever_the_query() -> None:
    async with running_name_server(address_server=ON) as app:
        await put(app, "ns1:9876;ns2:9876")
        await put(app, "ns3:9876", "nsaddr-blue")
        port = app.address_server_port
        plain, blue = await ask(port, PATH), await ask(port, f"{PATH}-blue?nofix=1")
        head = await ask(port, f"{PATH}?nofix=1", "HEAD")
        assert (plain.status, plain.body, blue.body) == (200, b"ns1:9876;ns2:9876", b"ns3:9876")
        assert plain.headers["Content-Type"].startswith("text/plain")
        assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", "17")
        assert asked(app, "sent") == 3


async def test_without_a_list_the_answer_is_never_200() -> None:
    async with running_name_server(address_server=ON) as app:
        port = app.address_server_port
        assert (await ask(port, PATH)).status == 404
        await put(app, "ns1:9876")
        unknown = await ask(port, f"{PATH}-blue")
        assert (unknown.status, b"pointsmanctl nsaddr set --unit blue HOST:PORT" in unknown.body) == (404, True)
        async with peer_of(app.addr) as peer:
            await peer.admin.DeleteKv(admin.DeleteKvRequest(namespace="NSADDR", key="nsaddr", by="ann"))
        assert (await ask(port, PATH)).status == 404
        assert (asked(app, "no_list"), asked(app, "unknown_path")) == (3, 0)


@pytest.mark.parametrize(
    "path", ["/", "/rocketmq/", "/nsaddr", f"{PATH}/", f"{PATH}-", "/rocketmq/../v1/brokers", "/metrics"]
)
async def test_the_port_has_no_other_path(path: str) -> None:
    async with running_name_server(address_server=ON) as app:
        assert (await ask(app.address_server_port, path)).status == 404
        assert asked(app, "unknown_path") == 1


async def test_the_port_only_reads() -> None:
    async with running_name_server(address_server=ON) as app:
        answer = await ask(app.address_server_port, PATH, "POST")
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


async def test_a_list_survives_a_restart(tmp_path: Path) -> None:
    async with running_name_server(address_server=ON, snapshot=tmp_path) as app:
        await put(app, "ns1:9876")
    async with running_name_server(address_server=ON, snapshot=tmp_path) as app:
        assert (await ask(app.address_server_port, PATH)).body == b"ns1:9876"


async def test_it_is_off_by_default() -> None:
    async with running_name_server() as app:
        assert app.address_server_port == 0
        assert (await ask(app.monitoring_port, PATH)).status == 404


@pytest.mark.parametrize(
    ("key", "value", "fields"),
    [
        ("nsaddr", "", ["value"]),
        ("nsaddr", "a:1;a:1", ["value"]),
        ("blue", "a:1", ["key"]),
        ("nsaddr-", "x", ["key", "value"]),
    ],
)
async def test_a_list_that_clients_could_not_use_is_not_set(key: str, value: str, fields: list[str]) -> None:
    async with running_name_server() as app, peer_of(app.addr) as peer:
        request = admin.PutKvRequest(namespace="NSADDR", key=key, value=value, by="ann")
        assert (await refusal_of(peer.admin.PutKv(request))).fields == fields
        assert app.core.kv.entries() == []


async def test_over_https_it_has_the_certificate_of_the_node(authority: Authority) -> None:
    tls = tls_config(authority.issue("server"), mutual=True)
    on = AddressServerConfig(listen="127.0.0.1:0", tls=True)
    async with running_name_server(address_server=on, tls=tls) as app:
        app.core.kv.put("NSADDR", "nsaddr", "ns1:9876")
        url = f"https://localhost:{app.address_server_port}{PATH}"

        def read() -> bytes:
            with urllib.request.urlopen(url, context=context(authority.file), timeout=10) as response:
                body: bytes = response.read()
                return body

        assert await asyncio.to_thread(read) == b"ns1:9876"
