"""The client reads the error details that the server sent."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2

from pointsman.wire.error_details import ErrorDetails, build_status, read_status
from pointsman.wire.refusals import FieldViolation


def test_code_facts_and_violations_survive_the_wire() -> None:
    violations = (FieldViolation("topics[3].perm", "has bad bits: 16"), FieldViolation("broker.zone", "is too long"))
    status = build_status(
        grpc.StatusCode.INVALID_ARGUMENT, "bad", code="INVALID", facts={"count": "2"}, violations=violations
    )

    received = status_pb2.Status.FromString(status.SerializeToString())

    assert (received.code, received.message) == (code_pb2.INVALID_ARGUMENT, "bad")
    assert read_status(received) == ErrorDetails("INVALID", {"count": "2"}, violations)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_code_keeps_its_number(code: grpc.StatusCode) -> None:
    assert build_status(code, "", code="X").code == code.value[0]


def test_details_of_another_domain_are_ignored() -> None:
    packed = AnyMessage()
    packed.Pack(error_details_pb2.ErrorInfo(reason="QUOTA", domain="googleapis.com"))

    assert read_status(status_pb2.Status(details=[packed])) == ErrorDetails()


def test_a_call_without_details_reads_as_empty() -> None:
    assert read_status(None) == read_status(status_pb2.Status(code=5)) == ErrorDetails()
