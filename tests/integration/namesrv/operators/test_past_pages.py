"""The pages as of a moment, over HTTP and from a real worker process: states, steps, refusals, hostile values."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.history import past_worker_link
from pointsman_namesrv.history.past_turns import Asker
from pointsman_namesrv.web import past_source
from tests.kit.ctl.command_line import parsed
from tests.kit.http_answer import HttpAnswer, ask
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer
from tests.kit.waiting import eventually, read_until

START = datetime(2026, 1, 1, tzinfo=UTC)
HERE = Asker("127.0.0.1 (HTTP)", "127.0.0.1 (HTTP)")
"""Whose questions those of these tests over HTTP are."""
MARKUP = '<img src=x onerror="alert(1)">'


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


async def page(server: NameServerApp, path: str, moment: str) -> HttpAnswer:
    return await ask(server.monitoring_port, f"{path}?at={quote(moment)}", Accept="text/html")


def text_of(answer: HttpAnswer) -> str:
    body = re.sub(r"<(script|style)>.*?</\1>", "", answer.body.decode(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def step_of(answer: HttpAnswer, side: str) -> str:
    found = re.search(rf'<a href="([^"]*)" rel="{side}"', answer.body.decode())
    return "" if found is None else unescape(found[1])


@pytest.fixture
async def lost(server: NameServerApp, peer: Peer, clock: ManualClock) -> None:
    """At 10 s broker a registers with orders, at 100 s it is lost, at 200 s an operator wipes broker b."""
    await clock.advance(10)
    await peer.register("orders", who=wire.identity("a", addr="ha:1"), expiry=90)
    await peer.register("orders", who=wire.identity("b", addr="hb:1"), expiry=3_000)
    await clock.advance(190)
    await peer.admin.SetWritePerm(admin.SetWritePermRequest(cluster="c1", broker_name="b", writable=False, by=MARKUP))
    await clock.advance(100)
    last = f"/brokers/c1/b?at={quote(at(250))}"

    async def written() -> str:
        return text_of(await ask(server.monitoring_port, last, Accept="text/html"))

    await read_until(written, lambda text: "PERM_CHANGED" in text)


@pytest.mark.usefixtures("lost")
async def test_a_broker_is_shown_as_it_was_with_steps_to_its_changes(server: NameServerApp) -> None:
    before = await page(server, "/brokers/c1/a", at(50))
    shown = text_of(before)

    assert before.status == 200
    for part in ("As it was at 2026-01-01 00:00:50.000 UTC", "4m 10s ago", "Master 0 UP", "REGISTERED", "ha:1"):
        assert part in shown
    assert "EXPIRED" not in shown
    assert "No change in the week after" not in shown

    states = [re.findall("Master 0 ([A-Z]+)", shown)[0]]
    answer = before
    while path := step_of(answer, "next"):
        answer = await ask(server.monitoring_port, path, Accept="text/html")
        states += re.findall("Master 0 ([A-Z]+)", text_of(answer))
    assert states == ["UP", "SUSPECT", "GONE"]
    assert "since 2026-01-01 00:01:" in text_of(answer)
    while path := step_of(answer, "prev"):
        answer = await ask(server.monitoring_port, path, Accept="text/html")
        states += re.findall("Master 0 ([A-Z]+)", text_of(answer))
    assert states[3:] == ["SUSPECT", "UP"]
    assert '<a href="/brokers/c1/a">As it is now</a>' in answer.body.decode()


@pytest.mark.usefixtures("lost")
async def test_the_route_of_a_topic_is_shown_as_it_was(server: NameServerApp) -> None:
    early, late = [await page(server, "/topics/orders", at(seconds)) for seconds in (50, 250)]

    assert "2 broker names of 2 in its route, 2 can be written" in text_of(early)
    assert "1 broker name of 2 in its route, 0 can be written" in text_of(late)
    assert "write permission wiped by an operator" in text_of(late)
    assert "ha:1" in text_of(late)
    assert f'href="/brokers/c1/a?at={quote(at(50), safe="")}"' in early.body.decode()
    assert step_of(early, "next")
    assert "Unknown topic" in text_of(await page(server, "/topics/none", at(50)))


@pytest.mark.usefixtures("lost")
async def test_the_fleet_is_shown_as_it_was_and_leads_to_its_brokers(server: NameServerApp) -> None:
    early, late = [await page(server, "/", at(seconds)) for seconds in (50, 250)]

    assert ("2 UP" in text_of(early), "1 GONE" in text_of(early)) == (True, False)
    assert "1 GONE" in text_of(late)
    path = re.findall('<th scope="row"><a href="([^"]*)">c1/a/0', late.body.decode())[0]
    assert "Master 0 GONE" in text_of(await ask(server.monitoring_port, unescape(path), Accept="text/html"))
    moments = [early]
    while path := step_of(moments[-1], "next"):
        moments.append(await ask(server.monitoring_port, path, Accept="text/html"))
    assert any("1 GONE" in text_of(answer) for answer in moments)
    version = await ask(server.monitoring_port, f"/?version=7&at={quote(at(50))}", Accept="text/html")
    assert (version.status, "?version is of now" in text_of(version)) == (400, True)


@pytest.mark.usefixtures("lost")
async def test_the_command_of_a_page_of_the_past_asks_for_the_same(server: NameServerApp) -> None:
    commands = list[tuple[str, Mapping[str, Any]]]()
    for path in ("/brokers/c1/a", "/topics/orders", "/"):
        answer = await page(server, path, at(50))
        lines = re.findall('<code class="copied">(.*?)</code>', answer.body.decode())
        commands += [parsed(unescape(line)) for line in lines]

    (why, of_why), (route, of_route), (events, of_events) = commands
    assert (why, of_why["broker"], of_why["cluster"], of_why["at"]) == ("why", "a", "c1", START + timedelta(seconds=50))
    assert (route, of_route["topic"], of_route["at"]) == ("route", "orders", START + timedelta(seconds=50))
    assert (events, of_events["until"]) == ("events", START + timedelta(seconds=50))


@pytest.mark.usefixtures("lost")
async def test_every_page_with_a_past_has_the_field_and_an_empty_one_is_now(server: NameServerApp) -> None:
    for path in ("/brokers/c1/b", "/topics/orders", "/"):
        now = await ask(server.monitoring_port, f"{path}?at=", Accept="text/html")
        then = await page(server, path, "2026-01-01T00:00")

        assert '<input name="at" value=""' in now.body.decode()
        assert 'value="2026-01-01T00:00"' in then.body.decode()
        assert ("As it was at 2" in text_of(now), "As it was at 2" in text_of(then)) == (False, True)


@pytest.mark.usefixtures("lost")
@pytest.mark.parametrize(
    ("moment", "message"),
    [
        ("yesterday", "must be a time such as 2026-11-27T03:12Z"),
        (MARKUP, "must be a time such as"),
        ("\x00", "must be a time such as"),
        ("9" * 300, "may have at most 262 characters"),
        ("2026-01-01T01:00Z", "must be a time from 1971 to now, 2026-01-01T00:05:00Z"),
        ("0001-01-01T00:00+14:00", "is out of range"),
        ("0001-01-01", "must be a time from 1971"),
        ("9999-12-31T23:59:59Z", "must be a time from 1971"),
        ("1969-12-31", "must be a time from 1971"),
    ],
)
@pytest.mark.parametrize("path", ["/brokers/c1/a", "/topics/orders", "/"])
async def test_a_moment_that_is_none_of_the_past_is_refused_with_what_is_allowed(
    server: NameServerApp, path: str, moment: str, message: str
) -> None:
    answer = await page(server, path, moment)
    assert answer.status == 400
    assert message in text_of(answer)
    assert "<img" not in answer.body.decode()


@pytest.mark.usefixtures("lost")
@pytest.mark.parametrize("name", [MARKUP, "\x00", "ä" * 90, "a|b", "\u202e", "%", "-"])
async def test_hostile_names_are_pages_without_markup_and_never_500(server: NameServerApp, name: str) -> None:
    for path in (f"/brokers/c1/{quote(name)}", f"/brokers/{quote(name)}/a", f"/topics/{quote(name)}"):
        answer = await page(server, path, at(50))
        assert answer.status in {200, 400, 404}, path
        assert "<img" not in answer.body.decode()
    for filtered in ("name", "cluster", "state"):
        path = f"/?{filtered}={quote(name)}&at={quote(at(50))}"
        answer = await ask(server.monitoring_port, path, Accept="text/html")
        assert answer.status in {200, 400}, path
        assert "<img" not in answer.body.decode()
    wiped = await page(server, "/brokers/c1/b", at(250))
    assert MARKUP in unescape(wiped.body.decode())
    assert "<img" not in wiped.body.decode()


async def test_without_a_history_the_page_says_so(clock: ManualClock) -> None:
    async with running_name_server(clock=clock) as server:
        answer = await page(server, "/topics/orders", at(-10))
        assert answer.status == 400
        assert "records no history" in text_of(answer)


@pytest.mark.usefixtures("lost")
async def test_more_questions_than_may_wait_are_503_with_when_to_retry(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = server.parts.past
    release = asyncio.Event()

    async def held(_: Mapping[str, Any]) -> dict[str, Any]:
        await release.wait()
        return {"failed": "by the test"}

    monkeypatch.setattr(link, "_reply", held)
    monkeypatch.setattr(link._turns, "seconds", 1.5)
    question = {"kind": "route"}
    others = [asyncio.create_task(link.ask(question, HERE)) for _ in range(past_worker_link.MAX_WAITING)]
    await eventually(lambda: link._turns.waiting == past_worker_link.MAX_WAITING - 1)
    waiting = asyncio.create_task(page(server, "/topics/orders", at(50)))
    await eventually(lambda: link._turns.waiting == past_worker_link.MAX_WAITING)

    refused = await page(server, "/topics/orders", at(50))
    assert (refused.status, refused.headers["Retry-After"]) == (503, "14")
    assert "8 questions about the past are waiting already" in text_of(refused)

    release.set()
    await asyncio.gather(*others, return_exceptions=True)
    failed = await waiting
    assert (failed.status, "could not be read" in text_of(failed)) == (503, True)


@pytest.mark.usefixtures("lost")
async def test_a_client_that_asks_without_pause_holds_up_neither_a_page_nor_another_client(
    server: NameServerApp, peer: Peer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, release = server.parts.past, asyncio.Event()
    asked = list[str]()
    reply = link._reply

    async def held(question: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(question.get("broker_name") or question["topic"])
        await release.wait()
        return await reply(question)

    monkeypatch.setattr(link, "_reply", held)
    moment = Timestamp(seconds=int((START + timedelta(seconds=50)).timestamp()))
    request = admin.GetPastRouteRequest(topic="orders", at=moment)
    greedy = [asyncio.ensure_future(peer.admin.GetPastRoute(request)) for _ in range(50)]
    await eventually(lambda: link._turns.waiting == past_worker_link.MAX_WAITING)
    looked = asyncio.create_task(page(server, "/brokers/c1/a", at(50)))
    # A separate connection, as that of another process.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(server.addr, options=options) as channel:
        of_broker = admin.GetPastBrokerRequest(broker_name="b", at=moment)
        why = asyncio.ensure_future(AdminServiceStub(channel).GetPastBroker(of_broker))
        await eventually(lambda: len({each.asker for each in link._turns._waiting}) == 3)
        await clock.advance(1)
        release.set()
        assert (await looked).status == 200
        assert [each.identity.broker_name for each in (await why).replicas] == ["b"]
    ends = await asyncio.gather(*greedy, return_exceptions=True)
    assert sorted(asked[1:3]) == ["a", "b"]
    assert sum(isinstance(end, grpc.aio.AioRpcError) for end in ends) == 50 - len(asked) + 2


@pytest.mark.usefixtures("lost")
async def test_an_answer_that_takes_too_long_is_503_and_the_next_question_is_answered(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_source, "WAIT_SECONDS", 0.0)
    slow = await page(server, "/brokers/c1/a", at(50))
    assert (slow.status, slow.headers["Retry-After"]) == (503, "1")
    assert "was not read within" in text_of(slow)

    monkeypatch.undo()
    assert (await page(server, "/brokers/c1/a", at(50))).status == 200


@pytest.mark.usefixtures("lost")
async def test_a_question_that_is_too_large_is_a_page(server: NameServerApp, monkeypatch: pytest.MonkeyPatch) -> None:
    async def too_large(_: Mapping[str, Any]) -> dict[str, Any]:
        return {"too_large": True}

    monkeypatch.setattr(server.parts.past, "_reply", too_large)
    answer = await page(server, "/brokers/c1/a", at(50))
    assert answer.status == 400
    assert "needs more than 50,000 rows of history" in text_of(answer)


@pytest.mark.parametrize("seconds", [0, -1, -62_135_596_800])
async def test_a_moment_before_1970_is_refused_over_grpc_too(peer: Peer, seconds: int) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="must be set, to a time after 1970"):
        await peer.admin.GetPastBroker(admin.GetPastBrokerRequest(broker_name="a", at=Timestamp(seconds=seconds)))
