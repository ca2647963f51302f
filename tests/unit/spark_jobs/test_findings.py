"""What a report says somebody has to look at."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from pointsman_report.report.findings import findings, notices
from pointsman_report.report.numbers.computed import with_more_rows
from pointsman_report.report.numbers.silence import fell_silent
from tests.fakes.report_numbers import a_broker, a_cluster, calm_numbers

HOUR = 3_600_000_000
NODE = {"node": "n1", "vanished": 0, "overlapping_lives": 0}


AGENT = {"cluster": "c", "broker_name": "a", "broker_id": 0}


def life(boot: str, to_us: int, *, is_open: bool = False) -> dict[str, Any]:
    return {"node": "n", "boot_id": boot, "from_us": 0, "to_us": to_us, "open": is_open}


def said(**change: dict[str, Any]) -> list[str]:
    return [finding.text for finding in findings(calm_numbers(**change))]


def test_a_calm_day_has_nothing_to_look_at() -> None:
    assert said() == []


def test_a_missed_night_is_told_with_the_command_that_mends_it() -> None:
    (text,) = said(completeness={"warehouse_ends_on": "2026-03-02"})

    assert text.startswith(
        "the warehouse ends on 2026-03-02: run pointsman-report backfill --from 2026-03-03 --to 2026-03-05"
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(
            {"unwatched_clusters": {"c": ["2026-03-05"]}}, "nobody watched cluster c on 2026-03-05", id="unwatched"
        ),
        pytest.param(
            {"unreadable_files": ["a.gz"], "unreadable_files_in_all": 1, "quarantined_lines": 1},
            "1 file of history cannot be read to its end: a.gz",
            id="damaged-file-is-no-further-line",
        ),
        pytest.param({"rows_missing": 1}, "1 row of history was lost (number missing)", id="one-row"),
        pytest.param({"rows_missing": 1_200}, "1,200 rows of history were lost (numbers missing)", id="rows"),
        pytest.param({"rows_ahead": 1}, "1 row of history is dated in the future: a clock is or was wrong", id="ahead"),
        pytest.param(
            {"rows_misdated": 2},
            "2 rows of history, dated days before their folder, were left aside",
            id="misdated",
        ),
        pytest.param(
            {"quarantined_lines": 2}, "2 lines of history could not be read and are in quarantine", id="lines"
        ),
        pytest.param(
            {"rows_too_late": 2}, "2 rows of history came too late for their day to be computed anew", id="too-late"
        ),
        pytest.param(
            {"stale_after": "2026-03-05"},
            "the days after 2026-03-05 continue from a state that has changed since",
            id="stale-state",
        ),
        pytest.param({"days_without_rows": ["2026-03-04"]}, "no rows at all on 2026-03-04", id="a-day-without-rows"),
    ],
)
def test_what_is_wrong_with_the_history_is_a_line(change: dict[str, Any], text: str) -> None:
    assert said(completeness=change) == [text]


@pytest.mark.parametrize(
    ("section", "change", "text"),
    [
        pytest.param(
            "name_servers",
            {"clocks": [{"node": "n1", "offset_seconds": -7.0, "stepped_seconds": 0.0}]},
            "clocks of name servers are up to 7.0 s apart, from the median n1 by \N{MINUS SIGN}7.0 s: an outage "
            "shorter than that shows as a disagreement only",
            id="clocks-apart",
        ),
        pytest.param(
            "name_servers",
            {
                "clocks": [
                    {"node": f"n{n}", "offset_seconds": by, "stepped_seconds": None} for n, by in ((1, 3), (2, -3))
                ]
            },
            "clocks of name servers are up to 6.0 s apart, from the median n1 by 3.0 s, n2 by \N{MINUS SIGN}3.0 s: an "
            "outage shorter than that shows as a disagreement only",
            id="clocks-apart-on-both-sides-of-the-median",
        ),
        pytest.param(
            "name_servers",
            {"clocks": [{"node": "n1", "offset_seconds": None, "stepped_seconds": 3_600.0}]},
            "the clock of a running name server was put forward or back: n1 by 1 h",
            id="clock-stepped",
        ),
        pytest.param(
            "name_servers",
            {"clocks": [{"node": "n1", "offset_seconds": 5.0, "stepped_seconds": 1.0}]},
            None,
            id="clocks-near",
        ),
        pytest.param(
            "punctuality",
            {"clocks": {"rows": [AGENT | {"ahead_seconds": -7.5}], "in_all": 12, "left_out": 11}},
            "12 agents with a clock more than 5.0 s off the name servers': c/a/0 is 7.5 s behind and 11 more",
            id="agents-clocks",
        ),
        pytest.param(
            "name_servers",
            {"nodes": {"rows": [NODE | {"overlapping_lives": 1}]}},
            "1 node name used by two name servers at once: n1",
            id="node-used-twice",
        ),
        pytest.param(
            "name_servers",
            {"nodes": {"rows": [NODE | {"vanished": 2}]}},
            "1 name server ended without saying so: n1 (2 times)",
            id="vanished",
        ),
        pytest.param("computed", {"stale": ["2026-03-04"]}, "1 day has more rows now than when computed: 2026-03-04"),
        pytest.param(
            "topics_at_risk",
            {
                "unwritable": 7,
                "rows": [{"topic": "t", "worst": "unwritable", "unwritable_seconds": 90.0}],
            },
            "7 topics had no writable queue for a time: t (1 min 30 s) and 6 more",
            id="topics",
        ),
        pytest.param("topics_at_risk", {"by_worst": {"one_broker": 7}}, None, id="topics-served-by-one"),
        pytest.param(
            "topics_at_risk",
            {
                "by_worst": {"no_master": 1, "one_broker": 1},
                "unwritable": 1,
                "rows": [
                    {"topic": "t", "worst": "no_master", "unwritable_seconds": 10_800.0},
                    {"topic": "u", "worst": "one_broker", "unwritable_seconds": 0.0},
                ],
            },
            "1 topic had no writable queue for a time: t (3 h)",
            id="topics-that-only-slaves-were-left-of",
        ),
        pytest.param(
            "queues",
            {"behind": {"rows": [{"consumer_group": "g", "topic": "t", "cure": None}], "in_all": 3}},
            "3 consumer groups fall behind: g of t and 2 more",
            id="groups-behind",
        ),
        pytest.param(
            "headline",
            {"clusters": [a_cluster(budget_left_seconds=-60.0)]},
            "cluster c has spent its error budget of 30 days (99.900 %) and is 1 min of broker time over it",
            id="budget",
        ),
        pytest.param(
            "headline",
            {"clusters": [a_cluster(budget_left_seconds=-60.0, budget_seconds=0.0)]},
            None,
            id="no-budget-of-a-cluster-that-nobody-watched",
        ),
        pytest.param(
            "headline",
            {"clusters": [a_cluster(budget_left_seconds=-60.0, budget_seconds=43.0)]},
            None,
            id="no-budget-of-less-than-half-a-day",
        ),
    ],
)
def test_what_the_tables_show_is_a_line(section: str, change: dict[str, Any], text: str | None) -> None:
    assert said(**{section: change}) == ([] if text is None else [text])


def test_a_broker_is_named_with_its_likely_cause() -> None:
    numbers = calm_numbers(headline={"by_class": {"flapping": 1, "chronic": 0, "dead": 0, "unseen": 0}})
    numbers["brokers"] = [a_broker(cause="restart_loop") | {"class": "flapping"}]

    assert [finding.text for finding in findings(numbers)] == ["1 flapping: c/a/0 (restart loop)"]


def test_a_broker_that_fails_slowly_is_told_unless_its_class_says_so_already() -> None:
    ranking = {"outlier": True, "outages": 6, "days": 7}
    numbers = calm_numbers()
    numbers["brokers"] = [a_broker(ranking=ranking), a_broker("b", ranking=ranking) | {"class": "chronic"}]

    (slow,) = findings(numbers)
    assert slow.text.startswith("1 broker fails more often than the rest of the cluster (last 7 days)")
    assert slow.text.endswith(": c/a/0 (6 outages)")


def test_a_day_is_stale_with_more_rows_than_it_was_computed_from_and_not_with_fewer() -> None:
    rows = [{"dt": date(2026, 3, day), "rows": 9} for day in (1, 2, 3, 4)]
    held = {date(2026, 3, 1): 8, date(2026, 3, 2): 9, date(2026, 3, 3): 10}

    assert with_more_rows(rows, held) == ["2026-03-03"]


def test_an_incident_comes_before_the_brokers_and_says_how_large_it_was() -> None:
    row: dict[str, Any] = {"brokers": 8, "scope": "zone", "scope_name": "z1", "cluster": "c", "topics_unwritable": 1}
    row |= {"cause": "network", "evidence": "8 of 8 outages: stream broken"}
    numbers = calm_numbers(
        incidents={"in_all": 1, "outages": 8, "rows": [row | {"from_at": "2026-03-05T15:12:00.000Z"}]},
        headline={"by_class": {"flapping": 1}},
    )

    assert [finding.kind for finding in findings(numbers)] == ["incident", "flapping"]
    assert findings(numbers)[0].text == (
        "1 incident took 8 brokers down: the largest 8 brokers of zone z1 at the same moment from "
        "2026-03-05 15:12 UTC, 1 topic left without a writable queue; cause: network (8 of 8 outages: stream broken)"
    )
    assert "network between these brokers" in findings(numbers)[0].do


def test_an_incident_of_unknown_cause_gives_no_advice_on_a_cause() -> None:
    row: dict[str, Any] = {"brokers": 3, "scope": "host", "scope_name": "h1", "cluster": "c", "topics_unwritable": 0}
    row |= {"cause": "unknown", "evidence": None, "from_at": "2026-03-05T15:12:00.000Z"}
    (finding,) = findings(calm_numbers(incidents={"in_all": 1, "outages": 3, "rows": [row]}))

    assert finding.text.endswith("; cause: unknown")
    assert finding.do == "see its outages and their evidence"


def a_guard(cluster: str = "c", **change: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "cluster": cluster,
        "from_at": "2026-03-05T10:00:00.000Z",
        "to_at": "2026-03-05T10:03:00.000Z",
    }
    row |= {"seconds": 180.0, "open": False, "nodes": ["n1", "n2"], "modes": ["AUTO"], "lost": 3, "baseline": 4}
    return row | {"kept": 3, "up": 1, "over_limit": False} | change


def test_the_period_of_a_guard_is_a_finding_with_its_time_and_what_it_kept() -> None:
    (finding,) = findings(calm_numbers(guard_periods={"rows": [a_guard()], "in_all": 1}))

    assert (finding.kind, finding.see) == ("guard", "guards")
    assert finding.text == (
        "the expiry guard of cluster c was on from 2026-03-05 10:00 UTC for 3 min: it kept 3 brokers in the routes "
        "(3 lost of 4) at n1, n2"
    )


def test_the_guards_periods_of_a_cluster_are_one_finding_that_names_the_longest() -> None:
    rows = [a_guard(open=True, over_limit=True, lost=None), a_guard(seconds=10.0), a_guard("d", kept=0)]
    first, second = findings(calm_numbers(guard_periods={"rows": rows, "in_all": 3}))

    assert first.text == (
        "the expiry guard of cluster c was on 2 times, the longest from 2026-03-05 10:00 UTC for 3 min, still on at "
        "the end, beyond its limit: it kept 3 brokers in the routes at n1, n2"
    )
    assert second.text.startswith("the expiry guard of cluster d was on from")


def test_a_rolling_restart_is_named_and_is_not_an_incident() -> None:
    row: dict[str, Any] = {
        "cluster": "c",
        "brokers": 4,
        "unplanned": 3,
        "version_before": "7.1",
        "version_after": "7.2",
    }
    row |= {"from_at": "2026-03-05T10:00:00.000Z"}
    (finding,) = findings(calm_numbers(rolling_restarts={"rows": [row], "in_all": 1, "unplanned": 3}))

    assert finding.text == (
        "1 rolling restart, not an incident: 4 brokers of cluster c one after another from 2026-03-05 10:00 UTC, "
        "7.1 to 7.2; 3 unplanned outages counted against the brokers"
    )
    planned: dict[str, Any] = {"rows": [row | {"unplanned": 0}], "in_all": 1, "unplanned": 0}
    assert findings(calm_numbers(rolling_restarts=planned)) == [], "planned shutdowns one after another need nothing"


def test_a_class_of_brokers_has_the_advice_of_its_cause_only_where_all_have_one_that_is_known() -> None:
    def advice(*causes: str | None) -> str:
        numbers = calm_numbers(headline={"by_class": {"flapping": len(causes)}})
        numbers["brokers"] = [a_broker(f"b{n}", cause=cause) | {"class": "flapping"} for n, cause in enumerate(causes)]
        (finding,) = findings(numbers)
        return finding.do

    general = "see its likely cause, then its own log around its outages"
    assert advice("unknown") == advice(None) == advice("process_died", "network") == general
    assert advice("process_died", "process_died").startswith(f"{general}; see the broker's log and the kernel's")


def test_every_finding_says_what_to_do_and_leads_to_a_section() -> None:
    numbers = calm_numbers(completeness={"rows": 0, "rows_missing": 1}, computed={"stale": ["2026-03-04"]})

    assert all(finding.do and finding.see for finding in findings(numbers))


def test_a_polite_stop_is_an_alarm_once_and_then_only_a_notice() -> None:
    stop = {"node": "n1", "to_at": "2026-03-02T10:00:00.000Z", "told_before": False}
    nothing = {"rows": 0, "days_without_rows": ["2026-03-05"]}
    first = calm_numbers(completeness=nothing | {"stopped_before": stop})
    later = calm_numbers(completeness=nothing | {"stopped_before": stop | {"told_before": True}})

    assert findings(first)[0].text.startswith("NO DATA")
    assert findings(later) == []
    assert notices(later)[0].startswith(
        "NO DATA: no name server has run since n1, the last of all, stopped politely at 2026-03-02 10:00 UTC"
    )


def test_a_day_of_other_than_24_hours_is_told() -> None:
    assert notices(calm_numbers(interval={"timezone": "Europe/Berlin", "hours": 23.0})) == [
        "the clocks changed: these days have 23 hours"
    ]


def test_name_servers_that_planned_stops_did_not_fall_silent() -> None:
    lives = [life("killed", HOUR), life("stopped", 2 * HOUR)]

    assert fell_silent(lives, {("n", "stopped")}, until_us=24 * HOUR) is None


def test_the_last_to_watch_fell_silent_when_it_neither_stopped_nor_was_followed() -> None:
    killed = life("killed", HOUR)
    told = {"node": "n", "boot_id": "killed", "to_at": "1970-01-01T01:00:00.000Z"}

    assert fell_silent([killed], set(), until_us=24 * HOUR) == told
    assert fell_silent([killed, life("next", 24 * HOUR, is_open=True)], set(), until_us=24 * HOUR) is None
    assert fell_silent([killed], set(), until_us=None) is None, "that day is not over"
    assert fell_silent([life("past-local-midnight", 25 * HOUR)], set(), until_us=24 * HOUR) is None
