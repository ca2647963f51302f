"""What name servers are to hold, and how the agent leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker_agent.core.own_state import Leave, OwnState, decide_leave
from broker_agent.core.probe_verdict import ProbeStatus, Role, Verdict
from broker_agent.core.topic_set import TopicSet

OWN = OwnState(0, TopicSet.from_content([], state_version=0), Verdict(ProbeStatus.PASSING, "answers", "run-1"))


def test_health_says_that_the_role_contradicts_the_id_before_what_the_probe_met() -> None:
    demoted = replace(OWN, verdict=replace(OWN.verdict, role=Role.SLAVE))

    assert demoted.health_detail == ("configured as broker id 0 (master), but the broker says it is a replica; answers")
    assert demoted.status is ProbeStatus.PASSING


def test_health_never_outgrows_the_wire() -> None:
    demoted = replace(OWN, verdict=replace(OWN.verdict, role=Role.SLAVE, detail="x" * 1_024))

    assert len(demoted.health_detail) == 1_024


def test_health_and_leave_are_not_part_of_what_a_registration_must_say() -> None:
    ill = replace(
        OWN, verdict=replace(OWN.verdict, status=ProbeStatus.FAILING, detail="refused"), leave=Leave.HAND_OVER
    )

    assert ill.registration_key == OWN.registration_key


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
