"""Each answer of a name server and what the agent does next; no event loop, no clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_agent.core.own_state import Leave, OwnState
from broker_agent.core.probe_verdict import ProbeStatus, Role, Verdict
from broker_agent.core.session import Beat, BeatStatus, Failure, Finish, Register, Session, Standing, Unregister, Wait
from broker_agent.core.topic_set import TopicConfig, TopicSet
from pointsman.wire.backoff import FullJitterBackoff

ADDR = "10.0.0.1:10911"
OTHER = "10.0.0.2:10911"
INTERVAL = 30.0
EXPIRY = 120.0

PASSING = Verdict(ProbeStatus.PASSING, "answers", incarnation="run-1", role=Role.MASTER)
OWN = OwnState(0, TopicSet.from_content([TopicConfig("orders", 4, 4, 6)], state_version=0), PASSING)


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


def answer(session: Session, status: BeatStatus, *, now: float, holder: str = "", own: OwnState = OWN) -> None:
    session.on_beat_answer(status, own, holder_addr=holder, sent_at=now)


def seconds_to_wait(session: Session, *, now: float, own: OwnState = OWN) -> float:
    step = session.next_step(own, now=now)
    assert isinstance(step, Wait), step
    return step.seconds


@pytest.fixture
def session() -> Session:
    """Registered at 1,000 and confirmed by a beat at once."""
    fresh = new_session()
    register(fresh, now=1_000)
    answer(fresh, BeatStatus.OK, now=1_000)
    return fresh


def test_a_fresh_agent_registers_at_once() -> None:
    assert new_session().next_step(OWN, now=1_000) == Register()


def test_a_registered_agent_beats_at_once_to_open_its_stream() -> None:
    fresh = new_session()
    register(fresh, now=1_000)

    assert fresh.next_step(OWN, now=1_000) == Beat()


def test_the_next_beat_is_an_interval_after_the_last(session: Session) -> None:
    assert session.next_step(OWN, now=1_010) == Wait(20)
    assert session.next_step(OWN, now=1_030) == Beat()


def test_beats_go_by_the_interval_that_the_server_answered() -> None:
    fresh = new_session()
    fresh.on_registered(7, OWN, interval=5.0, expiry=20.0, now=1_000)
    answer(fresh, BeatStatus.OK, now=1_000)

    assert fresh.next_step(OWN, now=1_000) == Wait(5)


@given(share=st.floats(0.0, 1.0))
def test_jitter_makes_a_beat_early_and_never_late(share: float) -> None:
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


def test_a_verdict_that_turned_is_beaten_at_once(session: Session) -> None:
    failing = replace(OWN, verdict=replace(PASSING, status=ProbeStatus.FAILING, detail="refused"))

    assert session.next_step(failing, now=1_001) == Beat()

    answer(session, BeatStatus.OK, now=1_001, own=failing)
    assert session.next_step(failing, now=1_001) == Wait(30)


def test_another_detail_of_the_same_verdict_waits_for_the_next_beat(session: Session) -> None:
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
def test_a_server_that_asks_for_the_registration_gets_it_at_once(session: Session, status: BeatStatus) -> None:
    answer(session, status, now=1_030)

    assert session.next_step(OWN, now=1_030) == Register()


def test_a_stale_generation_of_our_own_address_is_registered_again_at_once(session: Session) -> None:
    answer(session, BeatStatus.STALE_GENERATION, now=1_030, holder=ADDR)

    assert session.next_step(OWN, now=1_030) == Register()


def test_a_stale_generation_of_another_address_waits_an_expiry_and_then_beats(session: Session) -> None:
    answer(session, BeatStatus.STALE_GENERATION, now=1_030, holder=OTHER)

    assert session.standing is Standing.HELD_BY_OTHER
    assert session.holder_addr == OTHER
    assert session.next_step(OWN, now=1_030) == Wait(EXPIRY)
    assert session.next_step(replace(OWN, topics=TopicSet.from_content([], state_version=0)), now=1_149) == Wait(1)
    assert session.next_step(OWN, now=1_150) == Beat()


def test_an_identity_that_came_free_is_registered_after_the_beat_that_says_so(session: Session) -> None:
    answer(session, BeatStatus.STALE_GENERATION, now=1_030, holder=OTHER)
    answer(session, BeatStatus.UNKNOWN_BROKER, now=1_150)

    assert session.holder_addr == ""
    assert session.next_step(OWN, now=1_150) == Register()


def test_a_conflict_at_registration_waits_an_expiry_and_registers_again() -> None:
    fresh = new_session()
    fresh.on_register_failure(Failure.HELD_BY_OTHER, now=1_000, holder_addr=OTHER)

    assert (fresh.standing, fresh.holder_addr) == (Standing.HELD_BY_OTHER, OTHER)
    assert fresh.next_step(OWN, now=1_000) == Wait(EXPIRY)
    assert fresh.next_step(OWN, now=1_120) == Register()


def test_a_refused_first_registration_waits_an_expiry() -> None:
    fresh = new_session()
    fresh.on_register_failure(Failure.REFUSED, now=1_000)

    assert fresh.standing is Standing.REFUSED
    assert fresh.next_step(OWN, now=1_119) == Wait(1)
    assert fresh.next_step(OWN, now=1_120) == Register()


def test_a_refused_change_keeps_the_older_registration_alive_with_beats(session: Session) -> None:
    changed = replace(OWN, topics=TopicSet.from_content([], state_version=0))
    session.on_register_failure(Failure.REFUSED, now=1_005)

    assert session.next_step(changed, now=1_010) == Wait(20)
    assert session.next_step(changed, now=1_030) == Beat()

    for now in (1_030, 1_060, 1_090, 1_120):
        answer(session, BeatStatus.TOPICS_OUT_OF_DATE, now=now, own=changed)

    assert session.next_step(changed, now=1_120) == Wait(5)
    assert session.next_step(changed, now=1_125) == Register()


def test_a_wait_for_a_registration_is_not_prolonged_by_the_next_beat(session: Session) -> None:
    answer(session, BeatStatus.TOPICS_OUT_OF_DATE, now=1_030)
    register(session, now=1_030)
    answer(session, BeatStatus.TOPICS_OUT_OF_DATE, now=1_030)

    assert seconds_to_wait(session, now=1_030, own=OWN) == pytest.approx(0.2)
    assert session.next_step(OWN, now=1_030.2) == Register()


def test_a_refused_beat_waits_an_expiry(session: Session) -> None:
    session.on_beat_failure(Failure.REFUSED, now=1_030)

    assert session.next_step(OWN, now=1_030) == Wait(EXPIRY)
    assert session.next_step(OWN, now=1_150) == Beat()


def test_after_a_reconnect_the_agent_beats_before_anything_else(session: Session) -> None:
    changed = replace(OWN, topics=TopicSet.from_content([], state_version=0))
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010)

    assert session.standing is Standing.UNREACHABLE
    assert seconds_to_wait(session, now=1_010, own=changed) == pytest.approx(0.2)
    assert session.next_step(changed, now=1_010.2) == Beat()

    answer(session, BeatStatus.OK, now=1_010.2, own=changed)
    assert session.next_step(changed, now=1_010.2) == Register()


def test_a_registration_that_never_arrived_is_sent_again_after_a_short_wait() -> None:
    fresh = new_session()
    fresh.on_register_failure(Failure.UNREACHABLE, now=1_000)

    assert seconds_to_wait(fresh, now=1_000, own=OWN) == pytest.approx(0.2)
    assert fresh.next_step(OWN, now=1_000.2) == Register()


def test_a_server_that_stays_away_is_tried_every_three_seconds_at_the_longest(session: Session) -> None:
    waits = []
    now = 1_010.0
    for _ in range(8):
        session.on_beat_failure(Failure.UNREACHABLE, now=now)
        waits.append(round(seconds_to_wait(session, now=now), 3))
        now += waits[-1]

    assert waits == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0, 3.0]


def test_a_connection_that_breaks_after_each_beat_is_not_tried_at_full_speed(session: Session) -> None:
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010)
    answer(session, BeatStatus.OK, now=1_010.2)
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010.3)

    assert seconds_to_wait(session, now=1_010.3, own=OWN) == pytest.approx(0.4)


def test_a_connection_that_stood_for_an_interval_is_tried_again_at_once(session: Session) -> None:
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010)
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010.2)
    answer(session, BeatStatus.OK, now=1_040.2)
    session.on_beat_failure(Failure.UNREACHABLE, now=1_041)

    assert seconds_to_wait(session, now=1_041, own=OWN) == pytest.approx(0.2)


def test_a_server_that_asks_again_and_again_is_answered_ever_more_slowly(session: Session) -> None:
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


def test_a_server_in_trouble_is_tried_ever_more_slowly(session: Session) -> None:
    waits = []
    for _ in range(9):
        session.on_beat_failure(Failure.TROUBLED, now=1_030)
        waits.append(round(seconds_to_wait(session, now=1_030), 3))

    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]


def test_a_leave_hands_over_once_and_then_finishes(session: Session) -> None:
    leaving = replace(OWN, leave=Leave.HAND_OVER)

    assert session.next_step(leaving, now=1_001) == Beat(hand_over=True)

    session.on_left()
    assert session.next_step(leaving, now=1_001) == Finish()


def test_a_leave_of_a_broker_that_is_gone_unregisters_once_and_then_finishes(session: Session) -> None:
    leaving = replace(OWN, leave=Leave.UNREGISTER)

    assert session.next_step(leaving, now=1_001) == Unregister()

    session.on_left()
    assert session.next_step(leaving, now=1_001) == Finish()


def test_a_server_that_is_away_may_hold_us_and_is_told_without_waiting(session: Session) -> None:
    session.on_beat_failure(Failure.UNREACHABLE, now=1_010)

    assert session.next_step(replace(OWN, leave=Leave.UNREGISTER), now=1_010) == Unregister()


@pytest.mark.parametrize("leave", list(Leave))
def test_a_server_that_holds_nothing_of_ours_is_told_nothing(leave: Leave) -> None:
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
    script=st.lists(OUTCOMES, max_size=60), holders=st.lists(st.sampled_from([ADDR, OTHER]), min_size=60, max_size=60)
)
def test_whatever_a_server_does_it_is_not_called_in_a_tight_loop(
    script: list[BeatStatus | Failure], holders: list[str]
) -> None:
    """Driven by its own steps for as long as the script lasts, a session never makes more than five calls without a
    wait: the beat after a reconnect, a registration with the beat that opens the stream, and both once more if that
    beat's answer asks for it."""
    session = new_session()
    now, in_a_row = 1_000.0, 0
    for what, holder in zip(script, holders, strict=False):
        step = session.next_step(OWN, now=now)
        while isinstance(step, Wait):
            assert step.seconds > 0
            now += step.seconds
            in_a_row = 0
            step = session.next_step(OWN, now=now)
        in_a_row += 1
        if isinstance(step, Register):
            if isinstance(what, Failure):
                session.on_register_failure(what, now=now, holder_addr=holder)
            else:
                register(session, now=now)
        elif isinstance(what, Failure):
            session.on_beat_failure(what, now=now)
        else:
            answer(session, what, now=now, holder=holder)
        assert in_a_row <= 5
