"""The broker of a group from which messages are read."""

from __future__ import annotations

from pointsman_client.core.read_choice import SKIP_SECONDS, ReadChoice
from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState


def group(*ids: int) -> BrokerData:
    replicas = tuple(BrokerReplica(at, f"b{at}", "", "", BrokerState.UP) for at in ids)
    return BrokerData("c1", "a", replicas, zone="", acting_master=True)


def test_the_master_is_read_when_it_is_there() -> None:
    assert ReadChoice().choose(group(2, 0, 1), now=0) == "b0"


def test_without_a_master_the_slave_of_the_lowest_id_is_read() -> None:
    assert ReadChoice().choose(group(3, 2), now=0) == "b2"


def test_a_group_that_no_route_has_cannot_be_read() -> None:
    assert ReadChoice().choose(None, now=0) is None
    assert ReadChoice().choose(group(), now=0) is None


def test_a_master_that_failed_is_passed_over_for_a_while_and_then_read_again() -> None:
    choice = ReadChoice()
    choice.failed("b0", now=100)
    assert choice.choose(group(0, 1), now=100) == "b1"
    assert choice.choose(group(0, 1), now=100 + SKIP_SECONDS) == "b0"


def test_a_success_ends_the_skipping() -> None:
    choice = ReadChoice()
    choice.failed("b0", now=100)
    choice.succeeded("b0")
    assert choice.choose(group(0, 1), now=100) == "b0"


def test_when_all_failed_the_master_is_tried() -> None:
    choice = ReadChoice()
    choice.failed("b0", now=100)
    choice.failed("b1", now=100)
    assert choice.choose(group(0, 1), now=101) == "b0"
