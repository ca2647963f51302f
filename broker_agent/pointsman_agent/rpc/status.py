"""The only mapping from what the agent refuses to a gRPC status."""

from __future__ import annotations

import grpc
from google.rpc import status_pb2

from pointsman.wire.errors import build_status
from pointsman_agent.rpc import refusals

STATUS_CODES: dict[type[refusals.Refusal], grpc.StatusCode] = {
    refusals.InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    refusals.OutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    refusals.LimitExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    refusals.NotFound: grpc.StatusCode.NOT_FOUND,
    refusals.HeldByOther: grpc.StatusCode.FAILED_PRECONDITION,
    refusals.NotReady: grpc.StatusCode.UNAVAILABLE,
    refusals.TooSlow: grpc.StatusCode.DEADLINE_EXCEEDED,
    refusals.Unavailable: grpc.StatusCode.UNAVAILABLE,
}


def refusal(error: refusals.Refusal) -> status_pb2.Status:
    """The status of a call that was refused."""
    violations = error.violations if isinstance(error, refusals.InvalidRequest | refusals.OutOfRange) else ()
    return build_status(
        STATUS_CODES[type(error)], str(error), code=error.code, facts=error.facts, violations=violations
    )


def unreadable(message: str) -> status_pb2.Status:
    """The status of a request that is no protobuf message of its type."""
    return build_status(grpc.StatusCode.INVALID_ARGUMENT, message, code="UNREADABLE_REQUEST")


def internal(error_id: str) -> status_pb2.Status:
    """The status of a fault of our own; what it was stands in the log under the id."""
    return build_status(
        grpc.StatusCode.INTERNAL, f"internal error {error_id}", code="INTERNAL", facts={"error_id": error_id}
    )
