"""A configured list is returned unchanged."""

from __future__ import annotations

from pointsman_client.core.allocation import ByConfig
from tests.kit.client.queues import queues, request


def test_the_list_is_returned_for_any_request() -> None:
    listed = (*queues(b=1), *queues("payments", a=2))
    strategy = ByConfig(listed)
    assert strategy.allocate(request("", [], ())) == listed
    assert strategy.allocate(request("no-member", ["x"], queues(c=3))) == listed


def test_without_a_list_there_is_nothing() -> None:
    assert ByConfig().allocate(request("x", ["x"], queues(a=3))) == ()
    assert ByConfig().name == "CONFIG"
