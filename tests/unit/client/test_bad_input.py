"""Input that is refused before a connection or a request is made."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from pointsman_client import (
    Fallback,
    InvalidAddressError,
    InvalidNameError,
    InvalidOptionError,
    NameServerClient,
    Park,
    PointsmanError,
    Producer,
    sync,
)
from pointsman_client.consumer.consumer_identity import local_address, make_client_id
from pointsman_client.consumer.pull_consumer import PullConsumer
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.checks import check_name, to_list_url, to_name_servers
from pointsman_client.core.rebalance import ConsumeFrom, MessageModel
from pointsman_client.errors import InvalidInputError
from pointsman_client.memory import MemoryTransport


@pytest.mark.parametrize(
    ("given", "addrs"),
    [
        pytest.param(["a:1", "b:2"], ("a:1", "b:2"), id="list"),
        pytest.param("a:1,b:2", ("a:1", "b:2"), id="commas"),
        pytest.param("a:1;b:2", ("a:1", "b:2"), id="semicolons-as-rocketmq"),
        pytest.param(" a:1 , [::1]:9876", ("a:1", "[::1]:9876"), id="spaces-and-ipv6"),
        pytest.param(["a:1", "a:1"], ("a:1",), id="twice"),
        pytest.param("a:1;b:2; ", ("a:1", "b:2"), id="separator-at-the-end"),
        pytest.param("rocketmq://a:1;rocketmq://[::1]:2", ("rocketmq://a:1", "rocketmq://[::1]:2"), id="rocketmq"),
        pytest.param(
            ["rocketmq://a", "rocketmq://[::1]", "rocketmq://a:9876"],
            ("rocketmq://a:9876", "rocketmq://[::1]:9876"),
            id="rocketmq-default-port",
        ),
    ],
)
def test_name_servers_are_read_from_a_list_or_a_text(given: str | list[str], addrs: tuple[str, ...]) -> None:
    assert to_name_servers(given) == addrs


@pytest.mark.parametrize(
    ("given", "read"),
    [
        pytest.param("http://a:8080/nsaddr", ("http://a:8080/nsaddr", ""), id="http"),
        pytest.param([" https://a/x?nofix=1 "], ("https://a/x?nofix=1", ""), id="one-in-a-list"),
        pytest.param("rocketmq+http://a:8080/x", ("http://a:8080/x", "rocketmq://"), id="rocketmq"),
        pytest.param("rocketmq+https://[::1]:1/x", ("https://[::1]:1/x", "rocketmq://"), id="rocketmq-tls"),
        pytest.param("http://a:8080", ("", ""), id="no-path"),
        pytest.param("http://a:8080/", ("", ""), id="no-path-but-a-slash"),
        pytest.param(["http://a/x", "http://b/x"], ("", ""), id="two"),
        pytest.param("a:1", ("", ""), id="address"),
        pytest.param(None, ("", ""), id="none"),
    ],
)
def test_a_url_with_a_path_is_that_of_a_list(given: Any, read: tuple[str, str]) -> None:
    assert to_list_url(given) == read


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://me:s3cret@ns1/x", "the URL of a list of name servers must not have a user name or password"),
        ("http://ns1:0/x", "must be http://HOST:PORT/PATH or https://HOST:PORT/PATH: 'http://ns1:0/x'"),
        ("rocketmq+http://ns1:port/x", "is not a URL: "),
        ("http://ns1/\0", "must not hold control characters"),
    ],
)
def test_an_unusable_url_of_a_list_is_refused_and_its_password_not_shown(url: str, problem: str) -> None:
    with pytest.raises(InvalidAddressError) as caught:
        NameServerClient(url)
    assert problem in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param([], "no name server given", id="empty-list"),
        pytest.param("", "no name server given", id="empty-text"),
        pytest.param("a:1,,b:2", "'' must not be empty", id="hole"),
        pytest.param("a:1;;", "'' must not be empty", id="two-ends"),
        pytest.param("http://ns1:9876", "must be host:port without a scheme, or rocketmq://host:port", id="scheme"),
        pytest.param("localhost", "'localhost' must be host:port", id="no-port"),
        pytest.param("a:0", "'a:0' has a port outside 1 to 65535", id="port-0"),
        pytest.param(["::1:9876"], "an IPv6 host in brackets", id="bare-ipv6"),
        pytest.param(None, "name_servers must be a 'host:port' str or a list of them, got None", id="none"),
        pytest.param(b"a:1", "name_servers must be a 'host:port' str or a list of them, got b'a:1'", id="bytes"),
        pytest.param(["a:1", 9876], "name server address must be a 'host:port' str, got 9876", id="number"),
        pytest.param(["rocketmq://a:1", "b:2"], "but 'rocketmq://a:1' is of RocketMQ and 'b:2' is not", id="mixed"),
        pytest.param("rocketmq://a:1;b:2", "write rocketmq:// before each address or before none", id="mixed-text"),
        pytest.param("rocketmq://", "'rocketmq://' must not be empty", id="rocketmq-nothing"),
        pytest.param("rocketmq://::1", "an IPv6 host in brackets", id="rocketmq-bare-ipv6"),
        pytest.param("rocketmq://a:0", "'rocketmq://a:0' has a port outside 1 to 65535", id="rocketmq-port-0"),
        pytest.param("rocketmq://a/", "'rocketmq://a/' must be host:port", id="rocketmq-path"),
        pytest.param(["x", "y:70000"], "'x' must be host:port; 'y:70000' has a port outside", id="each-fault"),
    ],
)
def test_an_unusable_address_list_is_refused_with_every_error(given: Any, problem: str) -> None:
    with pytest.raises(InvalidAddressError) as caught:
        NameServerClient(given)

    assert problem in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, PointsmanError)


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: NameServerClient("a:1", lookup_timeout_seconds=0), "lookup_timeout_seconds"),
        (lambda: NameServerClient("a:1", lookup_timeout_seconds=float("inf")), "lookup_timeout_seconds"),
        (lambda: NameServerClient("a:1", close_timeout_seconds=float("nan")), "close_timeout_seconds"),
        (
            lambda: NameServerClient("a:1", poll_name_server_interval_seconds=-1),
            "poll_name_server_interval_seconds",
        ),
        (lambda: NameServerClient("a:1", poll_jitter=1.5), "poll_jitter"),
        (lambda: NameServerClient("a:1", max_topics=0), "max_topics"),
        (lambda: NameServerClient("a:1", poll_concurrency=0), "poll_concurrency"),
    ],
)
def test_an_option_out_of_bounds_is_named_with_its_value(make: Callable[[], NameServerClient], option: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{option} = ") as caught:
        make()

    assert caught.value.option == option


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("send_msg_timeout_seconds", "3"),
        ("send_msg_timeout_seconds", None),
        ("retry_times_when_send_failed", "2"),
        ("retry_times_when_send_failed", 1.5),
        ("max_message_size", None),
        ("fault_rules", "older"),
        ("sharding", "ring"),
        ("on_unavailable", "park"),
        ("transport", None),
    ],
)
def test_a_setting_of_a_wrong_type_is_named_with_its_value(option: str, value: Any) -> None:
    settings = {"transport": MemoryTransport, option: value}
    with pytest.raises(InvalidOptionError, match=f"^{option} = {value!r} ") as caught:
        Producer("a:1", **settings)

    assert (caught.value.option, caught.value.value) == (option, value)


def test_an_option_that_is_unknown_or_missing_is_named() -> None:
    # mypy fails where one of these comments is not needed: it sees each option with its type.
    with pytest.raises(TypeError, match="'send_timeout_seconds'"):
        Producer("a:1", transport=MemoryTransport, send_timeout_seconds=3.0)  # type: ignore[call-arg]
    with pytest.raises(
        InvalidOptionError, match=r"^transport = None must be a transport.*; only with .* rocketmq://host:port"
    ):
        Producer("a:1")
    with pytest.raises(InvalidOptionError, match=r"^call_timeout_seconds = '60' "):
        sync.PullConsumer("a:1", group="g", transport=MemoryTransport, call_timeout_seconds="60")  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "wrong"), [(Park, "orders.outbox"), (Fallback, 5), (Fallback, None)])
def test_an_invalid_fallback_is_refused(kind: Any, wrong: object) -> None:
    with pytest.raises(InvalidOptionError, match=rf"^(outbox|queue) = {wrong!r} "):
        kind(wrong)


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "orders\n", "\u0431", None, 7])
def test_a_name_outside_the_grammar_is_refused_with_the_problem(name: Any) -> None:
    with pytest.raises(InvalidNameError, match=r"^topic "):
        check_name("topic", name)


@pytest.mark.parametrize("kind", [Producer, sync.Producer])
def test_an_unknown_option_names_the_public_class_and_the_option_that_was_meant(kind: Any) -> None:
    def message(**options: object) -> str:
        with pytest.raises(TypeError) as caught:
            kind("ns1:9876", transport=MemoryTransport, **options)
        return str(caught.value)

    unexpected = f"{kind.__name__}() got an unexpected keyword argument"
    assert message(retries=3) == f"{unexpected} 'retries'; did you mean retry_times_when_send_failed?"
    assert (
        message(send_timeout_second=3) == f"{unexpected} 'send_timeout_second'; did you mean send_msg_timeout_seconds?"
    )
    assert message(unlike=3) == f"{unexpected} 'unlike'"


def test_a_missing_or_surplus_argument_names_the_public_class() -> None:
    with pytest.raises(TypeError, match=r"^Producer\(\) missing 1 required positional argument: 'name_servers'$"):
        Producer()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^NameServerClient\(\) takes 2 positional arguments but 3 were given$"):
        NameServerClient("ns1:9876", "ns2:9876")  # type: ignore[call-arg, arg-type]


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
        ("on_dead_letter", "not a function"),
        ("on_dead_letter", asyncio.sleep),
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
