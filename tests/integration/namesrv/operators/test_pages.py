"""The pages over HTTP: links, commands, filters, hostile texts, brokers that come and go, refusals for browsers."""

from __future__ import annotations

import asyncio
import base64
import re
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.daemon.access.access_settings import Grant
from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as messages
from pointsman.v1.route_service_pb2 import KnownRoute, WatchTopicRoutesRequest
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import MonitoringConfig, PeersConfig, RemotingConfig
from pointsman_namesrv.slices import Slices
from pointsman_namesrv.web import page_documents, page_source, peer_comparison
from pointsman_namesrv.web.page_rendering import PAGE_POLICY, SCRIPT
from tests.kit.access_tokens import TokenFolder
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.ctl.command import ctl
from tests.kit.ctl.command_line import parsed
from tests.kit.http_answer import HttpAnswer, ask
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of
from tests.kit.refusal import refusal_of
from tests.kit.waiting import eventually, read_until

MARKUP = '<img src=x onerror="alert(1)">\'&amp;</script>'
SICK = broker_pb2.BrokerHealth(
    status=broker_pb2.PROBE_STATUS_FAILING, detail=MARKUP, evidence=broker_pb2.PROBE_EVIDENCE_STRONG
)
PATHS = (
    "/",
    "/brokers/c1/a",
    "/topics",
    "/topics/orders",
    "/groups",
    "/groups/%25g",
    "/events",
    "/changes",
    "/connected",
)


async def register(
    peer: Peer, *topics: str, name: str = "a", broker_id: int = 0, cluster: str = "c1", **more: Any
) -> int:
    who = wire.identity(name, broker_id, addr=f"h{name}-{broker_id}:10911", cluster=cluster)
    return await peer.register(*topics, who=who, **more)


CHANGED = {"membership_changes": 2, "membership_changes_in_hour": 7}


def measured() -> bytes:
    stats = messages.QueueStats(
        queue_count=4,
        topic_count=1,
        put_rate=20.0,
        top_put_rates=[messages.QueuePuts(topic="orders", queue_id=3, put_rate=18.0)],
        top_lags=[messages.QueueLag(group="%g", topic="orders", queue_id=3, lag=900)],
        top_topics=[messages.TopicTotals(topic="orders", queue_count=4, put_rate=20.0, highest_put_rate=18.0)],
        top_groups=[
            messages.GroupTotals(group="%g", topic="orders", queue_count=4, lag=900, stuck_queue_count=1, **CHANGED)
        ],
    )
    return messages.LiveQueues(stats=stats).SerializeToString()


@pytest.fixture
async def fleet(peer: Peer, clock: ManualClock) -> None:
    """Two clusters with a failing, a lost and a wiped broker, texts with markup, and measured queues."""
    texts: dict[str, Any] = {"zone": MARKUP, "host": MARKUP, "labels": {"owner": MARKUP}, "broker_version": MARKUP}
    generation = await register(peer, "orders", "%RETRY%g", name="a", agent_version=MARKUP, **texts)
    await register(peer, "orders", name="a", broker_id=1)
    await register(peer, "paid", name="gone", cluster="c2", expiry=90)
    await clock.advance(100)
    await register(peer, "orders", name="sick", health=SICK)
    await register(peer, "orders", name="-t", cluster="c2")
    await clock.advance(10)
    who = wire.identity("a", addr="ha-0:10911")
    beat = messages.HeartbeatRequest(beat=wire.beat(generation, who=who), live_queues=measured())
    await peer.registration.Heartbeat(beat)
    await peer.admin.SetWritePerm(
        admin.SetWritePermRequest(cluster="c2", broker_name="-t", writable=False, by=MARKUP[:100])
    )
    await peer.admin.SetMaintenance(
        admin.SetMaintenanceRequest(
            cluster="c1", broker_name="sick", duration=Duration(seconds=60), note=MARKUP, by="zoe"
        )
    )


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags = Counter[str]()
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attributes:
            if name in {"href", "src", "action"} and value:
                self.links.append(value)
            if name.startswith("on") or name == "style":
                self.handlers.append(name)


def links_of(answer: HttpAnswer) -> _Links:
    found = _Links()
    found.feed(answer.body.decode())
    return found


def text_of(answer: HttpAnswer) -> str:
    """What a reader sees, without the script and the style."""
    body = re.sub(r"<(script|style)>.*?</\1>", "", answer.body.decode(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


@pytest.mark.usefixtures("fleet")
async def test_every_link_leads_to_a_page_and_every_command_is_one(server: NameServerApp) -> None:
    waiting, seen, commands = ["/"], set[str](), Counter[str]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = await ask(server.monitoring_port, path, Accept="text/html")
        assert (answer.status, path) == (200, path)
        found = links_of(answer)
        waiting += [link.partition("#")[0] for link in found.links if link.startswith("/")]
        for line in re.findall('<code class="copied">(.*?)</code>', answer.body.decode()):
            commands[parsed(unescape(line))[0]] += 1
    kinds = {re.sub(r"^(/\w+/).*|\?.*", r"\1", path) for path in seen}
    assert kinds >= {"/", "/brokers/", "/topics", "/topics/", "/groups", "/events", "/changes", "/connected"}
    assert {
        "brokers",
        "why",
        "topics",
        "route",
        "queues",
        "groups",
        "group show",
        "offsets show",
        "locks",
        "doctor",
    } <= set(commands)
    assert len(seen) > 40


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("path", PATHS)
async def test_hostile_texts_are_texts_and_nothing_is_loaded_from_elsewhere(server: NameServerApp, path: str) -> None:
    answer = await ask(server.monitoring_port, path)
    found = links_of(answer)

    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"] == PAGE_POLICY
    assert found.tags["img"] == 0
    assert (found.tags["script"], found.tags["style"], found.handlers) == (1, 1, [])
    assert [link for link in found.links if not link.startswith(("/", "#", "data:,"))] == []
    if path in {"/", "/brokers/c1/a", "/connected"}:
        assert MARKUP in text_of(answer)


def test_the_script_never_inserts_text_as_markup() -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", SCRIPT)
    assert PAGE_POLICY.count("'sha256-") == 2
    assert "unsafe" not in PAGE_POLICY
    assert "form-action 'self'" in PAGE_POLICY


@pytest.mark.usefixtures("fleet")
async def test_the_page_of_a_broker_explains_it_as_why_does(server: NameServerApp, clock: ManualClock) -> None:
    for cluster, name in (("c1", "sick"), ("c1", "a"), ("c2", "gone")):
        shown = text_of(await ask(server.monitoring_port, f"/brokers/{cluster}/{name}"))
        printed = await ctl("--namesrv", server.addr, "why", name, "--cluster", cluster)
        facts = re.findall(
            r"^    (rule|reason|heartbeat|stream|probe|outage|window) +(.*?)\s*$", printed.out, re.MULTILINE
        )
        assert len(facts) >= (2 if name == "gone" else 4)
        # The command measures an outage that lasts by its own machine's clock.
        found = [f"{fact} {text}" for fact, text in facts if fact != "outage"]
        assert [line for line in found if " ".join(line.split()) not in shown] == []
    assert clock.monotonic() > 0


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/", ["problems, ", "c1/sick", "1 broker departed unplanned: c2/gone/0.", "Group %g is stuck in 1"]),
        ("/?state=GONE", ["1 to 1 of 1 brokers", "gone 0"]),
        ("/?cluster=c2&name=-t", ["1 to 1 of 1 brokers", "-t 0", "write permission wiped"]),
        ("/?state=OUT&cluster=c9", ["No brokers found"]),
        ("/topics?problem=ANY", ["1: no broker is up", "paid", "not all of its brokers can be written"]),
        (
            "/topics/orders",
            ["An operator wiped the write permission of c2/-t.", "Queue 3 of topic orders on a gets 18.0"],
        ),
        ("/topics/paid", ["No broker that has it is up", "c2/gone/0 GONE SILENCE"]),
        ("/groups/%25g", ["900", "1 2, 7", "pointsmanctl --namesrv", "offsets %g", "--output=json group %g"]),
        ("/events?kind=EXPIRED", ["1 to 1 of 1 events", "c2/gone/0"]),
        ("/brokers/c1/sick", ["A maintenance window of this broker name is open for another", "by zoe"]),
        ("/brokers/c2/-t", ["An operator wiped the write permission of its topics", "why --cluster=c2 -- -t"]),
        ("/connected", ["agent", "No client watches a topic", "[remoting] listen"]),
    ],
)
async def test_pages_show_what_their_address_selects(server: NameServerApp, path: str, parts: list[str]) -> None:
    async def shown() -> str:
        return text_of(await ask(server.monitoring_port, path))

    found = await read_until(shown, lambda text: "No events found" not in text)
    assert [part for part in parts if part not in found] == []


@pytest.mark.parametrize("path", ["/brokers/c1/none", "/topics/none", "/groups/none", "/topics/a/b/c", "/brokers/c1"])
async def test_what_is_unknown_is_a_page_for_browsers_and_json_for_programs(server: NameServerApp, path: str) -> None:
    page = await ask(server.monitoring_port, path, Accept="text/html,*/*")
    assert (page.status, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert page.headers["Content-Security-Policy"] == PAGE_POLICY
    assert (await ask(server.monitoring_port, path)).error[0] == 404


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    "path",
    [
        "/?state=DOWN",
        "/?page=0",
        "/?sort=size",
        "/?cluster=a&cluster=b",
        "/topics?problem=x",
        "/topics/orders?name=a",
        "/events?since=yesterday",
        f"/?name={'x' * 300}",
        "/brokers/c1/a?page=x",
        "/groups?sort=-x",
    ],
)
async def test_a_parameter_that_is_wrong_is_refused(server: NameServerApp, path: str) -> None:
    assert (await ask(server.monitoring_port, path)).error[:2] == (400, "INVALID_REQUEST")


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("path", ["/", "/topics", "/topics/orders", "/brokers/c1/b07", "/groups", "/connected"])
async def test_a_page_is_served_while_brokers_come_and_go(
    server: NameServerApp, peer: Peer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    for number in range(30):
        await register(peer, "orders", f"t{number}", name=f"b{number:02}")
    leaving = iter(range(30))
    steps = 0

    async def leave(_: object) -> None:
        nonlocal steps
        steps += 1
        if (number := next(leaving, None)) is not None:
            server.core.evict("c1", f"b{number:02}", 0, now=server.clock.monotonic(), detail={})

    monkeypatch.setattr(Slices, "pause", leave)
    assert (await ask(server.monitoring_port, path)).status == 200
    assert steps


async def test_filters_and_pages_need_no_further_walk(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    walks = Counter[str]()

    def counted(kind: str, build: Any) -> Any:
        async def collect(*arguments: Any) -> Any:
            walks[kind] += 1
            return await build(*arguments)

        return collect

    builds = {kind: counted(kind, build) for kind, build in page_documents.BUILDS.items()}
    monkeypatch.setattr(page_documents, "BUILDS", builds)
    async with running_name_server(clock=clock) as app:
        async with peer_of(app.addr) as other:
            await register(other, "orders")
        for path in ("/", "/?state=UP", "/?sort=name&page=2", "/events", "/events?kind=REGISTERED", "/changes"):
            assert (await ask(app.monitoring_port, path)).status == 200
        assert walks == {"page fleet": 1, "page events": 1, "page live": 1}
        await clock.advance(1.1)
        assert (await ask(app.monitoring_port, "/")).status == 200
        assert walks == {"page fleet": 2, "page events": 1, "page live": 1}


async def test_only_the_first_page_waits_for_measurements_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any) -> Any:
        begun.set()
        await may_end.wait()
        return await page_documents.live(*arguments)

    monkeypatch.setattr(page_documents, "BUILDS", {**page_documents.BUILDS, "page live": slow})
    monkeypatch.setattr(page_source, "SOON_SECONDS", 60.0)
    async with running_name_server() as app:
        first = asyncio.create_task(ask(app.monitoring_port, "/"))
        await begun.wait()
        assert "are being read" in text_of(await ask(app.monitoring_port, "/"))
        assert not first.done()
        may_end.set()
        assert "are being read" not in text_of(await first)


async def test_topics_are_counted_again_only_after_a_change(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    await register(peer, "orders", name="a")
    before = text_of(await ask(server.monitoring_port, "/topics"))
    assert "1 of 1" in before
    await register(peer, "orders", name="b")
    await clock.advance(2)
    assert "2 of 2" in text_of(await ask(server.monitoring_port, "/topics"))
    await register(peer, "paid", name="c", cluster="c2")
    await clock.advance(2)
    assert "orders" not in text_of(await ask(server.monitoring_port, "/topics?cluster=c2"))


async def register_sick(addr: str) -> None:
    async with peer_of(addr) as peer:
        await register(peer, "orders", name="sick", health=SICK)


async def test_a_broker_that_only_another_name_server_lost_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_comparison, "WAIT_FOR_EACH_SECOND", 0.0)
    async with running_name_server() as other:
        peers = PeersConfig(name_servers=(other.addr,), poll_seconds=0.1, timeout_seconds=30.0)
        monitoring = MonitoringConfig(
            listen="127.0.0.1:0", broker_url="https://grafana/d?b={broker}", runbook_url="https://wiki/runbook"
        )
        async with running_name_server(peers=peers, monitoring=monitoring) as app:
            async with peer_of(app.addr) as here, peer_of(other.addr) as there:
                for name in ("a", "b"):
                    await register(here, "orders", name=name)
                await register(there, "orders", name="a")
            found = app.parts.peers.results
            await eventually(lambda: bool(found[0].unrouted) and found[0].in_a_row >= peer_comparison.PROBLEM_AFTER)
            assert {f"{position}": state for position, state in (found[0].brokers or {}).items()} == {
                "c1/b/0": "NOT ROUTED"
            }
            page = await ask(app.monitoring_port, "/")
            shown = text_of(page)
            assert f"At {other.addr}" in shown
            assert f"Name server {other.addr} does not route brokers that are UP here: c1/b/0." in shown
            assert page.body.count(b">NOT ROUTED<") == 1
            assert f"pointsmanctl --namesrv {app.addr},{other.addr} brokers" in shown
            broker = await ask(app.monitoring_port, "/brokers/c1/b")
            assert f"at {other.addr} NOT ROUTED" in text_of(broker)
            assert 'href="https://grafana/d?b=b"' in broker.body.decode()
            await register_sick(app.addr)
            sick = await ask(app.monitoring_port, "/brokers/c1/sick")
            assert 'href="https://wiki/runbook#pointsmanbrokersunhealthy"' in sick.body.decode()


async def test_a_page_during_the_warm_up_is_not_ready_for_what_may_come() -> None:
    async with running_name_server(warm_up_seconds=45.0) as app:
        assert (await ask(app.monitoring_port, "/topics/none")).error[:2] == (503, "NOT_READY")
        assert "WARMING" in text_of(await ask(app.monitoring_port, "/"))


async def test_watches_and_rocketmq_clients_are_counted() -> None:
    async with (
        running_name_server(remoting=RemotingConfig(listen="127.0.0.1:0")) as app,
        remoting_peer(app.remoting_addr) as one,
        remoting_peer(app.remoting_addr),
    ):
        await one.ask(106)
        async with peer_of(app.addr) as peer:
            watch = peer.route.WatchTopicRoutes(WatchTopicRoutesRequest(topics=[KnownRoute(topic="orders")]))
            await eventually(lambda: app.parts.hub.count == 1)
            assert "1, of 1 topic" in text_of(await ask(app.monitoring_port, "/connected"))
            watch.cancel()
        shown = text_of(await ask(app.monitoring_port, "/connected"))
    assert "no request yet" in shown
    assert "JAVA 5.3.3 1 0" in shown or "OTHER 5.3.3 1 0" in shown


async def test_a_viewer_sees_every_page_and_changes_nothing(tmp_path: Path) -> None:
    tokens = TokenFolder(tmp_path, "ops", "on-call", "app")
    roles = {"ops": "admin", "on-call": "viewer", "app": "client"}
    grants = [Grant(identity=name, role=role) for name, role in roles.items()]
    async with running_name_server(access=tokens.settings(*grants)) as app, peer_of(app.addr) as peer:
        for path in ("/", "/topics", "/groups", "/events", "/changes", "/connected", "/v1/status", "/v1/brokers"):
            statuses = []
            for name in ("on-call", "ops", "app"):
                basic = base64.b64encode(f"anyone:{tokens.tokens[name]}".encode()).decode()
                statuses.append((await ask(app.monitoring_port, path, Authorization=f"Basic {basic}")).status)
            assert (path, statuses) == (path, [200, 200, 403])
        refused = await ask(app.monitoring_port, "/", Accept="text/html")
        assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Basic realm="pointsman"')
        assert refused.headers["Content-Type"].startswith("text/html")

        header = tokens.header("on-call")
        assert (await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest(), metadata=header)).node
        for change in (
            peer.admin.SetDrain(admin.SetDrainRequest(draining=True, by="x"), metadata=header),
            peer.admin.PutKv(admin.PutKvRequest(namespace="n", key="k", value="v", by="x"), metadata=header),
            peer.admin.SetWritePerm(admin.SetWritePermRequest(cluster="c1", broker_name="a", by="x"), metadata=header),
            peer.registration.RegisterBroker(wire.registration(wire.topic("t")), metadata=header),
        ):
            denied = await refusal_of(change)
            assert denied.status is grpc.StatusCode.PERMISSION_DENIED
