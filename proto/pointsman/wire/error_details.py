"""Rich gRPC errors: built by servers, read by clients, one shape for both.

A failed call has a ``google.rpc.Status`` with an ``ErrorInfo`` (a stable code from Pointsman's list, domain
``pointsman``, facts as metadata) and, for bad input, a ``BadRequest`` that names each field and its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2

from pointsman.wire.refusals import FieldViolation

DOMAIN = "pointsman"
REQUEST_ID = "request_id"
"""Metadata key of the call's id in the server's log."""

ANOTHER_MAY_ANSWER = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        # A server flooded by reconnecting clients ends calls with this (design, section 9).
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DATA_LOSS,
        # Something else, or an older name server, is listening there.
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Codes caused by one node. Any node would give every other code."""


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """Details of a failed call beyond its status code."""

    code: str = ""
    """Stable code such as ``TOPIC_NOT_FOUND``; empty when the peer sent none."""
    facts: Mapping[str, str] = field(default_factory=dict)
    violations: Sequence[FieldViolation] = ()
    request_id: str = ""
    """Id of the call in the server's log; empty when the peer sent none."""


def build_status(
    status_code: grpc.StatusCode,
    message: str,
    *,
    code: str,
    facts: Mapping[str, str] | None = None,
    violations: Sequence[FieldViolation] = (),
    request_id: str = "",
) -> status_pb2.Status:
    """Build the status of a failed call; ``rpc_status.to_status`` converts it for an abort."""
    metadata = dict(facts or {})
    if request_id:
        metadata[REQUEST_ID] = request_id
    details: list[error_details_pb2.ErrorInfo | error_details_pb2.BadRequest] = [
        error_details_pb2.ErrorInfo(reason=code, domain=DOMAIN, metadata=metadata)
    ]
    if violations:
        details.append(
            error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(field=v.field, description=v.description)
                    for v in violations
                ]
            )
        )
    status = status_pb2.Status(code=code_pb2.Code.Value(status_code.name), message=message)
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def read_status(status: status_pb2.Status | None) -> ErrorDetails:
    """Read what :func:`build_status` wrote; anything else reads as empty details."""
    code, facts, violations, request_id = "", {}, [], ""
    for packed in status.details if status is not None else ():
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if packed.Is(info.DESCRIPTOR):
            packed.Unpack(info)
            if info.domain == DOMAIN:
                code, facts = info.reason, dict(info.metadata)
                request_id = facts.pop(REQUEST_ID, "")
        elif packed.Is(bad.DESCRIPTOR):
            packed.Unpack(bad)
            violations += [FieldViolation(v.field, v.description) for v in bad.field_violations]
    return ErrorDetails(code, facts, tuple(violations), request_id)
