"""Every refusal of the core has its gRPC status, and says what it knows."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from pointsman.wire.errors import read_status
from pointsman.wire.violation import FieldViolation
from pointsman_namesrv.core import errors
from pointsman_namesrv.core.errors import InvalidRequest, NameServerError, TopicNotFound
from pointsman_namesrv.rpc.status import STATUS_CODES, refusal


def refusals(base: type[NameServerError] = NameServerError) -> Iterator[type[NameServerError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from refusals(kind)


@pytest.mark.parametrize("kind", list(refusals()), ids=lambda kind: kind.__name__)
def test_every_refusal_is_mapped_and_named_in_the_drawn_hierarchy(kind: type[NameServerError]) -> None:
    assert kind in STATUS_CODES
    assert errors.__doc__ is not None
    assert f"{kind.__name__} " in errors.__doc__
    assert kind.code in errors.__doc__


def test_no_two_refusals_share_a_code() -> None:
    codes = [kind.code for kind in refusals()]
    assert len(codes) == len(set(codes))


def test_a_refusal_carries_code_and_violations() -> None:
    status = refusal(InvalidRequest([FieldViolation("topic", "must not be empty: ''")]))
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    details = read_status(status)
    assert details.code == "INVALID_REQUEST"
    assert [violation.field for violation in details.violations] == ["topic"]


def test_a_refusal_says_its_facts_in_words() -> None:
    assert refusal(TopicNotFound("orders", "c1")).message == "no broker of cluster c1 has topic orders"
