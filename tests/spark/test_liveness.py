"""Which rows of name servers count: pauses, guards, restarts, announced windows, lost rows. Computed in one run."""

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
    one.say("PROTECTED", moment(202), b, reason="SILENCE")
    two.outage(b, moment(200), until=moment(300))
    one.say("RECOVERED", moment(300), b, reason="HEARTBEAT")
    one.say("GUARD_ON", moment(700), {"cluster": b["cluster"]}, reason="LIMIT")
    one.say("GUARD_OFF", moment(900), {"cluster": b["cluster"]}, reason="SHARE")
    for server in (one, two):
        server.stop(moment(5_000))


def test_a_guard_that_keeps_a_silent_broker_does_not_hide_an_outage_that_others_see(stories: Stories) -> None:
    (down,) = stories.downs("one_is_guarded_while_the_other_sees")

    assert (down["start_at"], down["end_at"], down["observers"]) == (moment(202), moment(300), 1)
    assert (down["start_censored"], down["continues"], down["end_censored"]) == (False, False, False)
    (blind,) = stories.rows("blind_periods", "one_is_guarded_while_the_other_sees")
    assert (blind["why"], blind["from_at"], blind["to_at"], blind["open"]) == ("GUARD", moment(100), moment(900), False)


@story
def loses_the_end_of_its_guard(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    two.stop(moment(50))
    one.say("GUARD_ON", moment(100), {"cluster": b["cluster"]}, reason="SHARE")
    strong, planned = (broker(f"neighbour-{n}", cluster=b["cluster"]) for n in (1, 2))
    one.say("EXPIRED", moment(400), strong, reason="SILENCE", detail={"evidence": "STRONG"})
    one.say("EXPIRED", moment(450), planned, reason="SILENCE", planned=True)
    one.say("EXPIRED", moment(500), broker("neighbour", cluster=b["cluster"]), reason="SILENCE")
    one.outage(b, moment(600), until=moment(700))
    one.stop(moment(5_000))


def test_an_expiry_that_a_guard_would_have_prevented_ends_one_whose_end_was_lost(stories: Stories) -> None:
    (blind,) = stories.rows("blind_periods", "loses_the_end_of_its_guard")
    (down,) = [down for down in stories.downs("loses_the_end_of_its_guard") if down["broker_name"] == "b"]

    assert (blind["from_at"], blind["to_at"]) == (moment(100), moment(500))
    assert (down["start_at"], down["end_at"]) == (moment(600), moment(700))


@story
def expires_before_a_guard(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    for server in (one, two):
        server.say("EXPIRED", moment(95), b, reason="SILENCE", interval_ms=2_000)
        server.say("GUARD_ON", moment(100), {"cluster": b["cluster"]}, reason="SHARE")
        server.say("GUARD_OFF", moment(900), {"cluster": b["cluster"]}, reason="SHARE")
        server.say("REGISTERED", moment(950), b)
        server.stop(moment(5_000))


def test_a_broker_that_expired_before_a_guard_is_down_under_it_too(stories: Stories) -> None:
    (down,) = stories.downs("expires_before_a_guard")

    assert (down["start_at"], down["end_at"], down["end_censored"]) == (moment(95), moment(950), False)
    (day,) = stories.rows("availability", "expires_before_a_guard", day=FIRST)
    assert (day["outages"], day["down_seconds"], day["repaired"]) == (1, 855.0, 1)


@story
def fails_its_probe_in_a_guard(one: NameServer, two: NameServer, b: Row) -> None:
    """Three of four brokers do, and their agents report it: review M5."""
    names = [b | {"broker_name": name} for name in ("b", "c", "d", "e")]
    for late, server in enumerate((one, two)):
        for about in names:
            server.say("REGISTERED", moment(10), about)
        for n, about in enumerate(names[:3]):
            server.say("PROBE_FAILED", moment(1_000 + n + late * 0.2), about, reason="PROBE", detail={"probe": "no"})
        server.say("GUARD_ON", moment(1_003), {"cluster": b["cluster"]}, reason="SHARE")
        for about in names[:3]:
            server.say("PROTECTED", moment(1_003), about, reason="PROBE", detail={"probe": "no", "evidence": "WEAK"})
        for about in names[:3]:
            server.say("RECOVERED", moment(1_158), about, reason="PROBE")
        server.say("GUARD_OFF", moment(1_158), {"cluster": b["cluster"]}, reason="SHARE")
        server.stop(moment(5_000))


def test_a_failed_probe_is_an_outage_regardless_of_the_guard(stories: Stories) -> None:
    downs = stories.downs("fails_its_probe_in_a_guard")

    assert [(row["broker_name"], row["event"], row["reason"], row["end_at"]) for row in downs] == [
        (name, "PROBE_FAILED", "PROBE", moment(1_158)) for name in ("b", "c", "d")
    ]
    assert [row["start_at"] for row in downs] == [moment(1_000.2), moment(1_001.2), moment(1_002.2)]
    assert not any(row["start_censored"] or row["continues"] for row in downs)
    days = stories.rows("availability", "fails_its_probe_in_a_guard", day=FIRST)
    assert [(row["broker_name"], row["outages"], row["down_seconds"]) for row in days] == [
        ("b", 1, 157.8),
        ("c", 1, 156.8),
        ("d", 1, 155.8),
        ("e", 0, 0.0),
    ]


@story
def keeps_failing_in_a_checkpoint(one: NameServer, two: NameServer, b: Row) -> None:
    """In rows with another reason, the detail shows why the guard keeps the broker."""
    two.rows.clear()
    failing = {"probe": "no", "evidence": "WEAK"}
    one.say("REGISTERED", moment(10), b)
    one.say("PROTECTED", moment(-60, day=1), b, reason="PROBE", detail=failing)
    one.say("CHECKPOINT", moment(1, day=1), b, reason="DAY", detail=failing | {"i": 1, "n": 1})
    one.say("HEARTBEATS", moment(60, day=1), b)
    one.say("RECOVERED", moment(100, day=1), b, reason="PROBE")
    one.stop(moment(5_000, day=1))


def test_a_broker_kept_by_the_guard_with_a_failed_probe_is_down_in_rows_that_only_repeat_it(stories: Stories) -> None:
    (down,) = stories.downs("keeps_failing_in_a_checkpoint")

    assert (down["start_at"], down["end_at"]) == (moment(-60, day=1), moment(100, day=1))


@story
def falls_silent_in_a_guard(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    for server in (one, two):
        server.say("GUARD_ON", moment(100), {"cluster": b["cluster"]}, reason="SHARE")
        server.say("SUSPECTED", moment(150), b, reason="SILENCE", interval_ms=80_000)
        server.say("PROTECTED", moment(200), b, reason="SILENCE", interval_ms=130_000)
        server.say("GUARD_OFF", moment(900), {"cluster": b["cluster"]}, reason="SHARE")
        server.say("EXPIRED", moment(990), b, reason="SILENCE", interval_ms=700_000)
        server.stop(moment(5_000))


def test_a_silent_broker_kept_by_all_guards_is_unknown_and_what_follows_counts(stories: Stories) -> None:
    up, down = stories.intervals("falls_silent_in_a_guard")

    assert (up["end_at"], up["end_censored"]) == (moment(200), True)
    assert (down["start_at"], down["start_censored"], down["continues"]) == (moment(990), True, False)
    (day,) = stories.rows("availability", "falls_silent_in_a_guard", day=FIRST)
    assert (day["up_seconds"], day["outages"]) == (190.0, 1)


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


def test_a_registration_and_a_planned_shutdown_count_under_a_guard_too(stories: Stories) -> None:
    states = [(row["state"], row["start_at"], row["planned"]) for row in stories.intervals("comes_back_in_a_guard")]

    assert states == [
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


def test_a_guard_over_midnight_is_open_on_its_first_day_and_complete_on_its_second(stories: Stories) -> None:
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


def test_a_paused_name_server_has_no_vote_and_its_pause_makes_no_outage_of_a_wrong_state_of_another(
    stories: Stories,
) -> None:
    (down,) = stories.downs("one_is_paused")

    assert (down["start_at"], down["end_at"], down["observers"]) == (moment(195), moment(200), 1)


def test_a_pause_is_as_long_as_reported_but_never_starts_before_midnight(stories: Stories) -> None:
    pauses = stories.of_node("blind_periods", "one_is_paused")

    assert [(row["cluster"], row["from_at"], row["to_at"]) for row in pauses] == [
        (None, moment(190), moment(200)),
        (None, moment(0, day=1), moment(30, day=1)),
    ]


@story
def sees_another_restart(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    one.say("NAMESRV_ALIVE", moment(200), detail={"rows_dropped": 3})
    # Killed and restarted with a snapshot; two has the broker as down throughout.
    two.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000)
    again = NameServer(node=one.node, boot_id="b2", began_at=moment(230))
    again.say("NAMESRV_STARTED", moment(230))
    again.say("CHECKPOINT", moment(231), b, reason="START")
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


def test_the_record_of_a_name_server_counts_its_runs_and_its_dropped_rows(stories: Stories) -> None:
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
        for at, back in ((-300, 300), (400, 500)):
            server.say("EXPIRED", moment(at, day=1), b, reason="SILENCE", interval_ms=2_000, planned=True)
            server.say("REGISTERED", moment(back, day=1), b)
    one.say("MAINTENANCE_OFF", moment(1_000, day=1), name, reason="ADMIN")
    for server in (one, two):
        server.outage(b, moment(1_000, day=1), until=moment(1_200, day=1))
        server.stop(moment(5_000, day=1))


def test_a_row_with_planned_is_not_an_outage(stories: Stories) -> None:
    downs = stories.downs("dies_in_an_announced_window")

    assert [(row["planned"], row["event"], row["reason"]) for row in downs] == [
        (True, "EXPIRED", "SILENCE"),
        (True, "EXPIRED", "SILENCE"),
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
        server.say("PROBE_FAILED", moment(100), b, reason="PROBE", planned=True)
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
def is_still_away_after_its_window(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    one.say("GUARD_ON", moment(50), {"cluster": b["cluster"]}, reason="SHARE")
    for server in (one, two):
        server.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000, planned=True)
        server.say("EXPIRED", moment(900), b, reason="SILENCE", since_ms=0, detail={"outlived_window": True})
        server.say("REGISTERED", moment(1_000), b)
    one.say("GUARD_OFF", moment(1_100), {"cluster": b["cluster"]}, reason="SHARE")
    for server in (one, two):
        server.stop(moment(5_000))


def test_a_broker_that_is_still_away_when_its_window_is_over_has_an_outage_from_there_on(stories: Stories) -> None:
    left, lost = stories.downs("is_still_away_after_its_window")

    assert (left["planned"], left["start_at"], left["end_at"]) == (True, moment(100), moment(900))
    assert (lost["planned"], lost["start_at"], lost["end_at"]) == (False, moment(900), moment(1_000))
    assert (lost["event"], lost["reason"], lost["start_censored"], lost["continues"]) == (
        *("EXPIRED", "SILENCE"),
        *(False, False),
    )
    # The removal was observed before; how long that took says nothing about this outage.
    assert lost["last_sign_of_life_at"] is None
    assert stories.rows("availability", "is_still_away_after_its_window", day=FIRST)[0]["outages"] == 1


def test_the_end_of_a_window_does_not_end_a_guard_in_the_report(stories: Stories) -> None:
    (blind,) = stories.rows("blind_periods", "is_still_away_after_its_window")

    assert (blind["from_at"], blind["to_at"]) == (moment(50), moment(1_100))


def again(server: NameServer, at: float, b: Row, *, planned: bool = False, gone: bool = True) -> NameServer:
    """The next run of a killed name server; its snapshot has the broker as gone."""
    run = NameServer(node=server.node, boot_id="b2", began_at=moment(at))
    run.say("NAMESRV_STARTED", moment(at))
    if gone:
        detail = {"i": 1, "n": 1, "gone_reason": "STREAM_BROKEN"}
        known = {"state": "GONE", "since_ms": 100_000, "planned": planned, "detail": detail}
        run.say("CHECKPOINT", moment(at + 1), b, reason="START", **known)
    run.say("NAMESRV_READY", moment(at + 5))
    return run


@story
def is_down_over_a_restart_of_all(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    for server in (one, two):
        server.say("EXPIRED", moment(100), b, reason="STREAM_BROKEN", interval_ms=2_000)
        server.say("NAMESRV_ALIVE", moment(160))
    for server in (one, two):
        run = again(server, 200, b)
        run.say("UNREGISTERED", moment(400), b, reason="ADMIN", detail={"by": "ann"})
        run.stop(moment(5_000))
        server.rows += run.rows


def test_a_dead_broker_stays_down_when_its_name_servers_restart_and_is_planned_once_it_is_evicted(
    stories: Stories,
) -> None:
    before, after, retired = stories.downs("is_down_over_a_restart_of_all")

    assert (before["start_at"], before["end_at"], before["continues"]) == (moment(100), moment(160), False)
    assert (after["start_at"], after["end_at"], after["continues"], after["planned"]) == (
        *(moment(205), moment(400)),
        *(True, False),
    )
    assert (after["event"], after["reason"]) == ("EXPIRED", "STREAM_BROKEN")
    assert (retired["start_at"], retired["planned"], retired["event"], retired["reason"]) == (
        *(moment(400), True),
        *("UNREGISTERED", "ADMIN"),
    )
    (day,) = stories.rows("availability", "is_down_over_a_restart_of_all", day=FIRST)
    assert (day["outages"], day["down_seconds"]) == (1, 60.0 + 195.0)


@story
def is_planned_over_a_restart(one: NameServer, two: NameServer, b: Row) -> None:
    both_register(one, two, b)
    for server in (one, two):
        server.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000, planned=True)
    one.say("NAMESRV_ALIVE", moment(160))
    run = again(one, 200, b, planned=True)
    for server in (run, two):
        server.say("EXPIRED", moment(900), b, reason="SILENCE", since_ms=0, detail={"outlived_window": True})
        server.stop(moment(5_000))
    one.rows += run.rows


def test_an_absence_in_a_window_stays_planned_over_a_restart_until_the_window_ends(stories: Stories) -> None:
    left, lost = stories.downs("is_planned_over_a_restart")

    assert (left["planned"], left["start_at"], left["end_at"]) == (True, moment(100), moment(900))
    assert (lost["planned"], lost["start_at"], lost["observers"]) == (False, moment(900), 2)


@story
def is_down_and_unknown_to_a_restart_without_a_snapshot(one: NameServer, two: NameServer, b: Row) -> None:
    two.rows.clear()
    one.say("REGISTERED", moment(10), b)
    one.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000)
    one.say("NAMESRV_ALIVE", moment(160))
    run = again(one, 200, b, gone=False)
    run.stop(moment(5_000))
    one.rows += run.rows


def test_a_dead_broker_is_unknown_to_a_name_server_that_restarted_without_its_snapshot(stories: Stories) -> None:
    (down,) = stories.downs("is_down_and_unknown_to_a_restart_without_a_snapshot")

    assert (down["end_at"], down["end_censored"]) == (moment(160), True)


@story
def is_planned_for_a_time_in_lost_rows(one: NameServer, two: NameServer, b: Row) -> None:
    two.rows.clear()
    one.say("REGISTERED", moment(10), b)
    one.say("PROBE_FAILED", moment(100), b, reason="PROBE")
    one.lose("PROBE_FAILED", moment(300), b, reason="PROBE", planned=True)
    one.say("PROBE_FAILED", moment(900), b, reason="PROBE")
    one.say("RECOVERED", moment(1_000), b, reason="PROBE")
    one.stop(moment(5_000))


def test_a_row_that_changes_the_plan_does_not_cover_the_time_of_lost_rows_before_it(stories: Stories) -> None:
    downs = stories.downs("is_planned_for_a_time_in_lost_rows")

    assert [(row["start_at"], row["end_at"], row["planned"]) for row in downs] == [
        (moment(100), moment(100), False),
        (moment(900), moment(1_000), False),
    ]


@story
def comes_back_in_lost_rows(one: NameServer, two: NameServer, b: Row) -> None:
    two.rows.clear()
    one.say("REGISTERED", moment(10), b)
    one.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000)
    one.say("NAMESRV_ALIVE", moment(400))
    one.lose("REGISTERED", moment(600), b)
    one.say("HEARTBEATS", moment(700), b)
    one.stop(moment(5_000))


def test_a_row_after_lost_ones_gives_its_start_and_the_time_before_that_is_unknown(stories: Stories) -> None:
    _, down, up = stories.intervals("comes_back_in_lost_rows")

    assert (down["start_at"], down["end_at"], down["end_censored"]) == (moment(100), moment(400), True)
    assert (up["state"], up["start_at"], up["start_censored"]) == ("up", moment(600), True)
    assert stories.rows("availability", "comes_back_in_lost_rows", day=FIRST)[0]["repaired"] == 0


@story
def stays_as_it_was_over_lost_rows(one: NameServer, two: NameServer, b: Row) -> None:
    two.rows.clear()
    one.say("REGISTERED", moment(10), b)
    one.lose("LATE_HEARTBEAT", moment(100), b)
    one.say("HEARTBEATS", moment(700), b)
    one.say("PROBE_FAILED", moment(800), b, reason="PROBE")
    one.lose("LATE_HEARTBEAT", moment(900), b)
    one.say("HEARTBEATS", moment(1_000), b)
    one.say("RECOVERED", moment(1_100), b, reason="PROBE")
    one.stop(moment(5_000))


def test_a_state_that_lasted_over_lost_rows_is_known_all_the_while(stories: Stories) -> None:
    intervals = stories.intervals("stays_as_it_was_over_lost_rows")

    assert [(row["state"], row["start_at"], row["end_at"]) for row in intervals] == [
        ("up", moment(10), moment(800)),
        ("down", moment(800), moment(1_100)),
        ("up", moment(1_100), moment(5_000)),
    ]
    assert not any(row["end_censored"] for row in intervals[:2])


@story
def comes_back_behind_many_lost_rows(one: NameServer, two: NameServer, b: Row) -> None:
    two.rows.clear()
    one.say("REGISTERED", moment(10), b)
    for n in range(300):
        one.say("REJECTED", moment(20), b, seq=5 + 2 * n)
    one.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000, seq=604)
    one.say("REGISTERED", moment(700), b, seq=606)
    one.say("NAMESRV_STOPPED", moment(5_000), seq=607)


def test_a_gap_is_found_after_any_number_of_gaps_on_that_day(stories: Stories) -> None:
    (down,) = stories.downs("comes_back_behind_many_lost_rows")

    assert (down["start_at"], down["end_at"], down["end_censored"]) == (moment(100), moment(100), True)


def register_beside_another(server: NameServer, b: Row) -> Row:
    """Both register; return the other."""
    other = b | {"broker_name": "other"}
    for about in (b, other):
        server.say("REGISTERED", moment(10), about)
    return other


def record_the_day(server: NameServer, *brokers: Row, day: int = 1) -> list[Row]:
    """A checkpoint of a day."""
    return [
        server.say("CHECKPOINT", moment(1, day=day), about, reason="DAY", detail={"i": i, "n": len(brokers)})
        for i, about in enumerate(brokers, 1)
    ]


@story
def is_left_out_of_the_day(one: NameServer, two: NameServer, b: Row) -> None:
    """Its expiry was lost by the one; the other recorded it."""
    for server in (one, two):
        other = register_beside_another(server, b)
        server.say("NAMESRV_ALIVE", moment(60))
        record = server.lose if server is one else server.say
        record("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000)
        server.say("LATE_HEARTBEAT", moment(500), other)
        record_the_day(server, other)
        record_the_day(server, other, day=2)
        server.stop(moment(5_000, day=2))


def test_a_checkpoint_without_a_broker_after_lost_rows_ends_its_state(stories: Stories) -> None:
    up, down = (row for row in stories.intervals("is_left_out_of_the_day") if row["broker_name"] == "b")

    assert (up["state"], up["start_at"], up["end_at"]) == ("up", moment(10), moment(100))
    assert up["end_censored"], "the one may have seen it up for longer"
    assert (down["start_at"], down["end_at"]) == (moment(1, day=1), moment(5_000, day=2))
    assert down["start_censored"]
    assert down["continues"], "the other had it down already: no observer saw an outage begin now"
    assert stories.rows("partial_views", "is_left_out_of_the_day") == []


@story
def is_left_out_and_comes_back(one: NameServer, two: NameServer, b: Row) -> None:
    two.rows.clear()
    other = register_beside_another(one, b)
    one.lose("UNREGISTERED", moment(100), b, reason="SHUTDOWN")
    one.say("LATE_HEARTBEAT", moment(500), other)
    record_the_day(one, other)
    one.say("REGISTERED", moment(1_000, day=1), b)
    record_the_day(one, b, other, day=2)
    one.stop(moment(5_000, day=2))


def test_a_broker_missing_from_a_checkpoint_is_unknown_until_its_next_row(stories: Stories) -> None:
    intervals = [row for row in stories.intervals("is_left_out_and_comes_back") if row["broker_name"] == "b"]

    assert [(row["state"], row["start_at"], row["end_at"]) for row in intervals] == [
        ("up", moment(10), moment(10)),
        ("up", moment(1_000, day=1), moment(5_000, day=2)),
    ]
    assert intervals[0]["end_censored"]


@story
def is_down_over_a_gap_and_left_out(one: NameServer, two: NameServer, b: Row) -> None:
    two.rows.clear()
    other = register_beside_another(one, b)
    one.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000)
    one.lose("LATE_HEARTBEAT", moment(500), other)
    for i in (1, 2):
        one.say("CHECKPOINT", moment(600), broker(f"x{i}"), reason="DROPPED", detail={"i": i, "n": 2})
    one.stop(moment(5_000))


def test_a_broker_that_was_down_before_lost_rows_and_is_not_registered_after_them_is_down(stories: Stories) -> None:
    downs = [row for row in stories.downs("is_down_over_a_gap_and_left_out") if row["broker_name"] == "b"]

    assert [(row["start_at"], row["end_at"], row["continues"]) for row in downs] == [
        (moment(100), moment(100), False),
        (moment(600), moment(5_000), True),
    ]
    assert {row["event"] for row in downs} == {"EXPIRED"}


@story
def is_left_out_of_what_is_not_whole(one: NameServer, two: NameServer, b: Row) -> None:
    """Its own row of the checkpoint was lost."""
    two.rows.clear()
    other = register_beside_another(one, b)
    own, _ = record_the_day(one, b, other)
    one.say("NAMESRV_ALIVE", moment(60, day=1))
    one.say("HEARTBEATS", moment(3_600, day=1), b)
    one.stop(moment(5_000, day=1))
    one.rows.remove(own)


def test_an_incomplete_checkpoint_removes_no_broker(stories: Stories) -> None:
    ups = [row for row in stories.intervals("is_left_out_of_what_is_not_whole") if row["broker_name"] == "b"]

    # The row was lost over midnight: the end of that day is unknown.
    assert [row["state"] for row in ups] == ["up", "up"]
    assert (ups[1]["start_at"], ups[1]["end_at"]) == (moment(0, day=1), moment(5_000, day=1))


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


def test_a_day_without_the_files_of_one_name_server_is_computed_from_the_other(stories: Stories) -> None:
    name = "is_missing_on_the_second_day"
    (down,) = stories.downs(name)

    assert (down["start_at"], down["end_at"], down["observers"]) == (moment(100, day=1), moment(200, day=1), 1)
    (gone,) = stories.of_node("namesrv_days", name, node=1, day=FIRST + timedelta(days=1))
    assert (gone["lives"], gone["rows"], gone["watched_seconds"], gone["vanished"]) == (1, 0, 0.0, 1)
