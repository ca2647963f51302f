"""The report as one HTML page: no script, nothing fetched, readable on a screen, a phone and paper."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from importlib import resources
from typing import Any

from spark_jobs.parameters import FlapParameters
from spark_jobs.report.numbers import MOST_TIMELINES, Drawn, Numbers, most_charged
from spark_jobs.report.plots import penalty_curves, timeline
from spark_jobs.report.wording import NOTHING, duration, label, percent

TOP = 20
OUTAGES_LISTED = 60


def page(numbers: Numbers, drawn: Drawn, parameters: FlapParameters) -> str:
    """Render the numbers; every figure on the page stands in them too."""
    days = numbers["from"] if numbers["from"] == numbers["to"] else f"{numbers['from']} to {numbers['to']}"
    style = resources.files("spark_jobs.report").joinpath("page.css").read_text(encoding="utf-8")
    sections = (
        _head(numbers, days),
        _findings(numbers),
        _tiles(numbers),
        _clusters(numbers),
        _flapping_table(numbers),
        _plots(numbers, drawn, parameters),
        _outages(numbers),
        _data(numbers),
        _footnotes(numbers),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Brokers, {escape(days)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _head(numbers: Numbers, days: str) -> str:
    span = numbers["interval"]
    return (
        f"<header><h1>Brokers <span>{escape(days)}</span></h1>"
        f"<p>{_moment(span['from_at'])} to {_moment(span['to_at'])}, all times UTC</p></header>"
    )


def _findings(numbers: Numbers) -> str:
    said = numbers["headline"]["findings"]
    if not said:
        return '<p class="verdict fine">Nothing to look at.</p>'
    loud = " loud" if numbers["headline"]["no_data"] else ""
    return f'<ul class="verdict{loud}">' + "".join(f"<li>{escape(text)}</li>" for text in said) + "</ul>"


def _tiles(numbers: Numbers) -> str:
    headline, data = numbers["headline"], numbers["completeness"]
    up = sum(cluster["up_seconds"] for cluster in headline["clusters"])
    down = sum(cluster["down_seconds"] for cluster in headline["clusters"])
    tiles = (
        (f"{headline['brokers_seen']:,}", "brokers seen", ""),
        (percent(up / (up + down) if up + down else None), "availability", ""),
        (f"{headline['flapping_count']:,}", "flapping", "bad" if headline["flapping_count"] else ""),
        (f"{headline['outages']:,}", "outages", ""),
        (percent(data["watched_seconds"] / data["span_seconds"], digits=1), "of the time watched", ""),
        (f"{data['rows_missing']:,}", "rows lost", "bad" if data["rows_missing"] else ""),
        (f"{data['quarantined_lines']:,}", "lines in quarantine", "bad" if data["quarantined_lines"] else ""),
    )
    cells = (f'<div class="{kind}"><b>{value}</b><span>{text}</span></div>' for value, text, kind in tiles)
    return f'<section class="tiles">{"".join(cells)}</section>'


def _clusters(numbers: Numbers) -> str:
    rows = [
        (
            escape(cluster["cluster"]),
            f"{cluster['brokers']:,}",
            percent(cluster["availability"]),
            duration(cluster["down_seconds"]),
            f"{cluster['outages']:,}",
            f"{cluster['flapping']:,}",
        )
        for cluster in numbers["headline"]["clusters"]
    ]
    if not rows:
        return ""
    head = ("Cluster", "Brokers", "Availability", "Down time", "Outages", "Flapping")
    return f"<section><h2>Clusters</h2>{_table(head, rows, texts={0})}</section>"


def _flapping_table(numbers: Numbers) -> str:
    brokers = numbers["brokers"]
    if not brokers:
        return ""
    rows = [
        (
            f"<b>{escape(broker['broker_name'])}</b>/{broker['broker_id']}<small>{escape(broker['cluster'])}</small>",
            f'<span class="class {broker["class"]}">{broker["class"]}</span>',
            f"{broker['penalty_max']:,.0f}",
            f"{broker['down_count']:,}",
            duration(broker["longest_outage_seconds"]),
            duration(broker["mttr_seconds"]),
            duration(broker["mtbf_seconds"]),
            percent(broker["availability"]),
            escape(", ".join(f"{reason} ({n})" for reason, n in broker["reasons"].items())) or NOTHING,
        )
        for broker in brokers[:TOP]
    ]
    head = ("Broker", "Class", "Penalty, max", "Downs", "Longest", "MTTR", "MTBF", "Availability", "Reasons")
    rest = (
        f"<p class=note>The worst {TOP} of {len(brokers):,}; all of them are in report.json.</p>"
        if len(brokers) > TOP
        else ""
    )
    return f"<section><h2>Worst first</h2>{_table(head, rows, texts={0, 1, 8})}{rest}</section>"


def _plots(numbers: Numbers, drawn: Drawn, parameters: FlapParameters) -> str:
    if not drawn.intervals:
        return ""
    window = window_of(numbers, drawn)
    shown = numbers["brokers"][:MOST_TIMELINES]
    names = [(_key(broker), label(broker)) for broker in shown]
    left_out = len(numbers["brokers"]) - len(shown)
    note = f" The {left_out:,} least conspicuous are left out." if left_out else ""
    legend = (
        '<span class="swatch up"></span>up <span class="swatch down"></span>down <span class="swatch planned"></span>'
        "away after a polite leave; blank where no name server watched."
    )
    bars = timeline(names, drawn.intervals, window=window)
    parts = [f"<section><h2>Up and down</h2><p class=note>{legend}{note}</p>{bars}</section>"]
    scored = most_charged(numbers)
    if scored:
        half_lives = (window[0] - _micros(numbers["interval"]["from_at"])) / (parameters.half_life_minutes * 60e6)
        curves = [(_key(broker), label(broker), broker["penalty_start"] * 2**-half_lives) for broker in scored]
        plot = penalty_curves(curves, drawn.charges, parameters, window=window)
        half_life = f"{parameters.half_life_minutes:g} minutes"
        halves = f"Each outage adds {parameters.points_outage:g} points; half is forgotten every {half_life}."
        parts.append(f"<section><h2>Flap penalty</h2><p class=note>{halves}</p>{plot}</section>")
    return "".join(parts)


def window_of(numbers: Numbers, drawn: Drawn) -> tuple[int, int]:
    """Return the part of the days that the plots show: all of it, or what was recorded of it if that is much less."""
    first = _micros(numbers["interval"]["from_at"])
    last = _micros(numbers["interval"]["to_at"])
    begin = max(first, min(row["start"] for row in drawn.intervals))
    end = min(last, max(row["end"] for row in drawn.intervals))
    margin = max((end - begin) // 50, 1_000_000)
    return max(first, begin - margin), min(last, end + margin)


def _outages(numbers: Numbers) -> str:
    outages = [(outage, broker) for broker in numbers["brokers"] for outage in broker["outages"]]
    if not outages:
        return ""
    longest = sorted(outages, key=lambda pair: -pair[0]["seconds"])[:OUTAGES_LISTED]
    rows = [
        (
            escape(label(broker)),
            _moment(outage["start_at"]) + (" ◂" if outage["start_censored"] else ""),
            _moment(outage["end_at"]) + (" ▸" if outage["end_censored"] else ""),
            duration(outage["seconds"]),
            duration(_detection(outage)),
            escape(outage["reason"] or ""),
            f"{outage['observers']}",
        )
        for outage, broker in longest
    ]
    head = ("Broker", "Seen to go", "Back", "Lasted", "Noticed after", "Reason", "Seen by")
    more = f"The longest {OUTAGES_LISTED} of {len(outages):,}. " if len(outages) > OUTAGES_LISTED else ""
    cut = any("▸" in row[2] or "◂" in row[1] for row in rows)
    censored = "◂ it had begun before anybody watched; ▸ its end was not seen." if cut else ""
    note = f"<p class=note>{more}{censored}</p>" if more or censored else ""
    return f"<section><h2>Outages</h2>{_table(head, rows, texts={0, 1, 2, 5})}{note}</section>"


def _detection(outage: dict[str, Any]) -> float | None:
    if outage["last_sign_of_life_at"] is None:
        return None
    return (_micros(outage["start_at"]) - _micros(outage["last_sign_of_life_at"])) / 1e6


def _data(numbers: Numbers) -> str:
    data = numbers["completeness"]
    observers = [
        (
            escape(observer["node"]) + f"<small>{escape(observer['boot_id'])}</small>",
            _moment(observer["from_at"]),
            "still watching" if observer["open"] else _moment(observer["to_at"]),
            f"{observer['rows']:,}",
            f"{observer['rows_missing']:,}",
        )
        for observer in numbers["observers"][:TOP]
    ]
    head = ("Name server", "Watched from", "To", "Rows", "Lost")
    parts = [f"<section><h2>What this rests on</h2>{_table(head, observers, texts={0, 1, 2}) if observers else ''}"]
    facts = [f"{data['rows']:,} rows in {data['files']:,} files."]
    if len(numbers["observers"]) > TOP:
        facts.append(f"{len(numbers['observers']):,} lives of name servers; the first {TOP} are listed.")
    if data["rows_ahead"]:
        facts.append(f"{data['rows_ahead']:,} rows are dated in the future; they end no name server's watch.")
    if data["unknown_events"]:
        facts.append(
            "Events of another version, counted only: "
            + ", ".join(f"{k} ({v:,})" for k, v in data["unknown_events"].items())
            + "."
        )
    if not data["continues_day_before"]:
        facts.append(
            "There was no state of the day before: what was already down or up then begins with its first row."
        )
    parts.append(f"<p>{escape(' '.join(facts))}</p>")
    if data["quarantined"]:
        bad = [
            (escape(row["reason"]), f"{row['lines']:,}", f"<code>{escape(row['first_file'])}</code>")
            for row in data["quarantined"][:TOP]
        ]
        parts.append(_table(("Quarantined because", "Lines", "First in"), bad, texts={0, 2}))
    return "".join(parts) + "</section>"


def _footnotes(numbers: Numbers) -> str:
    classes = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in numbers["classes"].items())
    parameters = "".join(f"<dt>{name}</dt><dd>{value:g}</dd>" for name, value in numbers["parameters"].items())
    return (
        f'<section class="foot"><div><h2>Classes</h2><dl>{classes}</dl></div>'
        f'<div><h2>Parameters</h2><dl class="numbers">{parameters}</dl></div></section>'
        "<footer>Availability is up / (up + unplanned down). MTTR: mean of the outages that ended here with both "
        "ends seen. MTBF: up time / outages that began here. An outage begins when the last name server that watched "
        "saw the broker go. "
        f"pointsman {escape(numbers['code_version'])}.</footer>"
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, texts: set[int]) -> str:
    def cell(tag: str, n: int, content: str) -> str:
        return f"<{tag}>{content}</{tag}>" if n in texts else f"<{tag} class=n>{content}</{tag}>"

    top = "".join(cell("th", n, escape(name)) for n, name in enumerate(head))
    body = "".join("<tr>" + "".join(cell("td", n, text) for n, text in enumerate(row)) + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _moment(text: str | None) -> str:
    if text is None:
        return NOTHING
    moment = datetime.fromisoformat(text)
    return f"{moment:%Y-%m-%d} <time>{moment:%H:%M:%S}</time>"


def _micros(text: str) -> int:
    return (datetime.fromisoformat(text) - datetime.fromisoformat("1970-01-01T00:00:00Z")) // timedelta(microseconds=1)


def _key(broker: dict[str, Any]) -> tuple[str, str, int]:
    return broker["cluster"], broker["broker_name"], broker["broker_id"]
