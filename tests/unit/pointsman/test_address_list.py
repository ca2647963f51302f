"""Lists of name servers as RocketMQ asks for them over HTTP."""

from __future__ import annotations

import pytest

from pointsman.address_list import key_of, list_problem, to_addrs, to_text, unit_of


@pytest.mark.parametrize(("unit", "key"), [("", "nsaddr"), ("blue", "nsaddr-blue"), ("a-b_c%d", "nsaddr-a-b_c%d")])
def test_the_key_of_a_list_is_the_last_part_of_its_path(unit: str, key: str) -> None:
    assert key_of(unit) == key
    assert unit_of(key) == unit


@pytest.mark.parametrize("key", ["", "nsaddr-", "nsaddrs", "xnsaddr", "nsaddr-a b", "nsaddr/blue", "nsaddr-../x"])
def test_any_other_key_has_no_unit(key: str) -> None:
    assert unit_of(key) is None


def test_a_list_is_read_as_it_was_written() -> None:
    addrs = ("ns1:9876", "10.0.0.2:9876", "[fd00::1]:9876")
    text = to_text(addrs)
    assert text == "ns1:9876;10.0.0.2:9876;[fd00::1]:9876"
    assert (list_problem(text), to_addrs(text)) == (None, addrs)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no address"),
        (";", "has the address '', which"),
        ("a:1;", "has the address '', which"),
        ("a:1;b", "has the address 'b', which must be host:port"),
        ("a:1,b:2", "has the address 'a:1,b:2', which"),
        ("http://a:1", "has the address 'http://a:1', which"),
        ("a:1;b:2;a:1", "has the address a:1 twice"),
        (";".join(f"a:{port}" for port in range(1, 18)), "has 17 addresses, at most 16 are allowed"),
    ],
)
def test_an_invalid_list_has_its_problem(text: str, problem: str) -> None:
    assert problem in (list_problem(text) or "")


def test_sixteen_addresses_are_a_list() -> None:
    assert list_problem(";".join(f"a:{port}" for port in range(1, 17))) is None
