"""What the history gets of a change of a topic, within its limits."""

from __future__ import annotations

import pytest
from google.protobuf.json_format import MessageToDict, MessageToJson

from pointsman_ctl.commands.topic_commands import _record
from pointsman_ctl.output.topic_plan import TopicChange, TopicPlan
from pointsman_ctl.servers.topic_brokers import HeldTopic, TopicSettings


def plan(topic: str, *brokers: str) -> TopicPlan:
    held = HeldTopic(TopicSettings(4, 4))
    changes = [
        TopicChange(f"10.0.0.1:{port}", each, held, (), TopicSettings(8, 8)) for port, each in enumerate(brokers)
    ]
    return TopicPlan(topic, changes)


def test_the_settings_of_each_broker_are_recorded() -> None:
    record = _record(plan("orders", "c1/a", "c1/b"), "Give topic orders 8 queues", "pointsmanctl ...")
    assert (record.what, record.cluster, list(record.broker_names)) == (
        "topic orders: give topic orders 8 queues",
        "c1",
        ["a", "b"],
    )
    assert MessageToDict(record)["before"] == {"c1/a": "4 queues, rw", "c1/b": "4 queues, rw"}
    assert MessageToDict(record)["after"] == {"c1/a": "8 queues, rw", "c1/b": "8 queues, rw"}
    assert _record(plan("orders", "c1/a", "c2/a"), "Give", "").cluster == ""


@pytest.mark.parametrize(("count", "is_named"), [(15, True), (17, False), (2_000, False)])
def test_long_names_and_many_brokers_fit_into_a_record(count: int, is_named: bool) -> None:
    name = "n" * 120
    brokers = [f"{name}/{name}{number}" for number in range(count)]
    record = _record(plan("t" * 127, *brokers), f"Give topic {'t' * 127} 8 queues", "")
    assert len(record.what) <= 256
    assert len(record.broker_names) <= 1_000
    assert len(MessageToJson(record.after, indent=None).encode()) <= 4_096
    assert len(MessageToDict(record)["after"]) == (count if is_named else 1)
