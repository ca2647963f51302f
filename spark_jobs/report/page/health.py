"""Heartbeats, queues, outages as distributions, and the trend."""

from __future__ import annotations

from spark_jobs.report.classes import cause_name
from spark_jobs.report.page.parts import (
    Numbers,
    Part,
    Row,
    Section,
    Table,
    bold,
    broker,
    left_out,
    local_time,
    moment,
    note,
    of_utc_days,
    plots,
    section,
    share,
    small,
    topic,
)
from spark_jobs.report.plots.distributions import cumulative, histogram
from spark_jobs.report.plots.trend import availability_trend
from spark_jobs.report.wording import ahead_or_behind, counted, duration, label, micros, milliseconds, number

TOP = 20
OUTAGES_LISTED = 25


def outages(numbers: Numbers) -> Section | None:
    """The longest outages of the listed brokers, and all of them as distributions."""
    found, time = numbers["outages"], local_time(numbers)
    pairs = [(outage, entry) for entry in numbers["brokers"] for outage in entry["outages"]]
    if not pairs and not found["outage_seconds"]["count"]:
        return None
    longest = sorted(pairs, key=lambda pair: (-pair[0]["seconds"], pair[0]["start_at"], label(pair[1])))[
        :OUTAGES_LISTED
    ]
    rows = [
        (
            label(entry),
            (moment(time, outage["start_at"]), *([" ◂"] if outage["start_censored"] else [])),
            (moment(time, outage["end_at"]), *([" ▸"] if outage["end_censored"] else [])),
            duration(outage["seconds"]),
            duration(_detection(outage)),
            outage["reason"],
            (cause_name(outage["cause"]), small(outage["evidence"])),
            number(outage["observers"]),
        )
        for outage, entry in longest
    ]
    head = ("Broker", "Down at", "Recovered at", "Lasted", "Time to detect", "Reason", "Cause", "Seen by")
    cut = any(outage["start_censored"] or outage["end_censored"] for outage, _ in longest)
    marks = "◂ it had begun before a name server watched; ▸ its end was not seen. " if cut else ""
    in_all = len(pairs) + sum(entry["outages_left_out"] for entry in numbers["brokers"])
    rest = f"The longest {len(rows)} of {in_all:,}. " if in_all > len(rows) else ""
    lengths, delays = found["outage_seconds"], found["detection_seconds"]
    quantiles = [
        (name, number(values["count"]), *(duration(values[at]) for at in ("min", "p50", "p95", "p99", "max")))
        for name, values in (("How long it lasted", lengths), ("How long until it was noticed", delays))
    ]
    of_all = ("Of all outages", "Counted", "Least", "p50", "p95", "p99", "Most")
    unseen = counted(found["censored_outages"], "outage")
    explained = (
        "Noticed: from the last sign of life to the removal. Lengths are of outages with both ends seen; "
        f"{unseen} {'has' if found['censored_outages'] == 1 else 'have'} not."
    )
    return section(
        "outages",
        "Outages",
        Table("Longest outages", head, rows, "tttnnttn") if rows else None,
        note(rest + marks),
        Table("Distribution of outages and delays", of_all, quantiles, "tnnnnnn"),
        note(explained),
        plots(
            cumulative(lengths["steps"], "Outages no longer than"),
            cumulative(delays["steps"], "Outages noticed within"),
        ),
    )


def _detection(outage: Numbers) -> float | None:
    if outage["last_sign_of_life_at"] is None:
        return None
    return (micros(outage["start_at"]) - micros(outage["last_sign_of_life_at"])) / 1e6


def heartbeats(numbers: Numbers) -> Section:
    found = numbers["punctuality"]
    if not found["rows"]:
        return section("heartbeats", "Heartbeats", note("No heartbeat statistics in this history."))
    rows: list[Row] = [
        (
            broker(row),
            milliseconds(row["heartbeat_interval_ms"]),
            *(milliseconds(row[name]) for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")),
            number(row["late"]),
            number(row["beats"]),
        )
        for row in found["rows"][:TOP]
    ]
    head = ("Broker", "Beats each", "p50", "p95", "p99", "Longest", "Late", "Beats")
    rest = left_out(found["in_all"], len(rows), "brokers", "report.json or the table heartbeat_punctuality")
    return section(
        "heartbeats",
        "Heartbeats",
        note(f"{of_utc_days(numbers)}Times between beats, the least punctual first. {rest}"),
        Table("Heartbeat punctuality", head, rows, "tnnnnnnn"),
        *_clocks(found["clocks"]),
        plots(histogram(found["histogram"])),
    )


def _clocks(found: Numbers) -> list[Part | None]:
    rows = [(broker(row), ahead_or_behind(row["ahead_seconds"])) for row in found["rows"][:TOP]]
    if not rows:
        return []
    rest = left_out(found["in_all"], len(rows), "agents", "report.json or the table heartbeat_punctuality")
    return [
        note(f"Against the median of the name servers' clocks. {rest}"),
        Table("Agents whose clock is off", ("Broker", "Clock"), rows, "tt"),
    ]


def queues(numbers: Numbers) -> Section:
    found = numbers["queues"]
    hot, others = _hot(found["hot"]), [*_groups(found["groups"]), *_topics(found["topics"])]
    if not hot and not others:
        return section("queues", "Queues", note("No queue statistics in this history."))
    calm = None if hot else note("No queue is worth a line.")
    return section("queues", "Queues", note(of_utc_days(numbers)), calm, *hot, *others)


def _hot(found: Numbers) -> list[Part | None]:
    rows = [
        (
            topic(row),
            str(row["kind"]).replace("_", " "),
            row["consumer_group"],
            row["broker_name"] if row["queue_id"] is None else f"{row['broker_name']} queue {row['queue_id']}",
            number(row["value"], digits=1),
            number(row["limit"], digits=1),
            row["says"],
            row["cure"],
        )
        for row in found["rows"][:TOP]
    ]
    head = ("Topic", "What", "Group", "Queue", "Measured", "Limit", "That is", "Cure")
    rest = left_out(found["in_all"], len(rows), "lines", "report.json or the table hot_queues")
    return [Table("Hot queues", head, rows, "ttttnntt"), note(rest)] if rows else []


def _groups(found: Numbers) -> list[Part | None]:
    measured = ("members", "queues", "lag_first", "lag_last", "lag_max", "highest_lag")
    rows: list[Row] = [
        (
            (bold(row["consumer_group"]), small(f"{row['topic']}, {row['cluster']}")),
            *(number(row[name]) for name in measured),
        )
        for row in found["rows"][:10]
    ]
    head = ("Group behind", "Members", "Queues", "At first", "At last", "At most", "Worst queue")
    rest = left_out(found["in_all"], len(rows), "groups", "report.json or the table group_lag")
    return [Table("Consumer groups behind", head, rows, "tnnnnnn"), note(rest)] if rows else []


def _topics(found: Numbers) -> list[Part | None]:
    rows: list[Row] = [
        (
            topic(row),
            *(number(row[name], digits=1) for name in ("put_rate", "highest_put_rate", "skew")),
            *(number(row[name]) for name in ("queues", "idle_queues", "brokers")),
        )
        for row in found["rows"][:10]
    ]
    head = ("Busiest topic", "Messages/s", "Fullest queue/s", "Skew", "Queues", "Idle", "Brokers")
    rest = left_out(found["in_all"], len(rows), "topics", "report.json or the table topic_load")
    return [Table("Busiest topics", head, rows, "tnnnnnn"), note(rest)] if rows else []


def trend(numbers: Numbers) -> Section | None:
    found = numbers["trend"]
    if len(found["days"]) < 2:
        return None
    rows = [
        (
            f"Last {name} days",
            number(row["days"]),
            share(numbers, row["availability"]),
            duration(row["down_seconds"]),
            number(row["outages"]),
            number(row["incidents"]),
            number(row["flapping_broker_days"]),
        )
        for name, row in (("7", found["seven_days"]), ("30", found["thirty_days"]))
    ]
    head = ("UTC days", "In the warehouse", "Availability", "Down", "Outages", "Incidents", "Flapping, broker days")
    plot = availability_trend(found["days"])
    return section("trend", "Trend", Table("Trend", head, rows, "tnnnnnn"), plots(plot, wide=True))
