"""Operators' overrides of what brokers register: when they apply, and when they end."""

from __future__ import annotations

import pytest

from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    GroupKey,
    Health,
    ProbeVerdict,
    QueueConfig,
    Reason,
    Registration,
)
from pointsman_namesrv.core.overrides import Overrides

A = GroupKey("c1", "a")
V1, V2 = DataVersion(0, 0, 1), DataVersion(0, 0, 2)


def of_version(version: DataVersion, name: str = "a") -> Registration:
    topics = {"orders": QueueConfig(4, 4, 6), "pay": QueueConfig(1, 1, 6)}
    return Registration(identity=BrokerIdentity("c1", name, 0, "h:1"), topics=topics, data_version=version)


def test_a_tombstone_hides_a_topic_of_one_broker_under_one_version() -> None:
    overrides = Overrides()
    overrides.hide("orders", of_version(V1))
    assert overrides.hidden(of_version(V1)) == {"orders"}
    assert overrides.hidden(of_version(V2)) == frozenset()
    assert overrides.hidden(of_version(V1, "b")) == frozenset()


def test_another_version_ends_it_for_good() -> None:
    overrides = Overrides()
    overrides.hide("orders", of_version(V1))
    assert not overrides.end_tombstones(of_version(V1))
    assert overrides.end_tombstones(of_version(V2))
    assert overrides.hidden(of_version(V1)) == frozenset()
    assert not overrides.tombstones


def test_a_new_tombstone_removes_those_of_older_versions() -> None:
    overrides = Overrides()
    overrides.hide("orders", of_version(V1))
    overrides.hide("pay", of_version(V2))
    assert overrides.end_tombstones(of_version(V2))
    assert overrides.hidden(of_version(V2)) == {"pay"}


def of_process(incarnation: str, *, broker_id: int = 0, failing: bool = False) -> Registration:
    health = Health(ProbeVerdict.FAILING if failing else ProbeVerdict.PASSING)
    return Registration(
        identity=BrokerIdentity("c1", "a", broker_id, "h:1"), topics={}, incarnation=incarnation, health=health
    )


@pytest.mark.parametrize(
    ("wiped", "incarnation", "recovered", "reason"),
    [
        pytest.param("run1", "run2", False, Reason.INCARNATION, id="the-next-process"),
        pytest.param("run1", "run1", False, None, id="the-same"),
        pytest.param("run1", "run1", True, None, id="the-same-whose-probe-failed"),
        pytest.param("run1", "", True, None, id="unknown-now-but-not-then"),
        pytest.param("", "run2", False, None, id="which-one-was-wiped-is-not-known"),
        pytest.param("", "", False, None, id="none-is-known"),
        pytest.param("", "", True, Reason.PROBE, id="none-is-known-and-the-probe-failed"),
        pytest.param(None, "run2", True, None, id="nothing-was-wiped"),
    ],
)
def test_a_wipe_ends_with_the_next_process(
    wiped: str | None, incarnation: str, recovered: bool, reason: Reason | None
) -> None:
    overrides = Overrides()
    if wiped is not None:
        overrides.wipes[A] = wiped
    assert overrides.why_wipe_ends(of_process(incarnation), recovered=recovered) is reason
    assert overrides.why_wipe_ends(of_process(incarnation, broker_id=1), recovered=recovered) is None


@pytest.mark.parametrize(
    ("wiped", "left", "failing", "reason"),
    [
        pytest.param("run1", Reason.DRAIN, False, Reason.DRAIN, id="drained"),
        pytest.param("", Reason.DRAIN, False, Reason.DRAIN, id="drained-without-incarnation"),
        pytest.param("run1", Reason.REMOVED_FROM_CONFIG, True, Reason.REMOVED_FROM_CONFIG, id="removed"),
        pytest.param("run1", Reason.SHUTDOWN, True, None, id="stopped-and-its-incarnation-is-known"),
        pytest.param("", Reason.SHUTDOWN, False, Reason.SHUTDOWN, id="stopped-without-incarnation"),
        pytest.param("", Reason.SILENCE, False, None, id="silent"),
        pytest.param("", Reason.SILENCE, True, Reason.PROBE, id="silent-after-its-probe-failed"),
        pytest.param("run1", Reason.SILENCE, True, None, id="silent-and-its-incarnation-is-known"),
        pytest.param("", Reason.ADMIN, False, None, id="evicted"),
        pytest.param(None, Reason.DRAIN, True, None, id="nothing-was-wiped"),
    ],
)
def test_a_departure_ends_a_wipe_if_the_broker_was_drained_or_is_known_to_have_stopped(
    wiped: str | None, left: Reason, failing: bool, reason: Reason | None
) -> None:
    overrides = Overrides()
    if wiped is not None:
        overrides.wipes[A] = wiped
    assert overrides.why_departure_ends_wipe(of_process("run1"), left, failing=failing) is reason
    assert overrides.why_departure_ends_wipe(of_process("run1", broker_id=1), left, failing=failing) is None


def test_a_wipe_follows_what_a_serving_master_registers_and_nothing_else() -> None:
    overrides = Overrides()
    overrides.follow_incarnation(of_process("run1"))
    assert not overrides.wipes
    overrides.wipes[A] = ""
    overrides.follow_incarnation(of_process("run1", broker_id=1))
    overrides.follow_incarnation(of_process("run1", failing=True))
    assert overrides.wipes == {A: ""}
    overrides.follow_incarnation(of_process("run1"))
    assert overrides.wipes == {A: "run1"}


def test_overrides_of_a_snapshot_are_restored_and_not_shared_with_it() -> None:
    overrides, kept = Overrides(), {A: {"orders": V1}}
    assert set(overrides.restore({GroupKey("c1", "b"): "run1"}, kept)) == {A, GroupKey("c1", "b")}
    overrides.hide("pay", of_version(V1))
    assert kept == {A: {"orders": V1}}
    assert overrides.hidden(of_version(V1)) == {"orders", "pay"}
