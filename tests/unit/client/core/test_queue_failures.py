"""Log messages about failing reads, each only once."""

from __future__ import annotations

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.read_choice import QueueFailures
from pointsman_client.errors import BrokerRefusedError, BrokerUnreachableError, ResponseCode

A0, A1, B0 = (MessageQueue("orders", "c1", broker, number) for broker, number in (("a", 0), ("a", 1), ("b", 0)))
DOWN = BrokerUnreachableError("10.0.0.1:6379", "refused")
LOADING = BrokerRefusedError("10.0.0.1:6379", ResponseCode.SERVICE_NOT_AVAILABLE, "LOADING")
NO_STREAM = BrokerRefusedError("10.0.0.1:6379", ResponseCode.SYSTEM_ERROR, "WRONGTYPE")


def test_a_broker_that_is_down_is_logged_once_for_all_its_queues_until_one_is_read_again() -> None:
    failures = QueueFailures()
    logged = [failures.failed(queue, error) for queue, error in ((A0, DOWN), (A1, LOADING), (A0, DOWN), (B0, DOWN))]
    assert logged == ["broker c1/a", None, None, "broker c1/b"]
    assert [failures.succeeded(A1), failures.succeeded(A0)] == [["broker c1/a"], []]
    assert failures.failed(A0, DOWN) == "broker c1/a"


def test_a_single_unreadable_queue_is_logged_by_its_name() -> None:
    failures = QueueFailures()
    assert failures.failed(A0, NO_STREAM) == "queue 0 of orders on c1/a"
    assert [failures.succeeded(A1), failures.failed(A0, NO_STREAM), failures.succeeded(A0)] == [
        [],
        None,
        ["queue 0 of orders on c1/a"],
    ]
