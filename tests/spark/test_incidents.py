"""Incidents: the transform against a search through all moments of random days, and single cases."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pointsman_report.parameters import IncidentParameters
from pointsman_report.schemas.table_types import BOOL, DAY, LONG, TEXT, TIME, struct
from pointsman_report.transforms.incidents import incidents, members, outages
from tests.spark.histories import MIDNIGHT, moment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PLACES = struct(dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, zone=TEXT, host=TEXT)
INTERVALS = struct(
    dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, state=TEXT, planned=BOOL, continues=BOOL,
    start_at=TIME, end_at=TIME, end_censored=BOOL, event=TEXT, last_sign_of_life_at=TIME,
)  # fmt: skip
GIVEN = IncidentParameters()
SCOPES = ("host", "zone", "cluster")


@dataclass
class Day:
    """Brokers of one or more clusters, where they ran, and when they fell (seconds of the first day)."""

    places: dict[tuple[str, str], tuple[str | None, str | None]] = field(default_factory=dict)
    falls: list[tuple[str, str, float, float]] = field(default_factory=list)

    def rack(self, cluster: str, names: Iterable[str], *, zone: str | None = None, host: str | None = None) -> None:
        self.places |= {(cluster, name): (zone, host) for name in names}

    def fall(self, cluster: str, names: Sequence[str], at: float, *, apart: float = 1.0, lasts: float = 10.0) -> None:
        self.falls += [(cluster, name, at + n * apart, lasts) for n, name in enumerate(names)]


def measured(spark: SparkSession, day: Day, parameters: IncidentParameters = GIVEN) -> list[dict[str, Any]]:
    own, places = _frames(spark, day)
    found = incidents(members(outages(own), places, parameters=parameters), places, no_causes(spark))
    return [row.asDict(recursive=True) for row in found.orderBy("incident_id").collect()]


def no_causes(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], struct(dt=DAY, incident_id=TEXT, cause=TEXT, evidence=TEXT))


def _frames(spark: SparkSession, day: Day) -> tuple[DataFrame, DataFrame]:
    dt = MIDNIGHT.date()
    placed = [(dt, cluster, name, 0, *where) for (cluster, name), where in day.places.items()]
    fallen = [
        (dt, cluster, name, 0, "down", False, False, moment(at), moment(at + lasts), False, "EXPIRED", moment(at - 7))
        for cluster, name, at, lasts in day.falls
    ]
    random.Random(1).shuffle(fallen)
    return spark.createDataFrame(fallen, INTERVALS), spark.createDataFrame(placed, PLACES)


def expected(day: Day, parameters: IncidentParameters = GIVEN) -> list[tuple[str, str, str, frozenset[Any]]]:
    """The rules once more, one outage after another."""
    found = []
    for cluster in sorted({cluster for cluster, _ in day.places}):
        own = sorted((round(at * 1e6), name) for c, name, at, _ in day.falls if c == cluster)
        lasts = {(round(at * 1e6), name): round(long * 1e6) for c, name, at, long in day.falls if c == cluster}
        where = {
            name: {"cluster": cluster, "zone": zone, "host": host}
            for (c, name), (zone, host) in day.places.items()
            if c == cluster
        }
        found += [(cluster, *one) for one in _of_cluster(own, lasts, where, parameters)]
    return sorted(found, key=str)


def _of_cluster(own: list[Any], lasts: dict[Any, int], where: dict[str, Any], p: IncidentParameters) -> list[Any]:
    parameters = p
    windows: dict[str, dict[Any, int]] = {scope: {} for scope in SCOPES}
    bounds: dict[tuple[str, str], float] = {}
    usual: dict[tuple[str, str], float] = {}
    for scope in SCOPES:
        for name in {where[b][scope] for _, b in own} - {None}:
            mine = [(at, b) for at, b in own if where[b][scope] == name]
            until = _until(mine, lasts, parameters)
            bounds[scope, name], usual[scope, name] = _bound(until, parameters)
            bound = bounds[scope, name]
            for begin, end in _episodes(until, bound, parameters):
                inside = [one for one in mine if one[0] < end and until[one] > begin]
                windows[scope] |= {one: begin for one in inside if one not in windows[scope]}
    chosen: dict[tuple[str, str, int], set[Any]] = defaultdict(set)
    left = list(own)
    for scope, narrower in (("cluster", ("zone", "host")), ("zone", ("host",)), ("host", ())):
        groups: dict[tuple[str, int], list[Any]] = defaultdict(list)
        for at, b in left:
            if (at, b) in windows[scope]:
                groups[where[b][scope], windows[scope][at, b]].append((at, b))
        for (name, begin), group in groups.items():
            if not _explained(group, where, (bounds, usual), scope, narrower, parameters):
                chosen[scope, name, begin] |= set(group)
                left = [one for one in left if one not in group]
    return [
        (scope, name, frozenset({b: (at, b) for at, b in sorted(group, reverse=True)}.values()))
        for (scope, name, _), group in chosen.items()
        if _is_more(len({b for _, b in group}), bounds[scope, name], parameters)
    ]


def _until(mine: list[Any], lasts: dict[Any, int], p: IncidentParameters) -> dict[Any, int]:
    """Up to when each outage counts."""
    until = {}
    for at, name in mine:
        counts_for = min(max(lasts[at, name], round(p.tolerance_seconds * 1e6)), round(p.within_seconds * 1e6))
        later = [other for other, b in mine if b == name and other > at]
        until[at, name] = min([at + counts_for, *later])
    return until


def _episodes(until: dict[Any, int], bound: float, p: IncidentParameters) -> list[tuple[int, int]]:
    points = sorted({at for at, _ in until} | set(until.values()))
    found: list[tuple[int, int]] = []
    began = None
    for point in points:
        high = _is_more(sum(at <= point < end for (at, _), end in until.items()), bound, p)
        if high and began is None:
            began = point
        elif not high and began is not None:
            found.append((began, point))
            began = None
    joined: list[tuple[int, int]] = []
    for begin, end in found:
        if joined and begin - joined[-1][1] <= round(p.tolerance_seconds * 1e6):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def _explained(
    group: list[Any], where: dict[str, Any], bounds: Any, scope: str, narrower: Sequence[str], p: IncidentParameters
) -> bool:
    everyone = {b for _, b in group}
    places = {next(((n, where[b][n]) for n in narrower if where[b][n]), None) for b in everyone} - {None}
    for place in places:
        inside = {b for b in everyone if next(((n, where[b][n]) for n in narrower if where[b][n]), None) == place}
        own_bound = bounds[0].get(place, math.inf)
        rest, usual = len(everyone - inside), bounds[1][scope, where[group[0][1]][scope]]
        strays = rest < p.brokers and 4 * rest <= len(inside)
        if _is_more(len(inside), own_bound, p) and (strays or rest <= usual):
            return True
    return False


def _bound(until: dict[Any, int], parameters: IncidentParameters) -> tuple[float, float]:
    day = 86_400e6
    mean: float = sum(end - at for (at, _), end in until.items()) / day
    busy: float = 0
    reached = 0
    for at, end in sorted((at, end) for (at, _), end in until.items()):
        busy += max(0, end - max(at, reached))
        reached = max(reached, end)
    if busy < day:
        mean = min(mean, -math.log1p(-busy / day))
    return mean + parameters.sigmas * math.sqrt(mean), mean + math.sqrt(mean)


def _is_more(fell: int, bound: float, parameters: IncidentParameters) -> bool:
    return fell >= parameters.brokers and fell > bound


def random_day(seed: int) -> Day:
    rng = random.Random(seed)
    day = Day()
    for cluster in (f"c{n}" for n in range(12)):
        names = [f"b{n}" for n in range(rng.choice((3, 8, 30)))]
        for n, name in enumerate(names):
            zone = rng.choice(("z1", "z2", None))
            day.rack(cluster, [name], zone=zone, host=rng.choice((None, f"{zone}-h{n % 2}", f"{zone}-h{n % 2}")))
        for _ in range(rng.choice((0, 3, 10))):
            begin, place = rng.randint(0, 86_000), day.places[cluster, rng.choice(names)]
            near = [name for name in names if rng.random() < 0.05 or day.places[cluster, name] == place]
            pool = rng.choice((names, near, near))
            for name in rng.sample(pool, rng.randint((len(pool) + 1) // 2, len(pool))):
                begun = begin + rng.choice((0, 0, 1, 2, 5, 30, 61))
                day.falls.append((cluster, name, begun, rng.choice((0.0, 1.0, 29.0, 30.0, 61.0, 600.0))))
        for _ in range(rng.choice((0, 50, 400))):
            day.falls.append((cluster, rng.choice(names), float(rng.randint(0, 86_000)), rng.choice((1.0, 40.0))))
    day.falls = sorted(
        {(cluster, name, at): (cluster, name, at, long) for cluster, name, at, long in day.falls}.values()
    )
    return day


def test_incidents_of_a_random_day_are_those_of_a_search_through_all_moments(spark: SparkSession) -> None:
    day = random_day(5)
    own, places = _frames(spark, day)
    found: dict[str, list[Any]] = defaultdict(list)
    for row in members(outages(own), places, parameters=GIVEN).collect():
        at = row["at"] - int(MIDNIGHT.timestamp()) * 1_000_000
        found[row.incident_id].append((row.cluster, row.scope, row.scope_name, (at, row.broker_name)))
    got = sorted(((*group[0][:3], frozenset(one[3] for one in group)) for group in found.values()), key=str)

    wanted = expected(day)
    assert {scope for _, scope, _, _ in wanted} == set(SCOPES)
    assert got == wanted


def one(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (row,) = rows
    return row


def scopes(rows: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(row["scope"], row["scope_name"], row["brokers"]) for row in rows]


def test_several_outages_of_a_day_become_the_expected_incidents(spark: SparkSession) -> None:
    ten, three = [f"b{n}" for n in range(10)], ["x", "y", "z"]
    day = Day()
    names = ("two", "rack", "zone", "stray", "everything", "twice", "rolling", "quick", "handed", "unplaced", "long")
    for cluster in names:
        day.rack(cluster, ten[:5], zone="z1", host="h1")
        day.rack(cluster, ten[5:], zone="z1", host="h2")
        day.rack(cluster, three, zone="z2", host="h3")
    day.rack("unplaced", [*ten, *three])
    day.fall("two", ten[:2], 100)
    day.fall("rack", ten[:5], 100)
    day.fall("zone", ten[3:8], 100)
    day.fall("stray", [*ten[:5], "x"], 100)
    day.fall("everything", [*ten, *three], 100, lasts=30)
    day.fall("twice", ten[:5], 100)
    day.fall("twice", ten[:5], 111)
    day.fall("rolling", ten[:5], 100, apart=20, lasts=20)
    day.fall("quick", ten[:5], 100, apart=2, lasts=0.5)
    day.fall("handed", ten[:5], 100, apart=2.6, lasts=1.5)
    day.fall("unplaced", ten[:4], 100)
    day.fall("long", ten[:2], 100, lasts=9_000)
    day.fall("long", ten[2:4], 5_000, lasts=9_000)
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in measured(spark, day):
        found[row["cluster"]].append(row)

    assert found["two"] == [], "two may be chance"
    assert found["rolling"] == [], "each is back before the next goes, though all begin within a minute and a half"
    assert found["handed"] == [], "as in the demo: outages shorter than a sweep, one after another"
    assert scopes(found["quick"]) == [("host", "h1", 5)], "short outages that sweeps noticed 2 s apart are one moment"
    assert found["long"] == [], "a broker that has been down for an hour is not part of what happens now"
    assert scopes(found["rack"]) == [("host", "h1", 5)], "a host explains what its zone and cluster saw too"
    assert scopes(found["zone"]) == [("zone", "z1", 5)]
    assert scopes(found["stray"]) == [("host", "h1", 5)], "an outage elsewhere at that moment counts against its broker"
    assert scopes(found["everything"]) == [("cluster", "everything", 13)]
    assert scopes(found["unplaced"]) == [("cluster", "unplaced", 4)]
    assert scopes(found["twice"]) == [("host", "h1", 5)], "a broker that goes twice in an incident counts once"
    assert one(found["twice"])["down_seconds"] == 50.0, "its second outage is its own"
    assert [member["broker_name"] for member in one(found["twice"])["members"]] == ten[:5]
    assert one(found["rack"])["known_brokers"] == 5
    assert one(found["rack"])["incident_id"] == "rack/host/h1/2026-03-02T00:01:40.000000Z"
    assert one(found["rack"])["from_at"] - one(found["rack"])["last_heard_at"] == timedelta(seconds=7)


def test_a_stray_outage_that_was_over_before_is_not_part_of_an_incident(spark: SparkSession) -> None:
    names = [f"b{n}" for n in range(20)]
    day = Day()
    day.rack("c", ["stray", *names])
    day.fall("c", ["stray"], 50)
    day.fall("c", names, 100, apart=1)

    (incident,) = measured(spark, day)
    assert "stray" not in {member["broker_name"] for member in incident["members"]}
    assert incident["brokers"] == 20


def test_an_incident_needs_more_brokers_than_the_scope_has_by_chance(spark: SparkSession) -> None:
    rng, names = random.Random(5), [f"b{n}" for n in range(200)]
    day = Day()
    day.rack("noisy", names)
    day.falls = [("noisy", rng.choice(names), at + rng.random(), 30.0) for at in range(0, 86_000, 30)]
    day.fall("noisy", names[:3], 50_000)
    assert measured(spark, day) == []

    day.fall("noisy", names[:40], 60_000, lasts=45)
    (incident,) = measured(spark, day)
    assert (incident["scope"], incident["brokers"]) == ("cluster", pytest.approx(42, abs=3))


def test_one_broker_that_goes_down_every_minute_does_not_hide_an_incident_of_others(spark: SparkSession) -> None:
    names = [f"b{n}" for n in range(8)]
    day = Day()
    day.rack("c", ["flapper", *names])
    day.falls = [("c", "flapper", at, 1.0) for at in range(0, 86_400, 60)]
    day.fall("c", names, 50_000)

    assert [row["brokers"] for row in measured(spark, day)] == [8]


def test_ten_thousand_brokers_down_at_the_same_time_are_one_incident(spark: SparkSession) -> None:
    names = [f"b{n}" for n in range(10_000)]
    day = Day()
    day.rack("c", names)
    day.fall("c", names, 100, apart=0.005, lasts=60)

    (burst,) = measured(spark, day)
    assert (burst["brokers"], burst["known_brokers"], len(burst["members"])) == (10_000, 10_000, 10_000)


def test_an_incident_is_back_when_the_last_of_it_is_and_not_while_one_is_down(spark: SparkSession) -> None:
    day = Day()
    for cluster in ("all_back", "one_open"):
        day.rack(cluster, ["a", "b", "c"])
        day.fall(cluster, ["a", "b"], 100, lasts=50)
        day.fall(cluster, ["c"], 100, lasts=70)
    own, places = _frames(spark, day)
    is_open = own.selectExpr("* except (end_censored)", "cluster = 'one_open' and broker_name = 'a' as end_censored")
    found = incidents(members(outages(is_open), places, parameters=GIVEN), places, no_causes(spark))
    back = {
        row.cluster: row.back_us for row in found.selectExpr("cluster", "unix_micros(back_at) as back_us").collect()
    }

    assert back == {"all_back": round((moment(0) + timedelta(seconds=170)).timestamp() * 1e6), "one_open": None}
