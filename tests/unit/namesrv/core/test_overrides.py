"""What operators lay over the brokers' own word: when it stands, and when it ends."""

from __future__ import annotations

import pytest

from namesrv.core.model import BrokerIdentity, DataVersion, GroupKey, QueueConfig, Registration
from namesrv.core.overrides import Overrides

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


def test_a_new_tombstone_stands_beside_none_of_an_older_version() -> None:
    overrides = Overrides()
    overrides.hide("orders", of_version(V1))
    overrides.hide("pay", of_version(V2))
    assert overrides.end_tombstones(of_version(V2))
    assert overrides.hidden(of_version(V2)) == {"pay"}


@pytest.mark.parametrize(
    ("wiped", "incarnation", "ends"),
    [
        pytest.param("run1", "run2", True, id="the-next-process"),
        pytest.param("run1", "run1", False, id="the-same"),
        pytest.param("run1", "", False, id="it-cannot-tell"),
        pytest.param("", "run2", False, id="which-one-was-wiped-is-not-known"),
        pytest.param(None, "run2", False, id="nothing-was-wiped"),
    ],
)
def test_a_wipe_ends_with_the_next_process(wiped: str | None, incarnation: str, ends: bool) -> None:
    overrides = Overrides()
    if wiped is not None:
        overrides.wipes[A] = wiped
    assert overrides.ends_wipe(A, incarnation) is ends


def test_what_a_snapshot_kept_stands_again_and_is_not_shared_with_it() -> None:
    overrides, kept = Overrides(), {A: {"orders": V1}}
    assert set(overrides.restore({GroupKey("c1", "b"): "run1"}, kept)) == {A, GroupKey("c1", "b")}
    overrides.hide("pay", of_version(V1))
    assert kept == {A: {"orders": V1}}
    assert overrides.hidden(of_version(V1)) == {"orders", "pay"}
