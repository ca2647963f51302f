"""JSON over HTTP, and what all paths have in common: shapes, refusals, bounds, hostile names and hostile requests."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from pointsman.daemon import http_server
from pointsman.daemon.access.access_settings import Grant
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import MonitoringConfig
from pointsman_namesrv.slices import Slices
from pointsman_namesrv.web import fleet_page, loop_documents, status_document
from pointsman_namesrv.web.loop_documents import MAX_WAITING, Handed, LoopDocuments, Query
from tests.kit.access_tokens import TokenFolder
from tests.kit.ctl.command import ctl
from tests.kit.http_answer import ask, ask_in_thread
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer
from tests.kit.waiting import eventually

README = Path(__file__).parents[4] / "namesrv/README.md"
MARKUP = '<img src=x onerror="alert(1)">\'&amp;</script>'
"""A printable text that a broker may send as zone, host or label."""


async def register(
    peer: Peer, *topics: str, name: str = "a", broker_id: int = 0, cluster: str = "c1", **more: Any
) -> int:
    who = wire.identity(name, broker_id, addr=f"{name}-{broker_id}:10911", cluster=cluster)
    return await peer.register(*topics, who=who, **more)


SICK = broker_pb2.BrokerHealth(status=broker_pb2.PROBE_STATUS_FAILING, detail=MARKUP)


@pytest.fixture
async def fleet(peer: Peer, clock: ManualClock) -> None:
    """Two clusters: one broker name with only its replica, one failing broker, one departed broker."""
    labels = {"rack": MARKUP, "owner": "Zoë"}
    await register(peer, "orders", "%RETRY%g1", name="a", zone=MARKUP, host="h'1", labels=labels)
    await register(peer, "orders", name="a", broker_id=1, filter_servers=["f1:1"])
    await register(peer, "orders", name="b", broker_id=1, cluster="c2")
    await register(peer, "paid", name="gone", cluster="c2", expiry=90)
    await clock.advance(100)
    for name, broker_id, cluster in (("a", 0, "c1"), ("a", 1, "c1"), ("b", 1, "c2")):
        await register(peer, "orders", name=name, broker_id=broker_id, cluster=cluster, version=(0, 0, 2))
    await peer.admin.SetGuard(admin.SetGuardRequest(cluster="c2", mode=admin.GUARD_MODE_OFF, by="test"))
    await clock.advance(30)


# --- the shapes of pointsmanctl -------------------------------------------------------------------------------


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/v1/brokers", ("brokers",)),
        ("/v1/brokers?cluster=c1", ("brokers", "--cluster", "c1")),
        ("/v1/clusters", ("clusters",)),
        ("/v1/routes/orders", ("route", "orders")),
        ("/v1/routes/orders?cluster=c2&zone=z1", ("route", "orders", "--cluster", "c2", "--zone", "z1")),
        ("/v1/routes/paid", ("route", "paid")),
    ],
)
async def test_json_over_http_equals_the_output_of_pointsmanctl(
    server: NameServerApp, path: str, command: tuple[str, ...]
) -> None:
    answer = await ask(server.monitoring_port, path)
    printed = await ctl("--namesrv", server.addr, "--output", "json", *command)

    assert answer.status == 200
    assert answer.document == printed.document
    if command[0] == "brokers":
        node = answer.document["nodes"][0]
        assert [broker["brokerName"] for broker in node["brokers"]] == (["a", "a"] if "?" in path else ["a", "a", "b"])
        assert ["gone"] * ("?" not in path) == [broker["brokerName"] for broker in node["gone"]]
        assert node["guards"]


@pytest.mark.usefixtures("fleet")
async def test_the_events_of_a_broker_are_those_of_pointsmanctl_why(server: NameServerApp) -> None:
    answer = await ask(server.monitoring_port, "/v1/events?broker=gone&cluster=c2")
    printed = await ctl("--namesrv", server.addr, "--output", "json", "why", "gone", "--cluster", "c2")

    events = answer.document["nodes"][0]["events"]
    assert events == printed.document["nodes"][0]["events"]
    assert [event["state"] for event in events if event["state"]] == ["UP", "SUSPECT", "GONE"]


@pytest.mark.usefixtures("fleet")
async def test_events_are_the_last_of_all_brokers_oldest_first_and_can_be_limited(server: NameServerApp) -> None:
    everything = (await ask(server.monitoring_port, "/v1/events")).document["nodes"][0]["events"]
    assert {event["cluster"] for event in everything} == {"c1", "c2"}
    assert [event["seq"] for event in everything] == sorted(event["seq"] for event in everything)

    last = (await ask(server.monitoring_port, "/v1/events?limit=2")).document["nodes"][0]["events"]
    of_cluster = (await ask(server.monitoring_port, "/v1/events?cluster=c1")).document["nodes"][0]["events"]
    assert last == everything[-2:]
    assert of_cluster == [event for event in everything if event["cluster"] == "c1"]


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/routes/none", (404, "TOPIC_NOT_FOUND", "no broker has topic none")),
        ("/v1/brokers?cluster=none", (404, "CLUSTER_NOT_FOUND", "no broker is known in cluster none")),
        ("/v1/clusters?cluster=none", (404, "CLUSTER_NOT_FOUND", "no broker is known in cluster none")),
        ("/v1/routes/a%2Fb", (400, "INVALID_REQUEST", "topic may hold only letters, digits and %|_-.+: 'a/b'")),
        ("/v1/events?limit=0", (400, "INVALID_REQUEST", "limit must be a number from 1 to 1000, not '0'")),
        ("/v1/brokers?broker=a", (400, "INVALID_REQUEST", "?'broker' is unknown here; known: cluster")),
        ("/?a=1", (400, "INVALID_REQUEST", f"?'a' is unknown here; known: {', '.join(fleet_page.PARAMETERS)}")),
        ("/v1/clusters?cluster=a&cluster=b", (400, "INVALID_REQUEST", "?cluster is given twice")),
    ],
)
async def test_a_refusal_names_the_value_and_the_remedy(
    server: NameServerApp, path: str, expected: tuple[int, str, str]
) -> None:
    assert (await ask(server.monitoring_port, path)).error == expected


@pytest.mark.parametrize("path", ["/v2", "/v1", "/v1/routes/", "/v1/brokers/x", "/favicon.ico", "/%1b[31m"])
async def test_an_unknown_path_lists_the_known_ones_and_cannot_control_a_terminal(
    server: NameServerApp, path: str
) -> None:
    answer = await ask(server.monitoring_port, path)

    status, code, message = answer.error
    assert (status, code) == (404, "PATH_NOT_FOUND")
    assert "use /, /brokers/CLUSTER/BROKER, /topics" in message
    assert b"\x1b" not in answer.body


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("path", ["/", "/v1/status", "/v1/brokers", "/v1/routes/orders"])
async def test_paths_are_for_reading(server: NameServerApp, path: str) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"):
        answer = await ask(server.monitoring_port, path, method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")

    whole, head = await ask(server.monitoring_port, path), await ask(server.monitoring_port, path, "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(whole.body))


@pytest.mark.parametrize("path", ["/", "/v1/brokers", "/none"])
async def test_responses_are_not_stored_framed_or_sniffed_as_another_type(server: NameServerApp, path: str) -> None:
    headers = (await ask(server.monitoring_port, path)).headers

    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]


@pytest.mark.parametrize("warm_up_seconds", [45.0])
async def test_during_the_warm_up_an_unknown_topic_is_not_ready(server: NameServerApp, peer: Peer) -> None:
    await register(peer, "orders")

    assert (await ask(server.monitoring_port, "/v1/routes/orders")).status == 200
    for path in ("/v1/routes/other", "/v1/brokers?cluster=c9"):
        answer = await ask(server.monitoring_port, path)
        assert answer.error[:2] == (503, "NOT_READY")
        assert "this name server is WARMING" in answer.error[2]
        assert answer.headers["Retry-After"] == "1"


async def test_a_drained_server_shows_its_brokers_and_sends_route_queries_elsewhere(
    server: NameServerApp, peer: Peer
) -> None:
    await register(peer, "orders")
    await peer.admin.SetDrain(admin.SetDrainRequest(draining=True, by="test"))

    for path in ("/v1/routes/orders", "/v1/clusters"):
        assert (await ask(server.monitoring_port, path)).error[:2] == (503, "NOT_READY")
    status = (await ask(server.monitoring_port, "/v1/status")).document
    assert (status["nodeState"], status["brokerCount"]) == ("DRAINING", 1)
    assert [p["text"] for p in status["problems"]] == [
        "This name server is DRAINING: it sends its clients to other name servers."
    ]


# --- the page's document --------------------------------------------------------------------------------------


async def test_a_healthy_fleet_has_no_problem(server: NameServerApp, peer: Peer) -> None:
    await register(peer, "orders", name="a")
    status = (await ask(server.monitoring_port, "/v1/status")).document

    assert status["problems"] == []
    assert status["states"] == {"UP": 1}
    assert status["reportUrl"] is None


@pytest.mark.usefixtures("fleet")
async def test_problems_are_listed_first(server: NameServerApp, peer: Peer, clock: ManualClock) -> None:
    await register(peer, "orders", name="sick", health=SICK)
    await clock.advance(1)

    status = (await ask(server.monitoring_port, "/v1/status")).document
    assert [(problem["severity"], problem["text"]) for problem in status["problems"]] == [
        ("alarm", "No master: c1/sick, c2/b cannot be written."),
        ("alarm", "1 broker OUT, no traffic: c1/sick/0."),
        ("alarm", "1 broker departed unplanned: c2/gone/0."),
        ("warning", "The guard of c2 is set to OFF."),
    ]
    assert (status["brokers"][0]["brokerName"], status["brokers"][0]["state"]) == ("sick", "OUT")
    assert status["events"][0]["seq"] > status["events"][-1]["seq"]


async def test_of_a_large_fleet_the_unhealthy_are_shown_and_any_can_be_found(
    server: NameServerApp, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_document, "MAX_BROKERS", 5)
    for number in range(19):
        await register(peer, "orders", name=f"broker-{number:02}")
    await register(peer, "orders", name="broker-19", health=SICK)

    status = (await ask(server.monitoring_port, "/v1/status")).document
    names = [broker["brokerName"] for broker in status["brokers"]]
    assert names == ["broker-19", "broker-00", "broker-01", "broker-02", "broker-03"]
    assert (status["brokerCount"], status["found"]) == (20, 20)

    found = (await ask(server.monitoring_port, "/v1/status?search=ER-12")).document
    assert [broker["brokerName"] for broker in found["brokers"]] == ["broker-12"]
    assert found["brokerCount"] == 20
    assert (await ask(server.monitoring_port, f"/v1/status?search={'x' * 263}")).status == 400


@pytest.mark.parametrize("leaving_from", [3, 22])
async def test_brokers_that_leave_while_the_page_is_built_are_left_out_of_it(
    server: NameServerApp, peer: Peer, monkeypatch: pytest.MonkeyPatch, leaving_from: int
) -> None:
    """One leaves at each step of the build, from the counting or from the ranking on."""
    for number in range(40):
        await register(peer, "orders", name=f"broker-{number:02}")
    steps, leaving = 0, (number for number in range(39, 0, -1))

    async def leave(_: object) -> None:
        nonlocal steps
        steps += 1
        if steps >= leaving_from and (number := next(leaving, None)) is not None:
            server.core.evict("c1", f"broker-{number:02}", 0, now=server.clock.monotonic(), detail={})

    monkeypatch.setattr(Slices, "pause", leave)

    answer = await ask(server.monitoring_port, "/v1/status")

    assert answer.status == 200
    assert steps > 60
    states = {broker["state"] for broker in answer.document["brokers"]}
    assert answer.document["brokers"][0]["brokerName"] == "broker-00"
    assert states <= {"UP"}
    assert len(answer.document["brokers"]) <= answer.document["found"] < 40


# --- bounds ---------------------------------------------------------------------------------------------------


async def test_a_document_is_built_at_most_once_per_second_for_any_number_of_requests(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    answers = await asyncio.gather(*(ask(server.monitoring_port, "/v1/status") for _ in range(8)))
    assert {answer.body for answer in answers} == {answers[0].body}

    await register(peer, "orders")
    await clock.advance(0.9)
    assert (await ask(server.monitoring_port, "/v1/status")).body == answers[0].body
    await clock.advance(0.2)
    assert (await ask(server.monitoring_port, "/v1/status")).document["brokerCount"] == 1


async def test_a_slow_document_blocks_no_other_and_is_served_until_the_next_is_ready(clock: ManualClock) -> None:
    built, go_on = 0, asyncio.Event()

    async def build(query: Query, _pause: Any) -> Any:
        nonlocal built
        if query.kind == "slow":
            built += 1
            await go_on.wait()
            go_on.clear()
        return Handed(built, 1)

    documents = LoopDocuments(build, clock=clock, slow={"slow"})
    slow, quick = Query("slow"), Query("quick")

    async def latest() -> object:
        return await asyncio.to_thread(documents.latest, slow, within=0.05)

    assert [await latest() for _ in range(MAX_WAITING + 4)] == [None] * (MAX_WAITING + 4)
    assert built == 1
    assert await asyncio.to_thread(documents.view, quick) == 1
    go_on.set()
    await eventually(lambda: slow in documents._kept)
    assert await latest() == 1
    await clock.advance(2)
    assert [await latest() for _ in range(3)] == [1, 1, 1]
    await eventually(lambda: built == 2)
    go_on.set()
    await eventually(lambda: slow not in documents._requested)
    assert await latest() == 2


async def test_kept_documents_are_bounded(server: NameServerApp, peer: Peer) -> None:
    documents = server.parts.documents
    assert documents is not None
    await register(peer, "orders")
    for number in range(loop_documents.MAX_KEPT + 20):
        await asyncio.to_thread(documents.get, Query("routes", (("topic", f"t{number}"),)))
    assert len(documents._kept) == loop_documents.MAX_KEPT


async def test_more_requests_than_may_wait_for_the_loop_get_a_503(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = server.parts.documents
    assert documents is not None
    loop, port = asyncio.get_running_loop(), server.monitoring_port
    async with documents._one_at_a_time:
        threads = ThreadPoolExecutor(loop_documents.MAX_WAITING)
        waiting = [
            loop.run_in_executor(threads, ask_in_thread, port, f"/v1/routes/t{number}")
            for number in range(loop_documents.MAX_WAITING)
        ]
        await eventually(lambda: not documents._waiting._value)
        refused = await ask(server.monitoring_port, "/v1/routes/other")
        assert refused.error[:2] == (503, "TOO_MANY_REQUESTS")
        assert refused.headers["Retry-After"] == "1"
    assert {answer.error[:2] for answer in await asyncio.gather(*waiting)} == {(404, "TOPIC_NOT_FOUND")}
    threads.shutdown()

    monkeypatch.setattr(loop_documents, "WAIT_SECONDS", 0.05)
    async with documents._one_at_a_time:
        late = await ask(server.monitoring_port, "/v1/clusters")
        assert late.error == (503, "TOO_MANY_REQUESTS", "the document was not ready within 0.05 s; retry")


async def test_the_error_for_a_document_that_is_too_large_names_smaller_ones(
    server: NameServerApp, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(peer, "orders")
    monkeypatch.setattr(loop_documents, "MAX_BYTES", 100)
    status, code, message = (await ask(server.monitoring_port, "/v1/brokers")).error
    assert (status, code) == (400, "DOCUMENT_TOO_LARGE")
    assert "?cluster=NAME" in message


def test_json_in_parts_is_json() -> None:
    value: dict[str, Any] = {"a": [{"b": 1}, {}], "c": None, "d": [], "é": "\x1b"}
    text = "".join(loop_documents.json_texts(value | {"lazy": iter([{"x": 1.5}, 2]), "none": iter([])}))

    assert json.loads(text) == value | {"lazy": [{"x": 1.5}, 2], "none": []}
    assert text.isascii()
    assert text.isprintable()


# --- hostile names and requests -------------------------------------------------------------------------------


@pytest.mark.usefixtures("peer")
@pytest.mark.parametrize("name", ["a\x1b[31m", "a\n", "<b>", "a'b", 'a"b', "a\u202eb"])
async def test_names_with_markup_quotes_or_terminal_escapes_are_refused_at_registration(peer: Peer, name: str) -> None:
    brokers: tuple[dict[str, Any], ...] = ({"name": name}, {"cluster": name})
    for broker in brokers:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await register(peer, "orders", **broker)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError):
        await register(peer, name)


async def test_free_texts_with_markup_stay_texts_in_json_and_on_the_terminal(server: NameServerApp, peer: Peer) -> None:
    await register(peer, "orders", zone=MARKUP, labels={"rack": MARKUP}, host="Zoë")
    for path in ("/v1/brokers", "/v1/status"):
        answer = await ask(server.monitoring_port, path)
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.body.isascii()
        nodes = answer.document.get("nodes", [answer.document])
        assert nodes[0]["brokers"][0]["zone"] == MARKUP
        assert nodes[0]["brokers"][0]["labels"] == {"rack": MARKUP}

    printed = await ctl("--namesrv", server.addr, "route", "orders")
    assert MARKUP in printed.out
    assert all(line.isprintable() for line in printed.out.splitlines())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"GET /v1/brokers HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.0\r\n\r\n", b"414"),
        (b"GET / HTTP/1.0\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.0\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(200)) + b"\r\n", b"431"),
        (b"GET /v1/routes/%ff%fe HTTP/1.0\r\n\r\n", b"400"),
        (b"GET //v1//brokers HTTP/1.0\r\n\r\n", b"404"),
        (b"GET http://evil/v1/brokers HTTP/1.0\r\n\r\n", b"404"),
        (b"POST / HTTP/1.0\r\nContent-Length: 999999999\r\n\r\nabc", b"405"),
    ],
)
async def test_requests_that_are_none_cost_their_own_connection(
    server: NameServerApp, request_bytes: bytes, status: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.monitoring_port)
    writer.write(request_bytes)
    answer = b""
    try:
        async with asyncio.timeout(60):
            while part := await reader.read(65_536):
                answer += part
    except ConnectionResetError:
        pass  # it did not read the whole request, so its response may be lost
    writer.close()
    assert not answer or status in answer.splitlines()[0].split()[:2], answer[:200]
    assert b"<" not in answer
    assert (await ask(server.monitoring_port, "/v1/status")).status == 200


async def test_a_client_that_does_not_read_occupies_one_connection_for_at_most_ten_seconds(
    server: NameServerApp, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "WHOLE_REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(http_server, "POLL_SECONDS", 0.05)
    for number in range(40):
        await register(peer, "orders", name=f"broker-{number}", labels={f"l{n}": "x" * 128 for n in range(32)})
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.connect(("127.0.0.1", server.monitoring_port))
        slow.sendall(b"GET /v1/brokers HTTP/1.0\r\n\r\n")
        await eventually(lambda: not any("process_request" in thread.name for thread in threading.enumerate()))
    assert (await ask(server.monitoring_port, "/v1/brokers")).status == 200


# --- who may read ---------------------------------------------------------------------------------------------


async def test_beyond_loopback_page_and_json_are_refused_and_metrics_and_health_are_not(tmp_path: Path) -> None:
    tokens = TokenFolder(tmp_path, "ops")
    everyone = MonitoringConfig(listen="0.0.0.0:0")
    for access in (None, tokens.settings(Grant(identity="ops", role="admin"))):
        async with running_name_server(monitoring=everyone, access=access) as app:
            for path in ("/", "/v1/status", "/v1/brokers", "/v1/routes/orders"):
                answer = await ask(app.monitoring_port, path, Authorization=f"Bearer {tokens.tokens['ops']}")
                assert answer.error[:2] == (403, "BEYOND_LOOPBACK")
                assert "monitoring.tls = true and [[access.grants]], or" in answer.error[2]
                assert "WWW-Authenticate" not in answer.headers
            for path in ("/metrics", "/healthz"):
                assert (await ask(app.monitoring_port, path)).status == 200

    async with running_name_server(monitoring=everyone, tls=TlsConfig(plaintext_beyond_loopback=True)) as app:
        assert (await ask(app.monitoring_port, "/v1/status")).status == 200


@pytest.mark.parametrize(
    ("host", "status"), [("localhost:9877", 200), ("[::1]", 200), ("127.0.0.1", 200), ("evil.example:9877", 403)]
)
async def test_without_grants_another_sites_name_is_refused(host: str, status: int) -> None:
    async with running_name_server() as app:
        answer = await ask(app.monitoring_port, "/v1/status", Host=host)
    assert answer.status == status
    if status == 403:
        assert answer.error[1] == "OTHER_HOST"
        assert host in answer.error[2]


async def test_with_grants_a_role_is_needed_and_a_browser_can_log_in(tmp_path: Path) -> None:
    tokens = TokenFolder(tmp_path, "ops", "app", "other")
    grants = (Grant(identity="ops", role="admin"), Grant(identity="app", role="client"))
    async with running_name_server(access=tokens.settings(*grants)) as app:

        async def status(path: str, authorization: str | None) -> int:
            headers = {} if authorization is None else {"Authorization": authorization}
            return (await ask(app.monitoring_port, path, **headers)).status

        refused = await ask(app.monitoring_port, "/")
        assert refused.error[:2] == (401, "UNAUTHENTICATED")
        assert refused.headers["WWW-Authenticate"] == 'Basic realm="pointsman"'
        ops, client, none = (f"Bearer {tokens.tokens[name]}" for name in ("ops", "app", "other"))
        basic = base64.b64encode(f"me:{tokens.tokens['ops']}".encode()).decode()
        for path in ("/", "/v1/status", "/v1/brokers", "/v1/events"):
            answers = [await status(path, each) for each in (ops, f"Basic {basic}", client, none, "Basic !", None)]
            assert answers == [200, 200, 403, 403, 401, 401]
        assert [await status("/v1/clusters", each) for each in (ops, client, none, None)] == [200, 200, 403, 401]
        assert [await status("/v1/routes/t", each) for each in (ops, client, none, None)] == [404, 404, 403, 401]
        for path in ("/metrics", "/healthz"):
            assert await status(path, None) == 200


@pytest.mark.usefixtures("fleet")
async def test_the_curl_commands_of_the_readme_work_as_pasted(server: NameServerApp) -> None:
    section = README.read_text(encoding="utf-8").partition("## Pages and JSON over HTTP")[2].partition("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    pasted = "".join(blocks).replace("127.0.0.1:9877", f"127.0.0.1:{server.monitoring_port}")
    assert pasted.count("curl ") >= 5

    ran = await asyncio.to_thread(subprocess.run, ["bash", "-ec", pasted], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert [min(json.loads(line)) for line in ran.stdout.splitlines()] == [
        "addr",
        "nodes",
        "clusters",
        "nodes",
        "nodes",
        "nodes",
        "absentBrokers",
        "events",
        "changes",
    ]
