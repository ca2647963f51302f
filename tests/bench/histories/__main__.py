"""``python -m tests.bench.histories``: write the history of a fleet that never was."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path

from tests.bench.histories import FaultRates, Fleet, write


def parser() -> argparse.ArgumentParser:
    fleet = Fleet()
    found = argparse.ArgumentParser(
        prog="python -m tests.bench.histories",
        description="Write the raw history of a seeded fleet with labelled faults, a directory for each name server.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    found.add_argument("--to", type=Path, required=True, metavar="DIR", help="an empty or new folder")
    found.add_argument("--brokers", type=int, default=fleet.brokers, help="replicas, two of each broker name")
    found.add_argument("--clusters", type=int, default=fleet.clusters, help="clusters")
    found.add_argument("--zones", type=int, default=fleet.zones, help="zones of each cluster")
    found.add_argument("--nodes", type=int, default=fleet.nodes, help="name servers")
    found.add_argument("--days", type=int, default=fleet.days, help="UTC days")
    found.add_argument(
        "--first-day", type=date.fromisoformat, default=fleet.first_day, metavar="YYYY-MM-DD", help="day"
    )
    found.add_argument("--seed", type=int, default=fleet.seed, help="the same seed gives the same bytes")
    found.add_argument("--processes", type=int, default=1, help="nodes that are written at the same time")
    found.add_argument("--flapping", type=float, default=fleet.flapping_share, help="share of brokers that flap")
    found.add_argument("--every-minute", type=int, default=0, help="additional brokers that restart every minute")
    found.add_argument("--topics", type=int, default=fleet.topics_a_broker, help="topics of each broker")
    found.add_argument("--no-heartbeats", action="store_true", help="leave out HEARTBEATS, nine in ten of all rows")
    found.add_argument("--queue-stats", action="store_true", help="write QUEUE_STATS as well")
    return found


def main() -> int:
    options = parser().parse_args()
    fleet = Fleet(
        brokers=options.brokers,
        clusters=options.clusters,
        zones=options.zones,
        nodes=options.nodes,
        days=options.days,
        first_day=options.first_day,
        seed=options.seed,
        flapping_share=options.flapping,
        heartbeats=not options.no_heartbeats,
        queue_stats=options.queue_stats,
        topics_a_broker=options.topics,
        faults=FaultRates(flapping_every_minute=options.every_minute),
    )
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"  [{time.monotonic() - began:4.0f} s] {text}", file=sys.stderr, flush=True)

    written = write(fleet, options.to, processes=options.processes, say=say)
    wall = time.monotonic() - began
    print(
        f"{written.rows} rows, {written.bytes / 1e6:.0f} MB before packing, in {wall:.1f} s: "
        f"{written.rows / wall:.0f} rows a second"
    )
    faults = Counter((label.label, label.fault) for label in written.labels)
    for kind, number in sorted(Counter(kind for kind, _ in faults).items()):
        print(f"{number:6} x {kind}")
    print("".join(f"--history {history} " for history in written.histories).rstrip())
    print(f"labels: {written.labels_file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
