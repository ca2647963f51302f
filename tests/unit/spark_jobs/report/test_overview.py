"""The three sentences at the top: what was hit, how reliable the brokers were, what they are based on."""

from __future__ import annotations

from pointsman_report.report.overview import overview
from tests.kit.report.contents import a_broker, a_cluster, calm_report


def test_a_calm_day_has_three_sentences() -> None:
    assert overview(calm_report()) == [
        "No topic was without a writable queue, and there was no incident",
        "1 broker was 100 % available, every cluster above its objective: 0 outages, 0 flapping",
        "9 history rows from 0 name server runs; monitoring coverage 100 %",
    ]


def test_impact_names_topics_incidents_and_the_owners_with_the_most_downtime() -> None:
    owners = [a_broker(owner=owner, down_seconds=60.0 * n) for n, owner in enumerate("abcd", 1)]
    report = calm_report(
        topics_at_risk={"unwritable": 4, "unwritable_seconds": 1_920.0},
        incidents={"in_all": 1, "outages": 30},
        brokers=[*owners, a_broker(down_seconds=600.0)],
    )

    assert overview(report)[0] == (
        "4 topics had no writable queue, for 32 min (sum over the topics), and 1 incident took down 30 brokers; most "
        "broker downtime: d (4 min), c (3 min), b (2 min) and 1 more"
    )


def test_clusters_below_their_objective_are_named() -> None:
    clusters = [a_cluster("good"), a_cluster("bad\x1b", availability=0.99), a_cluster("none", slo=None)]

    assert (
        ", bad\N{REPLACEMENT CHARACTER} below the objective: "
        in overview(calm_report(headline={"clusters": clusters}))[1]
    )


def test_less_than_an_hour_has_neither_objectives_nor_a_third_decimal() -> None:
    report = calm_report(
        headline={"availability": 0.89069, "clusters": [a_cluster(availability=0.89069)]},
        coverage={"seconds": 36.0, "is_short": True},
    )

    assert overview(report)[1] == "1 broker was 89.0 % available: 0 outages, 0 flapping"


def test_without_data_nothing_is_counted() -> None:
    assert overview(calm_report(headline={"no_data": True})) == ["NO DATA on 2026-03-05 (UTC)"]
