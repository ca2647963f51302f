"""What counts of what name servers say: pauses, guards, restarts, announced windows, lost rows. Computed in one run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.spark.histories import NameServer, Row, broker, moment
from tests.spark.storybook import FIRST, LAST, Stories, story

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def both_register(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)


@story
def one_is_guarded_while_the_other_sees(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    one.say("GUARD_ON", moment(100), {"cluster": b["cluster"]}, reason="SHARE")
    two.outage(b, moment(200), until=moment(300))
    one.say("GUARD_ON", moment(700), {"cluster": b["cluster"]}, reason="LIMIT")
    one.say("GUARD_OFF", moment(900), {"cluster": b["cluster"]}, reason="SHARE")
    two.outage(b, moment(1_000), until=moment(1_100))
    for server in (one, two):
        server.stop(moment(5_000))


def test_a_guard_that_keeps_a_dead_broker_does_not_hide_its_outage_from_those_who_see(stories: Stories) -> None:
    (down,) = stories.downs("one_is_guarded_while_the_other_sees")

    assert (down["start_at"], down["end_at"], down["observers"]) == (moment(200), moment(300), 1)
    assert (down["start_censored"], down["continues"], down["end_censored"]) == (False, False, False)
    (blind,) = stories.rows("blind_periods", "one_is_guarded_while_the_other_sees")
    assert (blind["why"], blind["from_at"], blind["to_at"], blind["open"]) == ("GUARD", moment(100), moment(900), False)


@story
def loses_the_end_of_its_guard(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    two.stop(moment(50))
    one.say("GUARD_ON", moment(100), {"cluster": b["cluster"]}, reason="SHARE")
    one.say("EXPIRED", moment(500), broker("neighbour", cluster=b["cluster"]), reason="SILENCE")
    one.outage(b, moment(600), until=moment(700))
    one.stop(moment(5_000))


def test_nobody_expires_under_a_guard_so_an_expiry_ends_one_whose_end_was_lost(stories: Stories) -> None:
    (blind,) = stories.rows("blind_periods", "loses_the_end_of_its_guard")
    (down,) = [down for down in stories.downs("loses_the_end_of_its_guard") if down["broker_name"] == "b"]

    assert (blind["from_at"], blind["to_at"]) == (moment(100), moment(500))
    assert (down["start_at"], down["end_at"]) == (moment(600), moment(700))


@story
def all_are_guarded(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    for server in (one, two):
        server.say("EXPIRED", moment(95), b, reason="SILENCE", interval_ms=2_000)
        server.say("GUARD_ON", moment(100), {"cluster": b["cluster"]}, reason="SHARE")
        server.say("GUARD_OFF", moment(900), {"cluster": b["cluster"]}, reason="SHARE")
        server.say("REGISTERED", moment(950), b)
        server.stop(moment(5_000))


def test_what_was_removed_just_before_a_guard_is_one_outage_and_nobody_says_how_long(stories: Stories) -> None:
    first, second = stories.downs("all_are_guarded")

    assert (first["start_at"], first["end_at"], first["end_censored"]) == (moment(95), moment(100), True)
    assert (second["start_at"], second["start_censored"], second["continues"]) == (moment(900), True, True)
    (day,) = stories.rows("availability", "all_are_guarded", day=FIRST)
    assert (day["outages"], day["down_seconds"], day["repaired"]) == (1, 55.0, 0)


def test_an_outage_that_is_only_taken_up_has_no_detection_delay(stories: Stories) -> None:
    first, second = stories.downs("all_are_guarded")

    assert first["last_sign_of_life_at"] == moment(93)
    assert second["last_sign_of_life_at"] is None


@story
def falls_silent_in_a_guard(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    for server in (one, two):
        server.say("GUARD_ON", moment(100), {"cluster": b["cluster"]}, reason="SHARE")
        server.say("GUARD_OFF", moment(900), {"cluster": b["cluster"]}, reason="SHARE")
        server.say("EXPIRED", moment(990), b, reason="SILENCE", interval_ms=700_000)
        server.stop(moment(5_000))


def test_time_under_everybodys_guard_is_no_knowledge_and_what_comes_after_it_counts(stories: Stories) -> None:
    up, again, down = stories.intervals("falls_silent_in_a_guard")

    assert (up["end_at"], up["end_censored"]) == (moment(100), True)
    assert (again["state"], again["start_at"], again["start_censored"]) == ("up", moment(900), True)
    assert (down["start_at"], down["continues"]) == (moment(990), False)
    (day,) = stories.rows("availability", "falls_silent_in_a_guard", day=FIRST)
    assert (day["up_seconds"], day["outages"]) == (90.0 + 90.0, 1)


@story
def comes_back_in_a_guard(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    for server in (one, two):
        server.say("EXPIRED", moment(95), b, reason="SILENCE", interval_ms=2_000)
        server.say("GUARD_ON", moment(100), {"cluster": b["cluster"]}, reason="SHARE")
    one.say("REGISTERED", moment(400), b)
    one.say("UNREGISTERED", moment(600), b, reason="SHUTDOWN")
    for server in (one, two):
        server.say("GUARD_OFF", moment(900), {"cluster": b["cluster"]}, reason="SHARE")
        server.stop(moment(5_000))


def test_a_registration_and_a_polite_leave_count_in_a_blind_time_too(stories: Stories) -> None:
    states = [(row["state"], row["start_at"], row["planned"]) for row in stories.intervals("comes_back_in_a_guard")]

    assert states[:4] == [
        ("up", moment(10), False),
        ("down", moment(95), False),
        ("up", moment(400), False),
        ("down", moment(600), True),
    ]


@story
def is_guarded_over_midnight(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    for server in (one, two):
        server.say("GUARD_ON", moment(-60, day=1), {"cluster": b["cluster"]}, reason="ADMIN")
        server.say("GUARD_OFF", moment(60, day=1), {"cluster": b["cluster"]}, reason="ADMIN")
        server.stop(moment(100, day=1))


def test_a_guard_over_midnight_stands_open_on_its_first_day_and_whole_on_its_second(stories: Stories) -> None:
    rows = stories.of_node("blind_periods", "is_guarded_over_midnight")

    assert [(row["dt"], row["from_at"], row["to_at"], row["open"]) for row in rows] == [
        (FIRST, moment(-60, day=1), moment(0, day=1), True),
        (FIRST + timedelta(days=1), moment(-60, day=1), moment(60, day=1), False),
    ]
    records = stories.of_node("namesrv_days", "is_guarded_over_midnight")
    assert [(row["guard_activations"], row["guard_seconds"]) for row in records] == [(1, 60.0), (0, 60.0)]


@story
def one_is_paused(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    two.outage(b, moment(195), until=moment(300))
    one.say("NAMESRV_PAUSED", moment(200), detail={"seconds": 10.0})
    one.say("NAMESRV_PAUSED", moment(250), detail={"seconds": "long"})
    one.say("NAMESRV_PAUSED", moment(30, day=1), detail={"seconds": 600})
    for server in (one, two):
        server.stop(moment(5_000, day=1))


def test_a_paused_name_server_has_no_vote_and_its_pause_makes_no_outage_of_what_another_holds_wrongly(
    stories: Stories,
) -> None:
    (down,) = stories.downs("one_is_paused")

    assert (down["start_at"], down["end_at"], down["observers"]) == (moment(195), moment(200), 1)


def test_a_pause_is_as_long_as_it_says_but_never_older_than_midnight(stories: Stories) -> None:
    pauses = stories.of_node("blind_periods", "one_is_paused")

    assert [(row["cluster"], row["from_at"], row["to_at"]) for row in pauses] == [
        (None, moment(190), moment(200)),
        (None, moment(0, day=1), moment(30, day=1)),
    ]


@story
def sees_another_restart(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    one.say("NAMESRV_ALIVE", moment(200), detail={"rows_dropped": 3})
    # Killed, and there again with a snapshot; two holds the broker down throughout.
    two.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000)
    again = NameServer(node=one.node, boot_id="b2", began_at=moment(230))
    again.say("NAMESRV_STARTED", moment(230))
    again.say("CHECKPOINT", moment(231), b, reason="START", detail={"state": "PROVISIONAL"})
    again.say("REREGISTERED", moment(240), b, reason="SNAPSHOT")
    again.say("NAMESRV_READY", moment(260))
    again.outage(b, moment(400), until=moment(500))
    again.stop(moment(5_000))
    two.stop(moment(5_000))
    one.rows += again.rows


def test_a_restart_of_a_name_server_makes_no_outage_and_no_second_charge(stories: Stories) -> None:
    alone, real = stories.downs("sees_another_restart")

    assert (alone["start_at"], alone["end_at"], alone["continues"]) == (moment(200), moment(260), True)
    assert (real["start_at"], real["continues"]) == (moment(400), False)
    (day,) = stories.rows("availability", "sees_another_restart", day=FIRST)
    assert (day["outages"], day["repaired"]) == (1, 1)


def test_the_record_of_a_name_server_counts_its_lives_and_what_it_could_not_write(stories: Stories) -> None:
    (day,) = stories.of_node("namesrv_days", "sees_another_restart", day=FIRST)

    assert (day["lives"], day["starts"], day["stops"], day["vanished"]) == (2, 2, 1, 1)
    assert (day["warm_up_seconds_max"], day["rows_dropped"], day["overlapping_lives"]) == (30.0, 3, 0)
    assert day["watched_seconds"] == 200.0 + (5_000 - 260)


@story
def is_killed_shortly_before_midnight(one: NameServer, two: NameServer, b: Row) -> None:
    one.say("REGISTERED", moment(10), b)
    one.say("NAMESRV_ALIVE", moment(-100, day=1))
    two.rows.clear()
    again = NameServer(node=one.node, boot_id="b2", began_at=moment(-80, day=1)).start()
    again.say("NAMESRV_ALIVE", moment(5_000, day=1))
    one.rows += again.rows


def test_a_life_that_another_one_followed_before_midnight_did_not_watch_until_then(stories: Stories) -> None:
    (first, *_) = stories.of_node("observer_windows", "is_killed_shortly_before_midnight", day=FIRST)

    assert (first["to_at"], first["open"]) == (moment(-100, day=1), False)


@story
def dies_in_an_announced_window(one: NameServer, two: NameServer, b: Row) -> None:
    name = {"cluster": b["cluster"], "broker_name": "b"}
    both_register(one, two, b)
    one.say("MAINTENANCE_ON", moment(-600, day=1), name, reason="ADMIN", detail={"seconds": 3_600})
    for server in (one, two):
        server.outage(b, moment(-300, day=1), until=moment(300, day=1))
        server.outage(b, moment(400, day=1), until=moment(500, day=1))
    one.say("MAINTENANCE_OFF", moment(1_000, day=1), name, reason="ADMIN")
    for server in (one, two):
        server.outage(b, moment(1_000, day=1), until=moment(1_200, day=1))
        server.stop(moment(5_000, day=1))


def test_an_outage_that_begins_in_an_announced_window_is_planned_until_somebody_ends_it(stories: Stories) -> None:
    downs = stories.downs("dies_in_an_announced_window")

    assert [(row["planned"], row["event"], row["reason"]) for row in downs] == [
        (True, "EXPIRED", "MAINTENANCE"),
        (True, "EXPIRED", "MAINTENANCE"),
        (False, "EXPIRED", "SILENCE"),
    ]
    days = stories.rows("availability", "dies_in_an_announced_window")
    assert [(row["outages"], row["down_seconds"]) for row in days][:2] == [(0, 0.0), (1, 200.0)]


def test_an_announced_window_over_midnight_is_carried(stories: Stories) -> None:
    rows = stories.rows("maintenance_windows", "dies_in_an_announced_window")

    assert [(row["dt"], row["from_at"], row["to_at"], row["open"]) for row in rows] == [
        (FIRST, moment(-600, day=1), moment(0, day=1), True),
        (FIRST + timedelta(days=1), moment(-600, day=1), moment(1_000, day=1), False),
    ]
    assert {row["until_at"] for row in rows} == {moment(3_000, day=1)}


@story
def still_fails_after_its_window(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    for server in (one, two):
        server.say("UNREGISTERED", moment(100), b, reason="MAINTENANCE", detail={"cause": "PROBE"})
        server.say("PROBE_FAILED", moment(900), b, reason="PROBE")
        server.say("RECOVERED", moment(1_000), b, reason="PROBE")
        server.stop(moment(5_000))


def test_a_broker_that_still_fails_when_its_window_is_over_has_an_outage_from_there_on(stories: Stories) -> None:
    left, lost = stories.downs("still_fails_after_its_window")

    assert (left["planned"], left["start_at"], left["end_at"]) == (True, moment(100), moment(900))
    assert (lost["planned"], lost["start_at"], lost["end_at"]) == (False, moment(900), moment(1_000))
    assert not lost["continues"]
    assert stories.rows("availability", "still_fails_after_its_window", day=FIRST)[0]["outages"] == 1


@story
def comes_back_in_lost_rows(one: NameServer, two: NameServer, b: Row) -> None:
    two.rows.clear()
    one.say("REGISTERED", moment(10), b)
    one.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000)
    one.say("SUSPECTED", moment(700), b, reason="SILENCE", seq=6)
    one.say("NAMESRV_STOPPED", moment(5_000), seq=7)


def test_a_sign_of_life_behind_lost_rows_stands_for_the_lost_registration(stories: Stories) -> None:
    _, down, up = stories.intervals("comes_back_in_lost_rows")

    assert (down["start_at"], down["end_at"], down["end_censored"]) == (moment(100), moment(700), True)
    assert (up["state"], up["event"], up["start_censored"]) == ("up", "SUSPECTED", True)
    assert stories.rows("availability", "comes_back_in_lost_rows", day=FIRST)[0]["repaired"] == 0


@story
def comes_back_behind_many_lost_rows(one: NameServer, two: NameServer, b: Row) -> None:
    two.rows.clear()
    one.say("REGISTERED", moment(10), b)
    for n in range(300):
        one.say("REJECTED", moment(20), b, seq=5 + 2 * n)
    one.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000, seq=604)
    one.say("SUSPECTED", moment(700), b, reason="SILENCE", seq=606)
    one.say("NAMESRV_STOPPED", moment(5_000), seq=607)


def test_a_gap_is_known_however_many_were_before_it_that_day(stories: Stories) -> None:
    (down,) = stories.downs("comes_back_behind_many_lost_rows")

    assert (down["start_at"], down["end_at"]) == (moment(100), moment(700))


def register_beside_another(server: NameServer, b: Row) -> Row:
    """Both register; return the other."""
    other = b | {"broker_name": "other"}
    for about in (b, other):
        server.say("REGISTERED", moment(10), about)
    return other


def tell_the_day(server: NameServer, *brokers: Row, day: int = 1) -> list[Row]:
    """A checkpoint of a day, and that the name server lived on."""
    told = [
        server.say("CHECKPOINT", moment(1, day=day), about, reason="DAY", detail={"state": "UP"}) for about in brokers
    ]
    server.say("NAMESRV_ALIVE", moment(180, day=day))
    return told


@story
def is_left_out_of_the_day(one: NameServer, two: NameServer, b: Row) -> None:
    """Its expiry was lost by the one; the other told of it."""
    for server in (one, two):
        other = register_beside_another(server, b)
        expired = server.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000)
        server.say("LATE_HEARTBEAT", moment(500), other)
        tell_the_day(server, other)
        tell_the_day(server, other, day=2)
        server.stop(moment(5_000, day=2))
        if server is one:
            server.rows.remove(expired)


def test_a_checkpoint_that_leaves_a_broker_out_behind_lost_rows_ends_what_was_held_of_it(stories: Stories) -> None:
    up, down = (row for row in stories.intervals("is_left_out_of_the_day") if row["broker_name"] == "b")

    assert (up["state"], up["start_at"], up["end_at"]) == ("up", moment(10), moment(1, day=1))
    assert (down["start_at"], down["end_at"]) == (moment(1, day=1), moment(5_000, day=2))
    assert down["start_censored"]
    assert down["continues"], "the other had it down already: nobody saw an outage begin now"
    views = [view for view in stories.rows("partial_views", "is_left_out_of_the_day") if view["dt"] == FIRST]
    assert [(view["from_at"], view["to_at"]) for view in views] == [(moment(100), moment(0, day=1))]


@story
def is_left_out_and_comes_back(one: NameServer, two: NameServer, b: Row) -> None:
    two.rows.clear()
    other = register_beside_another(one, b)
    left = one.say("UNREGISTERED", moment(100), b, reason="SHUTDOWN")
    one.say("LATE_HEARTBEAT", moment(500), other)
    tell_the_day(one, other)
    one.say("REGISTERED", moment(1_000, day=1), b)
    tell_the_day(one, b, other, day=2)
    one.stop(moment(5_000, day=2))
    one.rows.remove(left)


def test_of_who_was_left_out_nothing_is_known_until_it_is_heard_of_anew(stories: Stories) -> None:
    intervals = [row for row in stories.intervals("is_left_out_and_comes_back") if row["broker_name"] == "b"]

    assert [(row["state"], row["start_at"], row["end_at"]) for row in intervals] == [
        ("up", moment(10), moment(1, day=1)),
        ("up", moment(1_000, day=1), moment(5_000, day=2)),
    ]
    assert intervals[0]["end_censored"]


@story
def is_left_out_of_what_is_not_whole(one: NameServer, two: NameServer, b: Row) -> None:
    """Its own row of the checkpoint was lost; and the next day's was broken off."""
    two.rows.clear()
    other = register_beside_another(one, b)
    own, _ = tell_the_day(one, b, other)
    one.say("CHECKPOINT", moment(1, day=2), other, reason="DAY", detail={"state": "UP"})
    one.say("NAMESRV_ALIVE", moment(60, day=2))
    one.rows.remove(own)


def test_a_checkpoint_that_is_not_whole_leaves_nobody_out(stories: Stories) -> None:
    (up,) = (row for row in stories.intervals("is_left_out_of_what_is_not_whole") if row["broker_name"] == "b")

    assert (up["state"], up["end_at"]) == ("up", moment(60, day=2))


@story
def gives_its_last_summary_after_its_removal(one: NameServer, two: NameServer, b: Row) -> None:
    beats = {"count": 1, "min_ms": 1, "max_ms": 1, "buckets": {}}
    both_register(one, two, b)
    for server in (one, two):
        server.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=-5)
        server.say("HEARTBEATS", moment(150), b, detail=beats)
        server.say("PROBE_FAILED", moment(200), b, reason="PROBE", interval_ms=2**63 - 1)
        server.say("HEARTBEATS", moment(300), b, detail=beats, seq=20)
        server.say("NAMESRV_STOPPED", moment(5_000), seq=21)


def test_beats_after_a_removal_bring_no_broker_back_and_behind_lost_rows_only_one_whose_probe_did_not_fail(
    stories: Stories,
) -> None:
    (down,) = stories.downs("gives_its_last_summary_after_its_removal")

    assert (down["start_at"], down["end_at"]) == (moment(100), moment(5_000))
    assert down["last_sign_of_life_at"] is None, "a silence below zero is none"


@story
def is_seen_by_one_side(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    two.say("EXPIRED", moment(-300, day=1), b, reason="SILENCE")
    one.say("LATE_HEARTBEAT", moment(-200, day=1), b)
    one.say("RESTARTED", moment(-100, day=1), b)
    two.say("PROBE_FAILED", moment(-50, day=1), b)
    one.say("EXPIRED", moment(400, day=1), b, reason="SILENCE")
    for server in (one, two):
        server.stop(moment(5_000, day=1))


def test_a_partial_view_names_both_sides_and_is_cut_at_midnight_on_both(stories: Stories) -> None:
    sides = (["is_seen_by_one_side-ns1:9876"], ["is_seen_by_one_side-ns2:9876"])
    views = stories.rows("partial_views", "is_seen_by_one_side")

    assert [(row["from_at"], row["to_at"], row["open"], row["seen_up_by"], row["seen_down_by"]) for row in views] == [
        (moment(-300, day=1), moment(0, day=1), True, *sides),
        (moment(0, day=1), moment(400, day=1), False, *sides),
    ]
    assert LAST not in {row["dt"] for row in views}


@story
def has_a_clock_three_minutes_ahead(one: NameServer, two: NameServer, b: Row) -> None:
    for server, ahead in ((one, 0), (two, 180)):
        for n in range(6):
            about = broker(f"neighbour-{n}", cluster=b["cluster"])
            server.say("REGISTERED", moment(10 + ahead), about, incarnation=f"i{n}", data_version="0.0.1")
        server.say("REGISTERED", moment(10 + ahead), b)
        server.outage(b, moment(1_000 + ahead), until=moment(1_600 + ahead))
        server.outage(b, moment(3_000 + ahead), until=moment(3_060 + ahead))
        server.stop(moment(5_000 + ahead))


def test_clocks_apart_shorten_an_outage_and_one_that_is_shorter_than_that_shows_as_a_disagreement(
    stories: Stories,
) -> None:
    name = "has_a_clock_three_minutes_ahead"
    (down,) = stories.downs(name)
    views = stories.rows("partial_views", name)

    assert (down["start_at"], down["end_at"]) == (moment(1_180), moment(1_600))
    assert [(view["from_at"], view["to_at"]) for view in views if view["from_at"] > moment(2_000)] == [
        (moment(3_000), moment(3_060)),
        (moment(3_180), moment(3_240)),
    ]
    assert {stories.of_node("observer_clocks", name, node=n)[0]["offset_seconds"] for n in (1, 2)} == {-90.0, 90.0}


@story
def is_missing_on_the_second_day(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    for server in (one, two):
        server.say("NAMESRV_ALIVE", moment(-30, day=1))
    two.outage(b, moment(100, day=1), until=moment(200, day=1))
    two.stop(moment(5_000, day=1))


def test_a_day_of_which_one_name_servers_files_are_missing_is_told_by_the_other(stories: Stories) -> None:
    name = "is_missing_on_the_second_day"
    (down,) = stories.downs(name)

    assert (down["start_at"], down["end_at"], down["observers"]) == (moment(100, day=1), moment(200, day=1), 1)
    (gone,) = stories.of_node("namesrv_days", name, node=1, day=FIRST + timedelta(days=1))
    assert (gone["lives"], gone["rows"], gone["watched_seconds"], gone["vanished"]) == (1, 0, 0.0, 1)
