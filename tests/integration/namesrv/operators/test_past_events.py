"""The page of events, from a real worker, and from memory where the history is not read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pointsman.daemon.access.access_settings import Grant
from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.history.past_turns import Asker
from pointsman_namesrv.history.past_worker_link import TooManyQuestions
from pointsman_namesrv.web import page_source
from tests.kit.access_tokens import TokenFolder
from tests.kit.ctl.command import ctl
from tests.kit.http_answer import HttpAnswer, ask
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of
from tests.kit.waiting import read_until

MARKUP = '<img src=x onerror="alert(1)">'
MORE_THAN_MEMORY = 70


async def page(server: NameServerApp, **parameters: str) -> HttpAnswer:
    query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    return await ask(server.monitoring_port, f"/events?{query}", Accept="text/html")


def text_of(answer: HttpAnswer) -> str:
    body = re.sub(r"<(script|style)>.*?</\1>", "", answer.body.decode(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


async def wipe(peer: Peer, times: int) -> None:
    """Wipe and restore broker a's write permission in turn."""
    for number in range(times):
        request = admin.SetWritePermRequest(cluster="c1", broker_name="a", writable=bool(number % 2), by="zoe")
        await peer.admin.SetWritePerm(request)


async def act(peer: Peer) -> None:
    await peer.register("orders", who=wire.identity("a", addr="ha:1"), expiry=90)
    await peer.register("bills", who=wire.identity("b", addr="hb:1"), expiry=3_000)
    await wipe(peer, MORE_THAN_MEMORY)
    await peer.admin.PutKv(admin.PutKvRequest(namespace="n", key="k", value="v", by=MARKUP))


@pytest.fixture
async def acted(server: NameServerApp, peer: Peer, clock: ManualClock) -> None:
    """Two brokers register, an operator changes one of them 70 times, another one a key; then the first is lost."""
    await act(peer)
    await clock.advance(200)

    async def shown() -> str:
        return text_of(await page(server, kind="EXPIRED"))

    await read_until(shown, lambda text: "1 to 1 of 1 events" in text)


@pytest.mark.usefixtures("acted")
async def test_more_than_is_in_memory_is_shown_and_it_is_what_the_command_shows(server: NameServerApp) -> None:
    answer = text_of(await page(server, kind="PERM_CHANGED"))
    assert "1 to 50 of 70 events" in answer
    assert "by the history of this name server from 2025-12-31" in answer
    assert "write permission" in answer
    assert "51 to 70 of 70 events" in text_of(await page(server, kind="PERM_CHANGED", page="2"))

    printed = await ctl("--namesrv", server.addr, "--output", "json", "events", "--limit", "1000")
    events = printed.document["events"]
    assert f"of {len(events)} events" in text_of(await page(server))


@pytest.mark.usefixtures("acted")
@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({"by": "zoe"}, "of 70 events"),
        ({"by": MARKUP, "kind": "KV_CHANGED"}, "1 to 1 of 1 events"),
        ({"broker": "b", "cluster": "c1", "kind": "REGISTERED"}, "1 to 1 of 1 events"),
        ({"topic": "bills", "kind": "REGISTERED"}, "1 to 1 of 1 events"),
        ({"state": "GONE"}, "1 to 1 of 1 events"),
        ({"state": "OUT"}, "No events found"),
        ({"kind": "NAMESRV_READY"}, "1 to 1 of 1 events"),
        ({"until": "2025-12-31"}, "No events found"),
    ],
)
async def test_filters_are_those_of_the_address(server: NameServerApp, parameters: dict[str, str], found: str) -> None:
    answer = await page(server, **parameters)
    assert found in text_of(answer)
    assert "<img" not in answer.body.decode()


@pytest.mark.usefixtures("acted")
async def test_of_very_many_the_newest_are_shown_and_every_other_one_is_on_a_page_after_it(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have the same time, which a mass outage gives them, too."""
    monkeypatch.setattr(page_source, "MAX_ROWS", 30)
    shown, counts = await page(server, by="zoe"), list[str]()
    assert "These are the newest 30." in text_of(shown)
    while (found := re.findall('<a href="([^"]*)">Earlier events', shown.body.decode())) and len(counts) < 5:
        counts += re.findall("of ([0-9]+) events", text_of(shown))
        shown = await ask(server.monitoring_port, unescape(found[0]), Accept="text/html")
    counts += re.findall("of ([0-9]+) events", text_of(shown))
    assert counts == ["30", "30", "10"]
    assert "These are earlier ones." in text_of(shown)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"broker": "a b"}, "broker may hold only letters, digits and %|_-.+: 'a b'"),
        ({"topic": MARKUP}, "topic may hold only"),
        ({"kind": "EXPLODED"}, "kind must be one of ADDRESS_CHANGED"),
        ({"state": "AWAY"}, "state must be one of OUT, GONE"),
        ({"since": "yesterday"}, "since must be a time such as 2026-11-27T03:12Z, not 'yesterday'"),
        ({"page_token": MARKUP}, "page_token"),
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
        await act(peer)
        answer = text_of(await page(server, by="zoe"))
        assert "This name server records no history" in answer
        assert "the last 50 of each broker name" in answer
        assert "1 to 50 of 50 events" in answer
        assert "No events found" in text_of(await page(server, state="GONE"))


@pytest.mark.usefixtures("acted")
async def test_while_the_worker_is_busy_the_page_says_so_and_has_what_is_in_memory(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(_question: Mapping[str, Any], _asker: Asker) -> dict[str, Any]:
        raise TooManyQuestions(3.0)

    monkeypatch.setattr(server.parts.past_pages, "_ask", busy)
    answer = text_of(await page(server, broker="a"))
    assert "retry after 3.0 s. These are events in memory" in answer
    assert "1 to 50 of 50 events" in answer


async def test_a_viewer_may_see_it_and_a_client_may_not(tmp_path: Path) -> None:
    tokens = TokenFolder(tmp_path, "on-call", "app")
    grants = [Grant(identity="on-call", role="viewer"), Grant(identity="app", role="client")]
    async with running_name_server(access=tokens.settings(*grants), history=tmp_path / "history") as app:
        for name, status in (("on-call", 200), ("app", 403)):
            headers = {"Authorization": f"Bearer {tokens.tokens[name]}"}
            assert (await ask(app.monitoring_port, "/events", **headers)).status == status
