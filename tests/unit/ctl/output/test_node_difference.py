"""Differences between servers: topics, and settings of operators."""

from __future__ import annotations

import pytest

from pointsman_ctl.output.node_difference import digest_difference, setting_differences
from pointsman_ctl.servers.name_servers import SAME_WITHIN_SECONDS, NodeDigests, NodeSettings, Setting

KEY = ("GUARD", "c1")


@pytest.mark.parametrize(
    ("one", "two", "differ"),
    [
        pytest.param(Setting("HOLD", None), Setting("HOLD", None), False, id="same"),
        pytest.param(Setting("HOLD", None), Setting("OFF", None), True, id="value"),
        pytest.param(Setting("HOLD", None), None, True, id="absent"),
        pytest.param(None, Setting("", None), True, id="absent-at-the-first"),
        pytest.param(Setting("HOLD", None), Setting("HOLD", 60.0), True, id="one-ends"),
        pytest.param(Setting("HOLD", 600.0), Setting("HOLD", 600.0 - SAME_WITHIN_SECONDS), False, id="soon-after"),
        pytest.param(Setting("HOLD", 600.0), Setting("HOLD", 599.0 - SAME_WITHIN_SECONDS), True, id="much-later"),
    ],
)
def test_servers_differ_in_a_value_or_in_when_it_ends(one: Setting | None, two: Setting | None, differ: bool) -> None:
    nodes: dict[str, NodeSettings] = {
        addr: {} if each is None else {KEY: each} for addr, each in (("a:1", one), ("b:1", two))
    }
    found = setting_differences(nodes)
    assert [(each.key, dict(each.at)) for each in found] == ([(KEY, {"a:1": one, "b:1": two})] if differ else [])


def test_a_setting_is_named_as_operators_write_it() -> None:
    keys = [("HIDDEN_TOPIC", "c1", "a", "orders"), ("MAINTENANCE", "c1", "")]
    found = setting_differences({"a:1": {key: Setting("", None) for key in keys}, "b:1": {}})
    assert [each.label for each in found] == ["hidden topic c1/a/orders", "maintenance c1"]


def digests(**topics: bytes) -> NodeDigests:
    return NodeDigests("ns", "READY", topics)


def test_topics_differ_or_exist_on_one_side_only() -> None:
    difference = digest_difference(digests(a=b"1", b=b"1", d=b"1"), digests(a=b"1", b=b"2", c=b"1"))

    assert (difference.differing, difference.only_first, difference.only_second) == (("b",), ("d",), ("c",))
    assert not difference.is_empty
    assert digest_difference(digests(a=b"1"), digests(a=b"1")).is_empty
