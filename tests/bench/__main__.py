"""``make bench``: every figure, or the subjects named on the command line."""

from __future__ import annotations

import argparse

import uvloop

from tests.bench import (
    capacity,
    choices,
    failover,
    fleet,
    groups,
    heartbeats,
    idle_agent,
    queries_meanwhile,
    redis_messages,
    registrations,
    routes,
    watches,
)
from tests.bench.report import Report

SUBJECTS = {
    "routes": routes.measure,
    "heartbeats": heartbeats.measure,
    "watches": watches.measure,
    "queries_meanwhile": queries_meanwhile.measure,
    "registrations": registrations.measure,
    "capacity": capacity.measure,
    "fleet": fleet.measure,
    "groups": groups.measure,
    "idle_agent": idle_agent.measure,
    "choices": choices.measure,
    "messages_through_redis": redis_messages.measure,
    "failover": failover.measure,
}


async def main(subjects: list[str]) -> None:
    """Print the figures of these subjects."""
    report = Report()
    report.machine()
    for subject in subjects:
        await SUBJECTS[subject](report)
    report.conclude()


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)}; all by default")
    given = parser.parse_args().subjects
    for unknown in set(given) - set(SUBJECTS):
        parser.error(f"no subject {unknown!r}: choose from {', '.join(SUBJECTS)}")
    uvloop.run(main(given or list(SUBJECTS)))
