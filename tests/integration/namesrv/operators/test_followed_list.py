"""The list of name servers that follows a file or DNS: what it is while that cannot be read, and who changes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pointsman.history.operator_changes import operator_change
from pointsman.history.row_format import good_row
from pointsman.v1 import admin_service_pb2 as admin
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import AddressServerConfig, RemotingConfig
from pointsman_namesrv.settings import settings_store
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.history.rows import rows_in
from tests.kit.http_answer import ask
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import peer_of
from tests.kit.refusal import refusal_of
from tests.kit.waiting import eventually

PATH = "/rocketmq/nsaddr"
STALE = "pointsman_namesrv_address_list_stale"


class ListFile:
    """A file with a list, as an operator changes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.setting = f"address_server.file = {str(path)!r}"
        self.write("ns2:9876\nns1:9876\n")

    def write(self, content: str) -> None:
        self.path.write_text(content)

    def remove(self) -> None:
        self.path.unlink()


@pytest.fixture
def file(tmp_path: Path) -> ListFile:
    return ListFile(tmp_path / "namesrv.list")


@asynccontextmanager
async def following(file: ListFile, **settings: Any) -> AsyncIterator[NameServerApp]:
    on = AddressServerConfig(listen="127.0.0.1:0", file=str(file.path), refresh_seconds=0.05)
    async with running_name_server(address_server=on, **settings) as app:
        yield app


async def sent(app: NameServerApp, path: str = PATH) -> tuple[int, bytes]:
    answer = await ask(app.address_server_port, path)
    return answer.status, answer.body


async def is_sent(app: NameServerApp, text: bytes) -> None:
    async with asyncio.timeout(20):
        while await sent(app) != (200, text):  # noqa: ASYNC110  # the file is read in its own time
            await asyncio.sleep(0.01)


def is_stale(app: NameServerApp) -> bool:
    return app.metrics.registry.get_sample_value(STALE) == 1.0


async def node_problems(app: NameServerApp) -> list[str]:
    async with peer_of(app.addr) as peer:
        return list((await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())).complaints)


async def test_the_list_is_that_of_the_file_and_follows_it(file: ListFile) -> None:
    async with following(file) as app:
        await is_sent(app, b"ns1:9876;ns2:9876")
        file.write("# moved\nns3:9876\n")
        await is_sent(app, b"ns3:9876")
        assert not is_stale(app)
        assert await node_problems(app) == []


@pytest.mark.parametrize(
    "content",
    [None, "", "# none\n", "ns9:9876", "ns9\n", "\0\n", "".join(f"ns{number}:9876\n" for number in range(17))],
    ids=["gone", "empty", "comment", "cut-off", "no-port", "binary", "seventeen"],
)
async def test_what_is_not_a_list_keeps_the_last_valid_one_and_is_a_metric_and_a_problem_of_the_node(
    file: ListFile, content: str | None
) -> None:
    async with following(file) as app:
        await is_sent(app, b"ns1:9876;ns2:9876")
        if content is None:
            file.remove()
        else:
            file.write(content)
        await eventually(lambda: is_stale(app), what="the metric")
        assert await sent(app) == (200, b"ns1:9876;ns2:9876")
        [problem] = await node_problems(app)
        assert problem.startswith("the list of name servers may be outdated: ")
        file.write("ns4:9876\n")
        await is_sent(app, b"ns4:9876")
        assert not is_stale(app)


async def test_without_a_first_list_the_answer_is_404(file: ListFile) -> None:
    file.remove()
    async with following(file) as app:
        await eventually(lambda: is_stale(app), what="the metric")
        assert (await sent(app))[0] == 404


async def test_the_last_valid_list_is_there_after_a_restart_with_a_file_that_cannot_be_read(
    file: ListFile, tmp_path: Path
) -> None:
    async with following(file, snapshot=tmp_path / "state") as app:
        await is_sent(app, b"ns1:9876;ns2:9876")
    file.remove()
    async with following(file, snapshot=tmp_path / "state") as app:
        assert await sent(app) == (200, b"ns1:9876;ns2:9876")
        await eventually(lambda: is_stale(app), what="the metric")


async def test_a_list_that_cannot_be_saved_does_not_apply(
    file: ListFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with following(file, snapshot=tmp_path / "state") as app:
        await is_sent(app, b"ns1:9876;ns2:9876")

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as full:
            full.setattr(settings_store.SettingsStore, "write", refuse)
            file.write("ns3:9876\n")
            await eventually(lambda: is_stale(app), what="the metric")
            assert await sent(app) == (200, b"ns1:9876;ns2:9876")
            assert "No space left on device" in (await node_problems(app))[-1]
        await is_sent(app, b"ns3:9876")


async def test_a_change_is_in_the_history_with_both_values_and_the_setting_as_its_author_and_no_command_undoes_it(
    file: ListFile, tmp_path: Path
) -> None:
    async with following(file, history=tmp_path / "history") as app:
        await is_sent(app, b"ns1:9876;ns2:9876")
        file.write("ns3:9876\n")
        await is_sent(app, b"ns3:9876")
    rows = (good_row(json.dumps(row)) for row in rows_in(tmp_path / "history"))
    changes = [change for change in map(operator_change, filter(None, rows)) if change is not None]
    assert [(change.before, change.after, change.by, change.undo) for change in changes] == [
        (None, "ns1:9876;ns2:9876", file.setting, None),
        ("ns1:9876;ns2:9876", "ns3:9876", file.setting, None),
    ]


async def test_operators_cannot_change_a_list_that_follows_a_file_but_those_of_units(file: ListFile) -> None:
    remoting = RemotingConfig(listen="127.0.0.1:0")
    async with following(file, remoting=remoting) as app:
        await is_sent(app, b"ns1:9876;ns2:9876")
        rule = f"follows {file.setting} of this name server: change the list there"
        async with peer_of(app.addr) as peer:
            put = admin.PutKvRequest(namespace="NSADDR", key="nsaddr", value="ns9:9876", by="ann")
            deletion = admin.DeleteKvRequest(namespace="NSADDR", key="nsaddr", by="ann")
            for call in (peer.admin.PutKv(put), peer.admin.DeleteKv(deletion)):
                refusal = await refusal_of(call)
                assert refusal.fields == ["key"]
                assert rule in refusal.message
            await peer.admin.PutKv(admin.PutKvRequest(namespace="NSADDR", key="nsaddr-blue", value="ns9:9876", by="a"))
        async with remoting_peer(app.remoting_addr) as operator:
            for code in (100, 102):
                answer = await operator.ask(code, {"namespace": "NSADDR", "key": "nsaddr", "value": "ns9:9876"})
                assert answer.code != 0
                assert rule in (answer.command.remark or "")
        assert await sent(app) == (200, b"ns1:9876;ns2:9876")
        assert await sent(app, f"{PATH}-blue") == (200, b"ns9:9876")


async def test_a_dns_name_gives_each_of_its_addresses_with_the_port() -> None:
    on = AddressServerConfig(listen="127.0.0.1:0", dns="localhost:9875", refresh_seconds=0.05)
    async with running_name_server(address_server=on) as app:
        await eventually(lambda: app.core.kv.entries("NSADDR"), what="the list")
        status, text = await sent(app)
        assert (status, b"127.0.0.1:9875" in text.split(b";")) == (200, True)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"dns": "localhost"}, "dns: 'localhost' must be host:port"),
        ({"dns": "localhost:1", "file": "x"}, "file: dns is also set; set only one of them"),
        ({"file": "x", "listen": ""}, "listen: is empty; address_server.file = 'x' needs an address"),
        ({"file": "x", "refresh_seconds": 0.0}, "refresh_seconds: 0.0 is not from 0.05 to 3600.0"),
        ({"file": "a\nb"}, "file: 'a\\nb' must not hold control characters"),
    ],
)
def test_settings_that_cannot_be_followed_are_problems(change: dict[str, Any], problem: str) -> None:
    [found] = replace(AddressServerConfig(listen="127.0.0.1:0"), **change).problems()
    assert found.startswith(problem)
