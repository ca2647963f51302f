"""Settings of the Redis transport: values out of bounds are refused by name, and nothing is started."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman_client.errors import InvalidOptionError
from pointsman_client.memory import MemoryTransport
from pointsman_client.redis_streams import RedisStreamsTransport


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_length", 0),
        ("max_age_seconds", 0.0),
        ("max_age_seconds", float("nan")),
        ("wait_replicas", -1),
        ("wait_timeout_seconds", -1.0),
        ("connect_timeout_seconds", float("inf")),
        ("db", -1),
        ("username", "consumer"),
        ("max_length", "1000"),
        ("wait_timeout_seconds", None),
        ("ssl", True),
        ("ssl", {"ssl_ca": "ca.pem"}),
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        RedisStreamsTransport(**{option: value})
    assert raised.value.option == option


@pytest.mark.parametrize(("option", "value"), [("max_length", 0), ("wait_replicas", -1)])
def test_the_transport_in_memory_refuses_the_same(option: str, value: Any) -> None:
    with pytest.raises(InvalidOptionError, match=option):
        MemoryTransport(**{option: value})


def test_the_constructor_starts_nothing() -> None:
    RedisStreamsTransport(max_length=None, max_age_seconds=60.0, wait_replicas=2, wait_fsync=True, ssl={})
