"""Settings of consumers that are refused, each by its name and value, before anything starts."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pytest

from pointsman_client.consumer.consumer_identity import local_address, make_client_id
from pointsman_client.consumer.pull_consumer import PullConsumer
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.rebalance import ConsumeFrom, MessageModel
from pointsman_client.errors import InvalidAddressError, InvalidInputError, InvalidNameError, InvalidOptionError
from pointsman_client.memory import MemoryTransport


def push(**settings: Any) -> PushConsumer:
    given: dict[str, Any] = {
        "name_servers": "127.0.0.1:9876",
        "group": "billing",
        "subscriptions": {"orders": "*"},
        "listener": print,
        "transport": MemoryTransport,
    }
    given |= settings
    return PushConsumer(given.pop("name_servers"), **given)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("consume_concurrency", 0),
        ("consume_concurrency", 65),
        ("consume_timeout_seconds", 0.0),
        ("max_reconsume_times", -1),
        ("max_reconsume_times", 2**31),
        ("pull_batch_size", 0),
        ("pull_batch_size", 1_025),
        ("pull_wait_seconds", float("nan")),
        ("pull_timeout_seconds", -1.0),
        ("pull_threshold_for_queue", 0),
        ("pull_threshold_size_for_queue_bytes", 0),
        ("consume_max_span", 0),
        ("rebalance_interval_seconds", 0.5),
        ("handover_timeout_seconds", float("inf")),
        ("persist_offset_interval_seconds", 0.0),
        ("close_timeout_seconds", 0.0),
        ("send_back_timeout_seconds", 0.0),
        ("client_id", "no-instance"),
        ("consume_timestamp", datetime(2026, 1, 1)),  # noqa: DTZ001  what must be refused
        ("listener", "not a function"),
        ("transport", object()),
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        push(**{option: value})
    assert refused.value.option == option


def test_a_start_by_time_needs_the_time() -> None:
    with pytest.raises(InvalidOptionError, match="consume_timestamp"):
        push(consume_from=ConsumeFrom.TIMESTAMP)


@pytest.mark.parametrize("group", ["", "white space", "g" * 121])
def test_a_group_outside_the_grammar_is_refused(group: str) -> None:
    with pytest.raises(InvalidNameError):
        push(group=group)


@pytest.mark.parametrize("subscriptions", [{"bad topic": "*"}, {"orders": "a | b"}])
def test_a_subscription_that_cannot_be_read_is_refused(subscriptions: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        push(subscriptions=subscriptions)


@pytest.mark.parametrize("name_servers", ["", []])
def test_without_name_servers_there_is_no_consumer(name_servers: Any) -> None:
    with pytest.raises(InvalidAddressError):
        push(name_servers=name_servers)
    with pytest.raises(InvalidAddressError):
        PullConsumer(name_servers, group="billing", transport=MemoryTransport)


def test_two_consumers_of_one_process_have_different_client_ids() -> None:
    first, second = push().client_id, push().client_id
    assert first != second
    assert first.startswith("127.0.0.1@")


def test_a_client_id_carries_the_zone_and_a_broadcasting_one_stays_the_same() -> None:
    rng = random.Random(1)
    clustering = make_client_id(address="10.0.0.1", group="g", model=MessageModel.CLUSTERING, zone="z1", rng=rng)
    assert clustering.startswith("10.0.0.1@")
    assert clustering.endswith("@z1")
    broadcasting = make_client_id(address="10.0.0.1", group="g", model=MessageModel.BROADCASTING, zone="", rng=rng)
    assert broadcasting == "10.0.0.1@DEFAULT#g"


def test_the_own_address_is_found_without_looking_a_name_up() -> None:
    assert local_address("127.0.0.1:9876") == "127.0.0.1"
    assert local_address("rocketmq://127.0.0.1:9876") == "127.0.0.1"
    assert local_address("name.invalid:9876")
