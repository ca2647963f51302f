"""Client ids: what is accepted, what is refused and why."""

from __future__ import annotations

import pytest

from pointsman.client_id import address_of, client_id_problem, pin_target_problem


@pytest.mark.parametrize("client_id", ["10.0.0.1@a", "[::1]@8123#77", "host@a@unit", "a@" + "b" * 253])
def test_an_address_and_an_instance_make_a_client_id(client_id: str) -> None:
    assert client_id_problem(client_id) is None
    assert address_of(client_id) == client_id[: client_id.index("@")]


@pytest.mark.parametrize(
    ("client_id", "problem"),
    [
        ("", "empty"),
        ("a", "address@instance"),
        ("@a", "address@instance"),
        ("a@", "address@instance"),
        ("a@" + "b" * 254, "256 characters"),
        ("a @b", "printable"),
        ("a@b\n", "printable"),
        ("ä@b", "printable"),
    ],
)
def test_anything_else_is_none(client_id: str, problem: str) -> None:
    assert problem in (client_id_problem(client_id) or "")


def test_a_pin_may_name_an_address_alone() -> None:
    assert pin_target_problem("10.0.0.1") is None
    assert pin_target_problem("10.0.0.1 ") is not None
