"""JSON as RocketMQ's name servers write it, also from peers that mean harm."""

from __future__ import annotations

import pytest

from pointsman.remoting.bodies import read_json


def test_bare_keys_are_read_where_no_text_is() -> None:
    assert read_json(b'{0:"{1:2}",-1:{"a,2:\\"":3}}') == {"0": "{1:2}", "-1": {'a,2:"': 3}}


@pytest.mark.parametrize("unit", [b'\\"', b'"', b"\\\n", b'{1:"",', b",a", b"{"])
def test_the_time_for_a_body_that_is_not_json_is_linear_in_its_size(unit: bytes) -> None:
    # Half a megabyte: with time that grows as the square, each would take minutes.
    with pytest.raises(ValueError, match=r"line 1|nested"):
        read_json(b'{1:"' + unit * (500_000 // len(unit)))
