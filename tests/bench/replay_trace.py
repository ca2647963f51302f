"""Replay a trace of machines that really went up and down, and check the Spark job against figures computed apart.

    python tests/bench/replay_trace.py --trace DIR --work DIR [--master local[*]]

DIR holds ``intervals.csv.gz`` (node, state, start_epoch_s, stop_epoch_s; a node is grid/site/cluster/node) and
``expected.json``. The trace is written as raw history (a site is a cluster watched by one name server, an up interval's
start is a REGISTERED, a down interval's an EXPIRED), run through ``pointsman-report backfill``, and the counts, means,
medians and availability of ``broker_intervals`` are compared. Exit 1 if one differs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql.functions import col, lit, unix_micros
from pyspark.sql.functions import max as newest

from spark_jobs.session import spark_session


@dataclass(frozen=True, slots=True)
class Stretch:
    """One interval of the trace."""

    site: str
    name: str
    state: str
    start: int
    stop: int


def read_trace(path: Path) -> list[Stretch]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [
            Stretch(site, f"{cluster}-{node}", row["state"], int(row["start_epoch_s"]), int(row["stop_epoch_s"]))
            for row in csv.DictReader(file)
            for _, site, cluster, node in [row["node"].split("/")]
        ]


def history_rows(trace: Iterable[Stretch]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Give (epoch second, site, row) in the order in which each site's name server would have written them."""
    by_site: dict[str, list[Stretch]] = {}
    stretches = list(trace)
    end = max(stretch.stop for stretch in stretches)
    for stretch in stretches:
        by_site.setdefault(stretch.site, []).append(stretch)
    for site, own in by_site.items():
        # Stable: what the trace says first of two things in one second stays first.
        own.sort(key=lambda stretch: stretch.start)
        began = own[0].start
        told = [(began, _about_server("NAMESRV_STARTED")), (began, _about_server("NAMESRV_READY"))]
        told += [(stretch.start, _about_broker(stretch)) for stretch in own]
        told.append((end, _about_server("NAMESRV_STOPPED")))
        for seq, (at, row) in enumerate(told, start=1):
            moment = datetime.fromtimestamp(at, tz=UTC)
            stamp = {
                "schema_version": 1,
                "event_at": f"{moment:%Y-%m-%dT%H:%M:%S}.000Z",
                "uptime_ms": (at - began) * 1000,
            }
            yield at, site, stamp | {"node": f"{site}:9876", "boot_id": "trace", "seq": seq} | row


def _about_server(event: str) -> dict[str, Any]:
    return {"event": event}


def _about_broker(stretch: Stretch) -> dict[str, Any]:
    identity = {"cluster": stretch.site, "broker_name": stretch.name, "broker_id": 0}
    if stretch.state == "up":
        return {"event": "REGISTERED"} | identity
    return {"event": "EXPIRED", "reason": "SILENCE", "interval_ms": 0} | identity


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


def measure(warehouse: Path) -> dict[str, Any]:
    """Compute the trace's figures from the ``broker_intervals`` table: all closed rows and the last day's open ones."""
    with spark_session("local[*]", name="replay_trace") as spark:
        table = spark.read.parquet(str(warehouse / "broker_intervals"))
        last_day = table.agg(newest("dt")).collect()[0][0]
        whole = table.filter(~col("open") | (col("dt") == lit(last_day)))
        seconds = (unix_micros("end_at") - unix_micros("start_at")) / 1e6
        rows = whole.select("cluster", "broker_name", "state", seconds.alias("seconds")).collect()
    lengths: dict[str, list[float]] = {"up": [], "down": []}
    downs: Counter[str] = Counter()
    for row in rows:
        lengths[row.state].append(row.seconds)
        downs[f"{row.cluster}/{row.broker_name}"] += row.state == "down"
    up, down = lengths["up"], lengths["down"]
    return {
        "nodes": len(downs),
        "rows": len(rows),
        "down_intervals": len(down),
        "up_intervals": len(up),
        "mean_down_hours": statistics.fmean(down) / 3600,
        "median_down_hours": statistics.median(down) / 3600,
        "mean_up_hours": statistics.fmean(up) / 3600,
        "median_up_hours": statistics.median(up) / 3600,
        "availability": sum(up) / (sum(up) + sum(down)),
        "most_down_intervals": dict(downs.most_common(10)),
    }


def compare(expected: dict[str, Any], measured: dict[str, Any]) -> list[tuple[str, object, object, bool]]:
    """Pair each expected figure with the measured one: counts exactly, the rest to the digits given."""
    lines: list[tuple[str, object, object, bool]] = []
    for name, wanted in expected.items():
        got = measured[name]
        if isinstance(wanted, dict):
            named = {_broker_of(node): count for node, count in wanted.items()}
            lines += [(broker, count, got.get(broker), got.get(broker) == count) for broker, count in named.items()]
        elif isinstance(wanted, float):
            digits = len(str(wanted).partition(".")[2])
            lines.append((name, wanted, round(got, digits), round(got, digits) == wanted))
        else:
            lines.append((name, wanted, got, got == wanted))
    return lines


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
    command = [sys.executable, "-m", "spark_jobs", "backfill", "--history", str(history), "--warehouse", str(warehouse)]
    command += ["--from", str(days[0]), "--to", str(days[1]), "--master", options.master]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    wall = time.monotonic() - began
    if done.returncode == 2:
        return 1
    lines = compare(json.loads((options.trace / "expected.json").read_text(encoding="utf-8")), measure(warehouse))
    print(f"{'figure':<24} {'expected':>12} {'measured':>12}")
    for name, wanted, got, equal in lines:
        print(f"{name:<24} {wanted!s:>12} {got!s:>12}{'' if equal else '  DIFFERS'}")
    print(f"backfill took {wall:.0f} s")
    return 0 if all(equal for *_, equal in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
