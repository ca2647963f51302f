"""What ``make demo`` does when midnight UTC passes while it runs: one report of two days, judged by its verdict."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from deploy.demo.verdict import Deeds, Instance, faults
from spark_jobs.cli import main
from tests.spark.histories import NameServer, broker, moment, write_history

FLAPPING, ONCE, QUIET = ("broker-c", 0), ("broker-b", 0), ("broker-a", 1)
NOTICED_AFTER = timedelta(seconds=0.7)
KILLS: dict[Instance, tuple[float, ...]] = {FLAPPING: (-8, -4, -0.2, 4, 8), ONCE: (-12,), QUIET: ()}
"""Seconds before and after midnight; the third outage of the flapping one begins on the first day and spans it."""


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(600)
def test_a_demo_over_midnight_is_judged_right(tmp_path: Path) -> None:
    deeds = Deeds(flapping=FLAPPING)
    servers = [NameServer(node=f"host:{n}", boot_id=f"b{n}", began_at=moment(-30)).start() for n in (1, 2)]
    for instance, kills in KILLS.items():
        for at in kills:
            deeds.note(instance, moment(at))
    for number, server in enumerate(servers):
        noticed = NOTICED_AFTER + timedelta(milliseconds=100 * number)
        stories: list[tuple[datetime, Instance, str]] = [(moment(-25), who, "up") for who in KILLS]
        for instance, kills in KILLS.items():
            stories += [(moment(at) + noticed, instance, "down") for at in kills]
            stories += [(moment(at) + noticed + timedelta(seconds=2), instance, "back") for at in kills]
        for when, (name, broker_id), what in sorted(stories):
            about = broker(name, cluster="demo", broker_id=broker_id)
            if what == "down":
                server.say("PROBE_FAILED", when, about, reason="PROBE")
            elif what == "back":
                server.say("RECOVERED", when, about, reason="PROBE")
            else:
                server.say("REGISTERED", when, about)
        server.stop(moment(20))
    write_history(tmp_path / "history", servers[0].rows + servers[1].rows)
    first, last = moment(-30).date(), moment(20).date()

    folders = [f"--{name}={tmp_path / name}" for name in ("history", "warehouse", "report")]
    code = main(["backfill", f"--from={first}", f"--to={last}", *folders])

    assert code == 1
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert list(faults(report, deeds, everybody=set(KILLS))) == []
