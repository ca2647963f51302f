"""The report in a few lines of text, for a terminal or a chat."""

from __future__ import annotations

from pointsman_report.report.classes import cause_name
from pointsman_report.report.numbers import Numbers
from pointsman_report.report.wording import coarse_percent, counted, days_of, duration, label, percent, printable

MOST_BROKERS = 10


def summary(numbers: Numbers) -> str:
    """Say what was seen, what somebody has to look at, and the worst brokers."""
    headline, zone = numbers["headline"], numbers["interval"]["timezone"]
    # Without data, any count would look like an answer.
    nothing = [f"NO DATA on {days_of(numbers)} ({zone})"]
    lines = nothing if headline["no_data"] else [*_seen(numbers), *_worst(numbers)]
    lines += ["", *(f"! {text}" for text in headline["notices"])] if headline["notices"] else [""]
    for finding in numbers["findings"]:
        lines += [f"! {finding['text']}", f"    {finding['do']}"]
    if not numbers["findings"] and not headline["no_data"]:
        lines.append("Nothing to look at.")
    # A name can hold what would move a terminal's cursor.
    return "\n".join(printable(line) for line in lines)


def _seen(numbers: Numbers) -> list[str]:
    headline, data = numbers["headline"], numbers["completeness"]
    counts = f"{counted(headline['outages'], 'outage')}, {headline['flapping_count']} flapping"
    zone = numbers["interval"]["timezone"]
    lines = [f"Brokers on {days_of(numbers)} ({zone}): {headline['brokers_seen']} seen, {counts}"]
    lines += [f"  {_cluster(numbers, cluster)}" for cluster in headline["clusters"]]
    runs = counted(data["lives"], "name server run")
    return [*lines, f"  {counted(data['rows'], 'row')} of {runs}; {_covers(numbers)}"]


def _covers(numbers: Numbers) -> str:
    covered = numbers["coverage"]
    if covered["is_short"]:
        return f"covers {duration(covered['seconds'])} of the day: no rates, no ranks"
    return f"covers {percent(covered['seconds'] / covered['span_seconds'], digits=1)} of the time"


def _worst(numbers: Numbers) -> list[str]:
    well = ("healthy", "new", "retired")
    shown = [broker for broker in numbers["brokers"] if broker["class"] not in well][:MOST_BROKERS]
    if not shown:
        return []
    width = max(len(label(broker)) for broker in shown)
    head = ("class", "penalty", "downs", "longest", "available")
    titles = f"{'broker':<{width}}  {head[0]:<9} {head[1]:>8} {head[2]:>6} {head[3]:>11} {head[4]:>11}  cause"
    rows = [
        f"{label(broker):<{width}}  {broker['class']:<9} {broker['penalty_max']:>8.0f} {broker['down_count']:>6} "
        f"{duration(broker['longest_outage_seconds']):>11} {_share(numbers, broker['availability']):>11}  "
        f"{_cause(broker)}".rstrip()
        for broker in shown
    ]
    return ["", titles, *rows]


def _cause(broker: Numbers) -> str:
    cause = cause_name(broker["cause"])
    return ", ".join(part for part in (cause, f"owner {broker['owner']}" if broker["owner"] else "") if part)


def _share(numbers: Numbers, value: float | None) -> str:
    return coarse_percent(value, is_short=numbers["coverage"]["is_short"])


def _cluster(numbers: Numbers, cluster: Numbers) -> str:
    brokers = counted(cluster["brokers"], "broker")
    said = f"{cluster['cluster']}: {brokers}, {_share(numbers, cluster['availability'])} available"
    left = cluster["budget_left_seconds"]
    if left is None or not cluster["budget_seconds"]:
        return said
    budget = f"error budget {duration(cluster['budget_seconds'])}, used {duration(cluster['budget_seconds'] - left)}"
    over = f" (over by {duration(-left)})" if left < 0 else ""
    return f"{said}, {budget}{over} ({percent(cluster['slo'])} over {counted(cluster['slo_days'], 'day')})"
