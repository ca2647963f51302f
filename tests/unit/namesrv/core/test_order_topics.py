"""Order configurations beyond the queues of a topic: rejected when set, or reported if brokers register later."""

from __future__ import annotations

import pytest

from pointsman.wire.refusals import InvalidRequest
from pointsman_namesrv.core.administration import Administration
from pointsman_namesrv.core.kv import ORDER_TOPIC_NAMESPACE, KvEntry
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    Evidence,
    Health,
    ProbeVerdict,
    QueueConfig,
    Registration,
)
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.order_topics import MAX_REPORTED, order_problems


def register(
    core: NameServer, name: str, topics: dict[str, int], *, cluster: str = "c1", health: Health = Health()
) -> Registration:
    registration = Registration(
        identity=BrokerIdentity(cluster, name, 0, f"{cluster}-{name}:1"),
        topics={topic: QueueConfig(queues, queues, 6) for topic, queues in topics.items()},
        data_version=DataVersion(0, 0, 1),
        health=health,
    )
    core.register(registration, now=0.0)
    return registration


def put(core: NameServer, conf: str, topic: str = "orders") -> bool:
    return Administration(core).put_kv(ORDER_TOPIC_NAMESPACE, topic, conf, by="ann").changed


def refusal(core: NameServer, conf: str) -> str:
    with pytest.raises(InvalidRequest) as refused:
        put(core, conf)
    assert core.kv.order_topics() == {}
    return str(refused.value)


def test_more_queues_than_a_broker_has_are_refused_with_broker_and_both_numbers(core: NameServer) -> None:
    register(core, "broker-a", {"orders": 2})

    message = refusal(core, "broker-a:5")

    assert "configures 5 queues of topic orders on broker broker-a, which has 2" in message
    assert put(core, "broker-a:2")


def test_each_broker_that_has_too_few_is_named(core: NameServer) -> None:
    register(core, "a", {"orders": 2})
    register(core, "b", {"orders": 1})
    register(core, "c", {"orders": 9})

    with pytest.raises(InvalidRequest) as refused:
        put(core, "a:3;b:4;c:9")

    problems = [violation.description for violation in refused.value.violations]
    assert ["broker a, which has 2" in problems[0], "broker b, which has 1" in problems[1]] == [True, True]
    assert len(problems) == 2


def test_a_broker_without_the_topic_has_none_of_its_queues(core: NameServer) -> None:
    register(core, "a", {"orders": 2})
    register(core, "b", {"mail": 2})

    assert "broker b, which has 0" in refusal(core, "a:2;b:2")


def test_before_a_broker_registers_its_part_of_a_configuration_is_accepted(core: NameServer) -> None:
    register(core, "a", {"orders": 2})

    assert put(core, "a:2;later:8")


@pytest.mark.parametrize("known", [{}, {"mail": 2}])
def test_before_any_broker_has_the_topic_every_configuration_is_accepted(
    core: NameServer, known: dict[str, int]
) -> None:
    register(core, "a", known)

    assert put(core, "a:5")


def test_of_a_name_in_two_clusters_the_larger_number_counts(core: NameServer) -> None:
    register(core, "a", {"orders": 2})
    register(core, "a", {"orders": 4}, cluster="c2")

    assert put(core, "a:4")
    with pytest.raises(InvalidRequest, match="which has 4"):
        put(core, "a:5")


def test_a_broker_whose_probe_fails_still_has_its_queues(core: NameServer) -> None:
    register(core, "a", {"orders": 2}, health=Health(ProbeVerdict.FAILING, evidence=Evidence.STRONG))

    assert "which has 2" in refusal(core, "a:5")


def test_a_configuration_beyond_a_topic_that_shrank_is_refused_when_it_is_set_again(core: NameServer) -> None:
    registration = register(core, "a", {"orders": 2})
    assert put(core, "a:2")
    core.update_topics(
        registration.identity,
        1,
        base=DataVersion(0, 0, 1),
        data_version=DataVersion(0, 0, 2),
        changed={"orders": QueueConfig(2, 1, 6)},
        removed=[],
        max_topics=10,
        now=1.0,
    )

    (problem,) = order_problems(core.routes, core.kv)
    assert problem.startswith("the order configuration of topic orders has 2 queues on broker a, which has 1: clients")
    with pytest.raises(InvalidRequest, match="which has 1"):
        put(core, "a:2")


def test_what_was_set_before_the_brokers_registered_is_reported_once_they_have(core: NameServer) -> None:
    put(core, "a:5")
    assert order_problems(core.routes, core.kv) == []
    register(core, "a", {"orders": 5})
    assert order_problems(core.routes, core.kv) == []
    register(core, "a", {"orders": 2})
    assert len(order_problems(core.routes, core.kv)) == 1


def test_order_topics_of_a_snapshot_are_restored_unchanged(core: NameServer) -> None:
    register(core, "a", {"orders": 2})

    core.kv.restore([KvEntry(ORDER_TOPIC_NAMESPACE, "orders", "a:5")])

    assert core.kv.order_topics() == {"orders": "a:5"}


def test_the_report_is_bounded(core: NameServer) -> None:
    topics = [f"t{number:02}" for number in range(2 * MAX_REPORTED)]
    for topic in topics:
        put(core, "a:5", topic)
    register(core, "a", dict.fromkeys(topics, 2))

    problems = order_problems(core.routes, core.kv)

    assert len(problems) == MAX_REPORTED + 1
    assert problems[-1] == f"{MAX_REPORTED} more order configurations exceed their topics"
