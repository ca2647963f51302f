"""What each gRPC status means for the agent."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from grpc.aio import Metadata
from grpc_status import rpc_status

from pointsman.wire.error_details import build_status
from pointsman.wire.refusals import FieldViolation
from pointsman_agent.core.registration_session import Failure
from pointsman_agent.registration.registration_failure import from_error

EXPECTED = {
    "UNAVAILABLE": Failure.UNREACHABLE,
    "DEADLINE_EXCEEDED": Failure.UNREACHABLE,
    "CANCELLED": Failure.UNREACHABLE,
    "ABORTED": Failure.UNREACHABLE,
    "RESOURCE_EXHAUSTED": Failure.TEMPORARY_ERROR,
    "INTERNAL": Failure.TEMPORARY_ERROR,
    "UNKNOWN": Failure.TEMPORARY_ERROR,
    "DATA_LOSS": Failure.TEMPORARY_ERROR,
    "ALREADY_EXISTS": Failure.HELD_BY_OTHER,
    "INVALID_ARGUMENT": Failure.REFUSED,
    "UNAUTHENTICATED": Failure.TEMPORARY_ERROR,
    "PERMISSION_DENIED": Failure.REFUSED,
    "UNIMPLEMENTED": Failure.REFUSED,
    "FAILED_PRECONDITION": Failure.REFUSED,
    "NOT_FOUND": Failure.REFUSED,
    "OUT_OF_RANGE": Failure.REFUSED,
}


def rpc_error(code: grpc.StatusCode, message: str = "", trailing: Metadata | None = None) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, Metadata(), trailing or Metadata(), details=message)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_has_a_meaning(code: grpc.StatusCode) -> None:
    failed = from_error(rpc_error(code, "why"))

    assert failed.failure is EXPECTED[code.name]
    assert failed.facts == {"code": code.name, "reason": "why"}


def test_only_silence_makes_the_connection_suspect() -> None:
    assert from_error(rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED)).needs_new_connection
    assert not from_error(rpc_error(grpc.StatusCode.UNAVAILABLE)).needs_new_connection


def test_rich_details_reach_the_log() -> None:
    rich = build_status(
        grpc.StatusCode.ALREADY_EXISTS,
        "held",
        code="IDENTITY_HELD",
        facts={"holder_addr": "10.0.0.2:1"},
        violations=[FieldViolation("broker.zone", "bad")],
    )
    trailing = Metadata(*((key, value) for key, value in rpc_status.to_status(rich).trailing_metadata))

    failed = from_error(rpc_error(grpc.StatusCode.ALREADY_EXISTS, "held", trailing))

    assert failed.facts == {
        "code": "ALREADY_EXISTS",
        "reason": "held",
        "holder_addr": "10.0.0.2:1",
        "violations": ["broker.zone: bad"],
    }


@pytest.mark.parametrize(
    "details", [b"\xff\xff nonsense", build_status(grpc.StatusCode.OK, "x", code="").SerializeToString()]
)
def test_malformed_details_are_ignored(details: bytes) -> None:
    trailing = Metadata(("grpc-status-details-bin", details))

    assert from_error(rpc_error(grpc.StatusCode.UNAVAILABLE, "why", trailing)).failure is Failure.UNREACHABLE
