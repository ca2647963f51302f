"""Each response of a name server and the agent's next step; no event loop, no clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.backoff import FullJitterBackoff
from pointsman_agent.core.own_state import Leave, OwnState
from pointsman_agent.core.probe_verdict import Evidence, ProbeStatus, Role, Verdict
from pointsman_agent.core.registration_session import (
    Beat,
    BeatStatus,
    Failure,
    Finish,
    Register,
    RegistrationState,
    Session,
    Unregister,
    Update,
    Wait,
)
from pointsman_agent.core.topic_set import DataVersion, TopicConfig, TopicSet

ADDR = "10.0.0.1:10911"
OTHER = "10.0.0.2:10911"
INTERVAL = 30.0
EXPIRY = 120.0

PASSING = Verdict(ProbeStatus.PASSING, "answers", incarnation="run-1", role=Role.MASTER)
OWN = OwnState(0, TopicSet.from_content([TopicConfig("orders", 4, 4, 6)], state_version=0), PASSING)
BEAT = Beat()


def with_topics(*names: str, queues: int = 4) -> OwnState:
    return replace(
        OWN, topics=TopicSet.from_content([TopicConfig(name, queues, queues, 6) for name in names], state_version=0)
    )


FIVE = with_topics("a", "b", "c", "d", "e")
SIX = with_topics("a", "b", "c", "d", "e", "f")


def new_session() -> Session:
    return Session(
        own_addr=ADDR,
        interval=INTERVAL,
        expiry=EXPIRY,
        reconnect=FullJitterBackoff(max, cap=3.0),
        repeat=FullJitterBackoff(max, cap=INTERVAL),
        draw=max,
    )


def register(session: Session, *, now: float, own: OwnState = OWN) -> None:
    session.on_registered(7, own, interval=INTERVAL, expiry=EXPIRY, now=now)


def answer(
    session: Session,
    status: BeatStatus,
    *,
    now: float,
    holder: str = "",
    own: OwnState = OWN,
    held: DataVersion | None = None,
) -> None:
    session.on_beat_response(status, own, holder_addr=holder, held_version=held, sent_at=now)


def do(session: Session, *, now: float, own: OwnState) -> Update | Register:
    """Take the next step, which must send topics."""
    step = session.next_step(own, now=now)
    assert isinstance(step, Update | Register), step
    return step


def seconds_to_wait(session: Session, *, now: float, own: OwnState = OWN) -> float:
    step = session.next_step(own, now=now)
    assert isinstance(step, Wait), step
    return step.seconds


@pytest.fixture
def session() -> Session:
    """Registered at 1,000 and confirmed by a heartbeat immediately."""
    fresh = new_session()
    register(fresh, now=1_000)
    answer(fresh, BeatStatus.OK, now=1_000)
    return fresh


def test_a_fresh_agent_registers_immediately() -> None:
    assert new_session().next_step(OWN, now=1_000) == Register()


def test_a_registered_agent_sends_a_heartbeat_immediately_to_open_its_stream() -> None:
    fresh = new_session()
    register(fresh, now=1_000)

    assert fresh.next_step(OWN, now=1_000) == Beat()


def test_the_next_heartbeat_is_an_interval_after_the_last(session: Session) -> None:
    assert session.next_step(OWN, now=1_010) == Wait(20)
    assert session.next_step(OWN, now=1_030) == Beat()


def test_heartbeats_follow_the_interval_in_the_servers_response() -> None:
    fresh = new_session()
    fresh.on_registered(7, OWN, interval=5.0, expiry=20.0, now=1_000)
    answer(fresh, BeatStatus.OK, now=1_000)

    assert fresh.next_step(OWN, now=1_000) == Wait(5)


@given(share=st.floats(0.0, 1.0))
def test_jitter_makes_a_heartbeat_early_and_never_late(share: float) -> None:
    backoff = FullJitterBackoff(max)
    jittered = Session(
        own_addr=ADDR,
        interval=INTERVAL,
        expiry=EXPIRY,
        reconnect=backoff,
        repeat=backoff,
        draw=lambda low, high: low + share * (high - low),
    )
    register(jittered, now=0)
    answer(jittered, BeatStatus.OK, now=0)

    step = jittered.next_step(OWN, now=0)

    assert isinstance(step, Wait)
    assert 0.9 * INTERVAL <= step.seconds <= INTERVAL


def test_a_changed_verdict_is_sent_immediately(session: Session) -> None:
    failing = replace(OWN, verdict=replace(PASSING, status=ProbeStatus.FAILING, detail="refused"))

    assert session.next_step(failing, now=1_001) == Beat()

    answer(session, BeatStatus.OK, now=1_001, own=failing)
    assert session.next_step(failing, now=1_001) == Wait(30)


def test_evidence_that_became_strong_is_sent_immediately_and_once(session: Session) -> None:
    weak = replace(OWN, verdict=replace(PASSING, status=ProbeStatus.FAILING, evidence=Evidence.WEAK))
    strong = replace(weak, verdict=replace(weak.verdict, evidence=Evidence.STRONG))
    answer(session, BeatStatus.OK, now=1_001, own=weak)

    assert session.next_step(strong, now=1_002) == Beat()

    answer(session, BeatStatus.OK, now=1_002, own=strong)
    assert session.next_step(strong, now=1_002) == Wait(30)


def test_a_first_pass_of_a_failing_probe_waits_for_the_next_heartbeat(session: Session) -> None:
    failing = replace(OWN, verdict=replace(PASSING, status=ProbeStatus.FAILING, ever_passed=False))
    answer(session, BeatStatus.OK, now=1_001, own=failing)
    passed_once = replace(failing, verdict=replace(failing.verdict, ever_passed=True))

    assert session.next_step(passed_once, now=1_002) == Wait(29)


def test_another_detail_of_the_same_verdict_waits_for_the_next_heartbeat(session: Session) -> None:
    reworded = replace(OWN, verdict=replace(PASSING, detail="answers, slowly"))

    assert session.next_step(reworded, now=1_001) == Wait(29)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(OWN, verdict=replace(PASSING, incarnation="run-2")), id="incarnation"),
        pytest.param(replace(OWN, verdict=replace(PASSING, role=Role.SLAVE)), id="role"),
        pytest.param(replace(OWN, topics=TopicSet.from_content([], state_version=0)), id="topics"),
        pytest.param(
            replace(OWN, topics=TopicSet.from_content(OWN.topics.topics, state_version=1)), id="state-version"
        ),
    ],
)
def test_changed_content_is_registered_again(session: Session, other: OwnState) -> None:
    assert session.next_step(other, now=1_001) == Register()

    register(session, now=1_001, own=other)
    answer(session, BeatStatus.OK, now=1_001, own=other)
    assert session.next_step(other, now=1_001) == Wait(30)


@pytest.mark.parametrize("status", [BeatStatus.UNKNOWN_BROKER, BeatStatus.TOPICS_OUT_OF_DATE])
def test_a_server_that_requests_the_registration_gets_it_immediately(session: Session, status: BeatStatus) -> None:
    answer(session, status, now=1_030)

    assert session.next_step(OWN, now=1_030) == Register()


def test_a_stale_generation_of_the_same_address_is_registered_again_immediately(session: Session) -> None:
    answer(session, BeatStatus.STALE_GENERATION, now=1_030, holder=ADDR)

    assert session.next_step(OWN, now=1_030) == Register()


def test_after_a_stale_generation_of_another_address_the_next_heartbeat_waits_an_expiry(session: Session) -> None:
    answer(session, BeatStatus.STALE_GENERATION, now=1_030, holder=OTHER)

    assert session.state is RegistrationState.HELD_BY_OTHER
    assert session.holder_addr == OTHER
    assert session.next_step(OWN, now=1_030) == Wait(EXPIRY)
    assert session.next_step(replace(OWN, topics=TopicSet.from_content([], state_version=0)), now=1_149) == Wait(1)
    assert session.next_step(OWN, now=1_150) == Beat()


def test_a_free_identity_is_registered_after_the_heartbeat_that_reports_it(session: Session) -> None:
    answer(session, BeatStatus.STALE_GENERATION, now=1_030, holder=OTHER)
    answer(session, BeatStatus.UNKNOWN_BROKER, now=1_150)

    assert session.holder_addr == ""
    assert session.next_step(OWN, now=1_150) == Register()


def test_a_conflict_at_registration_waits_an_expiry_and_registers_again() -> None:
    fresh = new_session()
    fresh.on_register_failure(Failure.HELD_BY_OTHER, now=1_000, holder_addr=OTHER)

    assert (fresh.state, fresh.holder_addr) == (RegistrationState.HELD_BY_OTHER, OTHER)
    assert fresh.next_step(OWN, now=1_000) == Wait(EXPIRY)
    assert fresh.next_step(OWN, now=1_120) == Register()


def test_a_refused_first_registration_waits_an_expiry() -> None:
    fresh = new_session()
    fresh.on_register_failure(Failure.REFUSED, now=1_000)

    assert fresh.state is RegistrationState.REFUSED
    assert fresh.next_step(OWN, now=1_119) == Wait(1)
    assert fresh.next_step(OWN, now=1_120) == Register()


def test_after_a_refused_change_heartbeats_keep_the_older_registration(session: Session) -> None:
    changed = replace(OWN, topics=TopicSet.from_content([], state_version=0))
    session.on_register_failure(Failure.REFUSED, now=1_005)

    assert session.next_step(changed, now=1_010) == Wait(20)
    assert session.next_step(changed, now=1_030) == Beat()

    for now in (1_030, 1_060, 1_090, 1_120):
        answer(session, BeatStatus.TOPICS_OUT_OF_DATE, now=now, own=changed)

    assert session.next_step(changed, now=1_120) == Wait(5)
    assert session.next_step(changed, now=1_125) == Register()


def test_a_wait_for_a_registration_is_not_prolonged_by_the_next_heartbeat(session: Session) -> None:
    answer(session, BeatStatus.TOPICS_OUT_OF_DATE, now=1_030)
    register(session, now=1_030)
    answer(session, BeatStatus.TOPICS_OUT_OF_DATE, now=1_030)

    assert seconds_to_wait(session, now=1_030, own=OWN) == pytest.approx(0.2)
    assert session.next_step(OWN, now=1_030.2) == Register()


def test_after_a_refused_heartbeat_the_next_waits_an_expiry(session: Session) -> None:
    session.on_beat_failure(Failure.REFUSED, now=1_030)

    assert session.next_step(OWN, now=1_030) == Wait(EXPIRY)
    assert session.next_step(OWN, now=1_150) == Beat()


def test_after_a_reconnect_the_agent_first_sends_a_heartbeat(session: Session) -> None:
    changed = replace(OWN, topics=TopicSet.from_content([], state_version=0))
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010)

    assert session.state is RegistrationState.UNREACHABLE
    assert seconds_to_wait(session, now=1_010, own=changed) == pytest.approx(0.2)
    assert session.next_step(changed, now=1_010.2) == Beat()

    answer(session, BeatStatus.TOPICS_OUT_OF_DATE, now=1_010.2, own=changed, held=OWN.data_version)
    assert session.next_step(changed, now=1_010.2) == Register()


def test_a_server_that_holds_the_version_of_the_heartbeat_gets_no_topics_again(session: Session) -> None:
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010)
    answer(session, BeatStatus.OK, now=1_010.2, own=FIVE)

    assert seconds_to_wait(session, now=1_011, own=FIVE) == pytest.approx(29.2)


@pytest.mark.parametrize("failure", [Failure.UNREACHABLE, Failure.TEMPORARY_ERROR])
def test_after_an_unanswered_registration_heartbeats_check_whether_the_server_responds(failure: Failure) -> None:
    fresh = new_session()
    fresh.on_register_failure(failure, now=1_000)

    assert seconds_to_wait(fresh, now=1_000, own=OWN) == pytest.approx(0.2)
    assert fresh.next_step(OWN, now=1_000.2) == BEAT

    answer(fresh, BeatStatus.UNKNOWN_BROKER, now=1_000.2)
    assert fresh.next_step(OWN, now=1_000.2) == Register()


def test_a_server_whose_responses_are_lost_gets_one_registration_and_then_heartbeats() -> None:
    fresh = new_session()
    assert fresh.next_step(OWN, now=1_000) == Register()
    now = 1_010.0
    fresh.on_register_failure(Failure.UNREACHABLE, now=now)

    for _ in range(20):
        now += seconds_to_wait(fresh, now=now)
        assert fresh.next_step(OWN, now=now) == BEAT
        now += 3.0
        fresh.on_beat_failure(Failure.UNREACHABLE, now=now)

    # It received the registration: it holds this broker, in a generation that the agent does not know.
    answer(fresh, BeatStatus.STALE_GENERATION, now=now + 3, holder=ADDR)
    assert fresh.next_step(OWN, now=now + 3) == Register()


def test_a_position_that_was_never_held_is_claimed_though_another_holds_it() -> None:
    fresh = new_session()
    fresh.on_register_failure(Failure.UNREACHABLE, now=1_000)
    answer(fresh, BeatStatus.STALE_GENERATION, now=1_000.2, holder=OTHER)

    assert fresh.next_step(OWN, now=1_000.2) == Register()


# --- deltas --------------------------------------------------------------------------------------------------------


@pytest.fixture
def holding_five() -> Session:
    """Registered at 1,000 with five topics, and confirmed."""
    fresh = new_session()
    assert fresh.next_step(FIVE, now=1_000) == Register()
    register(fresh, now=1_000, own=FIVE)
    answer(fresh, BeatStatus.OK, now=1_000, own=FIVE)
    return fresh


def test_a_small_change_is_sent_as_a_delta(holding_five: Session) -> None:
    step = do(holding_five, now=1_001, own=SIX)

    assert isinstance(step, Update)
    assert step.delta.base == FIVE.data_version
    assert [each.topic for each in step.delta.changed] == ["f"]
    assert step.delta.removed == ()

    holding_five.on_updated(SIX, now=1_001)
    assert holding_five.next_step(SIX, now=1_001) == Wait(29)


def test_a_restart_of_the_broker_is_a_full_registration_even_if_topics_changed_with_it(holding_five: Session) -> None:
    restarted = replace(SIX, verdict=replace(PASSING, incarnation="run-2"))

    assert holding_five.next_step(restarted, now=1_001) == Register()


@pytest.mark.parametrize("failure", [Failure.REFUSED, Failure.HELD_BY_OTHER])
def test_after_a_refused_delta_the_complete_set_is_registered(holding_five: Session, failure: Failure) -> None:
    do(holding_five, now=1_001, own=SIX)
    holding_five.on_update_failure(failure, now=1_001)

    assert holding_five.next_step(SIX, now=1_001) == Register()

    register(holding_five, now=1_001, own=SIX)
    answer(holding_five, BeatStatus.OK, now=1_001, own=SIX)
    assert isinstance(do(holding_five, now=1_002, own=FIVE), Update)


def test_a_change_refused_for_another_holder_is_not_retried_against_it(holding_five: Session) -> None:
    do(holding_five, now=1_001, own=SIX)
    holding_five.on_update_failure(Failure.REFUSED, now=1_001, holder_addr=OTHER)

    assert (holding_five.state, holding_five.holder_addr) == (RegistrationState.HELD_BY_OTHER, OTHER)
    assert holding_five.next_step(SIX, now=1_001) == Wait(EXPIRY)
    assert holding_five.next_step(SIX, now=1_121) == BEAT


def test_a_delta_refused_for_a_later_registration_of_the_same_address_leads_to_a_registration(
    holding_five: Session,
) -> None:
    do(holding_five, now=1_001, own=SIX)
    holding_five.on_update_failure(Failure.REFUSED, now=1_001, holder_addr=ADDR)

    assert holding_five.next_step(FIVE, now=1_001) == Register()


@pytest.mark.parametrize("held", [FIVE, SIX], ids=["it-was-lost", "its-answer-was-lost"])
def test_after_an_unanswered_change_a_heartbeat_queries_the_servers_version(
    holding_five: Session, held: OwnState
) -> None:
    do(holding_five, now=1_001, own=SIX)
    holding_five.on_update_failure(Failure.UNREACHABLE, now=1_011)

    assert holding_five.next_step(SIX, now=1_012) == BEAT
    if held is SIX:
        answer(holding_five, BeatStatus.OK, now=1_012, own=SIX)
        assert holding_five.next_step(SIX, now=1_012) == Wait(30)
    else:
        answer(holding_five, BeatStatus.TOPICS_OUT_OF_DATE, now=1_012, own=SIX, held=FIVE.data_version)
        step = do(holding_five, now=1_012, own=SIX)
        assert isinstance(step, Update)
        assert step.delta.base == FIVE.data_version


def test_a_server_that_returns_with_the_previous_set_gets_the_difference(holding_five: Session) -> None:
    do(holding_five, now=1_001, own=SIX)
    holding_five.on_updated(SIX, now=1_001)
    holding_five.on_beat_failure(Failure.UNREACHABLE, now=1_005)
    answer(holding_five, BeatStatus.TOPICS_OUT_OF_DATE, now=1_006, own=SIX, held=FIVE.data_version)

    step = do(holding_five, now=1_006, own=SIX)

    assert isinstance(step, Update)
    assert step.delta.base == FIVE.data_version


def test_the_servers_topic_set_stays_known_after_any_number_of_lost_changes(holding_five: Session) -> None:
    now = 1_001.0
    for name in "ghij":
        changed = with_topics("a", "b", "c", "d", "e", name)
        step = do(holding_five, now=now, own=changed)
        assert isinstance(step, Update)
        assert step.delta.base == FIVE.data_version

        holding_five.on_update_failure(Failure.UNREACHABLE, now=now)
        answer(holding_five, BeatStatus.TOPICS_OUT_OF_DATE, now=now + 3, own=changed, held=FIVE.data_version)
        answer(holding_five, BeatStatus.OK, now=now + 3, own=FIVE)
        now += 40


def test_an_unknown_version_at_the_server_leads_to_a_full_registration(holding_five: Session) -> None:
    answer(holding_five, BeatStatus.TOPICS_OUT_OF_DATE, now=1_030, own=FIVE, held=DataVersion(counter=1))

    assert holding_five.next_step(FIVE, now=1_030) == Register()


def test_a_server_out_of_date_again_after_a_delta_gets_a_full_registration_after_a_wait(holding_five: Session) -> None:
    answer(holding_five, BeatStatus.TOPICS_OUT_OF_DATE, now=1_030, own=SIX, held=FIVE.data_version)
    assert isinstance(do(holding_five, now=1_030, own=SIX), Update)
    holding_five.on_updated(SIX, now=1_030)
    answer(holding_five, BeatStatus.TOPICS_OUT_OF_DATE, now=1_060, own=SIX, held=FIVE.data_version)

    assert seconds_to_wait(holding_five, now=1_060, own=SIX) == pytest.approx(0.2)
    assert holding_five.next_step(SIX, now=1_060.2) == Register()


def test_the_version_that_the_server_reports_is_not_sent_when_it_is_current_again(holding_five: Session) -> None:
    answer(holding_five, BeatStatus.TOPICS_OUT_OF_DATE, now=1_030, own=SIX, held=FIVE.data_version)

    assert holding_five.next_step(FIVE, now=1_030) == Wait(30)


# --- positions in the group ----------------------------------------------------------------------------------------

REPLICA = replace(OWN, configured_id=1, replica_id=1, verdict=replace(PASSING, role=Role.SLAVE))
PROMOTED = replace(REPLICA, verdict=replace(PASSING, role=Role.MASTER, master_epoch=1))


@pytest.fixture
def replica() -> Session:
    """Registered as id 1 at 1,000, and confirmed."""
    fresh = new_session()
    assert fresh.next_step(REPLICA, now=1_000) == Register()
    register(fresh, now=1_000, own=REPLICA)
    answer(fresh, BeatStatus.OK, now=1_000, own=REPLICA)
    return fresh


def test_a_promoted_replica_registers_its_new_position_immediately(replica: Session) -> None:
    assert replica.next_step(PROMOTED, now=1_001) == Register()
    assert replica.broker_id == 0


def test_a_promoted_replica_claims_the_masters_position_though_the_dead_master_still_holds_it(
    replica: Session,
) -> None:
    replica.on_beat_failure(Failure.UNREACHABLE, now=1_001)
    assert replica.next_step(PROMOTED, now=1_002) == BEAT

    answer(replica, BeatStatus.STALE_GENERATION, now=1_002, own=PROMOTED, holder=OTHER)
    assert replica.next_step(PROMOTED, now=1_002) == Register()


def test_a_master_that_lost_its_position_registers_its_new_one_without_waiting(replica: Session) -> None:
    replica.next_step(PROMOTED, now=1_001)
    register(replica, now=1_001, own=PROMOTED)
    answer(replica, BeatStatus.STALE_GENERATION, now=1_031, own=PROMOTED, holder=OTHER)
    assert replica.next_step(PROMOTED, now=1_032) == Wait(119)

    assert replica.next_step(REPLICA, now=1_032) == Register()
    assert (replica.broker_id, replica.holder_addr) == (1, "")


def test_an_unregister_names_the_position_that_was_registered(replica: Session) -> None:
    assert replica.next_step(replace(PROMOTED, leave=Leave.UNREGISTER), now=1_001) == Unregister()
    assert replica.broker_id == 1


def test_nothing_is_claimed_for_a_broker_that_has_not_reported_its_role() -> None:
    silent = replace(REPLICA, verdict=Verdict())

    assert new_session().next_step(silent, now=1_000) == Wait(INTERVAL)
    assert new_session().next_step(replace(silent, leave=Leave.UNREGISTER), now=1_000) == Finish()


# --- two agents for one broker ------------------------------------------------------------------------------------


def test_an_identity_repeatedly_claimed_from_the_same_address_is_reclaimed_once_per_half_expiry(
    session: Session,
) -> None:
    taken_back, now = [], 1_000.0
    for _ in range(40):
        now += 30
        answer(session, BeatStatus.STALE_GENERATION, now=now, holder=ADDR)
        if session.next_step(OWN, now=now) == Register():
            taken_back.append(now)
            register(session, now=now)
            answer(session, BeatStatus.OK, now=now)
        else:
            assert (session.state, session.holder_addr) == (RegistrationState.HELD_BY_OTHER, ADDR)
            assert session.next_step(OWN, now=now) == Wait(30)  # for it may come free at any time

    assert taken_back == [1_030.0 + 60 * i for i in range(20)]


def test_a_registration_without_an_answer_explains_a_later_generation_until_one_is_answered(session: Session) -> None:
    answer(session, BeatStatus.STALE_GENERATION, now=1_030, holder=ADDR)
    register(session, now=1_030)
    answer(session, BeatStatus.OK, now=1_030)
    session.on_register_failure(Failure.UNREACHABLE, now=1_040)
    answer(session, BeatStatus.STALE_GENERATION, now=1_041, holder=ADDR)
    assert session.next_step(OWN, now=1_041) == Register()

    register(session, now=1_041)
    answer(session, BeatStatus.OK, now=1_041)
    answer(session, BeatStatus.STALE_GENERATION, now=1_071, holder=ADDR)
    assert session.state is RegistrationState.HELD_BY_OTHER


def test_an_identity_that_another_held_and_lost_is_registered_as_soon_as_that_is_known(session: Session) -> None:
    session.on_register_failure(Failure.HELD_BY_OTHER, now=1_020, holder_addr=OTHER)
    answer(session, BeatStatus.UNKNOWN_BROKER, now=1_030)

    assert session.next_step(OWN, now=1_030) == Register()


def test_an_identity_lost_to_the_same_address_is_registered_as_soon_as_that_is_known(
    session: Session,
) -> None:
    for now in (1_030, 1_060):
        answer(session, BeatStatus.STALE_GENERATION, now=now, holder=ADDR)
        if session.next_step(OWN, now=now) == Register():
            register(session, now=now)
            answer(session, BeatStatus.OK, now=now)
    answer(session, BeatStatus.STALE_GENERATION, now=1_080, holder=ADDR)
    assert session.state is RegistrationState.HELD_BY_OTHER

    answer(session, BeatStatus.UNKNOWN_BROKER, now=1_085)

    assert session.next_step(OWN, now=1_085) == Register()


def test_an_unreachable_server_is_retried_at_least_every_three_seconds(session: Session) -> None:
    waits = []
    now = 1_010.0
    for _ in range(8):
        session.on_beat_failure(Failure.UNREACHABLE, now=now)
        waits.append(round(seconds_to_wait(session, now=now), 3))
        now += waits[-1]

    assert waits == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0, 3.0]


def test_a_connection_that_breaks_after_each_heartbeat_is_retried_with_backoff(session: Session) -> None:
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010)
    answer(session, BeatStatus.OK, now=1_010.2)
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010.3)

    assert seconds_to_wait(session, now=1_010.3, own=OWN) == pytest.approx(0.4)


def test_a_connection_that_was_up_for_an_interval_is_retried_immediately(session: Session) -> None:
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010)
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010.2)
    answer(session, BeatStatus.OK, now=1_040.2)
    session.on_beat_failure(Failure.UNREACHABLE, now=1_041)

    assert seconds_to_wait(session, now=1_041, own=OWN) == pytest.approx(0.2)


def test_a_server_that_repeats_its_request_is_answered_with_backoff(session: Session) -> None:
    waits = []
    now = 1_030.0
    for _ in range(10):
        answer(session, BeatStatus.UNKNOWN_BROKER, now=now)
        step = session.next_step(OWN, now=now)
        waits.append(step.seconds if isinstance(step, Wait) else 0.0)
        now += waits[-1]
        assert session.next_step(OWN, now=now) == Register()
        register(session, now=now)

    assert [round(wait, 3) for wait in waits] == [0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]


def test_a_failing_server_is_retried_with_backoff(session: Session) -> None:
    waits = []
    for _ in range(9):
        session.on_beat_failure(Failure.TEMPORARY_ERROR, now=1_030)
        waits.append(round(seconds_to_wait(session, now=1_030), 3))

    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]


def test_a_leave_hands_over_once_and_then_finishes(session: Session) -> None:
    leaving = replace(OWN, leave=Leave.HAND_OVER)

    assert session.next_step(leaving, now=1_001) == Beat(hand_over=True)

    session.on_left()
    assert session.next_step(leaving, now=1_001) == Finish()


def test_leaving_with_a_stopped_broker_unregisters_once_and_then_finishes(session: Session) -> None:
    leaving = replace(OWN, leave=Leave.UNREGISTER)

    assert session.next_step(leaving, now=1_001) == Unregister()

    session.on_left()
    assert session.next_step(leaving, now=1_001) == Finish()


def test_an_unreachable_server_may_hold_the_broker_and_is_called_without_backoff(session: Session) -> None:
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010)

    assert session.next_step(replace(OWN, leave=Leave.UNREGISTER), now=1_010) == Unregister()


def test_a_drained_broker_leaves_with_that_reason(session: Session) -> None:
    assert session.next_step(replace(OWN, leave=Leave.DRAIN), now=1_001) == Unregister(is_drained=True)


@pytest.mark.parametrize("leave", list(Leave))
def test_a_server_without_a_registration_is_not_called(leave: Leave) -> None:
    leaving = replace(OWN, leave=leave)
    never_registered = new_session()
    held_by_other = new_session()
    register(held_by_other, now=1_000)
    answer(held_by_other, BeatStatus.STALE_GENERATION, now=1_000, holder=OTHER)
    forgotten = new_session()
    register(forgotten, now=1_000)
    answer(forgotten, BeatStatus.UNKNOWN_BROKER, now=1_000)

    for each in (never_registered, held_by_other, forgotten):
        assert each.next_step(leaving, now=1_001) == Finish()


OUTCOMES = st.sampled_from([*BeatStatus, *Failure])


@given(
    script=st.lists(OUTCOMES, max_size=60),
    holders=st.lists(st.sampled_from([ADDR, OTHER]), min_size=60, max_size=60),
    owns=st.lists(st.sampled_from([OWN, FIVE, SIX]), min_size=60, max_size=60),
)
def test_no_server_behaviour_causes_a_tight_loop_of_calls(
    script: list[BeatStatus | Failure], holders: list[str], owns: list[OwnState]
) -> None:
    """Driven by its own steps for as long as the script lasts, a session never makes more than six calls without a
    wait: the beat after a reconnect, a change that is refused, a registration with the beat that opens the stream,
    and both once more if that heartbeat's response requires it."""
    session = new_session()
    now, in_a_row, own = 1_000.0, 0, OWN
    for what, holder, wanted in zip(script, holders, owns, strict=False):
        step = session.next_step(own, now=now)
        while isinstance(step, Wait):
            assert step.seconds > 0
            now += step.seconds
            in_a_row, own = 0, wanted
            step = session.next_step(own, now=now)
        in_a_row += 1
        if isinstance(step, Register):
            if isinstance(what, Failure):
                session.on_register_failure(what, now=now, holder_addr=holder)
            else:
                register(session, now=now, own=own)
        elif isinstance(step, Update):
            if isinstance(what, Failure):
                session.on_update_failure(what, now=now, holder_addr=holder if what is Failure.REFUSED else "")
            else:
                session.on_updated(own, now=now)
        elif isinstance(what, Failure):
            session.on_beat_failure(what, now=now)
        else:
            answer(session, what, now=now, holder=holder, own=own, held=FIVE.data_version)
        assert in_a_row <= 6
