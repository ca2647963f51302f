"""A name server's routes at a time, replayed from its rows: against the real core, and rule by rule."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pointsman.history.past_route import NO_DATA, NOT_READ, ROUTE, UNKNOWN_TOPIC, RouteResult, route_of
from pointsman.history.replay import GroupView
from tests.spark.histories import NameServer, broker, moment
from tests.spark.recorded_core import TOPICS, RecordedCore
from tests.spark.topic_history_rows import story_of

UTC = ZoneInfo("UTC")
HISTORIES, CALLS, MOMENTS = 120, 60, 12
MASTER, SLAVE = broker("a"), broker("a", broker_id=1)
GROUP = {"cluster": "c1", "broker_name": "a", "broker_id": None}
WHOLE = {"part": 1, "parts": 1, "full": True, "topics": {"orders": [4, 8, 6, 0]}, "removed": []}


def answer(servers: list[NameServer], at: datetime, *, topic: str = "orders") -> RouteResult:
    rows = [row for server in servers for row in server.rows]
    return route_of(story_of(rows, topic, at=at), topic, at, cluster=None)


def seen(server: NameServer, at: datetime) -> GroupView:
    """How the one name server saw the one broker name."""
    (found,) = answer([server], at).brokers
    return found.views[0].seen


def record_topics(
    server: NameServer,
    at: datetime,
    about: dict[str, Any],
    *,
    version: str = "0.0.1",
    reason: str | None = None,
    **detail: Any,
) -> None:
    """A broker's topics; by default a full set of one topic."""
    server.say("TOPICS", at, about, reason=reason, data_version=version, detail=WHOLE | detail)


def registered(server: NameServer, at: datetime, about: dict[str, Any], *, version: str = "0.0.1") -> None:
    server.say("REGISTERED", at, about, data_version=version)
    record_topics(server, at, about, version=version)


@pytest.fixture
def server() -> NameServer:
    """A replay with the master of one broker name, and its topic."""
    found = NameServer().start(moment(0))
    registered(found, moment(1), MASTER)
    return found


@pytest.mark.parametrize("first", range(0, HISTORIES, 20))
def test_a_replay_returns_the_routes_of_the_real_core(first: int) -> None:
    routed = 0
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        core = RecordedCore(rng)
        core.live(CALLS)
        for number in sorted(rng.sample(range(CALLS), MOMENTS)):
            noted_at, offered = core.noted[number]
            at = noted_at + timedelta(microseconds=400)
            played = route_of(story_of(core.rows, TOPICS[0], at=at), TOPICS[0], at, cluster=None)
            found = {one.group: one.views[0].seen.offered() for one in played.brokers if one.is_routed}
            assert found == offered, f"history {seed}, call {number}, {at}"
            routed += bool(offered)
    assert routed > 20


def test_a_master_that_registered_is_in_the_route_with_its_queues(server: NameServer) -> None:
    found = answer([server], moment(2))

    assert (found.outcome, found.exit_code) == (ROUTE, 0)
    assert seen(server, moment(2)).queues == (4, 8, 6)
    assert [(one.addr, one.state, one.since) for one in seen(server, moment(2)).replicas] == [
        ("a:6379", "UP", moment(1))
    ]


def test_before_it_registered_the_topic_was_unknown(server: NameServer) -> None:
    assert answer([server], moment(0.5)).outcome == UNKNOWN_TOPIC


def test_without_a_running_name_server_there_is_no_data(server: NameServer) -> None:
    server.stop(moment(60))
    later = NameServer(boot_id="b2").start(moment(70))

    assert answer([server, later], moment(61)).outcome == NO_DATA


def test_a_name_server_without_rows_for_a_long_time_gives_no_coverage(server: NameServer) -> None:
    later = NameServer(boot_id="b2").start(moment(500))

    assert answer([server, later], moment(150)).outcome == ROUTE
    assert answer([server, later], moment(152)).outcome == NO_DATA


def test_a_moment_after_the_last_row_of_all_differs_from_one_without_data(server: NameServer) -> None:
    found = answer([server], moment(3_600))
    of_warehouse = replace(found, of_tables=True, of_files=False)
    of_both = replace(found, of_tables=True)

    assert (found.outcome, found.exit_code, found.as_dict()["last_row_at"]) == (NOT_READ, 1, "2026-03-02T00:00:01.000Z")
    assert found.text(UTC).endswith("no history was read for that time: the history ends at 2026-03-02 00:00:01 UTC")
    assert of_warehouse.text(UTC).endswith("; use --history DIR to read the name servers' files too")
    assert "the warehouse, with the files that it has not read, ends at 2026-03-02" in of_both.text(UTC)


def test_one_that_wrote_later_watched_all_the_while(server: NameServer) -> None:
    server.say("NAMESRV_ALIVE", moment(3_000))

    assert answer([server], moment(1_000)).outcome == ROUTE


def test_a_slave_serves_the_topics_read_only_while_its_master_is_down(server: NameServer) -> None:
    registered(server, moment(2), SLAVE)
    server.say("EXPIRED", moment(10), MASTER, reason="SILENCE")

    assert seen(server, moment(11)).queues == (4, 8, 4)
    assert [(one.broker_id, one.state) for one in seen(server, moment(11)).replicas] == [(0, "GONE"), (1, "UP")]


def test_a_slave_without_topics_in_a_checkpoint_serves_none(server: NameServer) -> None:
    registered(server, moment(2), SLAVE)
    server.say("EXPIRED", moment(10), MASTER, reason="SILENCE")
    server.say("CHECKPOINT", moment(11), SLAVE, reason="DAY", detail={"brings_topics": False})

    assert seen(server, moment(12)).queues is None


def test_a_checkpoint_with_a_live_master_does_not_show_whether_a_slave_may_act(server: NameServer) -> None:
    registered(server, moment(2), SLAVE)
    server.say("CHECKPOINT", moment(3), SLAVE, reason="DAY", detail={"brings_topics": False})
    server.say("EXPIRED", moment(10), MASTER, reason="SILENCE")

    assert seen(server, moment(11)).queues == (4, 8, 4)


def test_a_checkpoint_that_names_a_lost_broker_changes_nothing_else(server: NameServer) -> None:
    server.say("PERM_CHANGED", moment(5), GROUP, reason="ADMIN", detail={"writable": False})
    registered(server, moment(6), SLAVE)
    server.say("EXPIRED", moment(10), SLAVE, reason="SILENCE")
    server.say("CHECKPOINT", moment(11), SLAVE, reason="DAY", state="GONE", detail={"gone_reason": "SILENCE"})

    assert seen(server, moment(12)).queues == (4, 8, 4)  # still wiped
    assert [one.state for one in seen(server, moment(12)).replicas] == ["UP", "GONE"]


def test_a_planned_shutdown_differs_from_an_expiry(server: NameServer) -> None:
    server.say("UNREGISTERED", moment(10), MASTER, reason="SHUTDOWN")

    (replica,) = seen(server, moment(11)).replicas
    assert (replica.state, replica.planned, replica.since) == ("GONE", True, moment(10))
    assert replica.reason == "SHUTDOWN"
    assert answer([server], moment(11)).outcome == UNKNOWN_TOPIC


def test_a_broker_with_a_failed_probe_is_known_and_not_routed(server: NameServer) -> None:
    server.say("PROBE_FAILED", moment(10), MASTER, reason="PROBE")
    server.say("LATE_HEARTBEAT", moment(20), MASTER)
    server.say("RECOVERED", moment(30), MASTER, reason="PROBE")

    replicas = [seen(server, moment(at)).replicas[0] for at in (11, 21, 31)]
    assert [(one.state, one.since) for one in replicas] == [
        ("OUT", moment(10)),
        ("OUT", moment(10)),
        ("UP", moment(30)),
    ]
    assert [seen(server, moment(at)).queues is None for at in (11, 21, 31)] == [True, True, False]


def test_a_probe_that_fails_in_a_maintenance_window_does_not_end_the_registration(server: NameServer) -> None:
    server.say("PROBE_FAILED", moment(10), MASTER, reason="PROBE", planned=True)

    (replica,) = seen(server, moment(11)).replicas
    assert (replica.state, replica.planned) == ("OUT", True)


def test_a_broker_kept_by_the_guard_is_routed_with_the_reason(server: NameServer) -> None:
    server.say("PROBE_FAILED", moment(10), MASTER, reason="PROBE")
    server.say("PROTECTED", moment(20), MASTER, reason="PROBE")

    (replica,) = seen(server, moment(21)).replicas
    assert (replica.state, replica.reason, replica.since) == ("PROTECTED", "PROBE", moment(20))
    assert seen(server, moment(21)).queues == (4, 8, 6)


def test_brokers_missing_after_a_restart_are_reported() -> None:
    server = NameServer().start(moment(0))
    server.say("CHECKPOINT", moment(1), MASTER, reason="START", detail={"writable": True})
    record_topics(server, moment(1), MASTER, reason="START")

    (replica,) = seen(server, moment(2)).replicas
    assert (replica.state, replica.since) == ("PROVISIONAL", None)
    assert "PROVISIONAL, since an unknown time (the name server was restarted)" in answer([server], moment(2)).text(UTC)


def test_a_suspect_broker_is_still_routed(server: NameServer) -> None:
    server.say("SUSPECTED", moment(10), MASTER, reason="SILENCE")

    assert seen(server, moment(11)).replicas[0].state == "SUSPECT"
    assert seen(server, moment(11)).queues == (4, 8, 6)


def test_a_wiped_write_permission_survives_a_checkpoint_until_it_is_restored(server: NameServer) -> None:
    server.say("PERM_CHANGED", moment(10), GROUP, detail={"writable": False})
    server.say("CHECKPOINT", moment(20), MASTER, reason="DAY", detail={"writable": False})
    server.say("PERM_CHANGED", moment(30), GROUP, detail={"writable": True})

    assert [seen(server, moment(at)).queues for at in (11, 21, 31)] == [(4, 8, 4), (4, 8, 4), (4, 8, 6)]


def test_a_deleted_topic_is_hidden_until_its_broker_registers_another_version(server: NameServer) -> None:
    server.say("TOPIC_DELETED", moment(10), GROUP, detail={"topic": "orders"})
    record_topics(server, moment(20), MASTER, reason="DAY")
    record_topics(server, moment(30), MASTER, version="0.0.2", full=False, base="0.0.1", topics={})

    assert [seen(server, moment(at)).hidden for at in (11, 21, 31)] == [True, True, False]
    assert [seen(server, moment(at)).queues is None for at in (11, 21, 31)] == [True, True, False]


def test_a_deletion_of_another_topic_hides_nothing(server: NameServer) -> None:
    server.say("TOPIC_DELETED", moment(10), GROUP, detail={"topic": "another"})

    assert not seen(server, moment(11)).hidden
    assert seen(server, moment(11)).queues == (4, 8, 6)


def test_a_deletion_outlasts_a_restart_with_a_snapshot(server: NameServer) -> None:
    server.say("TOPIC_DELETED", moment(10), GROUP, detail={"topic": "orders"})
    server.stop(moment(11))
    later = NameServer(boot_id="b2").start(moment(12))
    state = {"writable": True}
    later.say("CHECKPOINT", moment(12), MASTER, reason="START", data_version="0.0.1", detail=state)
    record_topics(later, moment(12), MASTER, reason="START")

    assert answer([server, later], moment(13)).outcome == UNKNOWN_TOPIC


def test_a_set_with_a_lost_part_removes_no_topic(server: NameServer) -> None:
    record_topics(server, moment(10), MASTER, version="0.0.2", parts=2, topics={"other": [1, 1, 6, 0]})
    record_topics(server, moment(20), MASTER, version="0.0.2", topics={"other": [1, 1, 6, 0]})

    assert [seen(server, moment(at)).queues for at in (11, 21)] == [(4, 8, 6), None]


def test_a_change_sets_and_removes_a_topic(server: NameServer) -> None:
    record_topics(
        server, moment(10), MASTER, version="0.0.2", full=False, base="0.0.1", topics={"orders": [1, 2, 6, 0]}
    )
    record_topics(server, moment(20), MASTER, version="0.0.3", full=False, base="0.0.2", topics={}, removed=["orders"])

    assert [seen(server, moment(at)).queues for at in (11, 21)] == [(1, 2, 6), None]


def test_name_servers_that_saw_different_things_are_put_side_by_side(server: NameServer) -> None:
    other = NameServer(node="ns2:9876").start(moment(0))
    registered(other, moment(1.5), MASTER)
    other.say("EXPIRED", moment(10), MASTER, reason="SILENCE")

    (found,) = answer([server, other], moment(11)).brokers

    assert not found.agreed
    assert {view.nodes: view.seen.queues for view in found.views} == {("ns1:9876",): (4, 8, 6), ("ns2:9876",): None}
    assert answer([server, other], moment(11)).exit_code == 1


def test_name_servers_that_agree_are_one_view_and_the_last_row_is_named(server: NameServer) -> None:
    other = NameServer(node="ns2:9876").start(moment(0))
    registered(other, moment(1.5), MASTER)

    (found,) = answer([server, other], moment(11)).brokers

    assert found.agreed
    (view,) = found.views
    (replica,) = view.seen.replicas
    assert view.nodes == ("ns1:9876", "ns2:9876")
    assert (replica.since, replica.recorded_at, replica.recorded_by) == (moment(1), moment(1.5), "ns2:9876")


def test_a_name_server_in_warm_up_counts_only_if_no_other_is_ready(server: NameServer) -> None:
    young = NameServer(node="ns2:9876", began_at=moment(5))
    young.say("NAMESRV_STARTED", moment(5))
    young.say("NAMESRV_READY", moment(30))

    assert [node.node for node in answer([server, young], moment(10)).nodes] == ["ns1:9876"]
    assert [node.state for node in answer([young], moment(10)).nodes] == ["WARMING"]


def test_lost_rows_are_reported(server: NameServer) -> None:
    server.say("NAMESRV_ALIVE", moment(60))
    server.say("NAMESRV_ALIVE", moment(120))
    del server.rows[-2]

    assert [node.rows_missing for node in answer([server], moment(121)).nodes] == [1]


def test_a_route_within_missing_rows_is_known_only_if_the_next_row_proves_it(server: NameServer) -> None:
    server.say("NAMESRV_ALIVE", moment(60))
    server.lose("LATE_HEARTBEAT", moment(70), MASTER)
    server.say("LATE_HEARTBEAT", moment(600), MASTER)
    server.lose("EXPIRED", moment(700), MASTER, reason="SILENCE")
    server.lose("REGISTERED", moment(800), MASTER)
    server.say("NAMESRV_ALIVE", moment(900))
    server.say("LATE_HEARTBEAT", moment(1_000), MASTER)

    found = {at: answer([server], moment(at)) for at in (59, 100, 601, 850, 950)}

    assert {at: route.outcome for at, route in found.items()} == {
        **dict.fromkeys((59, 100, 950), ROUTE),
        **dict.fromkeys((601, 850), NO_DATA),
    }
    within = found[850]
    assert [(node.last_row_at, node.rows_back_at) for node in within.nodes] == [(moment(600), moment(900))]
    assert "unknown, because rows are missing: ns1:9876" in within.text(UTC)
    assert not within.brokers[0].views[0].seen.is_known


def test_the_view_of_another_name_server_counts_while_rows_of_one_are_missing(server: NameServer) -> None:
    other = NameServer(node="ns2:9876").start(moment(0))
    registered(other, moment(1), MASTER)
    other.say("NAMESRV_ALIVE", moment(900))
    server.lose("EXPIRED", moment(100), MASTER, reason="SILENCE")
    server.lose("REGISTERED", moment(200), MASTER)
    server.say("NAMESRV_ALIVE", moment(900))

    (broker_route,) = answer([server, other], moment(150)).brokers

    assert broker_route.agreed
    assert {view.nodes: view.seen.is_known for view in broker_route.views} == {
        ("ns1:9876",): False,
        ("ns2:9876",): True,
    }


def test_no_state_is_known_in_a_hole_over_midnight(server: NameServer) -> None:
    server.lose("LATE_HEARTBEAT", moment(70), MASTER)
    server.say("CHECKPOINT", moment(1, day=1), MASTER, reason="DAY", detail={"writable": True})

    assert answer([server], moment(3_600)).outcome == NO_DATA


def test_a_broker_known_only_by_a_heartbeat_is_up_with_unknown_topics() -> None:
    server = NameServer().start(moment(0))
    record_topics(server, moment(1), MASTER, full=False, base="0.0.0")
    server.say("LATE_HEARTBEAT", moment(2), SLAVE)

    assert [(one.broker_id, one.state) for one in seen(server, moment(3)).replicas] == [(0, "UP"), (1, "UP")]


def test_a_deletion_is_not_ended_by_repeated_rows_of_a_restarted_name_server() -> None:
    """Another version of a slave ends no deletion while it comes from a snapshot; its old version is hidden again."""
    server = NameServer().start(moment(0))
    registered(server, moment(1), SLAVE)
    server.say("TOPIC_DELETED", moment(10), GROUP, detail={"topic": "orders"})
    server.stop(moment(11))
    later = NameServer(boot_id="b2").start(moment(12))
    state = {"writable": True, "brings_topics": True}
    later.say("CHECKPOINT", moment(12), SLAVE, reason="START", data_version="0.0.2", detail=state)
    record_topics(later, moment(12), SLAVE, version="0.0.2", reason="START")
    later.say("REREGISTERED", moment(13), SLAVE, reason="SNAPSHOT", data_version="0.0.2")
    later.say("REREGISTERED", moment(20), SLAVE, data_version="0.0.1")

    hidden = [answer([server, later], moment(at)).brokers[0].views[0].seen.hidden for at in (14, 21)]
    assert hidden == [False, True]


def test_a_wiped_write_permission_is_known_from_a_checkpoint_alone(server: NameServer) -> None:
    server.say("CHECKPOINT", moment(10), MASTER, reason="DAY", detail={"writable": False})
    server.say("CHECKPOINT", moment(20), MASTER, reason="DAY", detail={"writable": True})

    assert [seen(server, moment(at)).queues for at in (11, 21)] == [(4, 8, 4), (4, 8, 6)]


def test_a_replica_in_a_vacant_position_has_only_the_topics_recorded_then(
    server: NameServer,
) -> None:
    """The row of its loss is missing, and the one of its topics too."""
    server.say("REGISTERED", moment(10), MASTER, data_version="0.0.2")

    assert seen(server, moment(11)).queues is None


def test_the_same_holds_for_one_that_registers_with_its_probe_failing(server: NameServer) -> None:
    server.say("REGISTERED", moment(10), MASTER, reason="PROBE", state="OUT", data_version="0.0.2")
    server.say("RECOVERED", moment(20), MASTER, reason="PROBE", data_version="0.0.2")

    assert seen(server, moment(21)).queues is None
