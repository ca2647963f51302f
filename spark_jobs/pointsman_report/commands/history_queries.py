"""Query commands, which write nothing: ``route-at``, ``explain``, ``history``, ``week``, ``compare``, ``simulate``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from pointsman_report.commands import arguments
from pointsman_report.commands.arguments import Days, Outcome, ParameterOptions, SparkOptions
from pointsman_report.commands.running import opened_past, print_result, running

if TYPE_CHECKING:
    from pointsman_report.io.past import Past

SETTING = "flapping.suppress_above=2000"


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """Shared arguments of ``route-at`` and ``explain``: a topic, a moment, and the source of the history."""

    topic: str
    at: datetime | time
    cluster: str | None
    warehouse: str | None
    history: Sequence[str]


query_options = arguments.option_group(
    "query",
    TopicQuery,
    click.argument("topic"),
    click.option("--at", type=arguments.moment, required=True, metavar="TIME", help=f"Moment, e.g. {arguments.TIMES}."),
    click.option("--cluster", metavar="NAME", help="Only this cluster.  [default: all with the topic]"),
    arguments.warehouse_option(required=False),
    arguments.history_option(required=False),
)


@contextmanager
def _open_past(
    query: TopicQuery, given: ParameterOptions, engine: str | None, options: SparkOptions
) -> Iterator[tuple[Past, datetime, ZoneInfo]]:
    """Open the warehouse and the history. Raises click.UsageError before Spark starts if the options are invalid."""
    if query.warehouse is None and not query.history:
        raise click.UsageError(
            "give --warehouse DIR (ingested history), --history DIR (files of name servers), or both: then files that "
            "the warehouse has not read are read too"
        )
    zone = given.loaded().report.zone
    now = datetime.now(tz=UTC)
    at = arguments.instant(query.at, zone, now=now)
    if at > now:
        raise click.UsageError(f"--at {query.at} is in the future")
    with opened_past(query.warehouse, list(query.history), engine, options) as past:
        yield past, at, zone


@click.command("route-at")
@query_options
@arguments.parameter_options
@arguments.outcome_options
@arguments.engine_option
@arguments.spark_options
def route_at(
    query: TopicQuery, given: ParameterOptions, outcome: Outcome, engine: str | None, spark: SparkOptions
) -> int:
    """Show a topic's route at a moment at each name server.

    \b
    Examples:
      pointsman-report route-at orders --at 2026-11-20T03:12Z --warehouse /srv/warehouse
      pointsman-report route-at orders --at 03:12 --history /var/lib/pointsman/history --timezone Europe/Berlin

    With both, files that the warehouse has not read are read too.
    """
    with _open_past(query, given, engine, spark) as (past, at, zone):
        from pointsman_report.questions.topic_questions import route_at as found  # noqa: PLC0415 - imports pyspark

        result = found(past, query.topic, at, cluster=query.cluster)
    return print_result(result, outcome, zone)


@click.command
@query_options
@arguments.parameter_options
@arguments.outcome_options
@arguments.engine_option
@arguments.spark_options
def explain(
    query: TopicQuery, given: ParameterOptions, outcome: Outcome, engine: str | None, spark: SparkOptions
) -> int:
    """Explain which brokers were missing from a topic's route.

    Since when and why, which name servers saw it, and when clients could know.

    \b
    Examples:
      pointsman-report explain orders --at 2026-11-20T03:12Z --warehouse /srv/warehouse
      pointsman-report explain orders --at 03:12 --history /var/lib/pointsman/history --timezone Europe/Berlin

    With both, files that the warehouse has not read are read too.
    """
    with _open_past(query, given, engine, spark) as (past, at, zone):
        from pointsman_report.questions.explanation import explain as found  # noqa: PLC0415 - imports pyspark

        result = found(past, query.topic, at, cluster=query.cluster)
    return print_result(result, outcome, zone)


@click.command
@click.argument("broker", type=arguments.broker, metavar="BROKER")
@click.option(
    "--days", type=click.IntRange(1, 400), default=7, show_default=True, metavar="N", help="Number of UTC days."
)
@click.option("--to", "last_day", type=arguments.day, metavar="DAY", help="Last day.  [default: today]")
@click.option("--html", type=arguments.FILE, metavar="FILE", help="Also write a page with plots.")
@arguments.warehouse_option()
@arguments.history_option(required=False)
@arguments.parameter_options
@arguments.outcome_options
@arguments.engine_option
@arguments.spark_options
def history(
    *,
    broker: tuple[str, str | None, int | None],
    days: int,
    last_day: date | None,
    html: Path | None,
    warehouse: str,
    history: Sequence[str],
    given: ParameterOptions,
    outcome: Outcome,
    engine: str | None,
    spark: SparkOptions,
) -> int:
    """Show what happened to a broker on the last days.

    Its outages with their causes, its changes of address, version and process, its flap penalty. BROKER is NAME,
    CLUSTER/NAME or CLUSTER/NAME/ID. Later rows than those computed are listed as each name server wrote them.

    \b
    Examples:
      pointsman-report history broker-a --warehouse /srv/warehouse
      pointsman-report history c1/broker-a/0 --days 30 --html broker-a.html --warehouse /srv/warehouse

    Exit codes: 0 no outage; 1 an outage, or nothing is known of the broker; 2 failed.
    """
    parameters = given.loaded()
    with opened_past(warehouse, list(history), engine, spark) as past:
        from pointsman_report.questions.broker_history import (  # noqa: PLC0415
            BrokerName,
            broker_history,
            days_until,
        )

        result = broker_history(past, BrokerName(*broker), *days_until(last_day, days))
    if html is not None:
        from pointsman_report.questions.broker_page import broker_page  # noqa: PLC0415 - Matplotlib takes a second

        html.write_text(broker_page(result, parameters), encoding="utf-8")
    return print_result(result, outcome, parameters.report.zone)


@click.command
@click.option(
    "--to",
    "last_day",
    type=arguments.day,
    metavar="DAY",
    help="Last of the seven UTC days.  [default: yesterday]",
)
@arguments.warehouse_option()
@arguments.timezone_option
@arguments.outcome_options
@arguments.engine_option
@arguments.spark_options
def week(
    last_day: date | None,
    warehouse: str,
    timezone: str | None,
    outcome: Outcome,
    engine: str | None,
    spark: SparkOptions,
) -> int:
    """Summarize seven days: clusters, incidents and the worst brokers.

    Availability of each cluster against its objective, and everything compared with the seven days before.

    \b
    Examples:
      pointsman-report week --warehouse /srv/warehouse
      pointsman-report week --to 2026-11-20 --output json --warehouse /srv/warehouse

    Exit codes: 0 no incident, every objective met; 1 otherwise, or no computed day; 2 failed.
    """
    zone = ParameterOptions(None, timezone).loaded().report.zone
    last = last_day or datetime.now(tz=UTC).date() - timedelta(days=1)
    with opened_past(warehouse, [], engine, spark) as past:
        from pointsman_report.questions.week_summary import week_summary  # noqa: PLC0415 - imports pyspark

        result = week_summary(past, last)
    return print_result(result, outcome, zone)


@click.command
@click.argument("one", type=arguments.day, metavar="DAY")
@click.argument("other", type=arguments.day, metavar="DAY")
@arguments.warehouse_option()
@arguments.timezone_option
@arguments.outcome_options
@arguments.engine_option
@arguments.spark_options
def compare(
    one: date,
    other: date,
    warehouse: str,
    timezone: str | None,
    outcome: Outcome,
    engine: str | None,
    spark: SparkOptions,
) -> int:
    """Show what got better or worse between two computed days.

    \b
    Example:
      pointsman-report compare 2026-11-13 2026-11-20 --warehouse /srv/warehouse

    Exit codes: 0 no change for the worse; 1 something got worse; 2 failed, e.g. a day was not computed.
    """
    zone = ParameterOptions(None, timezone).loaded().report.zone
    with opened_past(warehouse, [], engine, spark) as past:
        from pointsman_report.questions.day_comparison import compare as found  # noqa: PLC0415 - imports pyspark

        result = found(past, one, other)
    return print_result(result, outcome, zone)


def _setting(text: str) -> tuple[str, object]:
    name, equals, written = text.partition("=")
    if not (equals and "." in name):
        raise click.BadParameter(f"invalid setting {text!r}: use TABLE.NAME=VALUE, e.g. {SETTING}")
    try:
        return name.strip(), tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        raise click.BadParameter(f"invalid TOML value {written!r}: use e.g. {SETTING}") from None


@click.command
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=_setting,
    required=True,
    metavar="TABLE.NAME=VALUE",
    help=f"Parameter to change, e.g. {SETTING}. Repeatable.",
)
@arguments.range_options
@arguments.warehouse_option()
@arguments.parameter_options
@arguments.outcome_options
@arguments.spark_options
def simulate(
    settings: Sequence[tuple[str, object]],
    days: Days,
    warehouse: str,
    given: ParameterOptions,
    outcome: Outcome,
    spark: SparkOptions,
) -> int:
    """Show what other thresholds would have flagged.

    Changes nothing. --set is compared with --parameters, with which the days must have been computed.

    \b
    Example:
      pointsman-report simulate --set flapping.chronic_days=2 --from 2026-11-01 --to 2026-11-20 --warehouse warehouse
    """
    first_day, last_day = days.checked()
    arguments.checked_warehouse(warehouse)
    these = given.loaded()
    others = given.loaded(dict(settings))
    with running(spark, reads=[warehouse]) as (session, _):
        # Imported late: pyspark may be missing, which `running` reports in one line.
        from pointsman_report.io import Warehouse  # noqa: PLC0415
        from pointsman_report.questions.simulation import simulate as found  # noqa: PLC0415

        result = found(Warehouse(session, warehouse), first_day, last_day, given=these, others=others)
    return print_result(result, outcome, these.report.zone)


COMMANDS = (route_at, explain, history, week, compare, simulate)
