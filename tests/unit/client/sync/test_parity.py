"""The blocking classes have what the async ones have."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from pointsman_client import Credentials, InvalidOptionError, client, sync
from pointsman_client.consumer import pull_consumer, push_consumer, simple_consumer
from pointsman_client.memory import MemoryTransport
from pointsman_client.producer import producer, transaction_producer

PAIRS: dict[str, tuple[type, type]] = {
    "NameServerClient": (client.NameServerClient, sync.NameServerClient),
    "Producer": (producer.Producer, sync.Producer),
    "TransactionProducer": (transaction_producer.TransactionProducer, sync.TransactionProducer),
    "PushConsumer": (push_consumer.PushConsumer, sync.PushConsumer),
    "PullConsumer": (pull_consumer.PullConsumer, sync.PullConsumer),
    "SimpleConsumer": (simple_consumer.SimpleConsumer, sync.SimpleConsumer),
}
COUNTERPARTS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
NOT_FOR_BLOCKING = {"cached_route"}
"""Cached routes are for the producer in its event loop."""


def public_names(of: type) -> Iterator[str]:
    for name in dir(of):
        if (not name.startswith("_") and name not in NOT_FOR_BLOCKING) or name in COUNTERPARTS:
            yield name


def parameters(function: object) -> list[tuple[str, object, object]]:
    assert callable(function)
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def is_counterpart(ours: object, theirs: object) -> bool:
    if isinstance(theirs, property):
        return isinstance(ours, property)
    return parameters(ours) == parameters(theirs) and not inspect.iscoroutinefunction(ours)


@pytest.mark.parametrize("pair", PAIRS)
def test_every_method_has_its_counterpart_with_the_same_parameters(pair: str) -> None:
    is_async, blocking = PAIRS[pair]
    names = list(public_names(is_async))
    assert len(names) > 5
    assert [
        name
        for name in names
        if not is_counterpart(getattr(blocking, COUNTERPARTS.get(name, name)), inspect.getattr_static(is_async, name))
    ] == []


@pytest.mark.parametrize("pair", PAIRS)
def test_every_method_is_documented(pair: str) -> None:
    is_async, blocking = PAIRS[pair]
    named = [name for name in public_names(is_async) if name not in COUNTERPARTS]
    assert [name for name in named if not getattr(blocking, name).__doc__] == []


def test_credentials_are_for_addresses_and_not_for_a_client_that_has_its_own() -> None:
    shared: dict[str, Any] = {"transport": MemoryTransport, "credentials": Credentials(tls=True)}
    group: dict[str, Any] = {"group": "billing", "subscriptions": {"orders": "*"}}
    for name_servers, is_allowed in (("a:1", True), (sync.NameServerClient("a:1"), False)):
        for make in (
            partial(sync.Producer, name_servers, **shared),
            partial(sync.PullConsumer, name_servers, **shared, **group),
            partial(sync.SimpleConsumer, name_servers, **shared, **group),
            partial(sync.PushConsumer, name_servers, **shared, **group, listener=print),
        ):
            with nullcontext() if is_allowed else pytest.raises(InvalidOptionError, match=r"^credentials = "):
                make()
