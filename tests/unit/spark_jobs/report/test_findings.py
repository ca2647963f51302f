"""The findings of a report."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from pointsman_report.report.findings import findings, notices
from pointsman_report.report.sections.heartbeat_times import AgentClock
from pointsman_report.report.sections.incident_list import GuardPeriod, Incident, RollingRestart
from pointsman_report.report.sections.long_memory import WeeklyPattern
from pointsman_report.report.sections.name_server_record import Node, NodeClock
from pointsman_report.report.sections.queue_advice import GroupBehind
from pointsman_report.report.sections.report_basis import with_more_rows
from pointsman_report.report.sections.topic_risk import TopicAtRisk
from pointsman_report.report.sections.watch_gaps import FellSilent, StoppedBefore, Watch, fell_silent
from pointsman_report.report.sections.worst_brokers import Ranking
from pointsman_report.report.table_rows import Listing
from tests.kit.report.contents import DAY, a_broker, a_cluster, a_row, calm_report

HOUR = 3_600_000_000
DAY_BEFORE = date(2026, 3, 4)


def life(boot: str, to_us: int, *, is_open: bool = False) -> Watch:
    return Watch("n", boot, from_us=0, to_us=to_us, open=is_open)


def nodes(**given: int) -> dict[str, Listing[Node]]:
    known = dict.fromkeys(("vanished", "overlapping_lives"), 0)
    return {"nodes": Listing([a_row(Node, node="n1", **known | given)], 1)}


def texts(**change: Any) -> list[str]:
    return [finding.text for finding in findings(calm_report(**change))]


def test_a_calm_day_has_no_findings() -> None:
    assert texts() == []


def test_a_missed_night_is_a_finding_with_the_command_that_fixes_it() -> None:
    (text,) = texts(completeness={"warehouse_ends_on": date(2026, 3, 2)})

    assert text.startswith(
        "the warehouse ends on 2026-03-02: run pointsman-report backfill --from 2026-03-03 --to 2026-03-05"
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(
            {"unwatched_clusters": {"c": [DAY]}}, "no monitoring data for cluster c on 2026-03-05", id="unwatched"
        ),
        pytest.param(
            {"unreadable_files": ["a.gz"], "unreadable_files_in_all": 1, "quarantined_lines": 1},
            "1 history file cannot be read to its end: a.gz",
            id="damaged-file-is-no-further-line",
        ),
        pytest.param({"rows_missing": 1}, "1 history row lost (missing sequence number)", id="one-row"),
        pytest.param({"rows_missing": 1_200}, "1,200 history rows lost (missing sequence numbers)", id="rows"),
        pytest.param({"rows_ahead": 1}, "1 history row dated in the future: a clock is or was wrong", id="ahead"),
        pytest.param(
            {"rows_misdated": 2},
            "2 history rows dated days before their folder, skipped",
            id="misdated",
        ),
        pytest.param({"quarantined_lines": 2}, "2 history lines could not be read and are in quarantine", id="lines"),
        pytest.param(
            {"rows_too_late": 2}, "2 history rows arrived too late; their day was not recomputed", id="too-late"
        ),
        pytest.param(
            {"stale_after": DAY},
            "the days after 2026-03-05 continue from a state that has changed since",
            id="stale-state",
        ),
        pytest.param({"days_without_rows": [DAY_BEFORE]}, "no history rows on 2026-03-04", id="a-day-without-rows"),
    ],
)
def test_problems_of_the_history_are_lines(change: dict[str, Any], text: str) -> None:
    assert texts(completeness=change) == [text]


@pytest.mark.parametrize(
    ("section", "change", "text"),
    [
        pytest.param(
            "name_servers",
            {"clocks": [NodeClock("n1", -7.0, samples=1, stepped_seconds=0.0)]},
            "name server clocks differ by up to 7.0 s (offset from the median: n1 by \N{MINUS SIGN}7.0 s); "
            "shorter outages appear only as disagreements",
            id="clocks-apart",
        ),
        pytest.param(
            "name_servers",
            {"clocks": [NodeClock(f"n{n}", by, samples=1, stepped_seconds=None) for n, by in ((1, 3), (2, -3))]},
            "name server clocks differ by up to 6.0 s (offset from the median: n1 by 3.0 s, n2 by \N{MINUS SIGN}3.0 s"
            "); shorter outages appear only as disagreements",
            id="clocks-apart-on-both-sides-of-the-median",
        ),
        pytest.param(
            "name_servers",
            {"clocks": [NodeClock("n1", None, samples=1, stepped_seconds=3_600.0)]},
            "the clock of a running name server was stepped: n1 by 1 h",
            id="clock-stepped",
        ),
        pytest.param(
            "name_servers",
            {"clocks": [NodeClock("n1", 5.0, samples=1, stepped_seconds=1.0)]},
            None,
            id="clocks-near",
        ),
        pytest.param(
            "punctuality",
            {"clocks": Listing([AgentClock("c", "a", 0, ahead_seconds=-7.5)], 12, 11)},
            "12 agents with a clock offset above 5.0 s to the name servers: c/a/0 is 7.5 s behind and 11 more",
            id="agents-clocks",
        ),
        pytest.param(
            "name_servers",
            nodes(overlapping_lives=1),
            "1 node name used by two name servers at the same time: n1",
            id="node-used-twice",
        ),
        pytest.param(
            "name_servers",
            nodes(vanished=2),
            "1 name server crashed (no clean stop recorded): n1 (2 times)",
            id="vanished",
        ),
        pytest.param(
            "computed", {"stale": [DAY_BEFORE]}, "1 day has more history rows now than when computed: 2026-03-04"
        ),
        pytest.param(
            "topics_at_risk",
            {
                "unwritable": 7,
                "rows": [a_row(TopicAtRisk, topic="t", worst="unwritable", unwritable_seconds=90.0)],
            },
            "7 topics had no writable queue for some time: t (1 min 30 s) and 6 more",
            id="topics",
        ),
        pytest.param("topics_at_risk", {"by_worst": {"one_broker": 7}}, None, id="topics-served-by-one"),
        pytest.param(
            "topics_at_risk",
            {
                "by_worst": {"no_master": 1, "one_broker": 1},
                "unwritable": 1,
                "rows": [
                    a_row(TopicAtRisk, topic="t", worst="no_master", unwritable_seconds=10_800.0),
                    a_row(TopicAtRisk, topic="u", worst="one_broker", unwritable_seconds=0.0),
                ],
            },
            "1 topic had no writable queue for some time: t (3 h)",
            id="topics-that-only-slaves-were-left-of",
        ),
        pytest.param(
            "queues",
            {"behind": Listing([a_row(GroupBehind, consumer_group="g", topic="t", cure=None)], 3, 2)},
            "3 consumer groups fall behind: g of t and 2 more",
            id="groups-behind",
        ),
        pytest.param(
            "headline",
            {"clusters": [a_cluster(budget_left_seconds=-60.0)]},
            "cluster c has exceeded its error budget of 30 days (99.9 %) by 1 min of broker downtime",
            id="budget",
        ),
        pytest.param(
            "headline",
            {"clusters": [a_cluster(budget_left_seconds=-60.0, budget_seconds=0.0)]},
            None,
            id="no-budget-without-monitoring",
        ),
        pytest.param(
            "headline",
            {"clusters": [a_cluster(budget_left_seconds=-60.0, budget_seconds=43.0)]},
            None,
            id="no-budget-of-less-than-half-a-day",
        ),
    ],
)
def test_findings_of_the_tables_are_lines(section: str, change: dict[str, Any], text: str | None) -> None:
    assert texts(**{section: change}) == ([] if text is None else [text])


def test_a_broker_is_named_with_its_likely_cause() -> None:
    brokers = [a_broker(cause="restart_loop", class_="flapping")]
    report = calm_report(headline={"by_class": {"flapping": 1}}, brokers=brokers)

    assert [finding.text for finding in findings(report)] == ["1 flapping: c/a/0 (restart loop)"]


def test_an_outlier_is_a_finding_unless_its_class_is_one() -> None:
    ranking = a_row(Ranking, outlier=True, outages=6, days=7)
    brokers = [a_broker(ranking=ranking), a_broker("b", ranking=ranking, class_="chronic")]

    (slow,) = findings(calm_report(brokers=brokers))
    assert slow.text.startswith("1 broker with an outage rate above the cluster's (last 7 days)")
    assert slow.text.endswith(": c/a/0 (6 outages)")


def test_a_weekly_pattern_is_a_finding_with_its_brokers_and_their_hours() -> None:
    sunday = a_row(WeeklyPattern, weekday=6, hour=3)
    rows = [sunday, *(replace(sunday, broker_name="daily", weekday=day, hour=23) for day in range(4))]
    (finding,) = findings(calm_report(weekly_patterns={"rows": rows, "in_all": 5}))

    assert (finding.kind, finding.see) == ("weekly_pattern", "weekly")
    assert finding.text == (
        "2 brokers went down in the same hour of the week, in UTC, in at least 3 of 4 weeks: "
        "orders/broker-a/1 (Sunday 03:00), orders/daily/1 (Monday 23:00, Tuesday 23:00 and 2 more)"
    )


def test_a_day_is_stale_with_more_rows_than_it_was_computed_from_and_not_with_fewer() -> None:
    rows = {date(2026, 3, day): 9 for day in (1, 2, 3, 4)}
    held = {date(2026, 3, 1): 8, date(2026, 3, 2): 9, date(2026, 3, 3): 10}

    assert with_more_rows(rows, held) == [date(2026, 3, 3)]


def test_an_incident_comes_before_the_brokers_with_its_size() -> None:
    scope: dict[str, Any] = {"brokers": 8, "scope": "zone", "scope_name": "z1", "from_at": "2026-03-05T15:12:00.000Z"}
    row = a_row(Incident, **scope, cause="network", evidence="8 of 8 outages: stream broken")
    report = calm_report(
        incidents={"in_all": 1, "outages": 8, "rows": [row]},
        headline={"by_class": {"flapping": 1}},
    )

    assert [finding.kind for finding in findings(report)] == ["incident", "flapping"]
    assert findings(report)[0].text == (
        "incident at 2026-03-05 15:12 UTC: 8 brokers of zone z1 down at the same moment, 1 topic without a writable "
        "queue; cause: network (8 of 8 outages: stream broken)"
    )
    assert "network between these brokers" in findings(report)[0].do


def test_an_incident_of_unknown_cause_gives_no_advice_on_a_cause() -> None:
    row = a_row(Incident, brokers=3, scope="host", scope_name="h1", cause="unknown", evidence=None)
    (finding,) = findings(calm_report(incidents={"in_all": 1, "outages": 3, "rows": [row]}))

    assert finding.text.endswith("; cause: unknown")
    assert finding.do == "check its outages and their evidence"


def a_guard(cluster: str = "c", **change: Any) -> GuardPeriod:
    known: dict[str, Any] = {
        "seconds": 180.0,
        "open": False,
        "nodes": ["n1", "n2"],
        "lost": 3,
        "baseline": 4,
        "kept": 3,
    }
    return a_row(GuardPeriod, cluster=cluster, **known | {"over_limit": False} | change)


def test_the_period_of_a_guard_is_a_finding_with_its_time_and_the_brokers_kept() -> None:
    (finding,) = findings(calm_report(guard_periods={"rows": [a_guard()], "in_all": 1}))

    assert (finding.kind, finding.see) == ("guard", "guards")
    assert finding.text == (
        "the expiry guard of cluster c was on from 2026-03-05 10:00 UTC for 3 min: it kept 3 brokers in the routes "
        "(3 lost of 4) at n1, n2"
    )


def test_the_guards_periods_of_a_cluster_are_one_finding_that_names_the_longest() -> None:
    rows = [a_guard(open=True, over_limit=True, lost=None), a_guard(seconds=10.0), a_guard("d", kept=0)]
    first, second = findings(calm_report(guard_periods={"rows": rows, "in_all": 3}))

    assert first.text == (
        "the expiry guard of cluster c was on 2 times, the longest from 2026-03-05 10:00 UTC for 3 min, still on at "
        "the end of the report, beyond its limit: it kept 3 brokers in the routes at n1, n2"
    )
    assert second.text.startswith("the expiry guard of cluster d was on from")


def test_a_rolling_restart_is_named_and_is_not_an_incident() -> None:
    row = a_row(RollingRestart, cluster="c", brokers=4, unplanned=3, version_before="7.1", version_after="7.2")
    (finding,) = findings(calm_report(rolling_restarts={"rows": [row], "in_all": 1, "unplanned": 3}))

    assert finding.text == (
        "1 rolling restart, not an incident: 4 brokers of cluster c one after another from 2026-03-05 10:00 UTC, "
        "7.1 to 7.2; 3 unplanned outages counted against the brokers"
    )
    planned: dict[str, Any] = {"rows": [replace(row, unplanned=0)], "in_all": 1, "unplanned": 0}
    assert findings(calm_report(rolling_restarts=planned)) == [], "planned shutdowns one after another need nothing"


def test_a_class_of_brokers_has_the_advice_of_its_cause_only_where_all_have_one_that_is_known() -> None:
    def advice(*causes: str | None) -> str:
        brokers = [a_broker(f"b{n}", cause=cause, class_="flapping") for n, cause in enumerate(causes)]
        (finding,) = findings(calm_report(headline={"by_class": {"flapping": len(causes)}}, brokers=brokers))
        return finding.do

    general = "check its likely cause, then its log around the outages"
    assert advice("unknown") == advice(None) == advice("process_died", "network") == general
    assert advice("process_died", "process_died").startswith(f"{general}; check the broker's log and the kernel's")


def test_every_finding_has_an_action_and_links_to_a_section() -> None:
    report = calm_report(completeness={"rows": 0, "rows_missing": 1}, computed={"stale": [DAY_BEFORE]})

    assert all(finding.do and finding.see for finding in findings(report))


def test_a_clean_stop_is_a_finding_once_and_then_only_a_notice() -> None:
    stop = StoppedBefore("n1", "2026-03-02T10:00:00.000Z", reported_before=False)
    nothing: dict[str, Any] = {"rows": 0, "days_without_rows": [DAY]}
    first = calm_report(completeness=nothing | {"stopped_before": stop})
    later = calm_report(completeness=nothing | {"stopped_before": replace(stop, reported_before=True)})

    assert findings(first)[0].text.startswith("NO DATA")
    assert findings(later) == []
    assert notices(later)[0].startswith("NO DATA: the last name server (n1) was shut down at 2026-03-02 10:00 UTC")


def test_a_day_of_other_than_24_hours_is_a_notice() -> None:
    assert notices(calm_report(interval={"timezone": "Europe/Berlin", "hours": 23.0})) == [
        "daylight saving time changed: these days have 23 hours"
    ]


def test_name_servers_that_planned_stops_did_not_fall_silent() -> None:
    lives = [life("killed", HOUR), life("stopped", 2 * HOUR)]

    assert fell_silent(lives, {("n", "stopped")}, until_us=24 * HOUR) is None


def test_the_last_to_watch_fell_silent_when_it_neither_stopped_nor_was_followed() -> None:
    killed = life("killed", HOUR)
    expected = FellSilent("n", "killed", "1970-01-01T01:00:00.000Z")

    assert fell_silent([killed], set(), until_us=24 * HOUR) == expected
    assert fell_silent([killed, life("next", 24 * HOUR, is_open=True)], set(), until_us=24 * HOUR) is None
    assert fell_silent([killed], set(), until_us=None) is None, "that day is not over"
    assert fell_silent([life("past-local-midnight", 25 * HOUR)], set(), until_us=24 * HOUR) is None
