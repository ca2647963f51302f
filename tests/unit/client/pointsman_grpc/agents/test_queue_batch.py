"""Which queues a refusal names."""

from __future__ import annotations

import grpc
import pytest

from pointsman.wire.error_details import ErrorDetails
from pointsman.wire.refusals import FieldViolation
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import RequestRejectedError
from pointsman_client.pointsman_grpc.agents.queue_batch import refused_queues

QUEUES = tuple(MessageQueue("orders", "c1", "a", queue_id) for queue_id in range(3))


def refusal(*fields: str, status: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT) -> RequestRejectedError:
    violations = [FieldViolation(each, "is wrong") for each in fields]
    return RequestRejectedError("h:1", status, "no", ErrorDetails("INVALID_REQUEST", {}, violations))


def test_each_named_queue_gets_its_own_first_error() -> None:
    refused = refused_queues(refusal("queues[2].topic", "queues[0]", "queues[2].queue_id"), QUEUES)
    assert refused.keys() == {QUEUES[0], QUEUES[2]}
    assert [each.field for each in refused[QUEUES[2]].violations] == ["queues[2].topic"]
    assert "queue 2 of orders on a" in str(refused[QUEUES[2]])


@pytest.mark.parametrize(
    "field", ["group", "...", "queues", "queues[3].topic", "queues[-1]", "xqueues[0]", "queues[a]"]
)
def test_a_violation_without_a_queue_of_the_call_refuses_none(field: str) -> None:
    assert refused_queues(refusal(field), QUEUES) == {}


def test_only_a_refusal_for_the_fields_of_the_call_names_queues() -> None:
    assert refused_queues(refusal("offsets[0]", status=grpc.StatusCode.FAILED_PRECONDITION), QUEUES) == {}
    assert refused_queues(refusal("offsets[0].offset", status=grpc.StatusCode.OUT_OF_RANGE), QUEUES).keys() == {
        QUEUES[0]
    }
