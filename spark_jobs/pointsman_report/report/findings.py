"""What somebody has to look at: each a plain sentence, and what to do or where to look; the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from datetime import timedelta

from pointsman_report.report.contents import Finding, Report
from pointsman_report.report.formatting import ahead_or_behind, counted, duration, percent, printable, some
from pointsman_report.report.meanings import ADVICE, FINDINGS, cause_name
from pointsman_report.report.sections.name_server_record import NodeClock
from pointsman_report.report.sections.report_basis import Completeness
from pointsman_report.report.sections.worst_brokers import Broker

LEAST_WATCHED_SECONDS = 43_200.0
"""Half a day of each broker: an objective says nothing yet of less."""


def findings(report: Report) -> list[Finding]:
    """Say what somebody has to look at; none means all is well."""
    parts = (
        _nobody_looked,
        _incidents,
        _guards,
        _rolling_restarts,
        _topics,
        _budgets,
        _classes,
        _outliers,
        _name_servers,
        _agents,
        _history,
        _groups,
    )
    return [finding for part in parts for finding in part(report)]


def notices(report: Report) -> list[str]:
    """Say what a reader must know and nobody has to mend."""
    said = []
    stop = report.completeness.stopped_before
    if stop and stop.told_before:
        at = report.interval.time.clock(stop.to_at)
        said.append(
            f"NO DATA: no name server has run since {printable(stop.node)}, the last of all, stopped politely at "
            f"{at}; this was told on the first day without them"
        )
    if report.interval.timezone != "UTC" and report.interval.hours % 24:
        said.append(f"the clocks changed: these days have {report.interval.hours:g} hours")
    return said


def _nobody_looked(report: Report) -> Iterator[Finding]:
    data = report.completeness
    if data.warehouse_ends_on:
        after = data.warehouse_ends_on + timedelta(days=1)
        yield Finding(
            "warehouse_gap",
            f"the warehouse ends on {data.warehouse_ends_on}: run pointsman-report backfill --from {after} "
            f"--to {data.last_day}, or what was down since then is forgotten",
            "run that command with the same --history and --warehouse",
            "basis",
        )
    stop = data.stopped_before
    if data.rows == 0:
        if not (stop and stop.told_before):
            yield Finding(
                "no_data",
                "NO DATA: not one row of history for these days; nothing can be said about any broker",
                "see whether the name servers run, and whether --history names their directories",
                "basis",
            )
    elif data.days_without_rows:
        yield Finding(
            "no_rows",
            f"no rows at all on {some(data.days_without_rows)}",
            "see whether the name servers ran on these days and their files were shipped",
            "basis",
        )
    for cluster, days in data.unwatched_clusters.items():
        yield Finding(
            "unwatched",
            f"nobody watched cluster {printable(cluster)} on {some(days)}",
            "start its name servers, or add their directories with --history",
            "basis",
        )
    if data.fell_silent:
        last = data.fell_silent
        yield Finding(
            "fell_silent",
            f"no name server watched at the end of {data.last_day}: {printable(last.node)} fell silent at "
            f"{last.to_at} and did not say that it stopped",
            "see whether it runs, and whether its newest files were shipped",
            "nameservers",
        )


def _incidents(report: Report) -> Iterator[Finding]:
    incidents, time = report.incidents, report.interval.time
    if not incidents.in_all:
        return
    worst = incidents.rows[0]
    many = f"{counted(incidents.in_all, 'incident')} took {counted(incidents.outages, 'broker')} down"
    hit = worst.topics_unwritable or 0
    topics = f", {counted(hit, 'topic')} left without a writable queue" if hit else ""
    largest = (
        f"the largest {counted(worst.brokers, 'broker')} of {worst.shared} at the same moment from "
        f"{time.clock(worst.from_at)}"
    )
    evidence = f" ({printable(worst.evidence)})" if worst.evidence else ""
    yield Finding(
        "incident",
        f"{many}: {largest}{topics}; cause: {cause_name(worst.cause or 'unknown')}{evidence}",
        ADVICE.get(worst.cause or "", "see its outages and their evidence"),
        "incidents",
    )


def _guards(report: Report) -> Iterator[Finding]:
    guards, time = report.guard_periods, report.interval.time
    for cluster in dict.fromkeys(row.cluster for row in guards.rows):
        own = [row for row in guards.rows if row.cluster == cluster]
        longest = own[0]
        many = "" if len(own) == 1 else f" {counted(len(own), 'time')}, the longest"
        still = ", still on at the end" if longest.open else ""
        lost = "" if longest.lost is None else f" ({longest.lost:,} lost of {longest.baseline or 0:,})"
        limit = ", beyond its limit" if any(row.over_limit for row in own) else ""
        yield Finding(
            "guard",
            f"the expiry guard of cluster {printable(cluster)} was on{many} from {time.clock(longest.from_at)} for "
            f"{duration(longest.seconds)}{still}{limit}: it kept {counted(longest.kept, 'broker')} in the "
            f"routes{lost} at {_nodes(longest.nodes)}",
            "see which brokers were lost then: routes named them although they may have been down",
            "guards",
        )


def _rolling_restarts(report: Report) -> Iterator[Finding]:
    found, time = report.rolling_restarts, report.interval.time
    # Those whose brokers all left by a planned shutdown need nothing.
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
        f"{counted(count, 'topic')} had no writable queue for a time: {some(longest, of=count)}",
        "spread them over more brokers, or give their brokers slaves that take over",
        "topics",
    )


def _budgets(report: Report) -> Iterator[Finding]:
    for cluster in report.headline.clusters:
        left, slo = cluster.budget_left_seconds, cluster.slo
        # A budget of nothing belongs to a cluster that nobody watched.
        if left is None or left >= 0 or not cluster.budget_seconds or slo is None:
            continue
        watched = cluster.budget_seconds / (1 - slo)
        if watched < cluster.brokers * LEAST_WATCHED_SECONDS:
            continue
        yield Finding(
            "budget_spent",
            f"cluster {printable(cluster.cluster)} has spent its error budget "
            f"of {counted(cluster.slo_days or 0, 'day')} ({percent(slo)}) "
            f"and is {duration(-left)} of broker time over it",
            "the brokers with the most down time spent it: they stand in the table of the worst",
            "clusters",
        )


_ADVICE = {
    "chronic": "take it out of service until its cause is found",
    "flapping": "see its likely cause, then its own log around its outages",
    "dead": "bring it back, or unregister it so that it counts as retired",
    "unseen": "check that it still runs: it did not unregister and no name server knows it",
}


def _classes(report: Report) -> Iterator[Finding]:
    for name in FINDINGS:
        named = [broker for broker in report.brokers if broker.class_ == name]
        count = report.headline.by_class.get(name, 0)
        if count:
            text = f"{count:,} {name}: {some([_with_cause(broker) for broker in named], of=count)}"
            yield Finding(name, text, _advice(name, named), "brokers")


def _advice(name: str, brokers: list[Broker]) -> str:
    """What to do about a class of brokers; where they all have one known cause, about that."""
    general = _ADVICE.get(name, "see the table of the worst")
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
        told = [f"{broker.label} ({counted(ranking.outages, 'outage')})" for broker, ranking in slow]
        days = max(ranking.days for _, ranking in slow)
        more = "fail" if len(slow) > 1 else "fails"
        yield Finding(
            "outlier",
            f"{counted(len(slow), 'broker')} {more} more often than the rest of the cluster "
            f"(last {counted(days, 'day')}), too slowly to be flapping: {some(told)}",
            "compare host, version and load with the neighbours'",
            "brokers",
        )


def _clocks(clocks: list[NodeClock], limit: float) -> Iterator[Finding]:
    # The median itself stands in the middle of two that differ.
    offsets = [0.0, *(row.offset_seconds or 0.0 for row in clocks)]
    apart = max(offsets) - min(offsets)
    if apart > limit:
        off = [row for row in clocks if abs(row.offset_seconds or 0.0) > limit / 2]
        told = [f"{printable(row.node)} by {duration(row.offset_seconds)}" for row in off]
        yield Finding(
            "clocks_apart",
            f"clocks of name servers are up to {duration(apart)} apart, from the median {some(told)}: an outage "
            "shorter than that shows as a disagreement only",
            "see that NTP runs there: outages are dated by these clocks",
            "nameservers",
        )
    stepped = [row for row in clocks if (row.stepped_seconds or 0.0) > limit]
    if stepped:
        told = [f"{printable(row.node)} by {duration(row.stepped_seconds)}" for row in stepped]
        yield Finding(
            "clock_stepped",
            f"the clock of a running name server was put forward or back: {some(told)}",
            "have its time service slew the clock: what that name server saw around the step is in the wrong order",
            "nameservers",
        )


def _name_servers(report: Report) -> Iterator[Finding]:
    servers, limit = report.name_servers, report.parameters.health.clock_offset_above_seconds
    yield from _clocks(servers.clocks, limit)
    twice = [printable(row.node) for row in servers.nodes.rows if row.overlapping_lives]
    if twice:
        yield Finding(
            "node_used_twice",
            f"{counted(len(twice), 'node name')} used by two name servers at once: {some(twice)}",
            "give each name server a node name of its own, or what one saw is taken for the other's",
            "nameservers",
        )
    gone = [row for row in servers.nodes.rows if row.vanished]
    if gone:
        told = [f"{printable(row.node)} ({counted(row.vanished, 'time')})" for row in gone]
        yield Finding(
            "name_server_vanished",
            f"{counted(len(gone), 'name server')} ended without saying so: {some(told)}",
            "see its log and the kernel's: it was killed, or its machine went down",
            "nameservers",
        )
    views = servers.partial_views
    if views.in_all:
        longest = views.rows[0]
        yield Finding(
            "partial_views",
            f"name servers disagreed on {counted(views.brokers, 'broker')} for more than a minute "
            f"({counted(views.in_all, 'time')}); longest on {longest.label}, {duration(longest.seconds)}",
            f"see the network between {_nodes(longest.seen_down_by)} and that broker",
            "nameservers",
        )


def _agents(report: Report) -> Iterator[Finding]:
    clocks, limit = report.punctuality.clocks, report.parameters.health.clock_offset_above_seconds
    if not clocks.in_all:
        return
    told = [f"{row.label} is {ahead_or_behind(row.ahead_seconds)}" for row in clocks.rows]
    yield Finding(
        "agent_clocks",
        f"{counted(clocks.in_all, 'agent')} with a clock more than {duration(limit)} off the name servers': "
        f"{some(told, of=clocks.in_all)}",
        "see that NTP runs on their hosts: brokers there date messages by the same clock",
        "heartbeats",
    )


def _nodes(names: list[str] | None) -> str:
    return some([printable(name) for name in names or []]) or "some name servers"


def _history(report: Report) -> Iterator[Finding]:
    data, computed = report.completeness, report.computed
    for kind, count, says, do in _faults_of_history(data):
        if count:
            yield Finding(kind, says, do, "basis")
    late = data.rows_too_late
    if late:
        yield Finding(
            "rows_too_late",
            f"{counted(late, 'row')} of history came too late for {_its(late)} day to be computed anew",
            "run pointsman-report backfill from that day if it matters; the table registration_events has them",
            "basis",
        )
    if data.stale_after:
        after = data.stale_after + timedelta(days=1)
        yield Finding(
            "stale_state",
            f"the days after {data.stale_after} continue from a state that has changed since",
            f"run pointsman-report backfill --from {after} to the last day that was computed",
            "basis",
        )
    days = computed.stale
    if days:
        yield Finding(
            "stale_days",
            f"{counted(len(days), 'day')} {_has(days)} more rows now than when computed: {some(days)}",
            f"run pointsman-report backfill --from {days[0]} --to {report.to}",
            "basis",
        )


def _faults_of_history(data: Completeness) -> Iterator[tuple[str, int, str, str]]:
    lost, ahead, behind = data.rows_missing, data.rows_ahead, data.rows_misdated
    files, in_all = data.unreadable_files, data.unreadable_files_in_all
    lines = data.quarantined_lines - in_all
    yield (
        "rows_lost",
        lost,
        f"{counted(lost, 'row')} of history {_was(lost)} lost ({'number' if lost == 1 else 'numbers'} missing)",
        "see the name server's disk and its count of dropped rows",
    )
    yield (
        "rows_ahead",
        ahead,
        f"{counted(ahead, 'row')} of history {_is(ahead)} dated in the future: a clock is or was wrong",
        "see that NTP runs on the name servers",
    )
    yield (
        "rows_misdated",
        behind,
        f"{counted(behind, 'row')} of history, dated days before {_its(behind)} folder, {_was(behind)} left aside",
        "a clock is or was wrong: see that NTP runs on the name servers",
    )
    yield (
        "unreadable_files",
        in_all,
        f"{counted(in_all, 'file')} of history cannot be read to {_its(in_all)} end: {some(files, of=in_all)}",
        "fetch them again from the name server while it keeps them",
    )
    yield (
        "quarantine",
        lines,
        f"{counted(lines, 'line')} of history could not be read and {_is(lines)} in quarantine",
        "the table quarantine has each line, its file and the reason",
    )


def _groups(report: Report) -> Iterator[Finding]:
    behind, count = report.queues.behind.rows, report.queues.behind.in_all
    if count:
        told = [f"{printable(str(row.consumer_group))} of {printable(str(row.topic))}" for row in behind]
        yield Finding(
            "falling_behind",
            f"{counted(count, 'consumer group')} {'falls' if count == 1 else 'fall'} behind: {some(told, of=count)}",
            printable(behind[0].cure or "see the table of queues"),
            "queues",
        )


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _its(count: int) -> str:
    return "its" if count == 1 else "their"


def _has(these: Sized) -> str:
    return "has" if len(these) == 1 else "have"
