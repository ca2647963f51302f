"""A warehouse written by hand: every table that a report reads, from outages that the tests know.

What follows from the outages (intervals, seconds, charges, penalties) is worked out here in plain Python, so that the
report's numbers can be compared. The rest is made up, one of each kind.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType

from pointsman_report.io import Warehouse
from pointsman_report.parameters import Parameters
from pointsman_report.schemas import TABLES, WAREHOUSE_VERSION

Key = tuple[str, str, int]
Row = dict[str, Any]

HALF_LIFE = timedelta(hours=1)


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)


@dataclass(frozen=True)
class Outage:
    """A broker that is down from start to end."""

    broker: Key
    start: datetime
    end: datetime
    planned: bool = False
    reason: str = "SILENCE"

    def within(self, start: datetime, end: datetime) -> float:
        return max(0.0, (min(self.end, end) - max(self.start, start)).total_seconds())


@dataclass
class World:
    """Brokers that were up from the first day's midnight to the last day's but for their outages."""

    first_day: date
    last_day: date
    brokers: list[Key]
    outages: list[Outage] = field(default_factory=list)
    more: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def days(self) -> list[date]:
        return [self.first_day + timedelta(days=n) for n in range((self.last_day - self.first_day).days + 1)]

    def of(self, broker: Key) -> list[Outage]:
        return sorted((outage for outage in self.outages if outage.broker == broker), key=lambda outage: outage.start)

    def penalty(self, broker: Key, at: datetime) -> float:
        """Penalty right after the last event before that time."""
        charged = [outage.start for outage in self.of(broker) if not outage.planned and outage.start <= at]
        return float(sum(1_000 * 2 ** (-(at - start) / HALF_LIFE) for start in charged))

    def tables(self) -> dict[str, list[Row]]:
        made: dict[str, list[Row]] = {name: list(rows) for name, rows in self.more.items()}
        own: dict[Key, list[Outage]] = {broker: [] for broker in self.brokers}
        for outage in sorted(self.outages, key=lambda outage: outage.start):
            own[outage.broker].append(outage)
        for broker, outages in own.items():
            for name, rows in self._of_broker(broker, outages).items():
                made.setdefault(name, []).extend(rows)
        return made

    def _of_broker(self, broker: Key, outages: list[Outage]) -> dict[str, list[Row]]:
        broker_key = dict(zip(("cluster", "broker_name", "broker_id"), broker, strict=True))
        begin, end = midnight(self.first_day), midnight(self.last_day + timedelta(days=1))
        pieces: list[tuple[str, datetime, datetime, Outage | None]] = []
        at = begin
        for outage in outages:
            pieces += [("up", at, outage.start, None), ("down", outage.start, outage.end, outage)]
            at = outage.end
        pieces.append(("up", at, end, None))
        intervals: list[Row] = []
        charges: list[Row] = []
        penalty, charged_at = 0.0, begin
        for state, start, until, down in pieces:
            intervals += self._interval_rows(broker_key, state, start, min(until, end), down)
            if down is not None and not down.planned:
                penalty = penalty * 2 ** (-(start - charged_at) / HALF_LIFE) + 1_000
                charged_at = start
                charge = {"dt": start.date(), "charged_at": start, "cause": "EXPIRED", "points": 1_000.0}
                charges.append(broker_key | charge | {"penalty": penalty})
        scores = [broker_key | self._score(day, charges) for day in self.days]
        lives = [broker_key | self._life(day, outages) for day in self.days]
        for score, life in zip(scores, lives, strict=True):
            score["down_count"] = life["outages"]
            if score["class"] == "healthy" and life["down_seconds"]:
                score["class"] = "degraded"
        return {
            "broker_intervals": intervals,
            "flap_charges": charges,
            "flapping": scores,
            "availability": lives,
        }

    def _interval_rows(
        self, broker_key: Row, state: str, start: datetime, end: datetime, outage: Outage | None
    ) -> Iterable[Row]:
        row = broker_key | {
            "state": state,
            "start_at": start,
            "start_censored": False,
            "planned": outage is not None and outage.planned,
            "continues": False,
            "event": None if outage is None else "EXPIRED",
            "reason": None if outage is None else outage.reason,
            "last_sign_of_life_at": None if outage is None else start - timedelta(seconds=4),
            "observers": 2,
        }
        over = midnight(self.last_day + timedelta(days=1))
        last = end.date() if end < over else self.last_day
        for day in self.days:
            if day == end.date() and end < over:
                yield row | {"dt": day, "end_at": end, "end_censored": False, "open": False}
            elif start.date() <= day <= last:
                cut = midnight(day + timedelta(days=1))
                yield row | {"dt": day, "end_at": cut, "end_censored": True, "open": True}

    def _score(self, day: date, charges: list[Row]) -> Row:
        def decayed(until: datetime) -> float:
            before = [charge for charge in charges if charge["charged_at"] < until]
            if not before:
                return 0.0
            since = before[-1]
            return float(since["penalty"] * 2 ** (-(until - since["charged_at"]) / HALF_LIFE))

        own = [charge["penalty"] for charge in charges if charge["dt"] == day]
        start, end = decayed(midnight(day)), decayed(midnight(day + timedelta(days=1)))
        highest = max([start, *own])
        return {
            "dt": day,
            "class": "flapping" if highest > 3_000 else "healthy",
            "sign_count": 0,
            "charged_points": 1_000.0 * len(own),
            "penalty_start": start,
            "penalty_max": highest,
            "penalty_end": end,
            "raised": highest > 3_000,
            "flagged": end >= 1_000 and highest > 3_000,
            "flapped_days": int(highest > 3_000),
            "incident_downs": 0,
        }

    def _life(self, day: date, outages: list[Outage]) -> Row:
        start, end = midnight(day), midnight(day + timedelta(days=1))
        down = sum(outage.within(start, end) for outage in outages if not outage.planned)
        planned = sum(outage.within(start, end) for outage in outages if outage.planned)
        repaired = [(o.end - o.start).total_seconds() for o in outages if not o.planned and start <= o.end < end]
        began = sum(not outage.planned and start <= outage.start < end for outage in outages)
        touching = [
            (min(o.end, end) - o.start).total_seconds()
            for o in outages
            if not o.planned and o.start < end and o.end >= start
        ]
        up = 86_400 - down - planned
        return {
            "dt": day,
            "up_seconds": up,
            "down_seconds": down,
            "planned_seconds": planned,
            "availability": up / (up + down) if up + down else None,
            "outages": began,
            "repaired": len(repaired),
            "repair_seconds": float(sum(repaired)),
            "longest_outage_seconds": max(touching, default=None),
            "mttr_seconds": sum(repaired) / len(repaired) if repaired else None,
            "mtbf_seconds": up / began if began else None,
        }


def publish(spark: SparkSession, path: Path, tables: dict[str, list[Row]], *, first_day: date, last_day: date) -> None:
    """Write the tables as a run would."""
    warehouse = Warehouse(spark, str(path))
    with warehouse.locked():
        for name, rows in tables.items():
            schema = TABLES[name].schema
            columns = schema.fieldNames()
            unknown = {column for row in rows for column in row} - set(columns)
            assert not unknown, f"{name} has no {unknown}"
            doubles = {column.name for column in schema.fields if isinstance(column.dataType, DoubleType)}
            values = [tuple(_as(float, row.get(c)) if c in doubles else row.get(c) for c in columns) for row in rows]
            warehouse.stage(name, spark.createDataFrame(values, schema))
        warehouse.publish(first_day=first_day, last_day=last_day)


def _as(kind: type, value: Any) -> Any:
    return None if value is None else kind(value)


def rich_world(day: date, *, fleet: int = 40, seed: int = 7) -> World:
    """Three clusters of brokers; one flaps, one fails slowly, one stays down, a zone fails; topics, queues."""
    chance = random.Random(seed)
    clusters = ("orders", "payments", "telemetry")
    brokers = [(clusters[n % 3], f"broker-{n // 3:02d}", 0) for n in range(fleet)]
    world = World(day - timedelta(days=1), day + timedelta(days=1), brokers)
    start = midnight(day)
    flapping, slow, away = brokers[0], brokers[4], brokers[8]
    for n in range(9):
        at = start + timedelta(hours=2, minutes=11 * n, seconds=chance.uniform(0, 60))
        world.outages.append(Outage(flapping, at, at + timedelta(seconds=chance.uniform(20, 240))))
    for hours in (-20, -3, 7, 30):
        at = start + timedelta(hours=hours)
        world.outages.append(Outage(slow, at, at + timedelta(seconds=chance.expovariate(1 / 900))))
    world.outages.append(Outage(away, start + timedelta(hours=22, minutes=30), start + timedelta(hours=29)))
    world.outages.append(Outage(brokers[5], start + timedelta(hours=4), start + timedelta(hours=5), planned=True))
    struck = [broker for broker in brokers if broker[0] == "payments"][-8:]
    at = start + timedelta(hours=15, minutes=12)
    members = []
    for n, broker in enumerate(struck):
        began = at + timedelta(seconds=3 * n)
        members.append((broker[1], broker[2], began))
        world.outages.append(
            Outage(broker, began, began + timedelta(minutes=chance.uniform(6, 25)), reason="STREAM_BROKEN")
        )
    for broker in brokers[10:20]:
        if not any(outage.broker == broker for outage in world.outages):
            at_any = start + timedelta(seconds=chance.uniform(0, 80_000))
            world.outages.append(Outage(broker, at_any, at_any + timedelta(seconds=chance.lognormvariate(3.5, 1.3))))
    world.more = _more(world, day, members, chance)
    return world


def _more(world: World, day: date, members: list[Any], chance: random.Random) -> dict[str, list[Row]]:
    start = midnight(day)
    hole = (812, 818, start + timedelta(hours=1), start + timedelta(hours=1, seconds=40))
    began = members[0][2] if members else start
    flapping, slow = world.brokers[0], world.brokers[4]
    month = [day - timedelta(days=n) for n in range(30)]
    rows = {"dt": day}
    return {
        "incidents": [
            rows
            | {
                "incident_id": "i1",
                "cluster": "payments",
                "scope": "zone",
                "scope_name": "eu-1b",
                "from_at": began,
                "to_at": members[-1][2] if members else start,
                "back_at": began + timedelta(minutes=25),
                "brokers": len(members),
                "known_brokers": 9,
                "members": members,
                "down_seconds": 7_300.0,
                "cause": "network",
                "evidence": "8 of 8 outages: stream broken, no failed probe, same process afterwards",
            },
            rows
            | {
                "incident_id": "i2",
                "cluster": "telemetry",
                "scope": "host",
                "scope_name": "rack-7-host-2",
                "from_at": start + timedelta(hours=5),
                "to_at": start + timedelta(hours=5, seconds=8),
                "brokers": 3,
                "known_brokers": 3,
                "members": [("broker-03", 0, start + timedelta(hours=5))],
                "down_seconds": 700.0,
                "cause": "unknown",
            },
        ],
        "rolling_restarts": [
            rows
            | {"rolling_restart_id": "r1", "cluster": "orders", "brokers": 4, "unplanned": 3, "down_seconds": 95.0}
            | {"from_at": start + timedelta(hours=4), "to_at": start + timedelta(hours=4, minutes=6)}
            | {"back_at": start + timedelta(hours=4, minutes=7), "version_before": "2.3.0", "version_after": "2.4.0"}
            | {"members": [(start + timedelta(hours=4), start + timedelta(hours=4, minutes=1), "broker-02", 0, False)]}
        ],
        "guard_periods": [
            rows
            | {"node": f"ns{n}:9876", "boot_id": f"{n}f3a", "cluster": "payments", "open": False, "mode": "AUTO"}
            | {"from_at": began + timedelta(seconds=n), "to_at": began + timedelta(seconds=60 + n), "lost": 7 + n}
            | {"baseline": 13, "up": 5, "kept": n, "over_limit": False}
            for n in (1, 2)
        ],
        "outage_causes": [
            {"dt": outage.start.date(), "start_at": outage.start, "open": False, "planned": outage.planned}
            | _named(outage.broker)
            | {"cause": "network" if outage.reason == "STREAM_BROKEN" else "unknown", "evidence": "stream broken"}
            for outage in world.outages
        ],
        "blast_radius": [
            rows
            | {
                "incident_id": "i1",
                "topics_hit": 31,
                "topics_unwritable": 4,
                "unwritable_seconds": 3_700.0,
                "topics": ["payments.settled", "payments.refused", "ledger<b>", "audit"],
            }
        ],
        "topics_at_risk": [
            rows
            | {
                "cluster": "payments",
                "topic": f"payments.{name}",
                "brokers": brokers,
                "one_broker_seconds": alone,
                "no_master_seconds": no_master,
                "unwritable_seconds": cut,
                "first_at": began,
                "worst": worst,
            }
            for name, brokers, alone, no_master, cut, worst in (
                ("settled", 2, 900.0, 0.0, 925.0, "unwritable"),
                ("refused", 2, 400.0, 300.0, 740.0, "unwritable"),
                ("audit", 1, 0.0, 610.0, 610.0, "no_master"),
                ("ledger<b>", 3, 1_500.0, 0.0, 0.0, "one_broker"),
            )
        ],
        "topic_churn": [
            rows
            | {"cluster": "orders", "topic": "orders.new", "brokers": 4, "created": 0, "removed": 0}
            | {"queue_changes": 8, "perm_changes": 2}
        ],
        "flap_ranking": [
            rows | _named(flapping) | _ranking(9, 1, ratio=21.5, outlier=True),
            rows | _named(slow) | _ranking(6, 1, ratio=8.2, outlier=True),
        ],
        "heartbeat_punctuality": [
            rows | _named(broker) | _beats(n, chance) for n, broker in enumerate(world.brokers[:200])
        ],
        "heartbeat_histogram": [
            rows | {"cluster": cluster, "up_to_ms": edge, "beats": beats}
            for cluster in ("orders", "payments")
            for edge, beats in ((1_000, 310), (1_500, 120_400), (2_000, 8_100), (3_000, 420), (6_000, 37), (None, 3))
        ],
        "topic_load": [
            rows
            | {"cluster": "orders", "topic": "orders.new", "brokers": 4, "queues": 32, "idle_queues": 3}
            | {"put_rate": 412.5, "highest_put_rate": 96.1, "skew": 7.5}
        ],
        "group_lag": [
            rows
            | {"cluster": "orders", "consumer_group": "billing", "topic": "orders.new", "queues": 32, "members": 4}
            | {"lag_first": 12, "lag_last": 48_210, "lag_max": 51_000, "highest_lag": 40_112}
        ],
        "hot_queues": [
            rows
            | {"cluster": "orders", "kind": "falling_behind", "topic": "orders.new", "consumer_group": "billing"}
            | {"value": 48_210.0, "limit": 1_000.0, "says": "48,210 messages behind and growing"}
            | {"cure": "add members: 4 read 32 queues"},
            rows
            | {"cluster": "orders", "kind": "key_skew", "topic": "orders.new", "broker_name": "broker-01"}
            | {"queue_id": 3, "value": 7.5, "limit": 3.0, "says": "filled 7.5 times as fast as the mean"}
            | {"cure": "choose a key with more values, or add it a salt"},
        ],
        "cluster_health": [
            _cluster_day(other, cluster, chance) for other in month for cluster in ("orders", "payments", "telemetry")
        ],
        "namesrv_days": [
            rows
            | {
                "node": f"ns{n}:9876",
                "lives": 1 + int(n == 2),
                "starts": int(n == 2),
                "stops": 0,
                "vanished": int(n == 2),
            }
            | {"watched_seconds": 86_400.0 - 400 * (n == 2), "warm_up_seconds_max": 31.5, "pauses": n}
            | {"paused_seconds": 4.2 * n, "guard_activations": int(n == 1), "guard_seconds": 61.0 * (n == 1)}
            | {"rejected": 0, "rows": 81_233, "rows_missing": 7 * (n == 3), "rows_dropped": 0}
            for n in (1, 2, 3)
        ],
        "observer_windows": [
            rows
            | {"node": f"ns{n}:9876", "boot_id": f"{n}f3a", "from_at": start, "to_at": start + timedelta(days=1)}
            | {"open": True, "rows": 81_233, "rows_missing": 7 * (n == 3), "gaps": [hole] if n == 3 else []}
            for n in (1, 2, 3)
        ],
        "observer_clocks": [
            rows | {"node": f"ns{n}:9876", "offset_seconds": offset, "samples": 812, "stepped_seconds": 0.01}
            for n, offset in ((1, 0.02), (2, -0.1), (3, 7.4))
        ],
        "partial_views": [
            rows
            | _named(world.brokers[2])
            | {"from_at": start + timedelta(hours=9), "to_at": start + timedelta(hours=9, minutes=4), "open": False}
            | {"seen_up_by": ["ns1:9876", "ns2:9876"], "seen_down_by": ["ns3:9876"]}
        ],
        "broker_changes": [
            rows
            | _named(broker)
            | {
                "changed_at": start + timedelta(hours=4, minutes=n),
                "what": "version",
                "before": "2.3.0",
                "after": "2.4.0",
            }
            for n, broker in enumerate(world.brokers[5:9])
        ]
        + [
            rows
            | _named(world.brokers[1])
            | {
                "changed_at": start + timedelta(hours=1),
                "what": "address",
                "before": "10.0.0.4:6379",
                "after": "10.0.0.9:6379",
            }
        ],
        "registration_events": [
            {
                "dt": other,
                "event_at": midnight(other) + timedelta(hours=n),
                "event": "NAMESRV_ALIVE",
                "node": "ns1:9876",
            }
            | {"boot_id": "1f3a", "seq": 24 * i + n + 1, "schema_version": 2}
            for i, other in enumerate(world.days)
            for n in range(24)
        ],
        "quarantine": [rows | {"file": "/h/raw/dt=x/a.jsonl", "reason": "torn or not JSON", "line": "{"}],
        "computed_days": [
            {
                "dt": other,
                "rows": 24,
                "warehouse_version": WAREHOUSE_VERSION,
                "code_version": "0.6.0",
                "continues": True,
            }
            | {"parameters": json.dumps(Parameters().as_dict())}
            for other in world.days
        ],
    }


def _named(broker: Key) -> Row:
    return dict(zip(("cluster", "broker_name", "broker_id"), broker, strict=True))


def _ranking(outages: int, rank: int, *, ratio: float, outlier: bool) -> Row:
    rates = {"rate_per_day": outages / 7, "cluster_rate_per_day": outages / 7 / ratio}
    return (
        {"days": 7, "watched_days": 7.0, "outages": outages, "ratio": ratio, "p_value": 1e-6}
        | rates
        | {
            "outlier": outlier,
            "rank": rank,
        }
    )


def _beats(n: int, chance: random.Random) -> Row:
    typical = 1_000.0 + chance.uniform(0, 30)
    return {
        "beats": 86_000 - n,
        "heartbeat_interval_ms": 1_000,
        "min_ms": 900.0,
        "p50_ms": typical,
        "p95_ms": typical * 1.2,
        "p99_ms": typical * (4.0 if n == 3 else 1.5),
        "max_ms": typical * 9,
        "late": 3 * (n == 3),
        "clock_ahead_ms": {3: 61_000.0, 5: -7_500.0, 6: 5_000.0, 7: None}.get(n, -1.2),
    }


def _cluster_day(day: date, cluster: str, chance: random.Random) -> Row:
    down = chance.expovariate(1 / 900) * (3 if cluster == "payments" else 1)
    up = 13 * 86_400.0 - down
    spent = 2_000.0 if cluster == "payments" else -20_000.0
    return {
        "dt": day,
        "cluster": cluster,
        "brokers": 13,
        "up_seconds": up,
        "down_seconds": down,
        "planned_seconds": 0.0,
        "availability": up / (up + down),
        "outages": int(down // 200),
        "slo": 0.999,
        "slo_days": 30,
        "slo_up_seconds": up * 30,
        "slo_down_seconds": down * 30,
        "budget_seconds": 33_696.0,
        "budget_left_seconds": -spent,
    }
