"""``/v1/past``: what ``pointsmanctl`` prints of this name server, pages, refusals, roles, the bound of the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pointsman.daemon.access.access_settings import Grant
from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.history import past_worker_link
from pointsman_namesrv.history.past_turns import Asker
from tests.kit.access_tokens import TokenFolder
from tests.kit.ctl.command import ctl
from tests.kit.http_answer import HttpAnswer, ask
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of
from tests.kit.waiting import eventually

START = datetime(2026, 1, 1, tzinfo=UTC)
HERE = Asker("127.0.0.1 (HTTP)", "127.0.0.1 (HTTP)")
"""Whose questions those of these tests over HTTP are."""
MARKUP = '<img src=x onerror="alert(1)">'


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


async def past(server: NameServerApp, path: str, **parameters: str) -> HttpAnswer:
    query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    return await ask(server.monitoring_port, f"/v1/past/{path}?{query}")


@pytest.fixture
async def lost(peer: Peer, clock: ManualClock) -> None:
    """At 10 s brokers a and b register with orders, at 100 s a is lost, at 200 s an operator wipes b."""
    await clock.advance(10)
    await peer.register("orders", who=wire.identity("a", addr="ha:1"), expiry=90)
    await peer.register("orders", who=wire.identity("b", addr="hb:1"), expiry=3_000, labels={"owner": "team"})
    await clock.advance(190)
    await peer.admin.SetWritePerm(admin.SetWritePermRequest(cluster="c1", broker_name="b", writable=False, by="zoe"))
    await clock.advance(100)


@pytest.mark.usefixtures("lost")
@pytest.mark.parametrize(
    ("path", "parameters", "command"),
    [
        ("routes/orders", {"at": at(50)}, ("route", "orders", "--at", at(50))),
        ("routes/orders", {"at": at(250), "cluster": "c1"}, ("route", "orders", "--at", at(250), "--cluster", "c1")),
        ("brokers/a", {"at": at(250), "limit": "20"}, ("why", "a", "--at", at(250))),
        ("brokers/b", {"at": at(250), "limit": "1"}, ("why", "b", "--at", at(250), "--limit", "1")),
        ("events", {}, ("events",)),
        ("events", {"kind": "EXPIRED,REGISTERED"}, ("events", "--kind", "EXPIRED", "--kind", "REGISTERED")),
        ("events", {"topic": "orders", "since": at(60)}, ("events", "--topic", "orders", "--since", at(60))),
        ("events", {"broker": "a", "until": at(60)}, ("events", "--broker", "a", "--until", at(60))),
        ("changes", {"by": "zoe"}, ("changes", "--by", "zoe")),
    ],
)
async def test_json_over_http_equals_the_output_of_pointsmanctl(
    server: NameServerApp, path: str, parameters: dict[str, str], command: tuple[str, ...]
) -> None:
    answer = await past(server, path, **parameters)
    printed = await ctl("--namesrv", server.addr, "--output", "json", *command)

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.body.isascii()
    document = answer.document
    for node in document["nodes"]:
        assert node.pop("nextPageToken", "") == ""
    assert document == printed.document
    assert (
        document.get("events") or document.get("changes") or document.get("brokers") or document["nodes"][0]["events"]
    )


@pytest.mark.usefixtures("lost")
async def test_a_page_ends_with_the_token_of_the_next_one(server: NameServerApp) -> None:
    every = (await past(server, "events")).document["events"]
    found, token = list[Any](), ""
    while True:
        answer = (await past(server, "events", limit="2", page_token=token)).document
        found = answer["events"] + found
        (node,) = answer["nodes"]
        assert node["complete"] is (node["nextPageToken"] == "")
        if not (token := node["nextPageToken"]):
            break
    assert len(every) >= 4
    assert found == every


@pytest.mark.parametrize(
    ("path", "parameters", "message"),
    [
        ("routes/orders", {}, "at must be set, to a time such as 2026-11-27T03:12Z"),
        ("routes/orders", {"at": "now"}, "at must be a time such as 2026-11-27T03:12Z, not 'now'"),
        ("routes/orders", {"at": "1969-12-31"}, "at must be set, to a time after 1970, not 1969-12-31T00:00:00+00:00"),
        ("routes/orders", {"at": at(60)}, "at 2026-01-01T00:01:00+00:00 is in the future"),
        ("routes/a b", {"at": at(-1)}, "topic may hold only letters, digits and %|_-.+: 'a b'"),
        (f"routes/{MARKUP}", {"at": at(-1)}, "topic may hold only letters"),
        ("brokers/a", {"at": at(-1), "limit": "0"}, "limit must be a number from 1 to 1000, not '0'"),
        ("brokers/a b", {"at": at(-1)}, "broker may hold only letters"),
        ("brokers/a", {"at": at(-1), "cluster": "\x1b"}, "cluster may hold only letters"),
        ("events", {"kind": "EXPIRED,LATER"}, "kind must be an event of the history, e.g. EXPIRED, not 'LATER'"),
        ("events", {"broker": MARKUP}, "broker may hold only letters"),
        ("events", {"limit": "1001"}, "limit must be a number from 1 to 1000, not '1001'"),
        ("events", {"page_token": "x"}, "page_token invalid page_token: 'x'"),
        (
            "events",
            {"since": at(-1), "until": at(-2)},
            "until 2025-12-31T23:59:58+00:00 is before since",
        ),
        ("events", {"x": "1"}, "?'x' is unknown here; known: topic, kind, broker, cluster, since, until, by, limit"),
        ("changes", {"by": "x" * 129}, "at most 128 are allowed"),
        ("changes", {"since": "9" * 300}, "since may have at most 262 characters, not 300"),
    ],
)
async def test_a_refusal_names_the_parameter_and_its_value(
    server: NameServerApp, path: str, parameters: dict[str, str], message: str
) -> None:
    status, code, text = (await past(server, quote(path), **parameters)).error
    assert (status, code) == (400, "INVALID_REQUEST")
    assert message in text
    assert text.isprintable()


async def test_a_server_without_a_history_says_so(clock: ManualClock) -> None:
    async with running_name_server(clock=clock) as server:
        for path in ("routes/orders", "brokers/a"):
            assert (await past(server, path, at=at(-1))).error[:2] == (400, "HISTORY_OFF")
        for path in ("events", "changes"):
            assert (await past(server, path)).error[:2] == (400, "HISTORY_OFF")


@pytest.mark.usefixtures("lost")
async def test_more_questions_than_may_wait_are_503_with_when_to_retry(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, release = server.parts.past, asyncio.Event()

    async def held(_: Mapping[str, Any]) -> dict[str, Any]:
        await release.wait()
        return {"failed": "by the test"}

    monkeypatch.setattr(link, "_reply", held)
    monkeypatch.setattr(link._turns, "seconds", 1.5)
    question = {"kind": "route"}
    waiting = [asyncio.create_task(link.ask(question, HERE)) for _ in range(past_worker_link.MAX_WAITING + 1)]
    await eventually(lambda: link._turns.waiting == past_worker_link.MAX_WAITING)
    for path, parameters in (("routes/orders", {"at": at(50)}), ("events", {}), ("changes", {})):
        refused = await past(server, path, **parameters)
        assert refused.error[:2] == (503, "TOO_MANY_QUESTIONS")
        assert refused.headers["Retry-After"] == "14"
    release.set()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("path", ["/v1/past", "/v1/past/", "/v1/past/routes/", "/v1/past/none", "/v1/past/routes/a/b"])
async def test_other_paths_are_unknown(server: NameServerApp, path: str) -> None:
    assert (await ask(server.monitoring_port, path)).error[:2] == (404, "PATH_NOT_FOUND")


async def test_a_path_needs_the_role_of_its_call(tmp_path: Path) -> None:
    tokens = TokenFolder(tmp_path, "ops", "on-call", "app")
    roles = {"ops": "admin", "on-call": "viewer", "app": "client"}
    grants = [Grant(identity=name, role=role) for name, role in roles.items()]
    paths = ("routes/orders", "brokers/a", "events", "changes")
    async with running_name_server(access=tokens.settings(*grants), history=tmp_path / "history") as app:
        for path in paths:
            statuses = []
            for name in roles:
                headers = {"Authorization": f"Bearer {tokens.tokens[name]}"}
                statuses.append((await ask(app.monitoring_port, f"/v1/past/{path}", **headers)).status)
            allowed = 400 if "/" in path else 200  # a moment is missing
            assert (path, statuses) == (path, [allowed, allowed, 403])
            assert (await ask(app.monitoring_port, f"/v1/past/{path}", "POST")).status == 405


async def test_a_question_is_of_its_identity_else_of_its_host(tmp_path: Path) -> None:
    def askers(app: NameServerApp) -> set[str]:
        return set(app.parts.past._turns._of_groups._seconds)

    tokens = TokenFolder(tmp_path, "ops", "on-call")
    grants = [Grant(identity="ops", role="admin"), Grant(identity="on-call", role="viewer")]
    async with running_name_server(access=tokens.settings(*grants), history=tmp_path / "granted") as app:
        header = f"Bearer {tokens.tokens['on-call']}"
        assert (await ask(app.monitoring_port, "/events", Authorization=header)).status == 200
        assert askers(app) == {"on-call"}
        async with peer_of(app.addr) as peer:
            metadata = (("authorization", f"Bearer {tokens.tokens['ops']}"),)
            await peer.admin.ListChanges(admin.ListChangesRequest(), metadata=metadata)
        assert askers(app) == {"on-call", "ops"}
    async with running_name_server(history=tmp_path / "open") as app, peer_of(app.addr) as peer:
        await peer.admin.ListChanges(admin.ListChangesRequest())
        assert askers(app) == {"127.0.0.1"}
        assert (await ask(app.monitoring_port, "/v1/past/events")).status == 200
        assert askers(app) == {"127.0.0.1", HERE.group}
