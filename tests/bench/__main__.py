"""``make bench``: the figures of the daemons and the client, or the subjects named on the command line."""

from __future__ import annotations

import argparse

import uvloop

from tests.bench import (
    access_cost,
    capacity,
    choices,
    command_starts,
    detectors,
    failover,
    fleet,
    groups,
    heartbeats,
    idle_agent,
    incidents,
    observer_load,
    pages,
    past_of_a_fleet,
    queries_under_load,
    queue_measurements,
    redis_messages,
    registrations,
    remoting,
    rocketmq_messages,
    routes,
    start_with_history,
    tls_cost,
    watched_fleet,
    watches,
)
from tests.bench.nightly import growth, large_day, past_questions, skewed, sparse, stage_sizes
from tests.bench.report import Report

SUBJECTS = {
    "routes": routes.measure,
    "heartbeats": heartbeats.measure,
    "watches": watches.measure,
    "watched_fleet": watched_fleet.measure,
    "queries_under_load": queries_under_load.measure,
    "registrations": registrations.measure,
    "capacity": capacity.measure,
    "remoting": remoting.measure,
    "observer": observer_load.measure,
    "tls_cost": tls_cost.measure,
    "access_cost": access_cost.measure,
    "fleet": fleet.measure,
    "pages": pages.measure,
    "groups": groups.measure,
    "idle_agent": idle_agent.measure,
    "queue_measurements": queue_measurements.measure,
    "choices": choices.measure,
    "commands": command_starts.measure,
    "messages_through_redis": redis_messages.measure,
    "rocketmq_messages": rocketmq_messages.measure,
    "failover": failover.measure,
    "past": past_of_a_fleet.measure,
    "past_fleet": past_of_a_fleet.measure_fleet,
    "start": start_with_history.measure,
}
OF_THE_REPORT = {
    "detectors": detectors.measure,
    "incidents": incidents.measure,
    "nightly": large_day.measure,
    "nightly_growth": growth.measure,
    "nightly_skew": skewed.measure,
    "nightly_sparse": sparse.measure,
    "nightly_stages": stage_sizes.measure,
    "nightly_stages_large": stage_sizes.measure_large,
    "questions": past_questions.measure,
}
"""Minutes each, gigabytes of disk, and Java: only when named."""

EVERY = SUBJECTS | OF_THE_REPORT
_HELP = f"of {', '.join(SUBJECTS)}; all of these by default. Of the report: {', '.join(OF_THE_REPORT)}"


async def main(subjects: list[str]) -> None:
    """Print the figures of these subjects."""
    report = Report()
    report.machine()
    for subject in subjects:
        await EVERY[subject](report)
    report.conclude()


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=_HELP)
    given = parser.parse_args().subjects
    for unknown in set(given) - set(EVERY):
        parser.error(f"no subject {unknown!r}: choose from {', '.join(EVERY)}")
    uvloop.run(main(given or list(SUBJECTS)))
