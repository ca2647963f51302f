"""The broker of a group from which messages are read."""

from __future__ import annotations

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.read_choice import RECOVERED_SECONDS, SKIP_SECONDS, QueueFailures, ReadChoice
from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState
from pointsman_client.errors import BrokerRefusedError, BrokerUnreachableError, ResponseCode


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


A0, A1, B0 = (MessageQueue("orders", "c1", broker, number) for broker, number in (("a", 0), ("a", 1), ("b", 0)))
DOWN = BrokerUnreachableError("10.0.0.1:6379", "refused")
LOADING = BrokerRefusedError("10.0.0.1:6379", ResponseCode.SERVICE_NOT_AVAILABLE, "LOADING")
NO_STREAM = BrokerRefusedError("10.0.0.1:6379", ResponseCode.SYSTEM_ERROR, "WRONGTYPE")


def later(failures: QueueFailures, queue: MessageQueue) -> list[str]:
    return failures.succeeded(queue, now=RECOVERED_SECONDS)


def test_a_broker_that_is_down_is_logged_once_for_all_its_queues_until_one_is_read_again() -> None:
    failures = QueueFailures()
    each = ((A0, DOWN), (A1, LOADING), (A0, DOWN), (B0, DOWN))
    logged = [failures.failed(queue, error, now=0.0) for queue, error in each]
    assert logged == ["broker c1/a", None, None, "broker c1/b"]
    assert [later(failures, A1), later(failures, A0)] == [["broker c1/a"], []]
    assert failures.failed(A0, DOWN, now=0.0) == "broker c1/a"


def test_a_broker_of_which_every_second_call_fails_is_logged_once() -> None:
    failures = QueueFailures()
    assert failures.failed(A0, DOWN, now=0.0) == "broker c1/a"
    for second in range(1, 100):
        assert (failures.succeeded(A0, now=second), failures.failed(A0, DOWN, now=second)) == ([], None)
    assert failures.succeeded(A0, now=99 + RECOVERED_SECONDS) == ["broker c1/a"]


def test_a_single_unreadable_queue_is_logged_by_its_name() -> None:
    failures = QueueFailures()
    assert failures.failed(A0, NO_STREAM, now=0.0) == "queue 0 of orders on c1/a"
    assert [later(failures, A1), failures.failed(A0, NO_STREAM, now=0.0), later(failures, A0)] == [
        [],
        None,
        ["queue 0 of orders on c1/a"],
    ]


def test_a_rejected_topic_is_logged_once_while_others_of_the_broker_are_read() -> None:
    failures = QueueFailures()
    deleted = BrokerRefusedError("10.0.0.1:10911", ResponseCode.TOPIC_NOT_EXIST, "not exist")
    no_such_queue = BrokerRefusedError("10.0.0.1:10911", 29, "queueId[1] is illegal")
    other = MessageQueue("payments", "c1", "a", 0)
    assert failures.failed(A0, deleted, now=0.0) == "topic orders of broker c1/a"
    assert [later(failures, other), failures.failed(A1, deleted, now=0.0)] == [[], None]
    assert later(failures, A1) == ["topic orders of broker c1/a"]
    assert failures.failed(A1, no_such_queue, now=0.0) == "queue 1 of orders on c1/a"
    assert [later(failures, A0), failures.failed(A1, no_such_queue, now=0.0)] == [[], None]
