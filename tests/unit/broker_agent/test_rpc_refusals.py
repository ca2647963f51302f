"""What the agent refuses: each has a status and a code of its own, and its text stays within what gRPC carries."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.rpc import code_pb2

from pointsman.wire.errors import read_status
from pointsman.wire.violation import FieldViolation, shown
from pointsman_agent.rpc import refusals, status
from pointsman_agent.rpc.fields import refuse_if_any
from pointsman_agent.rpc.paging import page


def all_refusals(base: type[refusals.Refusal] = refusals.Refusal) -> Iterator[type[refusals.Refusal]]:
    for each in base.__subclasses__():
        if not each.__name__.startswith("_"):
            yield each
        yield from all_refusals(each)


def test_every_refusal_has_a_status_and_a_code_of_its_own() -> None:
    found = set(all_refusals())
    assert found == set(status.STATUS_CODES)
    assert len({each.code for each in found}) == len(found)


@pytest.mark.parametrize(
    ("refusal", "code", "facts"),
    [
        (refusals.LimitExceeded("clients", 7), grpc.StatusCode.RESOURCE_EXHAUSTED, {"limit": "clients", "bound": "7"}),
        (refusals.HeldByOther("it", holder="h:1"), grpc.StatusCode.FAILED_PRECONDITION, {"holder": "h:1"}),
        (refusals.NotReady("later", state="warming"), grpc.StatusCode.UNAVAILABLE, {"state": "warming"}),
        (refusals.Unavailable("redis is away"), grpc.StatusCode.UNAVAILABLE, {}),
    ],
)
def test_facts_travel_with_the_status(refusal: refusals.Refusal, code: grpc.StatusCode, facts: dict[str, str]) -> None:
    built = status.refusal(refusal)
    assert code_pb2.Code.Name(built.code) == code.name
    details = read_status(built)
    assert (details.code, dict(details.facts)) == (refusal.code, facts)


def test_violations_travel_with_the_status() -> None:
    violations = [FieldViolation("a", "is bad"), FieldViolation("b", "too")]
    built = status.refusal(refusals.OutOfRange(violations))
    assert built.message == "a is bad (the first of 2 faults)"
    assert list(read_status(built).violations) == violations


def test_of_very_many_faults_the_first_are_named_and_the_rest_counted() -> None:
    with pytest.raises(refusals.InvalidRequest) as refused:
        refuse_if_any(FieldViolation(f"f[{i}]", "x" * 90) for i in range(100))
    named = refused.value.violations
    assert 10 < len(named) < 30
    assert named[-1].description == f"and {100 - len(named) + 1} more faults"
    assert len(shown("ä" * 500)) == 80


def test_pages_follow_each_other_to_the_end_whatever_comes_and_goes() -> None:
    names = ["a", "b", "c", "d"]
    assert page(names, size=2, token="") == (["a", "b"], "b")
    assert page(["a", "bb", "c", "d"], size=2, token="b") == (["bb", "c"], "c")
    assert page(names, size=2, token="c") == (["d"], "")
    assert page(names, size=0, token="") == (names, "")
    assert page([], size=2, token="z") == ([], "")
