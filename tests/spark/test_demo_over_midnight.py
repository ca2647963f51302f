"""What ``make demo`` does when midnight UTC passes while it runs: one report of two days, judged by its verdict."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from deploy.demo.verdict import Deeds, Instance, faults
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
            if what == "down":
                server.say("PROBE_FAILED", when, about, reason="PROBE")
            elif what == "back":
                server.say("RECOVERED", when, about, reason="PROBE")
            else:
                server.say("REGISTERED", when, about)
        server.stop(moment(20, day=2))


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_demo_over_midnight_is_judged_right(again: Again) -> None:
    deeds = Deeds(flapping=FLAPPING)
    for instance, kills in KILLS.items():
        for at in kills:
            deeds.note(instance, moment(at, day=2))
    brokers = [one for one in again.numbers["brokers"] if one["cluster"] == is_a_demo_over_midnight.__name__]

    assert again.code == 1
    assert list(faults({"brokers": brokers}, deeds, everybody=set(KILLS))) == []
