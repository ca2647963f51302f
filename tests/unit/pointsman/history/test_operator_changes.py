"""What operators changed, and the command that undoes it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.history.operator_changes import OperatorChange, operator_change
from pointsman.history.row_format import good_row
from tests.kit.ctl.command_line import parsed
from tests.spark.histories import NameServer, moment


def change(event: str, about: dict[str, Any] | None = None, **detail: Any) -> OperatorChange | None:
    said = NameServer().say(event, moment(1), about, reason="ADMIN", detail=detail)
    row = good_row(json.dumps(said))
    assert row is not None
    return operator_change(row)


def undo_of(event: str, about: dict[str, Any] | None = None, **detail: Any) -> str | None:
    found = change(event, about, by="ann", **detail)
    assert found is not None
    return found.undo


CLUSTER = {"cluster": "c1", "broker_name": None}
GROUP = {"cluster": "c1", "broker_name": "broker-a"}
DIGEST = {"length": 2_000, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("before", "undo"),
    [
        ("100", "pointsmanctl kv put LIMITS orders 100"),
        ("a b'c", """pointsmanctl kv put LIMITS orders 'a b'"'"'c'"""),
        ("-1", "pointsmanctl kv put -- LIMITS orders -1"),
        (None, "pointsmanctl kv delete LIMITS orders"),
        (DIGEST, None),
    ],
    ids=str,
)
def test_a_key_is_set_back_or_removed_unless_its_old_value_is_a_digest(before: object, undo: str | None) -> None:
    found = change("KV_CHANGED", namespace="LIMITS", key="orders", value="200", before=before, by="ann")
    assert found is not None
    assert (found.what, found.after, found.before, found.is_before_known) == (
        "key orders of LIMITS",
        "200",
        before,
        True,
    )
    assert found.undo == undo


def test_an_order_topic_has_its_own_commands() -> None:
    key: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    assert undo_of("KV_CHANGED", **key, value="a:8", before="a:4;b:4") == (
        "pointsmanctl order-topic set orders 'a:4;b:4'"
    )
    assert undo_of("KV_CHANGED", **key, value="a:8", before=None) == "pointsmanctl order-topic remove orders"


def test_a_list_of_name_servers_has_its_own_command() -> None:
    key: dict[str, Any] = {"namespace": "NSADDR", "value": "ns3:9876"}
    assert undo_of("KV_CHANGED", **key, key="nsaddr", before="ns1:9876;ns2:9876") == (
        "pointsmanctl nsaddr set ns1:9876 ns2:9876"
    )
    assert undo_of("KV_CHANGED", **key, key="nsaddr-blue", before="ns1:9876") == (
        "pointsmanctl nsaddr set ns1:9876 --unit blue"
    )
    assert undo_of("KV_CHANGED", **key, key="nsaddr", before=None) == "pointsmanctl kv delete NSADDR nsaddr"


def test_no_command_undoes_a_list_that_follows_dns_or_a_file() -> None:
    key: dict[str, Any] = {"namespace": "NSADDR", "key": "nsaddr", "value": "ns3:9876", "followed": True}
    assert undo_of("KV_CHANGED", **key, before="ns1:9876") is None
    assert undo_of("KV_CHANGED", **key, before=None) is None


def test_without_the_old_value_nothing_undoes_a_change_of_a_key() -> None:
    found = change("KV_CHANGED", namespace="LIMITS", key="orders", value="200", by="ann")
    assert found is not None
    assert (found.before, found.is_before_known, found.undo) == (None, False, None)


def test_a_write_permission_has_only_two_values() -> None:
    assert undo_of("PERM_CHANGED", GROUP, writable=False) == "pointsmanctl add-write-perm broker-a --cluster c1"
    assert undo_of("PERM_CHANGED", GROUP, writable=True) == "pointsmanctl wipe-write-perm broker-a --cluster c1"


def test_a_guard_returns_to_its_mode_for_the_time_that_was_left() -> None:
    before = {"mode": "HOLD", "seconds": 50.2}
    assert undo_of("GUARD_OFF", CLUSTER, mode="OFF", before=before) == "pointsmanctl guard hold --cluster c1 --for 51s"
    assert undo_of("GUARD_ON", CLUSTER, mode="HOLD", before={"mode": "AUTO"}) == "pointsmanctl guard auto --cluster c1"


def test_a_window_is_ended_or_opened_again() -> None:
    window = {"seconds": 90.0, "note": "new disks", "by": "bob"}
    assert undo_of("MAINTENANCE_ON", GROUP, seconds=600.0, note="", before=None) == (
        "pointsmanctl maintenance off c1/broker-a"
    )
    assert undo_of("MAINTENANCE_OFF", CLUSTER, note="", before=window) == (
        "pointsmanctl maintenance on c1 --for 90s --note 'new disks'"
    )


def test_a_drain_is_undone_and_done_again() -> None:
    assert undo_of("NAMESRV_DRAINING", draining=True) == "pointsmanctl drain --undo"
    assert undo_of("NAMESRV_DRAINING", draining=False) == "pointsmanctl drain"


def test_names_and_values_that_begin_with_a_dash_are_no_options() -> None:
    about, cluster = {"cluster": "-c", "broker_name": "-b"}, {"cluster": "-c", "broker_name": None}
    undone = [
        undo_of("PERM_CHANGED", about, writable=False),
        undo_of("KV_CHANGED", namespace="n", key="-k", value="v", before=None),
        undo_of("KV_CHANGED", namespace="-n", key="k", value="v", before="-v"),
        undo_of("KV_CHANGED", namespace="ORDER_TOPIC_CONFIG", key="-t", value="a:8", before=None),
        undo_of("KV_CHANGED", namespace="NSADDR", key="nsaddr--u", value="ns2:9876", before="ns1:9876"),
        undo_of("GUARD_ON", cluster, mode="HOLD", before={"mode": "AUTO"}),
        undo_of("MAINTENANCE_OFF", cluster, note="", before={"seconds": 90.0, "note": "-x"}),
    ]
    found = [parsed(line) for line in undone if line is not None]
    assert [name for name, _ in found] == [
        *("add-write-perm", "kv delete", "kv put", "order-topic remove", "nsaddr set", "guard", "maintenance on"),
    ]
    values = [{value for value in options.values() if isinstance(value, str)} for _, options in found]
    assert [{each for each in given if each.startswith("-")} for given in values] == [
        *({"-b", "-c"}, {"-k"}, {"-n", "-v"}, {"-t"}, {"-u"}, {"-c"}, {"-x"}),
    ]


def test_an_eviction_and_a_deletion_cannot_be_undone() -> None:
    replica = GROUP | {"broker_id": 0, "state": "GONE"}
    assert undo_of("UNREGISTERED", replica) is None
    assert undo_of("TOPIC_DELETED", GROUP, topic="orders") is None


def test_rows_without_an_author_are_no_changes_of_operators() -> None:
    assert change("GUARD_ON", CLUSTER, lost=3) is None
    assert change("REGISTERED", GROUP | {"broker_id": 0, "state": "UP"}, by="ann") is None


def test_who_the_request_names_is_kept_beside_who_it_was() -> None:
    found = change("NAMESRV_DRAINING", draining=True, by="token ops", claimed_by="ann")
    assert found is not None
    assert (found.by, found.claimed_by) == ("token ops", "ann")


def test_a_change_at_brokers_states_itself_what_it_is_and_what_undoes_it() -> None:
    what = "offsets of group billing in topic orders"
    undo = "pointsmanctl offsets reset billing orders --to 7"
    found = change("BROKER_DATA_CHANGED", CLUSTER, what=what, after={"0": 9}, before={"0": 7}, undo=undo, by="ann")
    bare = change("BROKER_DATA_CHANGED", CLUSTER, what=what, by="ann")

    assert found is not None
    assert bare is not None
    assert (found.what, found.after, found.before, found.undo) == (what, {"0": 9}, {"0": 7}, undo)
    assert (bare.after, bare.is_before_known, bare.undo) == (None, False, None)
