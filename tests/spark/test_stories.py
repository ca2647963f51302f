"""Stories of one broker, row by row, and the resulting tables. One run computes all stories."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.spark.histories import NameServer, Row, broker, moment
from tests.spark.storybook import FIRST, Stories, story

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@story
def one_sees_it_gone(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
    one.outage(b, moment(100), until=moment(200))
    for server in (one, two):
        server.stop(moment(5_000))


def test_an_outage_that_only_one_observer_saw_is_none(stories: Stories) -> None:
    assert stories.downs("one_sees_it_gone") == []
    assert stories.class_of("one_sees_it_gone") == "healthy"


@story
def both_see_it_gone(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
    one.outage(b, moment(100), until=moment(300))
    two.outage(b, moment(104), until=moment(290))
    for server in (one, two):
        server.stop(moment(5_000))


def test_an_outage_begins_with_the_last_to_see_it_and_ends_with_the_first_to_see_it_back(stories: Stories) -> None:
    (down,) = stories.downs("both_see_it_gone")

    assert (down["start_at"], down["end_at"]) == (moment(104), moment(290))
    assert down["last_sign_of_life_at"] == moment(102)
    assert (down["reason"], down["observers"], down["end_censored"]) == ("SILENCE", 2, False)


def test_an_outage_that_two_observers_saw_counts_once(stories: Stories) -> None:
    (charge,) = stories.rows("flap_charges", "both_see_it_gone")

    assert (charge["charged_at"], charge["points"], charge["penalty"]) == (moment(104), 1_000.0, 1_000.0)


@story
def flaps(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
        for n in range(5):
            server.outage(b, moment(100 + 10 * n), until=moment(104 + 10 * n), reason="STREAM_BROKEN")
        server.say("UNREGISTERED", moment(1_000), b, reason="SHUTDOWN")
        server.stop(moment(1_001))


def test_five_kills_in_a_minute_are_flapping(stories: Stories) -> None:
    (row,) = stories.rows("flapping", "flaps", day=FIRST)

    assert (row["class"], row["down_count"], row["raised"]) == ("flapping", 5, True)
    assert 4_900 < row["penalty_max"] < 5_000


@story
def says_goodbye(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
        server.say("UNREGISTERED", moment(1_000), b, reason="DRAIN")
        server.stop(moment(2_000))


def test_a_planned_shutdown_is_not_an_outage_and_costs_no_availability(stories: Stories) -> None:
    (leave,) = stories.downs("says_goodbye")
    (day,) = stories.rows("availability", "says_goodbye", day=FIRST)

    assert (leave["planned"], leave["reason"]) == (True, "DRAIN")
    assert (day["availability"], day["outages"], day["planned_seconds"]) == (1.0, 0, 1_000.0)
    assert stories.rows("flap_charges", "says_goodbye") == []
    assert stories.class_of("says_goodbye") == "healthy"


@story
def leaves_in_its_window(one: NameServer, two: NameServer, b: Row) -> None:
    whole = {"cluster": b["cluster"]}
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
        server.say("MAINTENANCE_ON", moment(20), whole | {"broker_name": "b"}, reason="ADMIN", detail={"by": "jo"})
        server.say("EXPIRED", moment(1_000), b, reason="STREAM_BROKEN", planned=True)
        server.say("REGISTERED", moment(1_100), b)
        server.say("MAINTENANCE_OFF", moment(1_200), whole, reason="TIME_OVER")
        server.stop(moment(5_000))


def test_a_broker_that_goes_down_in_an_announced_window_has_no_outage_and_no_penalty(stories: Stories) -> None:
    (leave,) = stories.downs("leaves_in_its_window")

    assert (leave["planned"], leave["reason"]) == (True, "STREAM_BROKEN")
    assert stories.rows("flap_charges", "leaves_in_its_window") == []
    assert stories.class_of("leaves_in_its_window") == "healthy"
    assert stories.rows("availability", "leaves_in_its_window", day=FIRST)[0]["outages"] == 0


@story
def is_known_from_a_snapshot(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("CHECKPOINT", moment(1), b, reason="START")
        server.say("REREGISTERED", moment(20), b, reason="SNAPSHOT")
        server.say("NAMESRV_DRAINING", moment(30), reason="ADMIN")
    one.outage(b, moment(8_000), until=moment(9_000))
    two.outage(b, moment(8_000), until=moment(9_000))
    for server in (one, two):
        server.stop(moment(20_000))


def test_a_broker_known_from_a_snapshot_is_up_from_its_first_heartbeat_without_a_penalty(stories: Stories) -> None:
    first = min(stories.rows("broker_intervals", "is_known_from_a_snapshot"), key=lambda row: row["start_at"])

    assert (first["state"], first["start_at"], first["start_censored"]) == ("up", moment(20), True)
    assert [row["cause"] for row in stories.rows("flap_charges", "is_known_from_a_snapshot")] == ["EXPIRED"]


def test_a_draining_name_server_keeps_monitoring(stories: Stories) -> None:
    (down,) = stories.downs("is_known_from_a_snapshot")
    assert (down["start_at"], down["end_at"], down["observers"]) == (moment(8_000), moment(9_000), 2)


@story
def has_many_rows(one: NameServer, _: NameServer, b: Row) -> None:
    name = {"cluster": b["cluster"], "broker_name": b["broker_name"]}
    one.say("REGISTERED", moment(10), b)
    one.say("PROBE_FAILED", moment(100), b)
    whole = {"part": 1, "parts": 1, "full": True, "topics": {"orders": [4, 4, 6, 0]}, "removed": []}
    for hour in range(2, 6):
        one.say("CHECKPOINT", moment(3_600 * hour), b, reason="DAY")
        one.say("CHECKPOINT", moment(3_600 * hour), name, reason="DAY", detail={"perms": {}})
        one.say("CHECKPOINT", moment(3_600 * hour), reason="DAY", detail={"brokers": 1})
        one.say("TOPICS", moment(3_600 * hour), b, reason="DAY", detail=whole)
        one.say("HEARTBEAT", moment(3_600 * hour), b)
        one.say("HEARTBEATS", moment(3_600 * hour), b, detail={"count": 1, "min_ms": 1, "max_ms": 1, "buckets": {}})
        one.say("PERM_CHANGED", moment(3_600 * hour), name, reason="ADMIN")
        one.say("GUARD_ON", moment(3_600 * hour), {"cluster": "another"}, reason="SHARE")
    one.say("RECOVERED", moment(40_000), b, reason="PROBE")
    one.stop(moment(50_000))


def test_checkpoints_topics_and_heartbeats_change_no_state_and_are_not_quarantined(stories: Stories) -> None:
    (down,) = stories.downs("has_many_rows")
    (window,) = [row for row in stories.tables["observer_windows"] if row["node"] == "has_many_rows-ns1:9876"]

    assert (down["start_at"], down["end_at"]) == (moment(100), moment(40_000))
    assert window["rows_missing"] == 0
    assert window["rows"] == 2 + 2 + 4 * 8 + 2
    assert {row["broker_id"] for row in stories.rows("flapping", "has_many_rows")} == {0}


@story
def restarts_gracefully(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
        server.say("UNREGISTERED", moment(1_000), b, reason="SHUTDOWN")
        server.say("REGISTERED", moment(1_100), b)
        server.stop(moment(5_000))


def test_a_shutdown_that_is_back_within_five_minutes_costs_little(stories: Stories) -> None:
    (charge,) = stories.rows("flap_charges", "restarts_gracefully")

    assert (charge["charged_at"], charge["points"]) == (moment(1_100), 200.0)


@story
def restarts_in_its_window(one: NameServer, two: NameServer, b: Row) -> None:
    own = {"cluster": b["cluster"], "broker_name": "b"}
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
    one.say("MAINTENANCE_ON", moment(900), own, reason="ADMIN", detail={"seconds": 600})
    for server in (one, two):
        server.say("UNREGISTERED", moment(1_000), b, reason="SHUTDOWN")
        server.say("REGISTERED", moment(1_100), b)
        server.say("RESTARTED", moment(1_499), b | {"incarnation": "2"})
        server.say("RESTARTED", moment(1_500), b | {"incarnation": "3"})
        server.stop(moment(5_000))


def test_nothing_in_a_maintenance_window_counts_against_a_broker(stories: Stories) -> None:
    charged = stories.rows("flap_charges", "restarts_in_its_window")

    assert [(row["charged_at"], row["cause"]) for row in charged] == [(moment(1_500), "RESTARTED")]


@story
def expires_before_it_registers(one: NameServer, _: NameServer, b: Row) -> None:
    one.say("EXPIRED", moment(500), b, reason="SILENCE", interval_ms=120_000)
    one.say("REGISTERED", moment(600), b)
    one.stop(moment(5_000))


def test_an_expiry_whose_registration_was_lost_is_still_an_outage(stories: Stories) -> None:
    (down,) = stories.downs("expires_before_it_registers")

    assert (down["start_at"], down["end_at"]) == (moment(500), moment(600))
    assert (down["start_censored"], down["last_sign_of_life_at"]) == (False, moment(380))


@story
def fails_its_probe_then_its_agent_dies(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
        server.say("PROBE_FAILED", moment(100), b)
        server.say("LATE_HEARTBEAT", moment(110), b)
        server.say("EXPIRED", moment(200), b, reason="SILENCE")
        server.say("REGISTERED", moment(300), b)
        server.stop(moment(5_000))


def test_a_heartbeat_does_not_end_a_failed_probe_and_an_expiry_does_not_begin_a_second_outage(stories: Stories) -> None:
    (down,) = stories.downs("fails_its_probe_then_its_agent_dies")

    assert (down["start_at"], down["end_at"], down["event"]) == (moment(100), moment(300), "PROBE_FAILED")


@story
def is_down_over_midnight(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
        server.outage(b, moment(-100, day=1), until=moment(200, day=1))
        server.stop(moment(100, day=2))


def test_an_outage_over_midnight_is_open_on_its_first_day_and_complete_on_its_second(stories: Stories) -> None:
    rows = [row for row in stories.rows("broker_intervals", "is_down_over_midnight") if row["state"] == "down"]

    assert [(row["dt"], row["start_at"], row["end_at"], row["open"], row["end_censored"]) for row in rows] == [
        (FIRST, moment(-100, day=1), moment(0, day=1), True, True),
        (FIRST + timedelta(days=1), moment(-100, day=1), moment(200, day=1), False, False),
    ]
    days = stories.rows("availability", "is_down_over_midnight")
    assert [(day["down_seconds"], day["outages"], day["mttr_seconds"]) for day in days] == [
        (100.0, 1, None),
        (200.0, 0, 300.0),
        (0.0, 0, None),
    ]


@story
def stays_down(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
        server.outage(b, moment(3_600), until=None)
        server.stop(moment(86_399, day=2))
    # The last two and a half minutes of a day count as watched, a stop does not.
    one.rows[-1]["event"] = "NAMESRV_ALIVE"


def test_a_broker_that_stays_down_is_degraded_on_the_first_day_and_dead_from_the_second(stories: Stories) -> None:
    days = [stories.class_of("stays_down", day=FIRST + timedelta(days=n)) for n in range(3)]

    assert days == ["degraded", "dead", "dead"]
    assert [row["down_count"] for row in stories.rows("flapping", "stays_down")] == [1, 0, 0]


@story
def is_not_monitored_for_a_while(one: NameServer, two: NameServer, b: Row) -> None:
    one.say("REGISTERED", moment(10), b)
    one.outage(b, moment(100), until=None)
    one.stop(moment(200))
    two.rows.clear()
    two.start(moment(400))
    two.say("PROBE_FAILED", moment(500), b)
    two.say("RECOVERED", moment(600), b, reason="PROBE")
    two.stop(moment(5_000))


def test_time_without_observers_is_not_downtime_and_an_outage_on_both_sides_counts_once(stories: Stories) -> None:
    first, second = stories.downs("is_not_monitored_for_a_while")

    assert (first["end_at"], first["end_censored"]) == (moment(200), True)
    assert (second["start_at"], second["start_censored"], second["continues"]) == (moment(500), True, True)
    (day,) = stories.rows("availability", "is_not_monitored_for_a_while", day=FIRST)
    assert (day["down_seconds"], day["outages"], day["repaired"]) == (200.0, 1, 0)


@story
def is_noisy(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
        for n in range(3):
            server.say("LATE_HEARTBEAT", moment(1_000 + n), b, interval_ms=1_600)
        server.say("SUSPECTED", moment(1_010), b, reason="SILENCE")
        server.say("RECOVERED", moment(1_011), b, reason="HEARTBEAT")
        server.say("RESTARTED", moment(1_020), b, incarnation="i2")
        server.stop(moment(5_000))


def test_events_that_two_observers_saw_count_as_if_one_had(stories: Stories) -> None:
    charges = stories.rows("flap_charges", "is_noisy")

    assert [charge["points"] for charge in charges] == [100.0, 100.0, 100.0, 300.0, 1_000.0]
    (row,) = stories.rows("flapping", "is_noisy", day=FIRST)
    assert (row["class"], row["down_count"], row["sign_count"]) == ("degraded", 0, 5)


@story
def falls_in_no_time(one: NameServer, _: NameServer, b: Row) -> None:
    one.say("REGISTERED", moment(10), b)
    one.outage(b, moment(100), until=moment(100))
    one.stop(moment(5_000))


def test_an_outage_of_no_length_counts(stories: Stories) -> None:
    (down,) = stories.downs("falls_in_no_time")

    assert down["start_at"] == down["end_at"] == moment(100)


@story
def flaps_every_day(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
    for day in range(3):
        for server in (one, two):
            for n in range(4):
                server.outage(b, moment(100 + 10 * n, day=day), until=moment(104 + 10 * n, day=day))
    for server in (one, two):
        server.stop(moment(5_000, day=2))


def test_a_broker_that_flaps_on_three_days_of_seven_is_chronic(stories: Stories) -> None:
    rows = stories.rows("flapping", "flaps_every_day")

    assert [(row["class"], row["flapped_days"]) for row in rows] == [("flapping", 1), ("flapping", 2), ("chronic", 3)]


@story
def comes_later(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(100, day=1), b)
        server.stop(moment(5_000, day=1))


def test_a_broker_first_seen_in_a_history_that_began_earlier_is_new(stories: Stories) -> None:
    assert stories.class_of("comes_later", day=FIRST + timedelta(days=1)) == "new"
    assert stories.class_of("both_see_it_gone") != "new"


@story
def vanishes_with_a_restart_of_its_observer(one: NameServer, two: NameServer, b: Row) -> None:
    one.say("REGISTERED", moment(10), b)
    one.stop(moment(200))
    two.say("REGISTERED", moment(20), broker("neighbour", cluster=b["cluster"]))
    two.say("NAMESRV_ALIVE", moment(86_300))


def test_a_broker_that_never_returned_at_any_name_server_is_unseen(stories: Stories) -> None:
    assert stories.class_of("vanishes_with_a_restart_of_its_observer") == "unseen"


@story
def is_under_guard_at_midnight(one: NameServer, two: NameServer, b: Row) -> None:
    neighbour = broker("neighbour", cluster=b["cluster"])
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
        server.say("REGISTERED", moment(10), neighbour)
        server.say("GUARD_ON", moment(86_000), {"cluster": b["cluster"]}, reason="SHARE")
        server.say("REGISTERED", moment(86_100), neighbour)
        server.say("NAMESRV_ALIVE", moment(86_300))


def test_a_broker_that_a_guard_still_keeps_at_midnight_is_not_unseen(stories: Stories) -> None:
    classes = {
        row["broker_name"]: row["class"] for row in stories.rows("flapping", "is_under_guard_at_midnight", day=FIRST)
    }

    assert "unseen" not in classes.values()


@story
def is_late_at_a_name_server_that_is_cut_off(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
    one.say("GUARD_ON", moment(1_000), {"cluster": b["cluster"]}, reason="SHARE")
    one.say("RECOVERED", moment(1_290), b, reason="HEARTBEAT", interval_ms=290_000)
    one.say("GUARD_OFF", moment(1_300), {"cluster": b["cluster"]}, reason="SHARE")
    one.say("LATE_HEARTBEAT", moment(1_310), b, interval_ms=46_000)
    two.say("NAMESRV_PAUSED", moment(2_000), detail={"seconds": 60.0})
    two.say("RECOVERED", moment(2_001), b, reason="HEARTBEAT", interval_ms=61_000)
    two.say("RECOVERED", moment(9_000), b, reason="HEARTBEAT", interval_ms=70_000)
    for server in (one, two):
        server.stop(moment(20_000))


def test_a_silence_in_which_the_name_server_was_blind_charges_no_broker(stories: Stories) -> None:
    charged = stories.rows("flap_charges", "is_late_at_a_name_server_that_is_cut_off")

    assert [(row["charged_at"], row["cause"]) for row in charged] == [(moment(9_000), "RECOVERED")]


@story
def is_left_alone_with_a_wrong_view(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
    two.say("EXPIRED", moment(100), b, reason="SILENCE")
    one.stop(moment(5_000))
    two.stop(moment(9_000))


def test_a_down_that_shows_only_because_an_observer_left_is_not_a_new_outage(stories: Stories) -> None:
    (down,) = stories.downs("is_left_alone_with_a_wrong_view")

    assert (down["start_at"], down["start_censored"], down["continues"]) == (moment(5_000), True, True)
    assert stories.rows("flap_charges", "is_left_alone_with_a_wrong_view") == []
    assert down["last_sign_of_life_at"] is None, "a row without an interval does not say when the last beat came"


@story
def is_left_by_both_at_the_same_time(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
    two.say("EXPIRED", moment(100), b, reason="SILENCE")
    one.stop(moment(5_000))
    two.stop(moment(5_000))


def test_observers_that_end_at_the_same_time_create_no_empty_outage(stories: Stories) -> None:
    assert stories.downs("is_left_by_both_at_the_same_time") == []


def test_a_known_broker_without_monitoring_is_unwatched_and_not_healthy(stories: Stories) -> None:
    next_day = FIRST + timedelta(days=1)

    assert stories.class_of("both_see_it_gone", day=next_day) == "unwatched"
    assert stories.class_of("is_down_over_midnight", day=next_day) == "degraded"


@story
def one_clock_jumps(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b)
    one.say("NAMESRV_ALIVE", moment(0, day=1_500))
    one.say("NAMESRV_ALIVE", moment(5_000))
    two.outage(b, moment(8_000), until=moment(9_000))
    two.stop(moment(20_000))


def test_a_row_dated_years_ahead_does_not_make_a_killed_name_server_watch_until_then(stories: Stories) -> None:
    (down,) = stories.downs("one_clock_jumps")

    assert (down["start_at"], down["end_at"]) == (moment(8_000), moment(9_000))


@story
def does_not_say_its_uptime(one: NameServer, _: NameServer, b: Row) -> None:
    one.rows.clear()
    for seq in (200, 201, 203):
        one.say("NAMESRV_ALIVE", moment(seq), b, uptime_ms=None, seq=seq)


def test_rows_before_the_first_are_not_lost_unless_the_run_is_known_to_begin_this_day(stories: Stories) -> None:
    windows = [row for row in stories.tables["observer_windows"] if row["node"] == "does_not_say_its_uptime-ns1:9876"]

    assert [row["rows_missing"] for row in windows] == [1]


def test_the_points_of_a_day_decay_by_half_in_an_hour(stories: Stories) -> None:
    (state,) = stories.rows("broker_state", "flaps", day=FIRST)
    (day,) = stories.rows("flapping", "flaps", day=FIRST)
    last = stories.rows("flap_charges", "flaps")[-1]
    hours = (moment(0, day=1) - last["charged_at"]).total_seconds() / 3_600

    assert state["penalty"] == day["penalty_end"] == pytest.approx(last["penalty"] * 2**-hours, abs=1e-6)
