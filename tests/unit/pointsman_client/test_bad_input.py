"""Input that is refused before anything is opened or asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pointsman_client import InvalidAddressError, InvalidNameError, InvalidOptionError, NameServerClient, PointsmanError
from pointsman_client.address import check_name, to_name_servers


@pytest.mark.parametrize(
    ("given", "addrs"),
    [
        pytest.param(["a:1", "b:2"], ("a:1", "b:2"), id="list"),
        pytest.param("a:1,b:2", ("a:1", "b:2"), id="commas"),
        pytest.param("a:1;b:2", ("a:1", "b:2"), id="semicolons-as-rocketmq"),
        pytest.param(" a:1 , [::1]:9876", ("a:1", "[::1]:9876"), id="spaces-and-ipv6"),
        pytest.param(["a:1", "a:1"], ("a:1",), id="twice"),
    ],
)
def test_name_servers_are_read_from_a_list_or_a_text(given: str | list[str], addrs: tuple[str, ...]) -> None:
    assert to_name_servers(given) == addrs


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param([], "no name server given", id="empty-list"),
        pytest.param("", "no name server given", id="empty-text"),
        pytest.param("a:1,,b:2", "'' must not be empty", id="hole"),
        pytest.param("localhost", "'localhost' must be host:port", id="no-port"),
        pytest.param("a:0", "'a:0' has a port outside 1 to 65535", id="port-0"),
        pytest.param(["::1:9876"], "an IPv6 host in brackets", id="bare-ipv6"),
        pytest.param(["x", "y:70000"], "'x' must be host:port; 'y:70000' has a port outside", id="each-fault"),
    ],
)
def test_an_address_list_that_cannot_be_used_names_every_fault(given: str | list[str], problem: str) -> None:
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


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "orders\n", "\u0431"])
def test_a_name_outside_the_grammar_says_what_is_wrong(name: str) -> None:
    with pytest.raises(InvalidNameError, match=r"^topic "):
        check_name("topic", name)
