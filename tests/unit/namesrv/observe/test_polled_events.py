"""Events derived from two responses of a name server, from its absence, and from its return."""

from __future__ import annotations

from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import Position, Reason
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.observe.fleet_view import FleetView, Listed
from pointsman_namesrv.observe.polled_events import SETTLE_SECONDS, Watch

A, B, SLAVE = Position("c", "a", 0), Position("c", "b", 0), Position("c", "a", 1)
ADDRS = {A: "10.0.0.1:1", B: "10.0.0.2:1", SLAVE: "10.0.0.3:1"}


def view(*positions: Position, **addrs: str) -> FleetView:
    listed = {position: Listed(ADDRS[position], "") for position in positions}
    return FleetView(listed | {Position("c", name, 0): Listed(addr, "") for name, addr in addrs.items()})


def begun(*positions: Position, now: float = 0.0) -> Watch:
    watch = Watch({})
    watch.answered(view(*positions), now=now)
    return watch


def recorded(events: list[Event]) -> list[tuple[object, ...]]:
    return [
        (event.kind, *((event.broker.identity.position, event.broker.state.phase) if event.broker else ()))
        for event in events
    ]


def test_the_first_response_gives_a_checkpoint_and_no_registrations() -> None:
    events = Watch({}).answered(view(A, B), now=0)

    assert recorded(events) == [
        (EventKind.NAMESRV_READY,),
        (EventKind.CHECKPOINT, A, Phase.UP),
        (EventKind.CHECKPOINT, B, Phase.UP),
    ]
    assert [event.reason for event in events[1:]] == [Reason.START, Reason.START]
    assert [event.detail["i"] for event in events[1:]] == [1, 2]
    assert all(event.broker is None or event.broker.state_for is None for event in events)


def test_rows_claim_no_heartbeat_no_process_and_no_version() -> None:
    watch = begun(A)
    events = [*watch.answered(view(A, B), now=1), *watch.answered(view(), now=2), *watch.answered(view(), now=3)]

    assert recorded(events) == [
        (EventKind.REGISTERED, B, Phase.UP),
        (EventKind.EXPIRED, A, Phase.GONE),
        (EventKind.EXPIRED, B, Phase.GONE),
    ]
    for event in events:
        assert event.broker is not None
        assert event.interval is None
        assert event.reason is None
        assert (event.broker.generation, event.broker.incarnation, event.broker.data_version) == (None, None, None)
        assert event.broker.state_for == 0
        assert not event.broker.state.planned
        assert event.detail == {"source": "observe"}


def test_an_unchanged_response_gives_no_events() -> None:
    watch = begun(A, B)
    assert watch.answered(view(A, B), now=1) == []
    same = view(A, B)
    assert watch.answered(same, now=2) == watch.answered(same, now=3) == []


def test_a_broker_is_expired_when_two_responses_do_not_list_it() -> None:
    watch = begun(A, B)
    one = view(A)

    assert watch.answered(one, now=1) == []
    assert recorded(watch.answered(one, now=2)) == [(EventKind.EXPIRED, B, Phase.GONE)]
    assert watch.answered(one, now=3) == []
    assert recorded(watch.answered(view(A, B), now=4)) == [(EventKind.REGISTERED, B, Phase.UP)]


def test_a_broker_missing_only_in_the_last_response_of_a_connection_is_not_expired() -> None:
    # A name server that shuts down closes its brokers' connections before the observer's.
    watch = begun(A, B)
    watch.answered(view(), now=1)

    assert [event.kind for event in watch.ended("closed")] == [EventKind.NAMESRV_STOPPED]
    assert watch.known.keys() == {A, B}


def test_a_single_answer_without_a_broker_does_not_remove_it() -> None:
    watch = begun(A, B)
    assert watch.answered(view(A), now=1) == []
    assert watch.answered(view(A, B), now=2) == []
    assert watch.answered(view(A), now=3) == []


def test_another_address_is_recorded_with_the_previous_one() -> None:
    watch = begun(A)
    (event,) = watch.answered(view(a="10.0.0.9:1"), now=1)

    assert event.kind is EventKind.ADDRESS_CHANGED
    assert event.detail["previous_addr"] == "10.0.0.1:1"
    assert event.broker is not None
    assert event.broker.identity.addr == "10.0.0.9:1"


def test_another_id_at_the_same_address_is_a_change_of_role_and_no_outage() -> None:
    watch = begun(A, SLAVE)
    promoted = FleetView({A: Listed(ADDRS[SLAVE], "")})
    events = watch.answered(promoted, now=1)
    assert recorded(events) == [(EventKind.ADDRESS_CHANGED, A, Phase.UP)]
    assert recorded(watch.answered(promoted, now=2)) == [(EventKind.EXPIRED, SLAVE, Phase.GONE)]

    alone = begun(SLAVE)
    gone, changed = alone.answered(promoted, now=1)
    assert (gone.kind, gone.reason) == (EventKind.UNREGISTERED, Reason.SUPERSEDED)
    assert gone.broker is not None
    assert gone.broker.state.planned
    assert changed.kind is EventKind.ROLE_CHANGED
    assert changed.detail["previous_broker_id"] == 1
    assert alone.answered(promoted, now=2) == []


def test_a_name_server_that_is_back_with_all_brokers_is_watched_immediately() -> None:
    before = begun(A, B)
    again = Watch(before.known)

    assert recorded(again.answered(view(A, B), now=50))[0] == (EventKind.NAMESRV_READY,)
    assert again.is_ready


def test_after_a_restart_of_the_name_server_its_brokers_are_waited_for() -> None:
    again = Watch(begun(A, B).known)

    assert again.answered(view(), now=50) == []
    assert not again.is_ready
    assert again.expected == 2
    assert again.answered(view(A), now=60) == []
    assert recorded(again.answered(view(A, B), now=70)) == [
        (EventKind.NAMESRV_READY,),
        (EventKind.CHECKPOINT, A, Phase.UP),
        (EventKind.CHECKPOINT, B, Phase.UP),
    ]


def test_a_broker_that_does_not_return_to_a_restarted_name_server_expires_after_a_time() -> None:
    again = Watch(begun(A, B).known)
    again.answered(view(A), now=50)

    assert again.answered(view(A), now=50 + SETTLE_SECONDS - 1) == []
    events = again.answered(view(A), now=50 + SETTLE_SECONDS)

    assert recorded(events) == [
        (EventKind.NAMESRV_READY,),
        (EventKind.CHECKPOINT, A, Phase.UP),
        (EventKind.EXPIRED, B, Phase.GONE),
    ]
    assert events[-1].detail["between_watches"] is True
    assert again.known.keys() == {A}


def test_a_watch_that_ends_before_it_began_still_expects_what_the_last_one_knew() -> None:
    again = Watch(begun(A, B).known)
    again.answered(view(A), now=50)

    assert again.ended("closed") == []
    assert again.known.keys() == {A, B}


def test_a_long_time_between_two_answers_is_a_pause() -> None:
    watch = begun(A)
    (paused,) = watch.answered(view(A), now=30)

    assert paused.kind is EventKind.NAMESRV_PAUSED
    assert paused.detail["seconds"] == 30
    assert watch.answered(view(A), now=34) == []


def test_a_slow_poll_is_not_a_pause() -> None:
    watch = Watch({}, poll_seconds=60)
    watch.answered(view(A), now=0)
    assert watch.answered(view(A), now=100) == []


def test_a_changed_interval_applies_to_pauses() -> None:
    watch = begun(A)
    watch.polled_every(60)
    assert watch.answered(view(A), now=100) == []


def test_checkpoints_have_the_time_since_which_a_broker_is_listed() -> None:
    watch = begun(A)
    watch.answered(view(A, B), now=10)
    known, later = watch.checkpoint(Reason.DAY, now=25)

    assert known.broker is not None
    assert known.broker.state_for is None
    assert later.broker is not None
    assert later.broker.state_for == 15
    assert later.detail == {"source": "observe", "i": 2, "n": 2}


def test_the_lowest_id_of_a_name_holds_its_topics() -> None:
    watch = begun(A, SLAVE, B)
    assert list(watch.topic_holders()) == [A, B]


def test_a_broker_that_appeared_during_a_walk_over_topics_was_not_listed_for_all_of_it() -> None:
    watch = begun(A)
    watch.answered(view(A, B), now=10)
    assert watch.was_listed(A, since=5)
    assert not watch.was_listed(B, since=5)
    assert watch.was_listed(B, since=10)
    watch.answered(view(B), now=11)
    assert not watch.was_listed(A, since=5)
