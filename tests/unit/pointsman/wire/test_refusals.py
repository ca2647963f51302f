"""The refusals of both daemons: each has its own status and code, and its text fits into what gRPC carries."""

from __future__ import annotations

from types import ModuleType

import grpc
import pytest

from pointsman.wire import refusals as shared_refusals
from pointsman.wire.refusals import FieldsRefused, FieldViolation, InvalidRequest, Refusal, refuse_if_any, shown
from pointsman_agent.rpc import agent_refusals
from pointsman_namesrv.core import node_refusals

MODULES = (shared_refusals, node_refusals, agent_refusals)


def refusals(module: ModuleType) -> list[type[Refusal]]:
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Refusal)
        and each.__module__ == module.__name__
        and each not in (Refusal, FieldsRefused)
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_refusal_has_a_grpc_status_and_is_with_its_code_in_the_documented_hierarchy(module: ModuleType) -> None:
    found = refusals(module)
    assert found
    for each in found:
        assert each.status in grpc.StatusCode.__members__
        assert f"{each.__name__} " in (module.__doc__ or "")
        assert each.code in (module.__doc__ or "")


@pytest.mark.parametrize("daemon", [node_refusals, agent_refusals], ids=lambda module: module.__name__)
def test_no_two_refusals_of_a_daemon_share_a_code(daemon: ModuleType) -> None:
    own = {each.code for each in refusals(daemon)} - {shared_refusals.LimitExceeded.code}
    shared = {each.code for each in refusals(shared_refusals)}
    assert len(own) == len(refusals(daemon)) - 1
    assert not own & shared


def test_a_limit_names_the_server_that_has_it() -> None:
    assert (
        str(node_refusals.LimitExceeded("watchers", 7, value=8)) == "this name server allows at most 7 watchers, not 8"
    )
    assert str(agent_refusals.LimitExceeded("watchers", 7, note="why")) == "this agent allows at most 7 watchers; why"


def test_the_text_has_the_first_violation_and_their_number() -> None:
    refused = agent_refusals.OutOfRange([FieldViolation("a", "is bad"), FieldViolation("b", "too")])
    assert str(refused) == "a is bad (the first of 2 violations)"


def test_of_very_many_violations_the_first_are_named_and_the_others_counted() -> None:
    with pytest.raises(InvalidRequest) as refused:
        refuse_if_any(FieldViolation(f"f[{i}]", "x" * 90) for i in range(100))
    named = refused.value.violations
    assert 20 < len(named) < 40
    assert named[-1].description == f"and {100 - len(named) + 1} more violations"
    assert len(shown("ä" * 500)) == 80
