"""``pointsmanctl doctor``: what is wrong with a fleet, a topic, a broker or a group, and the next step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as messages
from pointsman_namesrv.app import NameServerApp
from tests.kit.agent.group_clients import Consumer, reads
from tests.kit.agent.in_route import WholeAgent, whole_agents
from tests.kit.ctl.command import Ended, ctl
from tests.kit.ctl.command_line import parsed
from tests.kit.ctl.keys import undocumented_keys
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import peer_of, register_at
from tests.kit.name_server.scripted_admin import scripted_admin_server
from tests.kit.name_server.scripted_routes import refused_addr
from tests.kit.waiting import eventually

REFUSING = broker_pb2.BrokerHealth(
    status=broker_pb2.PROBE_STATUS_FAILING, evidence=broker_pb2.PROBE_EVIDENCE_STRONG, detail="connection refused"
)


@dataclass
class Fleet:
    """Two name servers, and two brokers with an agent each, registered at both."""

    one: NameServerApp
    two: NameServerApp
    a: WholeAgent
    b: WholeAgent

    async def doctor(self, *arguments: str) -> Ended:
        return await ctl("--namesrv", f"{self.one.addr},{self.two.addr}", "doctor", *arguments)

    async def kinds(self, *arguments: str) -> list[tuple[str, str, list[str]]]:
        """Severity and kind, subject, name servers; checks the exit code."""
        ended = await self.doctor("-o", "json", *arguments)
        findings = ended.document["findings"]
        assert ended.code == (1 if findings else 0), ended.err
        return [(f"{each['severity']} {each['kind']}", each["subject"], each["servers"]) for each in findings]

    @property
    def both(self) -> list[str]:
        return [self.one.addr, self.two.addr]


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with (
        running_name_server() as one,
        running_name_server() as two,
        whole_agents(("a", 0), ("b", 0), clock=SystemClock(), name_servers=[one, two]) as (a, b),
    ):
        # Agents of the kit have one address for all masters.
        b.identity = wire.identity("b", addr="10.0.0.2:10911")
        for app in (one, two):
            await b.register(app)
        await eventually(lambda: all(agent.groups.core.state.value == "ready" for agent in (a, b)))
        yield Fleet(one, two, a, b)


async def test_a_healthy_fleet_has_no_findings(fleet: Fleet) -> None:
    whole, cluster = await fleet.doctor(), await fleet.doctor("--cluster", "c1")
    for ended in (whole, cluster):
        assert (ended.code, ended.out, ended.err) == (
            0,
            "queues measured at 0 of 2 brokers; see `pointsmanctl queues`\nno findings; 2 name servers checked\n",
            "",
        )
    for name in ("orders", "a"):
        ended = await fleet.doctor(name)
        assert (ended.code, ended.out.splitlines()[-1]) == (0, "no findings; 2 name servers checked")


async def test_a_broker_whose_probe_fails_is_found_with_the_command_that_explains_it(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    for app in (fleet.one, fleet.two):
        await fleet.b.register(app, health=REFUSING)
    assert await fleet.kinds() == [
        ("ALARM NO_MASTER", "c1/b", fleet.both),
        ("ALARM OUT", "c1/b/0", fleet.both),
    ]
    assert await fleet.kinds("orders") == [("WARNING ONE_LEFT", "topic orders", fleet.both)]
    text = (await fleet.doctor()).out
    assert "OUT c1/b/0: for " in text
    assert "reason REFUSED" in text
    assert "probe failing, strong evidence" in text
    assert "  To do: `pointsmanctl why b`; deploy/runbook.md#pointsmanbrokersunhealthy\n" in text
    assert text.endswith("\n2 alarms; 2 name servers checked\n")
    document = (await fleet.doctor("-o", "json")).document
    assert not undocumented_keys(document, ["doctor"], capsys=capsys)


async def test_a_lost_broker_is_departed_and_its_topic_has_one_broker_left_at_that_server(clock: ManualClock) -> None:
    async with running_name_server(clock=clock) as app:
        await register_at(app.addr, "orders", who=wire.identity("a", addr="10.0.0.1:10911"))
        await clock.advance(200.0)
        ended = await ctl("--namesrv", app.addr, "-o", "json", "doctor")
        departed = [each for each in ended.document["findings"] if each["kind"] == "DEPARTED"]
        topic = await ctl("--namesrv", app.addr, "doctor", "orders")
        broker = await ctl("--namesrv", app.addr, "doctor", "a")
    assert ended.code == 1
    assert [(each["severity"], each["subject"]) for each in departed] == [("ALARM", "c1/a/0")]
    assert departed[0]["remedy"].endswith("if it does not return: `pointsmanctl evict c1/a/0`")
    assert topic.code == 1
    assert "NO BROKER topic orders: no broker that has it is up: it can neither be written nor read; " in topic.out
    assert "not routed: c1/a/0 (" in topic.out
    assert (broker.code, "DEPARTED c1/a/0: unplanned: EXPIRED " in broker.out) == (1, True)
    assert f"c1/a/0 at {app.addr}: GONE since " in broker.out


async def test_a_name_server_that_is_down_is_the_first_finding_and_the_others_are_checked(fleet: Fleet) -> None:
    await fleet.b.register(fleet.one, health=REFUSING)
    async with refused_addr() as down:
        ended = await ctl("--namesrv", f"{down},{fleet.one.addr}", "doctor")
        nothing = await ctl("--namesrv", down, "doctor")
    assert ended.code == 1
    assert ended.out.splitlines()[0] == f"NOT RESPONDING {down}: connection refused"
    assert "OUT c1/b/0" in ended.out
    assert "1 of 2 name servers failed" in ended.err
    assert (nothing.code, nothing.out) == (1, "")
    assert "no name server is responding" in nothing.err


async def test_a_permission_that_one_name_server_wiped_is_found(fleet: Fleet) -> None:
    assert (await ctl("--namesrv", fleet.two.addr, "wipe-write-perm", "a")).code == 0
    found = await fleet.kinds()
    one, two = fleet.both
    assert ("WARNING WRITE_WIPED", "c1/a", [two]) in found
    assert ("WARNING SETTING_DIFFERS", "wiped permission c1/a", []) in found
    assert ("WARNING ROUTES_DIFFER", f"{one} and {two}", []) in found
    of_topic = await fleet.doctor("orders")
    assert of_topic.code == 1
    assert f"ROUTES DIFFER topic orders: {two} differs from {one}: ~ queues of c1/a: perm rw -> r\n" in of_topic.out
    assert "add-write-perm a --cluster c1` restores it" in of_topic.out


async def test_a_guard_that_is_not_auto_is_found(fleet: Fleet) -> None:
    assert (await ctl("--namesrv", fleet.one.addr, "guard", "hold", "--cluster", "c1")).code == 0
    found = await fleet.kinds("--cluster", "c1")
    assert ("WARNING GUARD_SET", "c1", [fleet.one.addr]) in found
    assert ("WARNING SETTING_DIFFERS", "guard c1", []) in found


async def test_a_topic_without_a_master_or_at_one_name_server_only(fleet: Fleet) -> None:
    who = wire.identity("c", broker_id=1, addr="10.0.0.3:10911")
    await register_at(fleet.one.addr, "bills", who=who)
    one, two = fleet.both
    assert await fleet.kinds("bills") == [
        ("ALARM NOT_WRITABLE", "topic bills", [one]),
        ("ALARM TOPIC_MISSING", f"topic bills at {two}", []),
        ("WARNING NO_MASTER", "topic bills", [one]),
    ]
    await fleet.b.register(fleet.two, health=REFUSING)
    assert ("WARNING ONE_LEFT", "topic orders", [two]) in await fleet.kinds("orders")


async def test_a_broker_that_one_name_server_sees_otherwise(fleet: Fleet) -> None:
    await fleet.b.register(fleet.two, health=REFUSING)
    one, two = fleet.both
    assert await fleet.kinds("b") == [
        ("ALARM NO_MASTER", "c1/b", [two]),
        ("ALARM OUT", "c1/b/0", [two]),
        ("WARNING STATES_DIFFER", "c1/b/0", []),
    ]
    text = (await fleet.doctor("b")).out
    assert f"STATES DIFFER c1/b/0: UP at {one}, OUT at {two}\n" in text
    assert f"c1/b/0 at {one}: UP for " in text


async def test_a_group_is_checked_at_its_agents(fleet: Fleet) -> None:
    async with joined(fleet.a, "10.0.0.1@x", "billing"), joined(fleet.b, "10.0.0.2@y", "billing"):
        found = await fleet.doctor("billing")
        document = (await fleet.doctor("-o", "json", "billing")).document
        whole = await fleet.kinds()
    assert document["matched"] == ["group"]
    assert document["notes"] == []
    assert found.code == 1
    assert "DIFFERS group billing: " in found.out
    assert "does not know 10.0.0.2@y" in found.out
    assert "  To do: `pointsmanctl group billing --queues`; deploy/runbook.md#" in found.out
    assert ("WARNING DIFFERS", "billing", []) in whole


async def test_a_group_of_a_broker_that_is_out_is_checked_at_its_agent(fleet: Fleet) -> None:
    for app in (fleet.one, fleet.two):
        await fleet.b.register(app, health=REFUSING)
    async with joined(fleet.b, "10.0.0.2@y", "billing"):
        document = (await fleet.doctor("-o", "json", "billing")).document
    assert (document["matched"], document["findings"], document["notes"]) == (["group"], [], [])


async def test_another_cluster_is_left_out_and_one_that_a_name_server_does_not_know_is_a_finding(fleet: Fleet) -> None:
    who = wire.identity("z", addr="10.0.0.9:10911", cluster="c2")
    await register_at(fleet.one.addr, "other", who=who)
    await ctl("--namesrv", fleet.one.addr, "guard", "off", "--cluster", "c2")
    assert await fleet.kinds("--cluster", "c1") == []
    one, two = fleet.both
    found = await fleet.kinds("--cluster", "c2")
    assert ("WARNING NOT_CHECKED", f"brokers of {two}", []) in found
    assert ("WARNING SETTING_DIFFERS", "guard c2", []) in found
    assert ("WARNING ROUTES_DIFFER", f"{one} and {two}", []) in found


async def test_what_queues_finds_is_found(fleet: Fleet) -> None:
    stats = messages.QueueStats(
        top_groups=[messages.GroupTotals(group="left", topic="orders", queue_count=4, lag=70)],
    )
    who = wire.identity("m", addr="10.0.0.9:10911")
    async with peer_of(fleet.one.addr) as peer:
        beat = wire.beat(await peer.register("orders", who=who), who=who)
        live = messages.LiveQueues(stats=stats, age=Duration(seconds=4)).SerializeToString()
        await peer.registration.Heartbeat(messages.HeartbeatRequest(beat=beat, live_queues=live))
    for name in ((), ("orders",)):
        assert ("ALARM NO_MEMBERS", "left in orders", []) in await fleet.kinds(*name)


async def test_an_unknown_name_is_an_error_with_similar_names(fleet: Fleet) -> None:
    ended = await fleet.doctor("ordres")
    message = "pointsmanctl: no topic, broker name or consumer group is named ordres; did you mean topic orders?\n"
    assert (ended.code, ended.out, ended.err) == (1, "", message)
    other = await fleet.doctor("zzz", "--cluster", "c1")
    assert "is named zzz in cluster c1; see `pointsmanctl topics`" in other.err
    cluster = await fleet.doctor("--cluster", "c9")
    assert (cluster.code, "c9" in cluster.err) == (1, True)


async def test_what_an_older_name_server_does_not_know_is_named_and_the_rest_is_checked() -> None:
    async with scripted_admin_server() as old:
        old.brokers = [admin_status("a")]
        ended = await ctl("--namesrv", old.addr, "doctor")
    assert ended.code == 1
    assert f"NOT CHECKED queues of {old.addr}: " in ended.out
    assert "To do: upgrade it: deploy/runbook.md#procedures" in ended.out
    assert "SUSPECT c1/a/0" in ended.out


async def test_every_next_step_is_a_command_that_exists(fleet: Fleet) -> None:
    for app in (fleet.one, fleet.two):
        await fleet.b.register(app, health=REFUSING)
    await ctl("--namesrv", fleet.two.addr, "wipe-write-perm", "a")
    await ctl("--namesrv", fleet.one.addr, "guard", "hold", "--cluster", "c1")
    commands = [
        part
        for name in ((), ("orders",), ("a",), ("b",))
        for finding in (await fleet.doctor("-o", "json", *name)).document["findings"]
        for part in finding["remedy"].split("`")[1::2]
    ]
    assert len(commands) > 8
    for line in commands:
        parsed(line)


def admin_status(name: str, **facts: Any) -> broker_pb2.BrokerStatus:
    return broker_pb2.BrokerStatus(
        identity=wire.identity(name, addr="10.0.0.1:10911"), state=broker_pb2.BROKER_STATE_SUSPECT, **facts
    )


@asynccontextmanager
async def joined(agent: WholeAgent, client_id: str, group: str) -> AsyncIterator[None]:
    consumer = Consumer(agent.addr, client_id)
    await consumer.beat(reads(group, "orders"))
    try:
        yield
    finally:
        await consumer.crash()
