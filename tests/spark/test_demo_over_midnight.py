"""``make demo`` over midnight UTC: one report of two days, checked by its verdict."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from deploy.demo.verdict import PROCESS_DIED, Deeds, Instance, faults
from tests.spark.histories import NameServer, Row, moment
from tests.spark.nights import Again
from tests.spark.storybook import story

FLAPPING, ONCE, QUIET = ("broker-c", 0), ("broker-b", 0), ("broker-a", 1)
NOTICED_AFTER = timedelta(seconds=0.7)
KILLS: dict[Instance, tuple[float, ...]] = {FLAPPING: (-8, -4, -0.2, 4, 8), ONCE: (-12,), QUIET: ()}
"""Seconds before and after midnight; the third outage of the flapping one begins on the first day and spans it."""


@story
def is_a_demo_over_midnight(one: NameServer, two: NameServer, b: Row) -> None:
    """The midnight is that between the two days that are reported on together."""
    for number, server in enumerate((one, two)):
        noticed = NOTICED_AFTER + timedelta(milliseconds=100 * number)
        stories: list[tuple[datetime, Instance, str]] = [(moment(-25, day=2), who, "up") for who in KILLS]
        for instance, kills in KILLS.items():
            stories += [(moment(at, day=2) + noticed, instance, "down") for at in kills]
            stories += [(moment(at, day=2) + noticed + timedelta(seconds=2), instance, "back") for at in kills]
        for when, (name, broker_id), what in sorted(stories):
            about = b | {"broker_name": name, "broker_id": broker_id}
            process = sum(when > moment(at, day=2) + NOTICED_AFTER * 2 for at in KILLS[name, broker_id])
            about |= {"incarnation": f"i{process}"}
            if what == "down":
                server.say("PROBE_FAILED", when, about, reason="REFUSED", detail={"probe": "Connection refused."})
            elif what == "back":
                server.say("REREGISTERED", when, about)
            else:
                server.say("REGISTERED", when, about)
        server.stop(moment(20, day=2))


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_demo_over_midnight_gets_the_right_verdict(again: Again) -> None:
    deeds = Deeds(flapping=FLAPPING)
    for instance, kills in KILLS.items():
        for at in kills:
            deeds.note(instance, moment(at, day=2), cause=PROCESS_DIED)
    brokers = [one for one in again.numbers["brokers"] if one["cluster"] == is_a_demo_over_midnight.__name__]

    assert again.code == 1
    found = {"brokers": brokers} | {
        section: {"rows": [row for row in again.numbers[section]["rows"] if row["cluster"] == brokers[0]["cluster"]]}
        for section in ("incidents", "rolling_restarts")
    }
    assert list(faults(found, deeds, expected=set(KILLS))) == []
