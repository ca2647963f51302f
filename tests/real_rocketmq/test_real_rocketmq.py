"""Unmodified RocketMQ 5.3.3 and 4.9.7: brokers, Java clients and mqadmin with this name server alone.

In the order of the file, because the processes are shared.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.rocketmq.processes import GoClients, built_go_client, failed, free_port, got, missing_go, sent
from tests.kit.waiting import until
from tests.real_rocketmq.conftest import MANY, Fleet, Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

ALL = {f"m{i}" for i in range(10)}


def test_brokers_of_both_versions_register_themselves(fleet: Fleet) -> None:
    for name, version in (("a", "5.3.3"), ("many", "5.3.3"), ("old", "4.9.7")):

        def registered(name: str = name) -> list[dict[str, Any]]:
            return [row for row in fleet.name_server.rows(name) if row["event"] == "REGISTERED"]

        (first, *_) = until(registered, what="the history, which is written after the answer")
        assert first["detail"]["source"] == "remoting"
        assert first["broker_version"] == version
    assert fleet.name_server.addrs("a") == {"0": fleet.master.addr, "1": fleet.slave.addr}


def test_a_topic_made_by_its_first_message_reaches_clients_of_both_versions(fleet: Fleet) -> None:
    topics = {"NewOf5": (fleet.v5, fleet.v4), "NewOf4": (fleet.v4, fleet.v5)}
    assert [fleet.name_server.perms(topic) for topic in topics] == [{}, {}]
    consumers = [fleet.client(reading.consumer(topic)) for topic, (_, reading) in topics.items()]
    producers = [fleet.client(sending.producer(topic, 10)) for topic, (sending, _) in topics.items()]
    until(lambda: [sent(producer) for producer in producers] == [ALL, ALL], seconds=60, what="messages sent")
    until(lambda: [set(got(consumer)) for consumer in consumers] == [ALL, ALL], seconds=60, what="messages read")
    for topic in topics:
        assert fleet.name_server.perms(topic).keys() <= {"a", "many", "old"}


def test_a_go_client_uses_the_next_address_after_one_that_is_stopped_or_warming(
    fleet: Fleet, jars: Jars, tmp_path: Path
) -> None:
    if missing := missing_go():
        pytest.skip(missing)
    program, here = built_go_client(jars.cache), fleet.name_server.addr
    warming = Pointsman(tmp_path / "warming", warm_up_seconds=600)
    try:
        beside_stopped = GoClients(program, tmp_path / "stopped", f"127.0.0.1:{free_port()};{here}")
        beside_warming = GoClients(program, tmp_path / "warming-clients", f"{warming.addr};{here}")
        topics = {"GoStopped": beside_stopped, "GoWarming": beside_warming}
        producers = [fleet.client(clients.producer(topic, 10)) for topic, clients in topics.items()]
        until(lambda: [sent(producer) for producer in producers] == [ALL, ALL], seconds=60, what="messages sent")
        # Each query of a Go client waits 6 s for a connection that was closed: too long for a consumer in a test.
        consumers = [fleet.client(beside_stopped.consumer(topic)) for topic in topics]
        until(lambda: [set(got(consumer)) for consumer in consumers] == [ALL, ALL], seconds=60, what="messages read")
        assert [failed(producer) for producer in producers] == [[], []]
        assert warming.metric('pointsman_namesrv_remoting_requests_total{code="105",result="closed"}') >= 1
    finally:
        warming.stop()


def test_ten_thousand_topics_are_routed(fleet: Fleet) -> None:
    assert fleet.name_server.perms(f"topic-{MANY - 1}") == {"many": 6}
    topics = set(fleet.name_server.ask(206)[1]["topicList"])
    assert topics >= {f"topic-{i}" for i in range(MANY)}


def test_mqadmin_wipes_a_permission_that_survives_a_kill_of_the_name_server(fleet: Fleet) -> None:
    server = fleet.name_server
    assert server.perms("Seeded") == {"a": 6}
    assert "OK" in fleet.v5.admin("wipeWritePerm", "-b", "a")
    assert server.perms("Seeded") == {"a": 4}
    server.restart(signal.SIGKILL)
    assert server.perms("Seeded") == {"a": 4}
    until(lambda: server.events("a")[-1] == ("REREGISTERED", "SNAPSHOT"), what="an unchanged registration")
    assert server.perms("Seeded") == {"a": 4}
    assert "OK" in fleet.v5.admin("addWritePerm", "-b", "a")
    assert server.perms("Seeded") == {"a": 6}


def test_a_wipe_outlives_a_new_topic_and_ends_when_mqadmin_deletes_it(fleet: Fleet) -> None:
    server = fleet.name_server

    def rows(event: str) -> list[dict[str, Any]]:
        return [row for row in server.rows("a") if row["event"] == event and row["broker_id"] != 1]

    assert server.ask(205, brokerName="a")[0] == 0
    assert server.perms("Seeded") == {"a": 4}
    first = rows("TOPICS")[-1]["data_version"]
    assert "success" in fleet.v5.admin("updateTopic", "-b", fleet.master.addr, "-t", "ByAdmin", "-r", "2", "-w", "2")
    until(lambda: server.perms("ByAdmin") == {"a": 4}, what="the topic")
    assert server.perms("Seeded") == {"a": 4}
    until(lambda: rows("TOPICS")[-1]["data_version"] != first, what="the history")
    second = rows("TOPICS")[-1]["data_version"]
    assert "success" in fleet.v5.admin("deleteTopic", "-c", "C", "-t", "ByAdmin")
    assert server.perms("ByAdmin") == {}
    until(lambda: rows("TOPICS")[-1]["data_version"] != second, what="a new version")
    assert server.perms("ByAdmin") == {}
    assert server.perms("Seeded") == {"a": 6}
    until(lambda: rows("PERM_CHANGED")[-1]["reason"] == "DATA_VERSION", what="the history")


def test_a_killed_master_is_removed_within_the_grace_and_its_slave_is_read(fleet: Fleet) -> None:
    server = fleet.name_server
    producer = fleet.client(fleet.v5.producer("Seeded", 10))
    until(lambda: sent(producer) == ALL, what="messages sent")
    server.until_connections_count()
    time.sleep(2)  # for the slave to copy the last message
    killed_at = time.monotonic()
    fleet.master.end()
    until(lambda: set(server.addrs("a")) == {"1"}, what="the master to be out of the routes")
    assert time.monotonic() - killed_at < 25
    last = [("SUSPECTED", "STREAM_BROKEN"), ("EXPIRED", "STREAM_BROKEN")]
    until(lambda: server.events("a")[-2:] == last, what="the history")
    assert server.perms("Seeded") == {"a": 4}
    consumer = fleet.client(fleet.v5.consumer("Seeded"))
    until(lambda: "started" in consumer.said(), what="the consumer")
    time.sleep(5)
    # RocketMQ's default: a slave refuses every pull. The route is there, the broker decides.
    assert got(consumer) == []
    fleet.v5.admin("updateBrokerConfig", "-b", fleet.slave.addr, "-k", "slaveReadEnable", "-v", "true")
    until(lambda: set(got(consumer)) >= ALL, what="messages read from the slave")
    fleet.master.start_again()
    fleet.until_whole()
    assert server.perms("Seeded") == {"a": 6}
    assert ("EXPIRED", "STREAM_BROKEN") not in server.events("a", 1)


def test_clients_and_brokers_outlive_a_restart_of_the_name_server(fleet: Fleet) -> None:
    server = fleet.name_server
    producer = fleet.client(fleet.v5.producer("Seeded", 40, millis=200))
    until(lambda: len(sent(producer)) >= 5, what="the first messages")
    before = failed(producer)

    def changes() -> list[dict[str, Any]]:
        return [row for row in server.rows("many") if row["event"] == "TOPICS" and row["reason"] is None]

    written = changes()
    server.restart(signal.SIGTERM)
    until(lambda: not producer.is_alive, what="the producer to end")
    assert sent(producer) == {f"m{i}" for i in range(40)}
    assert failed(producer) == before
    for name in ("a", "many", "old"):
        until(lambda: server.events(name)[-1] == ("REREGISTERED", "SNAPSHOT"), what=f"{name} to re-register")  # noqa: B023
        assert not [event for event in server.events(name) if event[1] == "SILENCE"]
    # A registration without changes is a heartbeat.
    assert changes() == written
    assert server.errors() == []


def test_a_stopped_broker_is_removed_immediately_and_its_last_heartbeats_do_not_restore_it(fleet: Fleet) -> None:
    server, stopped = fleet.name_server, {"many": fleet.many, "old": fleet.old}
    for broker in stopped.values():
        broker.send(signal.SIGTERM)
    until(lambda: not server.addrs("many") and not server.addrs("old"), seconds=10, what="both to leave")
    for broker in stopped.values():
        broker.end(signal.SIGTERM)
    assert server.addrs("many") == server.addrs("old") == {}
    assert server.perms("topic-1") == {}
    for name in stopped:
        until(lambda: server.events(name)[-1] == ("UNREGISTERED", "SHUTDOWN"), what="the history")  # noqa: B023
    fleet.old.start_again()
    until(lambda: set(server.addrs("old")) == {"0"}, what="its return")
