"""The history of two days that is computed in other places than on one machine's disk: a cluster, an object store."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.spark.histories import MIDNIGHT, NameServer, broker, moment, write_history

FIRST, LAST = (MIDNIGHT.date() + timedelta(days=n) for n in range(2))
QUEUES = {"orders": {"read_queues": 4, "write_queues": 4, "perm": 6}}


def write_two_days(history: Path) -> None:
    """Two days of two name servers: one broker flaps, one crashes, one is only late; some lines are bad."""
    servers = [NameServer(node=f"ns{n}:9876", boot_id=f"b{n}").start() for n in (1, 2)]
    for server in servers:
        for name in ("a", "b", "c"):
            server.say("REGISTERED", moment(10), broker(name))
            server.say("TOPICS", moment(11), broker(name), detail={"topics": QUEUES})
        for day in range(2):
            for n in range(6):
                server.outage(broker("a"), moment(1_000 + 60 * n, day=day), until=moment(1_020 + 60 * n, day=day))
            server.say("LATE_HEARTBEAT", moment(5_000, day=day), broker("c"), interval_ms=9_000)
        server.outage(broker("b"), moment(7_000, day=1), until=None)
        server.rows.sort(key=lambda row: row["event_at"])
        for number, row in enumerate(server.rows, start=1):
            row["seq"] = number
        server.stop(moment(80_000, day=1))
    write_history(history / "ns1", servers[0].rows)
    write_history(history / "ns2", servers[1].rows, packed=True)
    bad = history / "ns1" / "raw" / f"dt={LAST}" / "bad.jsonl"
    bad.write_text("{\n", encoding="utf-8")
