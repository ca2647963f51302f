"""Replay a trace of machines that really went up and down, and check the Spark job against figures computed apart.

    python -m tests.bench.replay_trace --trace DIR --work DIR [--master local[*]]

DIR holds ``intervals.csv.gz`` (node, state, start_epoch_s, stop_epoch_s; a node is grid/site/cluster/node) and
``expected.json``. The trace is written as raw history (a site is a cluster watched by one name server, its clusters are
zones, an up interval's start is a REGISTERED, a down interval's an EXPIRED), run through ``pointsman-report backfill``,
and counts, means, medians, availability and the 20 worst by outages are compared. Exit 1 if one differs, or if the long
memory of the first year ranks the machines that fail most in the half-year after it worse than the plain count of all
outages, or not better than the last week. What the penalty, the slow track and the incidents say is printed beside.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.bench.trace_figures import (
    Stretch,
    compare,
    counted_apart,
    measure,
    share_with_company,
    verdicts,
)
from tests.bench.trace_ranking import HALF_YEAR, YEAR, forecasts_held, precisions, recurrence_on


def read_trace(path: Path) -> list[Stretch]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [
            Stretch(site, zone, f"{zone}-{node}", row["state"], int(row["start_epoch_s"]), int(row["stop_epoch_s"]))
            for row in csv.DictReader(file)
            for _, site, zone, node in [row["node"].split("/")]
        ]


def history_rows(trace: Iterable[Stretch]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Give (epoch second, site, row) in the order in which each site's name server would have written them."""
    by_site: dict[str, list[Stretch]] = {}
    stretches = list(trace)
    end = max(stretch.stop for stretch in stretches)
    for stretch in stretches:
        by_site.setdefault(stretch.site, []).append(stretch)
    for site, own in by_site.items():
        # Stable: events of the same second stay in the trace's order.
        own.sort(key=lambda stretch: stretch.start)
        began = own[0].start
        events = [(began, _about_server("NAMESRV_STARTED")), (began, _about_server("NAMESRV_READY"))]
        events += [(stretch.start, _about_broker(stretch)) for stretch in own]
        events.append((end, _about_server("NAMESRV_STOPPED")))
        for seq, (at, row) in enumerate(events, start=1):
            moment = datetime.fromtimestamp(at, tz=UTC)
            stamp = {
                "schema_version": 2,
                "event_at": f"{moment:%Y-%m-%dT%H:%M:%S}.000Z",
                "uptime_ms": (at - began) * 1000,
            }
            yield at, site, stamp | {"node": f"{site}:9876", "boot_id": "trace", "seq": seq} | row


def _about_server(event: str) -> dict[str, Any]:
    return {"event": event}


def _about_broker(stretch: Stretch) -> dict[str, Any]:
    identity = {"cluster": stretch.site, "broker_name": stretch.name, "broker_id": 0, "zone": stretch.zone}
    if stretch.state == "up":
        return {"event": "REGISTERED", "state": "UP", "since_ms": 0, "planned": False} | identity
    gone = {"event": "EXPIRED", "reason": "SILENCE", "state": "GONE", "since_ms": 0, "planned": False}
    return gone | {"interval_ms": 0} | identity


def write_history(trace: Iterable[Stretch], directory: Path) -> int:
    """Write raw history, a file for each site and day; return the number of rows."""
    files: dict[Path, list[str]] = {}
    for _, site, row in history_rows(trace):
        path = directory / "raw" / f"dt={row['event_at'][:10]}" / f"{site}-trace-1.jsonl"
        files.setdefault(path, []).append(json.dumps(row))
    for path, lines in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return sum(map(len, files.values()))


def expected(folder: Path) -> dict[str, Any]:
    """The values in the trace's own file, its nodes named as brokers."""
    values: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    counts = values.get("most_down_intervals", {})
    return values | {"most_down_intervals": {_broker_of(node): count for node, count in counts.items()}}


def _broker_of(node: str) -> str:
    _, site, cluster, name = node.split("/")
    return f"{site}/{cluster}-{name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True, help="folder with intervals.csv.gz and expected.json")
    parser.add_argument("--work", type=Path, required=True, help="folder for the raw history and the warehouse")
    parser.add_argument("--master", default="local[*]")
    options = parser.parse_args()
    trace = read_trace(options.trace / "intervals.csv.gz")
    history, warehouse = options.work / "history", options.work / "warehouse"
    rows = write_history(trace, history)
    days = [
        datetime.fromtimestamp(at, tz=UTC).date() for at in (min(s.start for s in trace), max(s.stop for s in trace))
    ]
    print(f"{rows} rows of history, {days[0]} to {days[1]}", flush=True)
    command = [
        sys.executable,
        "-m",
        "pointsman_report",
        "backfill",
        "--history",
        str(history),
        "--warehouse",
        str(warehouse),
    ]
    command += ["--from", str(days[0]), "--to", str(days[1]), "--master", options.master]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    wall = time.monotonic() - began
    if done.returncode == 2:
        return 1
    apart, measured = counted_apart(trace), measure(warehouse)
    lines = compare(expected(options.trace) | apart, measured)
    print(f"{'figure':<40} {'expected':>12} {'measured':>12}")
    # Both contain the worst.
    for name, wanted, got, equal in dict.fromkeys(lines):
        print(f"{name:<40} {wanted!s:>12} {got!s:>12}{'' if equal else '  DIFFERS'}")
    print(f"\n{'began within a minute of two others':<40} {share_with_company(trace):.1%} of outages, by the trace")
    # The trace has no heartbeats: its outages are detected when they begin.
    print(f"{'median detection':<40} {measured['median_detection_seconds']} s")
    for name, text in verdicts(warehouse, apart["worst"]):
        print(f"{name:<40} {text}")
    split = days[0] + timedelta(days=YEAR)
    ranked = precisions(trace, recurrence_on(warehouse, split - timedelta(days=1)), split=split)
    print(f"\nranking of {split} for the {HALF_YEAR} days after it, average precision")
    for share, precision in ranked.items():
        print(f"{f'... the {share:.1%} that fail most ({precision.count})':<40} {precision}")
    ended, held = forecasts_held(warehouse)
    print(f"{'forecasts of 30 days that held':<40} {held / ended:.1%} of {ended}")
    print(f"\nbackfill took {wall:.0f} s")
    is_met = all(precision.is_met for precision in ranked.values())
    return 0 if all(equal for *_, equal in lines) and is_met else 1


if __name__ == "__main__":
    sys.exit(main())
