"""The report in a few lines of text, for a terminal or a chat."""

from __future__ import annotations

from spark_jobs.report.numbers import Numbers
from spark_jobs.report.wording import duration, label, percent, printable

MOST_BROKERS = 10


def summary(numbers: Numbers) -> str:
    """Say what was seen, what somebody has to look at, and the worst brokers."""
    headline, data = numbers["headline"], numbers["completeness"]
    days = numbers["from"] if numbers["from"] == numbers["to"] else f"{numbers['from']} to {numbers['to']}"
    counts = f"{headline['outages']} outages, {headline['flapping_count']} flapping"
    lines = [f"Brokers on {days} (UTC): {headline['brokers_seen']} seen, {counts}"]
    lines += [
        f"  {cluster['cluster']}: {cluster['brokers']} brokers, {percent(cluster['availability'])} available"
        for cluster in headline["clusters"]
    ]
    watched = percent(data["watched_seconds"] / data["span_seconds"], digits=1)
    lines.append(
        f"  {data['rows']} rows of {len(numbers['observers'])} name server lives; {watched} of the time watched"
    )
    shown = [broker for broker in numbers["brokers"] if broker["class"] not in ("healthy", "new", "retired")][
        :MOST_BROKERS
    ]
    if shown:
        width = max(len(label(broker)) for broker in shown)
        head = ("class", "penalty", "downs", "longest", "available")
        lines += ["", f"{'broker':<{width}}  {head[0]:<9} {head[1]:>8} {head[2]:>6} {head[3]:>11} {head[4]:>11}"]
        lines += [
            f"{label(broker):<{width}}  {broker['class']:<9} {broker['penalty_max']:>8.0f} {broker['down_count']:>6} "
            f"{duration(broker['longest_outage_seconds']):>11} {percent(broker['availability']):>11}"
            for broker in shown
        ]
    findings = headline["findings"]
    lines += ["", *(f"! {text}" for text in findings)] if findings else ["", "Nothing to look at."]
    # A name can hold what would move a terminal's cursor.
    return "\n".join(printable(line) for line in lines)
