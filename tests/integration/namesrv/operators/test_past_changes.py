"""The page of what operators changed, from a real worker, and from memory where the history is not read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.history.past_turns import Asker
from pointsman_namesrv.history.past_worker_link import TooManyQuestions
from pointsman_namesrv.web import page_source
from tests.kit.ctl.command import ctl
from tests.kit.ctl.command_line import parsed
from tests.kit.http_answer import HttpAnswer, ask
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of

MARKUP = '<img src=x onerror="alert(1)">'


async def page(server: NameServerApp, **parameters: str) -> HttpAnswer:
    query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    return await ask(server.monitoring_port, f"/changes?{query}", Accept="text/html")


def text_of(answer: HttpAnswer) -> str:
    body = re.sub(r"<(script|style)>.*?</\1>", "", answer.body.decode(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def undone_by(answer: HttpAnswer) -> list[str]:
    return [
        unescape(line)
        for line in re.findall(r'with" class="long"><code class="copied">(.*?)</code>', answer.body.decode())
    ]


async def change_all(peer: Peer) -> None:
    """Four changes by two operators."""
    await peer.register("orders", who=wire.identity("a", addr="ha:1"))
    await peer.admin.PutKv(admin.PutKvRequest(namespace="n", key="k", value="old", by="zoe"))
    await peer.admin.PutKv(admin.PutKvRequest(namespace="n", key="k", value=MARKUP, by="zoe"))
    await peer.admin.SetWritePerm(admin.SetWritePermRequest(cluster="c1", broker_name="a", writable=False, by="zoe"))
    guard = admin.SetGuardRequest(cluster="c1", mode=admin.GUARD_MODE_HOLD, duration=Duration(seconds=600), by=MARKUP)
    await peer.admin.SetGuard(guard)


@pytest.fixture
async def changed(peer: Peer, clock: ManualClock) -> None:
    await change_all(peer)
    await clock.advance(60)


@pytest.mark.usefixtures("changed")
async def test_the_page_has_old_and_new_values_and_how_to_undo_them_as_the_command_has(server: NameServerApp) -> None:
    answer = await page(server)
    printed = await ctl("--namesrv", server.addr, "--output", "json", "changes")

    assert "1 to 4 of 4 changes" in text_of(answer)
    undo = [change["undo"] for change in printed.document["changes"] if change["undo"]]
    assert undone_by(answer) == undo[::-1]
    assert [parsed(line)[0] for line in undo] == ["kv delete", "kv put", "add-write-perm", "guard"]
    for part in ("by the history of this name server", "write permission c1/a yes no", "key k of n old"):
        assert part in text_of(answer)
    assert "<img" not in answer.body.decode()
    assert 'id="main" data-still' in answer.body.decode()


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({"by": "zoe"}, "1 to 3 of 3 changes"),
        ({"by": MARKUP}, "1 to 1 of 1 changes"),
        ({"kind": "KV_CHANGED"}, "1 to 2 of 2 changes"),
        ({"broker": "a", "cluster": "c1"}, "1 to 1 of 1 changes"),
        ({"until": "2025-12-31"}, "No changes found"),
        ({"kind": "TOPIC_DELETED"}, "No changes found"),
    ],
)
async def test_filters_are_those_of_the_address(server: NameServerApp, parameters: dict[str, str], found: str) -> None:
    assert found in text_of(await page(server, **parameters))


@pytest.mark.usefixtures("changed")
async def test_of_very_many_changes_the_newest_are_shown_with_the_way_to_the_others(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_source, "MAX_ROWS", 2)
    shown = await page(server, by="zoe")
    assert "These are the newest 2." in text_of(shown)
    path = re.findall('<a href="([^"]*)">Earlier changes', shown.body.decode())[0]
    earlier = text_of(await ask(server.monitoring_port, unescape(path), Accept="text/html"))
    assert "These are earlier ones." in earlier
    assert "1 to 1 of 1 changes" in earlier
    assert "1 to 2 of 2 changes" in text_of(await page(server, kind="KV_CHANGED"))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"broker": "a b"}, "broker may hold only letters, digits and %|_-.+: 'a b'"),
        ({"cluster": MARKUP}, "cluster may hold only letters"),
        ({"by": "x" * 129}, "at most 128 are allowed: 'xxx"),
        ({"kind": "EXPIRED"}, "kind must be one of BROKER_DATA_CHANGED, GUARD_OFF"),
        ({"since": "yesterday"}, "since must be a time such as 2026-11-27T03:12Z, not 'yesterday'"),
        ({"until": "1969-12-31"}, "until must be set, to a time after 1970, not 1969-12-31T00:00:00+00:00"),
        (
            {"since": "2026-01-02", "until": "2026-01-01"},
            "until 2026-01-01T00:00:00+00:00 is before since, 2026-01-02T00:00:00+00:00",
        ),
        ({"page": "0"}, "page must be a number from 1, not '0'"),
        ({"topic": "x" * 300}, "topic may have at most 262 characters"),
    ],
)
async def test_a_parameter_that_is_wrong_is_named_with_its_value(
    server: NameServerApp, parameters: dict[str, str], message: str
) -> None:
    answer = await page(server, **parameters)
    assert answer.status == 400
    assert message in text_of(answer)


async def test_without_a_history_the_page_says_so_and_has_what_is_in_memory(clock: ManualClock) -> None:
    async with running_name_server(clock=clock) as server, peer_of(server.addr) as peer:
        await change_all(peer)
        answer = await page(server)
        assert answer.status == 200
        assert "This name server records no history" in text_of(answer)
        assert "1 to 2 of 2 changes" in text_of(answer)
        assert [parsed(line)[0] for line in undone_by(answer)] == ["guard", "add-write-perm"]


async def busy(_question: Mapping[str, Any], _asker: Asker) -> dict[str, Any]:
    """The answer of a worker that has too many questions."""
    raise TooManyQuestions(3.0)


@pytest.mark.usefixtures("changed")
async def test_while_the_worker_is_busy_the_page_says_so_and_has_what_is_in_memory(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.parts.past_pages, "_ask", busy)
    answer = await page(server)
    assert answer.status == 200
    assert (
        "8 questions about the past are waiting already, and one is answered at a time; retry after 3.0 s"
        in text_of(answer)
    )
    assert "1 to 2 of 2 changes" in text_of(answer)

    monkeypatch.undo()
    monkeypatch.setattr(page_source, "HISTORY_SECONDS", 0.0)
    assert "The history was not read within 0 s" in text_of(await page(server))


@pytest.mark.usefixtures("changed")
async def test_where_memory_is_not_read_in_time_either_the_page_is_503(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.parts.past_pages, "_ask", busy)
    monkeypatch.setattr(page_source, "HISTORY_SECONDS", 0.05)
    documents = server.parts.documents
    assert documents is not None
    async with documents._one_at_a_time:
        answer = await page(server)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "3")
