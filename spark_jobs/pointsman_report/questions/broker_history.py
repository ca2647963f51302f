"""``history``: what happened to a broker on the last days: its outages with their causes, its changes, its penalty.

The tables have it for the computed days. Of other days only the rows are known, as each name server wrote them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pointsman.history.past_route import format_time, rfc3339
from pointsman.history.row_format import Row, moment_of
from pointsman.names import printable
from pointsman_report.io.past import Past
from pointsman_report.io.warehouse import days_from
from pointsman_report.report.formatting import NO_VALUE, broker_label, counted, duration, number, percent
from pointsman_report.report.meanings import cause_name
from pointsman_report.report.table_rows import Key, key

INTERVALS = (
    *("dt", "state", "start_at", "end_at", "start_censored", "end_censored", "planned", "continues"),
    *("open", "event", "reason", "last_sign_of_life_at"),
)
DAY = timedelta(days=1)
MAX_LINES = 100
"""Limit of the events as text; JSON has all."""
DAYS = ("dt", "class", "down_count", "penalty_start", "penalty_max", "penalty_end", "cause", "cause_says")


class BrokerName(NamedTuple):
    """The replicas to show: of any cluster, and all ids, if these are None."""

    broker_name: str
    cluster: str | None = None
    broker_id: int | None = None

    def has(self, row: Row) -> bool:
        return self.broker_id in (None, row["broker_id"])


@dataclass(frozen=True, slots=True)
class Interval:
    """A time in which the broker was up or down, as in ``broker_intervals``, with the cause of an outage."""

    state: str
    start_at: datetime
    end_at: datetime | None
    """None: it lasted at the end of the last computed day."""
    planned: bool
    continues: bool
    """It continues the outage before it, over time without monitoring."""
    start_censored: bool
    """It began before it was seen."""
    end_censored: bool
    event: str | None
    reason: str | None
    last_heard_at: datetime | None
    cause: str | None = None
    evidence: str | None = None

    @property
    def is_outage(self) -> bool:
        return self.state == "down" and not self.planned


@dataclass(frozen=True, slots=True)
class Change:
    """A changed fact: address, version, incarnation, zone, host, owner or role."""

    at: datetime
    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Charge:
    """Penalty points, and the penalty after them."""

    at: datetime
    cause: str
    points: float
    penalty: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """A row of a day that is not computed."""

    at: datetime
    node: str
    event: str
    reason: str | None
    state: str | None
    planned: bool


@dataclass(slots=True)
class ReplicaHistory:
    """One replica over the days."""

    replica: Key
    intervals: list[Interval] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    days: list[Row] = field(default_factory=list)
    """Of each computed day: ``dt``, ``class``, outages, penalty, cause and availability."""
    recorded: list[Recorded] = field(default_factory=list)

    @property
    def outages(self) -> list[Interval]:
        return [one for one in self.intervals if one.is_outage]


@dataclass(frozen=True, slots=True)
class BrokerHistory:
    """The replicas of a broker name over some UTC days."""

    asked: BrokerName
    first_day: date
    last_day: date
    computed: tuple[date, ...]
    """Those of the days that a nightly run has computed."""
    replicas: tuple[ReplicaHistory, ...]

    @property
    def exit_code(self) -> int:
        """1: there was an outage, or nothing is known of the broker."""
        return 1 if not self.replicas or any(one.outages for one in self.replicas) else 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "from": self.first_day.isoformat(),
            "to": self.last_day.isoformat(),
            "computed_days": [day.isoformat() for day in self.computed],
            "replicas": [_replica_as_dict(one) for one in self.replicas],
        }

    def text(self, zone: ZoneInfo) -> str:
        span = f"{self.first_day} to {self.last_day} (UTC days)"
        if not self.replicas:
            return f"{printable(self.asked.broker_name)}: nothing is known of it from {span}. {self._extent()}"
        lines = []
        for one in self.replicas:
            lines += [*_replica_lines(one, zone, span), ""]
        return "\n".join([*lines, self._extent()])

    def _extent(self) -> str:
        if not self.computed:
            return "No nightly run has computed these days."
        missing = (self.last_day - self.first_day).days + 1 - len(self.computed)
        return f"Computed up to {self.computed[-1]}" + (f"; {counted(missing, 'day')} not." if missing else ".")


def broker_history(past: Past, asked: BrokerName, first_day: date, last_day: date) -> BrokerHistory:
    """Read the tables of the computed days, and the rows of the others."""
    read = partial(past.rows, first_day=first_day, last_day=last_day)
    where = {"broker_name": [asked.broker_name]} | ({} if asked.cluster is None else {"cluster": [asked.cluster]})
    found: dict[Key, ReplicaHistory] = {}

    def rows(table: str, *columns: str) -> Iterable[tuple[ReplicaHistory, Row]]:
        named = ("cluster", "broker_name", "broker_id", *columns)
        for row in read(table, named, where=where):
            if asked.has(row):
                yield found.setdefault(key(row), ReplicaHistory(key(row))), row

    continues = {row["dt"]: row["continues"] for row in read("computed_days", ("dt", "continues"))}
    computed = tuple(sorted(continues))
    causes = _causes(rows("outage_causes", "dt", "start_at", "cause", "evidence"))
    for one, row in rows("broker_intervals", *INTERVALS):
        # An open interval is listed once more on the next day, if that continues from this one.
        if not (row["open"] and continues.get(row["dt"] + DAY)):
            cause, evidence = causes.get((one.replica, row["start_at"]), (None, None))
            one.intervals.append(_interval(row, cause, evidence, is_last=row["dt"] == max(computed, default=None)))
    for one, row in rows("broker_changes", "changed_at", "what", "before", "after"):
        one.changes.append(Change(row["changed_at"], row["what"], row["before"], row["after"]))
    for one, row in rows("flap_charges", "charged_at", "cause", "points", "penalty"):
        one.charges.append(Charge(row["charged_at"], row["cause"], row["points"], row["penalty"]))
    shares = rows("availability", "dt", "availability", "down_seconds")
    available = {(one.replica, row["dt"]): row for one, row in shares}
    for one, row in rows("flapping", *DAYS):
        known = available.get((one.replica, row["dt"]), {})
        share = {name: known.get(name) for name in ("availability", "down_seconds")}
        one.days.append({name: row[name] for name in DAYS} | share)
    for row in _not_computed(past, asked, computed, first_day, last_day):
        one = found.setdefault(key(row), ReplicaHistory(key(row)))
        at = moment_of(row["at"])
        one.recorded.append(Recorded(at, row["node"], row["event"], row["reason"], row["state"], bool(row["planned"])))
    for one in found.values():
        one.intervals.sort(key=lambda each: each.start_at)
        one.changes.sort(key=lambda each: (each.at, each.what))
        one.charges.sort(key=lambda each: (each.at, each.penalty))
        one.days.sort(key=lambda each: each["dt"])
        one.recorded.sort(key=lambda each: (each.at, each.node, each.event))
    return BrokerHistory(asked, first_day, last_day, computed, tuple(found[name] for name in sorted(found)))


def _causes(rows: Iterable[tuple[ReplicaHistory, Row]]) -> dict[tuple[Key, datetime], tuple[str | None, str | None]]:
    """The cause and evidence of each outage: those of its last day are the most complete."""
    by_day = sorted(rows, key=lambda each: each[1]["dt"])
    return {(one.replica, row["start_at"]): (row["cause"], row["evidence"]) for one, row in by_day}


def _interval(row: Row, cause: str | None, evidence: str | None, *, is_last: bool) -> Interval:
    """``is_last``: the row is of the last computed day."""
    return Interval(
        state=row["state"],
        start_at=row["start_at"],
        end_at=None if row["open"] and is_last else row["end_at"],
        planned=bool(row["planned"]),
        continues=bool(row["continues"]),
        start_censored=row["start_censored"],
        end_censored=row["end_censored"],
        event=row["event"],
        reason=row["reason"],
        last_heard_at=row["last_sign_of_life_at"],
        cause=cause,
        evidence=evidence,
    )


def _not_computed(
    past: Past, asked: BrokerName, computed: tuple[date, ...], first_day: date, last_day: date
) -> Iterable[Row]:
    missing = [day for day in days_from(first_day, last_day) if day not in computed]
    if not missing:
        return []
    rows = past.broker_rows(asked.broker_name, cluster=asked.cluster, first_day=missing[0], last_day=last_day)
    # Rows about the broker name as a whole are not about a replica.
    of_replicas = (row for row in rows if row["broker_id"] is not None and asked.has(row))
    return [row for row in of_replicas if moment_of(row["at"]).date() in missing]


def _replica_as_dict(one: ReplicaHistory) -> dict[str, Any]:
    cluster, name, broker_id = one.replica
    return {
        "cluster": cluster,
        "broker_name": name,
        "broker_id": broker_id,
        "outages": len([each for each in one.outages if not each.continues]),
        "intervals": [
            {
                "state": each.state,
                "from": rfc3339(each.start_at),
                "to": rfc3339(each.end_at),
                "planned": each.planned,
                "continues": each.continues,
                "start_censored": each.start_censored,
                "end_censored": each.end_censored,
                "event": each.event,
                "reason": each.reason,
                "last_heard_at": rfc3339(each.last_heard_at),
                "cause": each.cause,
                "evidence": each.evidence,
            }
            for each in one.intervals
        ],
        "changes": [
            {"at": rfc3339(each.at), "what": each.what, "before": each.before, "after": each.after}
            for each in one.changes
        ],
        "charges": [
            {"at": rfc3339(each.at), "cause": each.cause, "points": each.points, "penalty": each.penalty}
            for each in one.charges
        ],
        "days": [{**each, "dt": each["dt"].isoformat()} for each in one.days],
        "not_computed_yet": [
            {
                "at": rfc3339(each.at),
                "node": each.node,
                "event": each.event,
                "reason": each.reason,
                "state": each.state,
                "planned": each.planned,
            }
            for each in one.recorded
        ],
    }


def _replica_lines(one: ReplicaHistory, zone: ZoneInfo, span: str) -> list[str]:
    outages = len([each for each in one.outages if not each.continues])
    known = [each["down_seconds"] for each in one.days if each["down_seconds"] is not None]
    down = f", {duration(sum(known))} down" if known else ""
    lines = [f"{broker_label(*one.replica)}, {span}: {counted(outages, 'outage')}{down}"]
    charged: dict[datetime, list[Charge]] = defaultdict(list)
    for charge in one.charges:
        charged[charge.at].append(charge)
    events = [
        *((each.start_at, text) for each in one.intervals if (text := _interval_text(each, charged, zone))),
        *((each.at, f"{each.what}: {each.before or NO_VALUE} to {each.after or NO_VALUE}") for each in one.changes),
    ]
    # The others were taken by the outages that they are for.
    events += [(at, f"{each.cause}; {_charge_text(each)}") for at, left in charged.items() for each in left]
    events.sort(key=lambda each: each[0])
    if len(events) > MAX_LINES:
        lines.append(f"  ({len(events) - MAX_LINES:,} earlier events are omitted here; --output json has them)")
    lines += [f"  {format_time(at, zone)}  {printable(text)}" for at, text in events[-MAX_LINES:]]
    if one.days:
        lines += ["", f"  {'day':10}  {'class':10} {'outages':>7} {'down':>11} {'available':>10} {'penalty':>8}  cause"]
        lines += [_day_line(each) for each in one.days]
    if one.recorded:
        lines += ["", "  Not computed yet, as recorded by each name server:"]
        lines += [f"  {format_time(each.at, zone)}  {printable(_recorded_text(each))}" for each in one.recorded]
    return lines


def _day_line(each: Row) -> str:
    penalty = number(each["penalty_max"])
    cause = cause_name(each["cause"]) + (f": {each['cause_says']}" if each["cause_says"] else "")
    return printable(
        f"  {each['dt']}  {each['class']:10} {each['down_count']:>7} {duration(each['down_seconds']):>11} "
        f"{percent(each['availability']):>10} {penalty:>8}  {cause}"
    ).rstrip()


def _charge_text(each: Charge) -> str:
    return f"penalty {each.penalty:,.0f} (+{each.points:g})"


def _interval_text(each: Interval, charged: dict[datetime, list[Charge]], zone: ZoneInfo) -> str:
    """The text of a down interval, which takes its charge, or of an up one that nothing was known before; empty for
    other up ones."""
    if each.state == "up":
        return "up; it was not monitored before" if each.start_censored else ""
    charge = next((one for one in charged.get(each.start_at, ()) if one.cause == each.event), None)
    if charge is not None:
        charged[each.start_at].remove(charge)
    end = "lasting" if each.end_at is None else f"until {format_time(each.end_at, zone)}"
    long = "" if each.end_at is None else f" ({duration((each.end_at - each.start_at).total_seconds())})"
    cut = ", then not monitored" if each.end_censored and each.end_at is not None else ""
    kind = "down as planned" if each.planned else "down again, the same outage" if each.continues else "down"
    why = ", ".join(filter(None, (each.event, each.reason)))
    heard = "" if each.last_heard_at is None else f"; last heartbeat {format_time(each.last_heard_at, zone)}"
    cause = "" if each.planned or not each.cause else f"; {cause_name(each.cause)}: {each.evidence or 'no evidence'}"
    points = "" if charge is None else f"; {_charge_text(charge)}"
    return f"{kind} {end}{long}{cut}: {why}{heard}{cause}{points}"


def _recorded_text(each: Recorded) -> str:
    why = ", ".join(filter(None, (each.event, each.reason)))
    return f"{each.state or NO_VALUE}{' as planned' if each.planned else ''}: {why}, by {each.node}"


def days_until(last_day: date | None, days: int) -> tuple[date, date]:
    """The first and last of a number of UTC days, up to today if no last one is given."""
    last = last_day or datetime.now(tz=UTC).date()
    return last - timedelta(days=days - 1), last
