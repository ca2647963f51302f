"""The state to register at name servers, and how the agent unregisters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman_agent.core.own_state import Leave, OwnState, decide_leave
from pointsman_agent.core.probe_verdict import ProbeStatus, Role, Verdict
from pointsman_agent.core.topic_set import DataVersion, TopicSet

OWN = OwnState(0, TopicSet.from_content([], state_version=0), Verdict(ProbeStatus.PASSING, "answers", "run-1"))


def test_health_reports_a_role_that_contradicts_the_id_before_the_probe_result() -> None:
    demoted = replace(OWN, verdict=replace(OWN.verdict, role=Role.SLAVE))

    assert demoted.health_detail == (
        "configured as broker id 0 (master), but the broker reports that it is a replica; answers"
    )
    assert demoted.status is ProbeStatus.PASSING


def test_health_never_outgrows_the_wire() -> None:
    demoted = replace(OWN, verdict=replace(OWN.verdict, role=Role.SLAVE, detail="x" * 1_024))

    assert len(demoted.health_detail) == 1_024


def test_health_and_leave_are_not_part_of_the_registration_key() -> None:
    ill = replace(
        OWN, verdict=replace(OWN.verdict, status=ProbeStatus.FAILING, detail="refused"), leave=Leave.HAND_OVER
    )

    assert ill.registration_key == OWN.registration_key


PROMOTABLE = replace(OWN, configured_id=0, replica_id=2)


def with_role(own: OwnState, role: Role, *, master_epoch: int = 0) -> OwnState:
    return replace(own, verdict=replace(own.verdict, role=role, master_epoch=master_epoch))


@pytest.mark.parametrize(("role", "broker_id"), [(Role.MASTER, 0), (Role.SLAVE, 2)])
def test_a_broker_that_may_be_promoted_has_the_role_that_it_reports(role: Role, broker_id: int) -> None:
    own = with_role(PROMOTABLE, role)

    assert own.may_claim
    assert own.broker_id == own.registration_key.broker_id == broker_id
    assert own.role_conflict is None
    assert own.health_detail == "answers"


def test_a_broker_that_may_be_promoted_claims_nothing_before_it_has_reported_its_role() -> None:
    assert not PROMOTABLE.may_claim


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("configured_id", [0, 3])
def test_without_a_replica_id_the_configured_one_applies_in_every_role(role: Role, configured_id: int) -> None:
    own = with_role(replace(OWN, configured_id=configured_id), role, master_epoch=5)

    assert own.may_claim
    assert own.broker_id == own.registration_key.broker_id == configured_id
    assert own.data_version == own.topics.data_version


def test_a_master_claims_with_its_epoch_on_top_of_the_configured_state_version() -> None:
    own = replace(PROMOTABLE, topics=TopicSet((), DataVersion(state_version=10, counter=4)))

    assert with_role(own, Role.MASTER, master_epoch=3).data_version == DataVersion(state_version=13, counter=4)
    assert with_role(own, Role.SLAVE, master_epoch=3).data_version == DataVersion(state_version=10, counter=4)
    assert with_role(own, Role.MASTER, master_epoch=3).registration_key.data_version.state_version == 13


def test_a_state_version_never_outgrows_the_wire() -> None:
    own = replace(PROMOTABLE, topics=TopicSet((), DataVersion(state_version=2**64 - 1)))

    assert with_role(own, Role.MASTER, master_epoch=3).data_version.state_version == 2**64 - 1


def test_warnings_follow_the_probe_result_and_are_not_part_of_the_registration_key() -> None:
    warned = replace(OWN, verdict=replace(OWN.verdict, warnings=("does not persist", "link is down")))

    assert warned.health_detail == "answers; does not persist; link is down"
    assert warned.registration_key == OWN.registration_key


@pytest.mark.parametrize(
    ("answers", "unprobed", "expected"),
    [
        (True, Leave.UNREGISTER, Leave.HAND_OVER),
        (False, Leave.HAND_OVER, Leave.UNREGISTER),
        (None, Leave.HAND_OVER, Leave.HAND_OVER),
        (None, Leave.UNREGISTER, Leave.UNREGISTER),
    ],
)
def test_the_agent_hands_over_a_broker_that_answers(answers: bool | None, unprobed: Leave, expected: Leave) -> None:
    assert decide_leave(broker_answers=answers, unprobed=unprobed) is expected
