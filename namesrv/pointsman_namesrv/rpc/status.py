"""The only mapping from what the core refuses to a gRPC status."""

from __future__ import annotations

import grpc
from google.rpc import status_pb2

from pointsman.wire.errors import build_status
from pointsman_namesrv.core import errors
from pointsman_namesrv.core.model import NodeState

NOT_READY = "NOT_READY"
"""Another server, or the same one later, may well answer."""

STATUS_CODES: dict[type[errors.NameServerError], grpc.StatusCode] = {
    errors.InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.LimitExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TopicNotFound: grpc.StatusCode.NOT_FOUND,
    errors.TopicHeld: grpc.StatusCode.FAILED_PRECONDITION,
    errors.SettingNotSaved: grpc.StatusCode.FAILED_PRECONDITION,
    errors.KvNotFound: grpc.StatusCode.NOT_FOUND,
    errors.ClusterNotFound: grpc.StatusCode.NOT_FOUND,
    errors.BrokerUnknown: grpc.StatusCode.NOT_FOUND,
    errors.IdentityHeld: grpc.StatusCode.ALREADY_EXISTS,
    # These two arise on RocketMQ's wire alone; mapped all the same, for a refusal without a status is a crash.
    errors.FirstOfOneTopic: grpc.StatusCode.FAILED_PRECONDITION,
    errors.HeldByAgent: grpc.StatusCode.ALREADY_EXISTS,
    errors.StaleGeneration: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StaleDataVersion: grpc.StatusCode.FAILED_PRECONDITION,
}


def refusal(error: errors.NameServerError) -> status_pb2.Status:
    """The status of a call that the core refused."""
    violations = error.violations if isinstance(error, errors.InvalidRequest) else ()
    return build_status(
        STATUS_CODES[type(error)], str(error), code=error.code, facts=error.facts, violations=violations
    )


def unreadable(message: str) -> status_pb2.Status:
    """The status of a request that is no protobuf message of its type."""
    return build_status(grpc.StatusCode.INVALID_ARGUMENT, message, code="UNREADABLE_REQUEST")


def draining(*, stopping: bool) -> status_pb2.Status:
    """The status of a call that a DRAINING server does not serve; ``stopping``: of any call, because it stops."""
    state = NodeState.DRAINING
    message = f"this name server is {'stopping' if stopping else state}; ask another"
    return build_status(grpc.StatusCode.UNAVAILABLE, message, code=NOT_READY, facts={"node_state": state})


def not_known_yet(error: errors.NameServerError) -> status_pb2.Status:
    """The status of a question for what a WARMING server may only not have heard of yet."""
    state = NodeState.WARMING
    message = f"{error}, as far as this name server has heard: it is {state}; ask again in a few seconds, or another"
    return build_status(
        grpc.StatusCode.UNAVAILABLE, message, code=NOT_READY, facts={"node_state": state, "not_yet": error.code}
    )


def too_slow(message: str) -> status_pb2.Status:
    """The status of a request stream that does not go on."""
    return build_status(grpc.StatusCode.DEADLINE_EXCEEDED, message, code="TOO_SLOW")


def internal(error_id: str) -> status_pb2.Status:
    """The status of a fault of our own; what it was stands in the log under the id."""
    return build_status(
        grpc.StatusCode.INTERNAL, f"internal error {error_id}", code="INTERNAL", facts={"error_id": error_id}
    )
