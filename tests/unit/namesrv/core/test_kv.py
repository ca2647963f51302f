"""The KV configuration: its grammar, its bounds, and the order topics in it."""

from __future__ import annotations

import pytest

from pointsman.wire.refusals import InvalidRequest
from pointsman_namesrv.core import kv
from pointsman_namesrv.core.kv import MAX_VALUE_LENGTH, ORDER_TOPIC_NAMESPACE, KvConfig, KvEntry, order_conf_problem
from pointsman_namesrv.core.node_refusals import KvNotFound, LimitExceeded


def test_a_value_stays_until_it_is_deleted() -> None:
    config = KvConfig()
    assert config.put("ns", "key", "one")
    assert not config.put("ns", "key", "one")
    assert config.put("ns", "key", "two")
    assert config.get("ns", "key") == "two"
    config.delete("ns", "key")
    assert config.get("ns", "key") is None
    assert (len(config), config.entries()) == (0, [])


@pytest.mark.parametrize(("namespace", "key"), [("ns", "other"), ("other", "key")])
def test_a_missing_key_cannot_be_deleted(namespace: str, key: str) -> None:
    config = KvConfig()
    config.put("ns", "key", "value")
    with pytest.raises(KvNotFound, match=f"no key {key} in namespace {namespace}"):
        config.delete(namespace, key)
    assert config.entries() == [KvEntry("ns", "key", "value")]


def test_entries_are_sorted_by_namespace_and_key() -> None:
    config = KvConfig()
    for namespace, key in (("b", "1"), ("a", "2"), ("b", "0"), ("a", "10")):
        config.put(namespace, key, "v")
    assert [(e.namespace, e.key) for e in config.entries()] == [("a", "10"), ("a", "2"), ("b", "0"), ("b", "1")]
    assert [e.key for e in config.entries("b")] == ["0", "1"]
    assert config.entries("c") == []


@pytest.mark.parametrize(
    ("namespace", "key", "value", "fields"),
    [
        pytest.param("", "key", "v", ["namespace"], id="no-namespace"),
        pytest.param("ns", "a key", "v", ["key"], id="a-space-in-a-key"),
        pytest.param("ns", "key", "a\x00b", ["value"], id="a-control-character"),
        pytest.param("ns", "key", "v" * (MAX_VALUE_LENGTH + 1), ["value"], id="too-long"),
        pytest.param("n s", "", "\n", ["namespace", "key", "value"], id="all-at-once"),
        pytest.param(ORDER_TOPIC_NAMESPACE, "topic", "a", ["value"], id="a-broken-order-configuration"),
    ],
)
def test_a_bad_entry_is_refused_with_all_its_errors_and_changes_nothing(
    namespace: str, key: str, value: str, fields: list[str]
) -> None:
    config = KvConfig()
    with pytest.raises(InvalidRequest) as refused:
        config.put(namespace, key, value)
    assert [violation.field for violation in refused.value.violations] == fields
    assert config.entries() == []


@pytest.mark.parametrize("conf", ["a:4", "a:4;", "a:0;b:65535", "%RETRY%x|y-z_1:1;b:2;"])
def test_an_order_configuration_names_brokers_and_their_queues(conf: str) -> None:
    assert order_conf_problem(conf) is None


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        ("", "must be brokerName:queues"),
        (";", "must be brokerName:queues"),
        ("a", "'a' is not"),
        ("a:1;;b:2", "'' is not"),
        (":4", "names broker '', which must not be empty"),
        ("a b:4", "letters, digits"),
        ("a:", "gives broker 'a' '' queues"),
        ("a:-1", "a number from 0 to 65535"),
        ("a:65536", "a number from 0 to 65535"),
        ("a:\u0664", "a number from 0 to 65535"),
        ("a:1:2", "gives broker 'a' '1:2' queues"),
        ("a:1;a:2", "twice"),
    ],
)
def test_an_invalid_order_configuration_is_refused_with_the_problem(conf: str, problem: str) -> None:
    assert problem in (order_conf_problem(conf) or "")


def test_order_topics_are_the_keys_of_their_namespace() -> None:
    config = KvConfig()
    config.put(ORDER_TOPIC_NAMESPACE, "orders", "a:4")
    config.put("other", "orders", "x")
    assert config.order_topics() == {"orders": "a:4"}


def test_the_number_of_keys_is_bounded_but_a_known_key_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "MAX_ENTRIES", 2)
    config = KvConfig()
    config.put("ns", "a", "1")
    config.put("ns", "b", "1")
    with pytest.raises(LimitExceeded) as refused:
        config.put("ns", "c", "1")
    assert dict(refused.value.facts) == {"limit": "kv_entries", "bound": "2"}
    assert config.put("ns", "a", "2")
    config.delete("ns", "b")
    assert config.put("ns", "c", "1")


def test_the_total_is_bounded_in_bytes_after_any_overwrites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "MAX_BYTES", 20)
    config = KvConfig()
    config.put("ns", "a", "x" * 17)
    with pytest.raises(LimitExceeded, match="20 kv_bytes"):
        config.put("ns", "a", "x" * 18)
    with pytest.raises(LimitExceeded):
        config.put("ns", "a", "\N{EURO SIGN}" * 6)
    assert config.get("ns", "a") == "x" * 17
    config.put("ns", "a", "")
    assert config.put("ns", "b", "x" * 14)


def test_entries_of_a_snapshot_are_restored() -> None:
    before = KvConfig()
    before.put(ORDER_TOPIC_NAMESPACE, "orders", "a:4")
    before.put("ns", "key", "")
    after = KvConfig()
    after.restore(before.entries())
    assert after.entries() == before.entries()
