"""Findings that need attention: a sentence each, and what to do; the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from datetime import timedelta

from pointsman.names import printable
from pointsman_report.report.contents import Finding, Report
from pointsman_report.report.formatting import ahead_or_behind, counted, duration, objective, some
from pointsman_report.report.meanings import ADVICE, FINDINGS, cause_name
from pointsman_report.report.sections.name_server_record import NodeClock
from pointsman_report.report.sections.report_basis import Completeness
from pointsman_report.report.sections.worst_brokers import Broker
from pointsman_report.transforms.weekly_patterns import LEAST_WEEKS, WEEKS


def findings(report: Report) -> list[Finding]:
    """Return the findings of a report; empty if nothing needs attention."""
    parts = (
        _coverage,
        _incidents,
        _guards,
        _rolling_restarts,
        _topics,
        _budgets,
        _classes,
        _outliers,
        _weekly_patterns,
        _name_servers,
        _agents,
        _history,
        _groups,
    )
    return [finding for part in parts for finding in part(report)]


def notices(report: Report) -> list[str]:
    """Return notices that need no action."""
    texts = []
    stop = report.completeness.stopped_before
    if stop and stop.reported_before:
        at = report.interval.time.clock(stop.to_at)
        texts.append(
            f"NO DATA: the last name server ({printable(stop.node)}) was shut down at {at}; "
            "this was reported on the first day without data"
        )
    if report.interval.timezone != "UTC" and report.interval.hours % 24:
        texts.append(f"daylight saving time changed: these days have {report.interval.hours:g} hours")
    return texts


def _coverage(report: Report) -> Iterator[Finding]:
    data = report.completeness
    if data.warehouse_ends_on:
        after = data.warehouse_ends_on + timedelta(days=1)
        yield Finding(
            "warehouse_gap",
            f"the warehouse ends on {data.warehouse_ends_on}: run pointsman-report backfill --from {after} "
            f"--to {data.last_day}, otherwise outages since then are missing",
            "run that command with the same --history and --warehouse",
            "basis",
        )
    stop = data.stopped_before
    if data.rows == 0:
        if not (stop and stop.reported_before):
            yield Finding(
                "no_data",
                "NO DATA: the history has no rows for these days; the state of all brokers is unknown",
                "check that the name servers are running, and that --history lists their directories",
                "basis",
            )
    elif data.days_without_rows:
        yield Finding(
            "no_rows",
            f"no history rows on {some(data.days_without_rows)}",
            "check that the name servers were running on these days and their files were shipped",
            "basis",
        )
    for cluster, days in data.unwatched_clusters.items():
        yield Finding(
            "unwatched",
            f"no monitoring data for cluster {printable(cluster)} on {some(days)}",
            "start its name servers, or add their directories with --history",
            "basis",
        )
    if data.fell_silent:
        last = data.fell_silent
        yield Finding(
            "fell_silent",
            f"no monitoring at the end of {data.last_day}: the last name server ({printable(last.node)}) wrote no rows "
            f"after {last.to_at}, no clean shutdown recorded",
            "check that it is running, and that its newest files were shipped",
            "nameservers",
        )


def _incidents(report: Report) -> Iterator[Finding]:
    incidents, time = report.incidents, report.interval.time
    if not incidents.in_all:
        return
    worst = incidents.rows[0]
    many = f"{counted(incidents.in_all, 'incident')} took down {counted(incidents.outages, 'broker')}; the largest"
    hit = worst.topics_unwritable or 0
    topics = f", {counted(hit, 'topic')} without a writable queue" if hit else ""
    largest = (
        f"{many if incidents.in_all > 1 else 'incident'} at {time.clock(worst.from_at)}: "
        f"{counted(worst.brokers, 'broker')} of {worst.shared} down at the same moment"
    )
    evidence = f" ({printable(worst.evidence)})" if worst.evidence else ""
    yield Finding(
        "incident",
        f"{largest}{topics}; cause: {cause_name(worst.cause or 'unknown')}{evidence}",
        ADVICE.get(worst.cause or "", "check its outages and their evidence"),
        "incidents",
    )


def _guards(report: Report) -> Iterator[Finding]:
    guards, time = report.guard_periods, report.interval.time
    for cluster in dict.fromkeys(row.cluster for row in guards.rows):
        own = [row for row in guards.rows if row.cluster == cluster]
        longest = own[0]
        many = "" if len(own) == 1 else f" {counted(len(own), 'time')}, the longest"
        still = ", still on at the end of the report" if longest.open else ""
        lost = "" if longest.lost is None else f" ({longest.lost:,} lost of {longest.baseline or 0:,})"
        limit = ", beyond its limit" if any(row.over_limit for row in own) else ""
        yield Finding(
            "guard",
            f"the expiry guard of cluster {printable(cluster)} was on{many} from {time.clock(longest.from_at)} for "
            f"{duration(longest.seconds)}{still}{limit}: it kept {counted(longest.kept, 'broker')} in the "
            f"routes{lost} at {_nodes(longest.nodes)}",
            "check the brokers that expired then: routes included them although they may have been down",
            "guards",
        )


def _rolling_restarts(report: Report) -> Iterator[Finding]:
    found, time = report.rolling_restarts, report.interval.time
    # Rolling restarts with planned shutdowns only need no action.
    if not found.unplanned:
        return
    row = next((row for row in found.rows if row.unplanned), found.rows[0])
    upgrade = f", {row.version_before} to {row.version_after}" if row.version_after else ""
    cause = "deploy" if row.version_after else "rolling_restart"
    yield Finding(
        "rolling_restart",
        f"{counted(found.in_all, 'rolling restart')}, not an incident: {counted(row.brokers, 'broker')} of "
        f"cluster {printable(row.cluster)} one after another from {time.clock(row.from_at)}{printable(upgrade)}; "
        f"{counted(found.unplanned, 'unplanned outage')} counted against the brokers",
        ADVICE[cause],
        "rolling",
    )


def _topics(report: Report) -> Iterator[Finding]:
    topics = report.topics_at_risk
    cut = [row for row in topics.rows if row.unwritable_seconds > 0]
    count = topics.unwritable
    if not count:
        return
    longest = [f"{printable(row.topic)} ({duration(row.unwritable_seconds)})" for row in cut]
    yield Finding(
        "topics_unwritable",
        f"{counted(count, 'topic')} had no writable queue for some time: {some(longest, of=count)}",
        "spread them over more brokers, or give their brokers replicas that take over",
        "topics",
    )


def _budgets(report: Report) -> Iterator[Finding]:
    for cluster in report.headline.clusters:
        left, slo = cluster.budget_left_seconds, cluster.slo
        if left is None or left >= 0 or not cluster.has_budget:
            continue
        yield Finding(
            "budget_spent",
            f"cluster {printable(cluster.cluster)} has exceeded its error budget "
            f"of {counted(cluster.slo_days or 0, 'day')} ({objective(slo)}) "
            f"by {duration(-left)} of broker downtime",
            "start with the brokers with the most downtime",
            "clusters",
        )


_ADVICE = {
    "chronic": "take it out of service until the cause is found",
    "flapping": "check its likely cause, then its log around the outages",
    "dead": "restart it; if it was replaced, run pointsmanctl evict BROKER on all name servers: then it is retired and "
    "its downtime ends",
    "unseen": "check that it is running: it did not unregister, and no name server knows it",
}


def _classes(report: Report) -> Iterator[Finding]:
    for name in FINDINGS:
        named = [broker for broker in report.brokers if broker.class_ == name]
        count = report.headline.by_class.get(name, 0)
        if count:
            text = f"{count:,} {name}: {some([_with_cause(broker) for broker in named], of=count)}"
            yield Finding(name, text, _advice(name, named), "brokers")


def _advice(name: str, brokers: list[Broker]) -> str:
    """Advice for a class of brokers, including that for their cause if they all have the same known one."""
    general = _ADVICE.get(name, "see the table of brokers")
    causes = {broker.cause for broker in brokers}
    advice = ADVICE.get(causes.pop() or "") if len(causes) == 1 else None
    return f"{general}; {advice}" if advice else general


def _with_cause(broker: Broker) -> str:
    cause = cause_name(broker.cause)
    return f"{broker.label} ({cause})" if cause else broker.label


def _outliers(report: Report) -> Iterator[Finding]:
    slow = [
        (broker, broker.ranking)
        for broker in report.brokers
        if broker.ranking and broker.ranking.outlier and broker.class_ not in FINDINGS
    ]
    if slow:
        names = [f"{broker.label} ({counted(ranking.outages, 'outage')})" for broker, ranking in slow]
        days = max(ranking.days for _, ranking in slow)
        rate = "an outage rate" if len(slow) == 1 else "outage rates"
        yield Finding(
            "outlier",
            f"{counted(len(slow), 'broker')} with {rate} above the cluster's "
            f"(last {counted(days, 'day')}), below the flapping threshold: {some(names)}",
            "compare host, version and load with other brokers of the cluster",
            "brokers",
        )


def _weekly_patterns(report: Report) -> Iterator[Finding]:
    slots: dict[str, list[str]] = {}
    for row in report.weekly_patterns.rows:
        slots.setdefault(row.label, []).append(row.slot)
    if slots:
        names = [f"{label} ({some(own, most=2)})" for label, own in slots.items()]
        yield Finding(
            "weekly_pattern",
            f"{counted(len(slots), 'broker')} went down in the same hour of the week, in UTC, in at least "
            f"{LEAST_WEEKS} of {WEEKS} weeks: {some(names)}",
            "check what runs at that time: jobs, backups, scheduled restarts",
            "weekly",
        )


def _clocks(clocks: list[NodeClock], limit: float) -> Iterator[Finding]:
    # With two clocks the median is in the middle between them.
    offsets = [0.0, *(row.offset_seconds or 0.0 for row in clocks)]
    apart = max(offsets) - min(offsets)
    if apart > limit:
        off = [row for row in clocks if abs(row.offset_seconds or 0.0) > limit / 2]
        names = [f"{printable(row.node)} by {duration(row.offset_seconds)}" for row in off]
        yield Finding(
            "clocks_apart",
            f"name server clocks differ by up to {duration(apart)} (offset from the median: {some(names)}); shorter "
            "outages appear only as disagreements",
            "check NTP on these hosts: outages are dated by these clocks",
            "nameservers",
        )
    stepped = [row for row in clocks if (row.stepped_seconds or 0.0) > limit]
    if stepped:
        names = [f"{printable(row.node)} by {duration(row.stepped_seconds)}" for row in stepped]
        yield Finding(
            "clock_stepped",
            f"the clock of a running name server was stepped: {some(names)}",
            "configure its time service to slew the clock: rows around the step are in the wrong order",
            "nameservers",
        )


def _name_servers(report: Report) -> Iterator[Finding]:
    servers, limit = report.name_servers, report.parameters.health.clock_offset_above_seconds
    yield from _clocks(servers.clocks, limit)
    twice = [printable(row.node) for row in servers.nodes.rows if row.overlapping_lives]
    if twice:
        yield Finding(
            "node_used_twice",
            f"{counted(len(twice), 'node name')} used by two name servers at the same time: {some(twice)}",
            "give each name server its own node name: otherwise their observations are mixed up",
            "nameservers",
        )
    crashed = [row for row in servers.nodes.rows if row.vanished]
    if crashed:
        names = [f"{printable(row.node)} ({counted(row.vanished, 'time')})" for row in crashed]
        yield Finding(
            "name_server_vanished",
            f"{counted(len(crashed), 'name server')} crashed (no clean stop recorded): {some(names)}",
            "check its log and the kernel's: it was killed, or its machine went down",
            "nameservers",
        )
    views = servers.partial_views
    if views.in_all:
        longest = views.rows[0]
        yield Finding(
            "partial_views",
            f"name servers disagreed on {counted(views.brokers, 'broker')} for more than a minute "
            f"({counted(views.in_all, 'time')}); longest on {longest.label}, {duration(longest.seconds)}",
            f"check the network between {_nodes(longest.seen_down_by)} and that broker",
            "nameservers",
        )


def _agents(report: Report) -> Iterator[Finding]:
    clocks, limit = report.punctuality.clocks, report.parameters.health.clock_offset_above_seconds
    if not clocks.in_all:
        return
    names = [f"{row.label} is {ahead_or_behind(row.ahead_seconds)}" for row in clocks.rows]
    yield Finding(
        "agent_clocks",
        f"{counted(clocks.in_all, 'agent')} with a clock offset above {duration(limit)} to the name servers: "
        f"{some(names, of=clocks.in_all)}",
        "check NTP on their hosts: brokers there use the same clock for message timestamps",
        "heartbeats",
    )


def _nodes(names: list[str] | None) -> str:
    return some([printable(name) for name in names or []]) or "some name servers"


def _history(report: Report) -> Iterator[Finding]:
    data, computed = report.completeness, report.computed
    for kind, count, text, do in _history_problems(data):
        if count:
            yield Finding(kind, text, do, "basis")
    late = data.rows_too_late
    if late:
        yield Finding(
            "rows_too_late",
            f"{counted(late, 'history row')} arrived too late; {_its(late)} day was not recomputed",
            "run pointsman-report backfill from that day to include them (table registration_events has them)",
            "basis",
        )
    if data.stale_after:
        after = data.stale_after + timedelta(days=1)
        yield Finding(
            "stale_state",
            f"the days after {data.stale_after} continue from a state that has changed since",
            f"run pointsman-report backfill --from {after} to the last computed day",
            "basis",
        )
    days = computed.stale
    if days:
        yield Finding(
            "stale_days",
            f"{counted(len(days), 'day')} {_has(days)} more history rows now than when computed: {some(days)}",
            f"run pointsman-report backfill --from {days[0]} --to {report.to}",
            "basis",
        )


def _history_problems(data: Completeness) -> Iterator[tuple[str, int, str, str]]:
    lost, ahead, behind = data.rows_missing, data.rows_ahead, data.rows_misdated
    files, in_all = data.unreadable_files, data.unreadable_files_in_all
    lines = data.quarantined_lines - in_all
    yield (
        "rows_lost",
        lost,
        f"{counted(lost, 'history row')} lost (missing sequence {'number' if lost == 1 else 'numbers'})",
        "check the name server's disk, and its metric pointsman_namesrv_history_rows_dropped_total",
    )
    yield (
        "rows_ahead",
        ahead,
        f"{counted(ahead, 'history row')} dated in the future: a clock is or was wrong",
        "check NTP on the name servers",
    )
    yield (
        "rows_misdated",
        behind,
        f"{counted(behind, 'history row')} dated days before {_its(behind)} folder, skipped",
        "a clock is or was wrong: check NTP on the name servers",
    )
    yield (
        "unreadable_files",
        in_all,
        f"{counted(in_all, 'history file')} cannot be read to {_its(in_all)} end: {some(files, of=in_all)}",
        "copy them again from the name server before its retention ends",
    )
    yield (
        "quarantine",
        lines,
        f"{counted(lines, 'history line')} could not be read and {_is(lines)} in quarantine",
        "the table quarantine has each line, its file and the reason",
    )


def _groups(report: Report) -> Iterator[Finding]:
    behind, count = report.queues.behind.rows, report.queues.behind.in_all
    if count:
        names = [f"{printable(str(row.consumer_group))} of {printable(str(row.topic))}" for row in behind]
        yield Finding(
            "falling_behind",
            f"{counted(count, 'consumer group')} {'falls' if count == 1 else 'fall'} behind: {some(names, of=count)}",
            printable(behind[0].cure or "see the table of queues"),
            "queues",
        )


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _its(count: int) -> str:
    return "its" if count == 1 else "their"


def _has(these: Sized) -> str:
    return "has" if len(these) == 1 else "have"
