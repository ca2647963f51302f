"""The grammar of names and addresses."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.names import (
    addr_problem,
    name_problem,
    observed_addr,
    read_observed,
    registered_name_problem,
    split_addr,
    text_problem,
)

GOOD_CHARACTERS = string.ascii_letters + string.digits + "%|_-"


@given(st.text(GOOD_CHARACTERS, min_size=1, max_size=127))
def test_every_text_of_the_grammar_is_a_name(name: str) -> None:
    assert name_problem(name) is None


@given(st.text(min_size=1).filter(lambda text: not set(text) <= set(GOOD_CHARACTERS)))
def test_no_text_with_another_character_is_a_name(name: str) -> None:
    assert name_problem(name) is not None


@pytest.mark.parametrize(("name", "word"), [("", "empty"), ("n" * 128, "128 characters"), ("orders\n", "only letters")])
def test_an_invalid_name_is_refused_with_the_problem(name: str, word: str) -> None:
    assert word in (name_problem(name) or "")


@given(st.text(GOOD_CHARACTERS + ".+", min_size=1, max_size=262))
def test_a_name_server_accepts_the_names_of_rocketmqs_brokers(name: str) -> None:
    assert registered_name_problem(name) is None


@pytest.mark.parametrize(("name", "word"), [("", "empty"), ("n" * 263, "263 characters"), ("a b", "only letters")])
def test_an_invalid_registered_name_is_refused_with_the_problem(name: str, word: str) -> None:
    assert word in (registered_name_problem(name) or "")


@pytest.mark.parametrize(
    ("addr", "split"),
    [
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("broker-a.example:65535", ("broker-a.example", 65_535)),
        ("host_1:09", ("host_1", 9)),
        ("[::1]:9876", ("::1", 9_876)),
        ("[fe80::1%eth0]:9876", ("fe80::1%eth0", 9_876)),
        ("[::ffff:10.0.0.1]:80", ("::ffff:10.0.0.1", 80)),
    ],
)
def test_good_addresses_split_into_host_and_port(addr: str, split: tuple[str, int]) -> None:
    assert addr_problem(addr) is None
    assert split_addr(addr) == split


@pytest.mark.parametrize(
    ("addr", "word"),
    [
        ("", "empty"),
        ("host", "host:port"),
        ("host:", "port number"),
        (":80", "valid host"),
        ("host:0", "1 to 65535"),
        ("host:65536", "1 to 65535"),
        ("host:000001", "1 to 65535"),
        ("host:-1", "port number"),
        ("host:٣", "port number"),
        ("host:80 ", "port number"),
        (" host:80", "valid host"),
        ("ho st:80", "valid host"),
        ("-host:80", "valid host"),
        ("::1:80", "brackets"),
        ("[]:80", "IPv6"),
        ("[host]:80", "IPv6"),
        ("[::1]80", "host:port"),
        ("host:80\n", "port number"),
        ("h" * 300 + ":80", "303 characters"),
    ],
)
def test_an_invalid_address_is_refused_with_the_problem(addr: str, word: str) -> None:
    assert word in (addr_problem(addr) or "")


@given(st.text())
def test_any_text_is_judged_and_never_trips_the_judge(text: str) -> None:
    if addr_problem(text) is None:
        host, port = split_addr(text)
        assert host
        assert 1 <= port <= 65_535


def test_free_text_is_bounded_and_printable() -> None:
    assert text_problem("Zürich 3") is None
    assert text_problem("") is None
    assert "4 characters" in (text_problem("abcd", longest=3) or "")
    assert "control characters" in (text_problem("a\nb") or "")


@pytest.mark.parametrize(
    ("addr", "expected"),
    [("observe://o:9879", ("o:9879", "")), ("observe://[::1]:9879/mq1:9876", ("[::1]:9879", "mq1:9876"))],
)
def test_the_address_of_an_observer_may_name_one_of_its_name_servers(addr: str, expected: tuple[str, str]) -> None:
    assert read_observed(addr) == expected
    assert observed_addr(*expected) == addr


@pytest.mark.parametrize(
    "addr", ["observe://", "observe://o", "observe://o:1/", "observe://o:1/mq1", "observe://o:1,p:1"]
)
def test_an_address_of_an_observer_that_is_wrong_says_how_it_is_written(addr: str) -> None:
    with pytest.raises(ValueError, match=r"write observe://HOST:PORT, or observe://HOST:PORT/NAMESRV:PORT"):
        read_observed(addr)
