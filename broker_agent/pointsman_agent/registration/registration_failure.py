"""What a failed call means for the agent: the only module that knows gRPC's status codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from pointsman.wire.channel_opener import explain_connection_failure
from pointsman.wire.error_details import ErrorDetails, read_status
from pointsman.wire.refusals import FieldViolation
from pointsman_agent.core.registration_session import Failure

_UNREACHABLE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    # A server that stops, or that 3,000 agents call at the same moment, cancels calls.
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
}

_TEMPORARY = {
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DATA_LOSS,
    # Credentials are replaced here and there, not at the same moment: the broker must not expire over it.
    grpc.StatusCode.UNAUTHENTICATED,
}


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A failure as the core takes it, and what there is to say about it."""

    failure: Failure
    code: str
    """gRPC's status code, or what we saw instead of one."""
    message: str = ""
    holder_addr: str = ""
    violations: Sequence[FieldViolation] = ()
    needs_new_connection: bool = False
    """The connection may be dead without knowing it: nothing came back, not even a refusal."""

    @property
    def facts(self) -> dict[str, object]:
        """For the log; without what is empty."""
        facts = {
            "code": self.code,
            "reason": self.message,
            "holder_addr": self.holder_addr,
            "violations": [f"{each.field}: {each.description}" for each in self.violations],
        }
        return {name: value for name, value in facts.items() if value}


UNANSWERED = FailedCall(Failure.UNREACHABLE, "UNANSWERED", "no response in time", needs_new_connection=True)
"""A heartbeat on an open stream without a response in time."""

STREAM_ENDED = FailedCall(Failure.UNREACHABLE, "STREAM_ENDED", "the name server ended the stream")
"""A stream that the server ended without an error."""


def from_error(error: grpc.aio.AioRpcError) -> FailedCall:
    """Read a failed call."""
    code = error.code()
    details = _details(error)
    return FailedCall(
        failure=_classify(code),
        code=code.name,
        message=explain_connection_failure(error.details() or ""),
        holder_addr=details.facts.get("holder_addr", ""),
        violations=details.violations,
        needs_new_connection=code is grpc.StatusCode.DEADLINE_EXCEEDED,
    )


def _classify(code: grpc.StatusCode) -> Failure:
    if code in _UNREACHABLE:
        return Failure.UNREACHABLE
    if code in _TEMPORARY:
        return Failure.TEMPORARY_ERROR
    return Failure.HELD_BY_OTHER if code is grpc.StatusCode.ALREADY_EXISTS else Failure.REFUSED


def _details(error: grpc.aio.AioRpcError) -> ErrorDetails:
    try:
        return read_status(rpc_status.from_call(error))
    except (ValueError, DecodeError):
        # Details that contradict the status, or that are none: the status code still counts.
        return ErrorDetails()
