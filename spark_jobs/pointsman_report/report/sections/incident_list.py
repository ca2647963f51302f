"""Events of several brokers that began in the span: incidents with affected topics, rolling restarts, and periods of
expiry guards.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman.names import printable
from pointsman_report.io import Warehouse
from pointsman_report.parameters import IncidentParameters
from pointsman_report.report.drawing import CURVE_COLOURS, FAINT, HALF_INCHES, SOFT, figure, in_days, svg, time_axis
from pointsman_report.report.formatting import counted
from pointsman_report.report.formatting import micros as micros_of
from pointsman_report.report.section import Section, first, section
from pointsman_report.report.sections.worst_brokers import Broker
from pointsman_report.report.shell_commands import explain_command, history_command
from pointsman_report.report.span import Interval, Span
from pointsman_report.report.table_rows import Listing, collect, micros, typed, worst
from pointsman_report.schemas import OBSERVER
from pointsman_report.transforms.utc_days import seconds

MAX_INCIDENTS = 200
MAX_DRAWN = 2_000
MAX_MEMBERS = 20
MAX_PERIODS = 100
MAX_UNFOLDED = 3

_BLAST = ("topics_hit", "topics_unwritable", "unwritable_seconds", "topics")
_COLOURS = {"zone": CURVE_COLOURS[1], "host": CURVE_COLOURS[2], "cluster": CURVE_COLOURS[3]}


@dataclass(frozen=True, slots=True)
class Member:
    """A broker in an event; its cluster is the event's."""

    broker_name: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class Incident:
    """A row of ``incidents`` with its row of ``blast_radius``, and the first of its members."""

    incident_id: str
    cluster: str
    scope: str | None
    scope_name: str | None
    brokers: int
    known_brokers: int | None
    down_seconds: float | None
    cause: str | None
    evidence: str | None
    topics_hit: int | None
    topics_unwritable: int | None
    unwritable_seconds: float | None
    topics: list[str] | None
    last_heard_at: str | None
    from_at: str
    to_at: str | None
    back_at: str | None
    members: list[Member]
    members_left_out: int

    @property
    def shared(self) -> str:
        """What its brokers share: a host, a zone or the cluster."""
        return f"{self.scope or 'cluster'} {printable(str(self.scope_name or self.cluster))}"

    @property
    def silent_seconds(self) -> float | None:
        """How long its first broker was silent when it left the routes: the detection took at most that long.

        None if its last heartbeat is unknown, or later by another name server's clock.
        """
        silent = _seconds_between(self.last_heard_at, self.from_at)
        return None if silent is None or silent < 0 else silent

    @property
    def seconds(self) -> float | None:
        """From the first outage to the last recovery; None until then."""
        return _seconds_between(self.from_at, self.back_at)


def _seconds_between(start: str | None, end: str | None) -> float | None:
    return None if start is None or end is None else (micros_of(end) - micros_of(start)) / 1e6


@dataclass(frozen=True, slots=True)
class IncidentPoint:
    """An incident in the plot."""

    from_at: str
    brokers: int
    scope: str | None


@dataclass(frozen=True, slots=True)
class Incidents(Listing[Incident]):
    """The largest first. ``outages``: number of brokers down in incidents."""

    outages: int = 0
    drawn: list[IncidentPoint] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """A row of ``rolling_restarts``, with the first of its members in order of time."""

    rolling_restart_id: str
    cluster: str
    brokers: int
    unplanned: int
    version_before: str | None
    version_after: str | None
    down_seconds: float | None
    from_at: str
    to_at: str | None
    back_at: str | None
    members: list[Member]


@dataclass(frozen=True, slots=True)
class RollingRestarts(Listing[RollingRestart]):
    """The largest first. ``unplanned``: total number of outages that count against their brokers."""

    unplanned: int = 0


@dataclass(frozen=True, slots=True)
class GuardPeriod:
    """A period in which the guard of a cluster was on at one or more name servers, cut to the span."""

    cluster: str
    from_at: str
    to_at: str
    open: bool
    nodes: list[str]
    modes: list[str]
    lost: int | None
    baseline: int | None
    kept: int
    up: int | None
    over_limit: bool
    seconds: float


def incidents(warehouse: Warehouse, span: Span) -> Incidents:
    """Read the incidents that began in the span."""
    rows = span.touched(warehouse, "incidents").filter(span.holds("from_at"))
    blast = span.touched(warehouse, "blast_radius").select("dt", "incident_id", *_BLAST)
    known = rows.join(blast, on=["dt", "incident_id"], how="left").select(
        "incident_id",
        *("cluster", "scope", "scope_name", "brokers", "known_brokers", "down_seconds", "cause", "evidence", *_BLAST),
        *micros("last_heard_at", "from_at", "to_at", "back_at"),
        _first_members(),
    )
    few = worst(_incident, known, MAX_INCIDENTS, F.col("brokers").desc(), "from_at", "incident_id")
    if few.left_out:
        (summed,) = collect(rows.agg(F.sum("brokers").alias("outages")))
        outages, drawn = summed["outages"], _drawn(rows)
    else:
        outages = sum(incident.brokers for incident in few.rows)
        drawn = [IncidentPoint(incident.from_at, incident.brokers, incident.scope) for incident in few.rows]
    return Incidents(few.rows, few.in_all, few.left_out, outages, drawn)


def _incident(brokers: int, members: list[dict[str, Any]], **columns: Any) -> Incident:  # noqa: ANN401 - of a row
    return Incident(
        brokers=brokers,
        members=[Member(**member) for member in members],
        members_left_out=max(0, brokers - len(members)),
        **columns,
    )


def _first_members() -> Column:
    return F.transform(
        F.slice("members", 1, MAX_MEMBERS),
        lambda member: F.struct(member["broker_name"].alias("broker_name"), member["broker_id"].alias("broker_id")),
    ).alias("members")


def _drawn(rows: DataFrame) -> list[IncidentPoint]:
    points = rows.orderBy(F.col("brokers").desc(), "from_at", "incident_id").limit(MAX_DRAWN)
    return typed(IncidentPoint, points.select(*micros("from_at"), "brokers", "scope"))


def rolling_restarts(warehouse: Warehouse, span: Span) -> RollingRestarts:
    """Read the rolling restarts that began in the span."""
    rows = span.touched(warehouse, "rolling_restarts").filter(span.holds("from_at"))
    known = rows.select(
        *("rolling_restart_id", "cluster", "brokers", "unplanned", "version_before", "version_after", "down_seconds"),
        *micros("from_at", "to_at", "back_at"),
        _first_members(),
    )
    few = worst(_rolling_restart, known, MAX_INCIDENTS, F.col("brokers").desc(), "from_at", "rolling_restart_id")
    unplanned = 0
    if few.rows:
        (summed,) = collect(rows.agg(F.coalesce(F.sum("unplanned"), F.lit(0)).alias("unplanned")))
        unplanned = summed["unplanned"]
    return RollingRestarts(few.rows, few.in_all, few.left_out, unplanned)


def _rolling_restart(members: list[dict[str, Any]], **columns: Any) -> RollingRestart:  # noqa: ANN401 - of a row
    return RollingRestart(members=[Member(**member) for member in members], **columns)


def guard_periods(warehouse: Warehouse, span: Span) -> Listing[GuardPeriod]:
    """Each period in which a guard was on, the longest first.

    Overlapping periods of several name servers are one.
    """
    periods = _merged(_of_each_node(warehouse, span))
    known = periods.withColumn("seconds", seconds(F.col("to_at") - F.col("from_at")))
    return worst(GuardPeriod, known, MAX_PERIODS, F.col("seconds").desc(), "from_at", "cluster")


def _of_each_node(warehouse: Warehouse, span: Span) -> DataFrame:
    """One row for each period of a name server, as of its last day; times in microseconds."""
    touched = span.touched(warehouse, "guard_periods")
    cut = touched.filter((F.unix_micros("from_at") < span.to_us) & (F.unix_micros("to_at") > span.from_us))
    as_it_turned_on = ("mode", "lost", "baseline", "up", "kept", "over_limit")
    whole = cut.groupBy(*OBSERVER, "cluster", "from_at").agg(
        F.max("to_at").alias("to_at"),
        F.max_by("open", "dt").alias("open"),
        *(F.max(name).alias(name) for name in as_it_turned_on),
    )
    start, end = micros("from_at", "to_at")
    return whole.select(
        "node",
        "cluster",
        F.greatest(start, F.lit(span.from_us)).alias("from_at"),
        F.least(end, F.lit(span.to_us)).alias("to_at"),
        "open",
        *as_it_turned_on,
    )


def _merged(periods: DataFrame) -> DataFrame:
    timeline = Window.partitionBy("cluster").orderBy("from_at", "to_at", "node")
    before = F.max("to_at").over(timeline.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.coalesce(F.col("from_at") > before, F.lit(True)).cast("long")
    to_here = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # In two steps: Spark does not support nested windows.
    numbered = periods.withColumn("begins", begins).withColumn("period", F.sum("begins").over(to_here))
    return (
        numbered.groupBy("cluster", "period")
        .agg(
            F.min("from_at").alias("from_at"),
            F.max("to_at").alias("to_at"),
            F.bool_or("open").alias("open"),
            F.sort_array(F.collect_set("node")).alias("nodes"),
            F.sort_array(F.collect_set("mode")).alias("modes"),
            *(F.max(name).alias(name) for name in ("lost", "baseline", "kept")),
            F.min("up").alias("up"),
            F.bool_or("over_limit").alias("over_limit"),
        )
        .drop("period")
    )


@dataclass(frozen=True, slots=True)
class Explained:
    """An incident on the page: its brokers' owners with their number of brokers, and the commands that explain it."""

    incident: Incident
    owners: list[str]
    commands: list[str]


def incidents_section(
    found: Incidents, brokers: list[Broker], interval: Interval, parameters: IncidentParameters, warehouse: str
) -> Section:
    """``brokers``: those listed; they know the owners. ``warehouse``: the argument of the commands."""
    rule = f"at least {parameters.brokers} brokers of one zone, host or cluster down at the same moment"
    listed = first(found, "incidents", "report.json or the table incidents")
    owners = _owners(brokers)
    return section(
        "incidents",
        "Incidents",
        shown=[
            Explained(row, owners.get(row.incident_id, []), incident_commands(row, warehouse)) for row in listed.rows
        ],
        rest=listed.rest,
        unfolded=MAX_UNFOLDED,
        rule=rule,
        plot=incident_scatter(found.drawn, interval),
    ).empty_without(listed.rows)


def _owners(brokers: list[Broker]) -> dict[str, list[str]]:
    """The owners of each incident's brokers, those of most brokers first."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for broker in brokers:
        if broker.owner:
            for incident_id in {outage.incident_id for outage in broker.outages if outage.incident_id}:
                found[incident_id][broker.owner] += 1
    return {
        incident_id: [f"{owner} ({counted(count, 'broker')})" for owner, count in owners.most_common()]
        for incident_id, owners in found.items()
    }


def incident_commands(incident: Incident, warehouse: str) -> list[str]:
    """Return the commands that explain a topic's route and a broker's outages, for the moment when most were down."""
    at, commands = incident.to_at or incident.from_at, []
    if incident.topics:
        commands.append(explain_command(incident.topics[0], at, cluster=incident.cluster, warehouse=warehouse))
    if incident.members:
        member = incident.members[0]
        key = (incident.cluster, member.broker_name, member.broker_id)
        commands.append(history_command(key, day=at[: len("YYYY-MM-DD")], warehouse=warehouse))
    return [command for command in commands if command]


def rolling_restarts_section(found: RollingRestarts) -> Section | None:
    """Return the section; None without rolling restarts."""
    listed = first(found, "rolling restarts", "report.json or the table rolling_restarts")
    return section("rolling", "Rolling restarts", listed=listed) if listed.rows else None


def guards_section(found: Listing[GuardPeriod]) -> Section | None:
    """In order of time."""
    listed = first(found, "periods", "report.json or the table guard_periods")
    listed.rows.sort(key=lambda period: (period.from_at, period.cluster))
    return section("guards", "Expiry guard", listed=listed) if listed.rows else None


def incident_scatter(points: list[IncidentPoint], interval: Interval) -> str:
    """Draw a point for each incident, by time and number of brokers; one or two need no plot."""
    if len(points) < 3:
        return ""
    with figure(width=HALF_INCHES, height=2.9) as (drawn, axes):
        for scope, colour in _COLOURS.items():
            own = [point for point in points if point.scope == scope]
            at = [in_days(micros_of(point.from_at)) for point in own]
            if own:
                brokers = [point.brokers for point in own]
                axes.plot(at, brokers, "o", color=colour, markersize=6, alpha=0.75, label=f"{scope}s")
        time_axis(axes, interval.window, interval.time.zone)
        axes.spines["left"].set_visible(True)
        axes.set_ylim(0, max(point.brokers for point in points) * 1.2 + 1)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_ylabel("brokers", color=SOFT)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 0.98), ncols=3)
        return svg(drawn, "Incidents by time and number of brokers")
