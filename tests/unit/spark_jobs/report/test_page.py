"""The page and the summary of small reports: their texts and their accessibility."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest
from jinja2 import TemplateAssertionError, UndefinedError

from pointsman_report.parameters import Parameters, ReportParameters
from pointsman_report.report.broker_plots import StateBar
from pointsman_report.report.collect import with_findings
from pointsman_report.report.contents import Report
from pointsman_report.report.drawing import VARIABLES
from pointsman_report.report.page import TEMPLATES, page
from pointsman_report.report.sections.broker_states import Drawn
from pointsman_report.report.sections.incident_list import GuardPeriod, Incident, Incidents, Member, RollingRestart
from pointsman_report.report.sections.long_memory import Remembered, WeeklyPattern
from pointsman_report.report.sections.outage_lengths import Outage
from pointsman_report.report.sections.planned_work import MaintenanceWindow
from pointsman_report.report.sections.watch_gaps import StoppedBefore
from pointsman_report.report.sections.worst_brokers import Ranking
from pointsman_report.report.summary import summary
from pointsman_report.report.table_rows import Listing
from tests.kit.report.busy import busy_report
from tests.kit.report.contents import TIME, a_broker, a_cluster, a_row, calm_report
from tests.kit.report.html_tables import tables_of

STYLE = resources.files("pointsman_report.report").joinpath("page.css").read_text(encoding="utf-8")
NASTY = '<script>alert("x")</script>\x1b[2J'


def report_of(**change: Any) -> Report:
    return with_findings(calm_report(**change))


def render(report: Report) -> str:
    return page(report, Drawn())


class _Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attributes)
        self.names += filter(None, [given.get("id")])
        self.links += filter(None, [given.get("href")])
        self.headings += [tag] if re.fullmatch(r"h\d", tag) else []


def outline(text: str) -> _Outline:
    read = _Outline()
    read.feed(text)
    return read


def test_a_calm_day_is_reported_with_what_was_not_measured() -> None:
    text = render(report_of())

    assert "No findings." in text
    assert "No incidents (at least 3 brokers of one zone, host or cluster down at the same moment)." in text
    assert "No heartbeat statistics in this history." in text
    assert "No findings." in summary(report_of())


def test_one_of_a_thing_is_singular_in_the_summary() -> None:
    shown = summary(report_of(headline={"outages": 1}, completeness={"rows": 1, "lives": 1}))

    assert "1 outage, " in shown
    assert "1 history row from 1 name server run;" in shown
    assert "c: 1 broker, 100 % available" in shown


def test_a_short_coverage_is_shown_at_the_top_and_nothing_is_extrapolated_from_it() -> None:
    outlier = a_row(Ranking, rank=1, outlier=True, ratio=3.0, outages=9, days=1)
    report = report_of(
        coverage={"seconds": 36.0, "is_short": True},
        completeness={"watched_seconds": 36.0},
        brokers=[
            a_broker(availability=0.89069, percent_state_change=0.0, ranking=outlier, mtbf_seconds=13.0).without_rates()
        ],
        headline={
            "clusters": [
                a_cluster(availability=0.89069, mtbf_seconds=13.0, budget_seconds=0.1).without_rates(),
                a_cluster("long", budget_left_seconds=60.0).without_rates(),
            ]
        },
    )
    text, shown = render(report), summary(report)
    tables = tables_of(text)

    assert "13 s" not in text
    assert 'class="under"' not in text
    assert report.headline.clusters[0].budget_left_seconds is None
    assert "The error budget is" not in text
    assert [row[3:5] for row in tables["Clusters"].rows] == [
        ["99.9 %", "\N{EN DASH}"],
        ["99.9 %", "1 min left | used 42 min 12 s of 43 min 12 s"],
    ]

    assert "This report covers 36 s of the day: rates per day and ranks are not shown." in text
    assert "covers 36 s of the day" in shown
    assert "89.0 %" in text
    for extrapolated in ("89.069", "a day (", "0.0 %", "of the time watched", "3.0 times its rate"):
        assert extrapolated not in text, extrapolated
    assert "89.069" not in shown
    assert text.index("covers 36 s") < text.index('class="tiles"')


def test_a_covered_day_has_no_warning_at_the_top_and_ranks_are_of_outliers() -> None:
    report = report_of(
        brokers=[
            a_broker("usual", ranking=a_row(Ranking, rank=7, outlier=False, ratio=1.5)),
            a_broker("odd", ranking=a_row(Ranking, rank=1, outlier=True, ratio=1.5)),
        ]
    )
    ranks = [row[9] for row in tables_of(render(report))["Brokers by reliability"].rows]

    assert ranks == ["\N{EN DASH}", "1 | 1.5 \N{MULTIPLICATION SIGN} cluster"]
    assert "This report covers" not in render(report)


def test_an_outage_shows_its_cause_with_the_evidence() -> None:
    outage = a_row(Outage, last_sign_of_life_at=None, cause="process_died", evidence="probe refused <b>")
    report = report_of(brokers=[a_broker(outages=[outage], down_count=1)])
    (row,) = tables_of(render(report))["Longest outages"].rows

    assert row[6] == "broker process died | probe refused <b>"


def test_guards_and_rolling_restarts_have_sections_where_there_were_any() -> None:
    assert not {"Expiry guard", "Rolling restarts"} & set(tables_of(render(report_of())))
    times = {"from_at": "2026-03-05T10:00:00.000Z", "to_at": "2026-03-05T10:03:00.000Z"}
    guard = a_row(
        GuardPeriod, **times, seconds=180.0, open=False, nodes=["n1"], modes=["AUTO"], lost=3, baseline=4, kept=3
    )
    rolling = a_row(
        RollingRestart,
        brokers=3,
        unplanned=3,
        version_after=None,
        back_at=times["to_at"],
        down_seconds=60.0,
        members=[Member("a", 0)],
    )
    report = report_of(
        guard_periods={"rows": [guard, replace(guard, open=True)], "in_all": 2},
        rolling_restarts={"rows": [rolling], "in_all": 1, "unplanned": 3},
    )
    tables = tables_of(render(report))

    assert tables["Expiry guard"].rows[0][2:8] == [
        "2026-03-05 10:03:00",
        "3 min | beyond its limit",
        "3",
        "3",
        "4",
        "1",
    ]
    assert tables["Expiry guard"].rows[1][2] == "still on"
    assert tables["Rolling restarts"].rows[0][2:7] == ["3", "2026-03-05 10:03:00", "\N{EN DASH}", "3", "1 min"]


def test_outages_to_expect_are_listed_from_thirty_days_of_memory_on() -> None:
    row = a_row(Remembered, since_on="2026-01-02", outages=1_200, ratio=3.14, expected=16.2, low=7, high=29)
    known: dict[str, Any] = {"rows": [row], "in_all": 1}
    few, many = (report_of(memory=known | {"days": days}) for days in (29, 30))
    checked = report_of(memory=known | {"days": 365, "forecasts": 310, "held": 282})

    assert "Outages to expect" not in render(report_of())
    assert "Outages of 29 days are remembered." in render(few)
    assert "Outages to expect" not in tables_of(render(few))
    assert tables_of(render(many))["Outages to expect"].rows == [
        [
            "broker-a/1 | orders",
            "1,200 | since 2026-01-02",
            "1.0",
            "3.1 \N{MULTIPLICATION SIGN} cluster",
            "16.2 | 7 to 29",
        ]
    ]
    assert "No such forecast has ended yet." in render(many)
    assert "Of 310 such forecasts that ended in the last 30 nights, 90.9 % held." in render(checked)


def test_weekly_patterns_are_listed_with_the_test_that_found_them() -> None:
    row = a_row(WeeklyPattern, weekday=6, hour=3, weeks=4, outages=8, p_value=4.9e-9)
    text = render(report_of(weekly_patterns={"rows": [row], "in_all": 1}))

    assert tables_of(text)["Weekly patterns"].rows == [["broker-a/1 | orders", "Sunday 03:00", "4", "8", "5e-09"]]
    assert "false discovery rate 5 %, Benjamini and Hochberg" in " ".join(text.split())
    assert "Weekly patterns" not in render(report_of())


def test_a_broker_is_shown_with_its_owner_and_its_first_day() -> None:
    broker = a_broker("ill", class_="flapping", owner="web <team>", first_seen_on="2026-03-01")
    ill = report_of(brokers=[broker])

    assert "<small>owner web &lt;team&gt;, since 2026-03-01</small>" in render(ill)
    assert summary(ill).count("owner web <team>") == 1
    assert "owner" not in summary(report_of(brokers=[replace(broker, owner=None)]))


def test_missing_data_is_prominent_on_page_and_terminal_and_not_shown_as_healthy() -> None:
    report = report_of(headline={"no_data": True}, completeness={"rows": 0})
    text = render(report)

    assert 'class="verdict loud"' in text
    assert "NO DATA" in summary(report)
    for well in ("No findings.", "None:", "100 %"):
        assert well not in text


def test_without_data_the_summary_begins_with_that_and_counts_nothing() -> None:
    report = report_of(
        headline={"no_data": True, "brokers_seen": 12},
        completeness={"rows": 0},
        brokers=[a_broker(class_="unwatched")],
    )
    lines = summary(report).splitlines()

    assert lines[0] == "NO DATA on 2026-03-05 (UTC)"
    assert [line for line in lines[1:] if line and "NO DATA" not in line] == [
        "    check that the name servers are running, and that --history lists their directories"
    ]


def test_a_topic_with_only_slaves_left_counts_as_unwritable() -> None:
    text = render(report_of(topics_at_risk={"in_all": 1, "by_worst": {"no_master": 1}, "unwritable": 1}))

    assert '<div class="bad"><b>1</b><span>topics at risk</span><small>1 unwritable for some time</small>' in text


def test_a_notice_of_no_data_is_as_loud_as_a_finding() -> None:
    stop = StoppedBefore("n1", "2026-03-02T10:00:00.000Z", reported_before=True)
    report = report_of(headline={"no_data": True}, completeness={"rows": 0, "stopped_before": stop})

    assert report.findings == []
    assert 'class="verdict loud"' in render(report)
    assert "No findings." not in summary(report)


def test_a_history_from_other_sources_lists_their_gaps() -> None:
    sources = {"observe": ["mq1:9876", "mq2:9876"], "rocketmq-log": ["mq3"], "mine": ["<n>"]}
    shown = render(report_of(completeness={"sources": sources}))

    assert "Rows of mq1:9876, mq2:9876: polled from RocketMQ&#39;s own name servers; heartbeats, probes" in shown
    assert "Rows of mq3: imported from the logs of RocketMQ&#39;s own name servers (to the second)" in shown
    assert "Rows of &lt;n&gt;: from the source mine." in shown


def test_a_name_is_always_escaped() -> None:
    broker = a_broker(NASTY, class_="flapping", cluster=NASTY, reasons={NASTY: 1})
    report = report_of(headline={"by_class": {"flapping": 1}}, brokers=[broker])

    assert "script" not in outline(render(report)).tags
    assert "\x1b" not in render(report) + summary(report)
    assert "&lt;script&gt;" in render(report)


class _Signs(HTMLParser):
    """The complete page without its drawings, in order: tags, attributes, texts."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self._within: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._within += [tag] if tag not in ("meta", "br") else []
        self._note((tag, *attributes))

    def handle_endtag(self, tag: str) -> None:
        self._note(("end", tag))
        assert self._within.pop() == tag

    def handle_data(self, data: str) -> None:
        self._note(data)

    def _note(self, sign: Any) -> None:
        if "svg" not in self._within:
            self.seen.append(sign)


def _with_texts(value: Any, text: str, name: str = "") -> Any:
    """Replace every text of a report that is not a lookup key of the page, and the keys of counts too."""
    if is_dataclass(value) and not isinstance(value, type | Parameters):
        inner = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{key: _with_texts(of_key, text, key) for key, of_key in inner.items()})
    if isinstance(value, dict):
        keys = {key: text if name in ("reasons", "unknown_events", "classes", "causes") else key for key in value}
        return {keys[key]: _with_texts(inner, text, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_texts(inner, text, name) for inner in value]
    is_ours = name in ("timezone", "see", "date") or name.endswith("_at")
    return text if isinstance(value, str) and not is_ours else value


def _signs(report: Report) -> str:
    read = _Signs()
    # A command is quoted for the shell, or left out (test_shell_commands).
    read.feed(re.sub('(<dt>Details</dt><dd>)?<code class="copied">.*</code>(</dd>)?', "", render(report)))
    return json.dumps(read.seen)


def test_no_text_from_outside_is_markup_or_moves_a_cursor_wherever_it_is_shown() -> None:
    hostile, harmless = """<script>&"'</td>\x1b\n""", "harmless"
    shown = hostile.replace("\x1b\n", 2 * "\N{REPLACEMENT CHARACTER}")
    expected = _signs(_with_texts(busy_report(), harmless))

    assert expected.count(harmless) > 80
    assert _signs(_with_texts(busy_report(), hostile)).replace(json.dumps(shown)[1:-1], harmless) == expected


def test_every_table_of_the_page_is_in_the_busy_report() -> None:
    written = resources.files("pointsman_report.report").joinpath("templates/sections.html").read_text(encoding="utf-8")

    assert set(re.findall(r'table\("([^"]+)"', written)) == set(tables_of(render(busy_report())))


def test_numbers_are_to_the_right_in_a_column_and_in_its_header() -> None:
    for table in re.findall("<table>.*?</table>", render(busy_report()), re.DOTALL):
        head, *rows = (
            [" class=n" in cell for cell in re.findall("<t[hd][^>]*>", row.partition("<tr class=")[0])]
            for row in table.split("<tr>")[1:]
        )
        assert rows == [head] * len(rows), table


def test_a_template_always_escapes_and_fails_on_an_undefined_name() -> None:
    assert (
        TEMPLATES.from_string("{{ shown }}{{ absent }}").render(shown="<b>\a", absent=None) == "&lt;b&gt;\ufffd\u2013"
    )
    with pytest.raises(UndefinedError, match="absent"):
        TEMPLATES.from_string("{{ absent }}").render()
    with pytest.raises(TemplateAssertionError, match="safe"):
        TEMPLATES.from_string("{{ shown | safe }}")


def test_links_lead_somewhere_and_no_two_things_have_one_name() -> None:
    read = outline(render(report_of(completeness={"rows_missing": 3, "fell_silent": None})))

    assert len(set(read.names)) == len(read.names)
    assert {link.removeprefix("#") for link in read.links} <= set(read.names)
    assert read.headings[0] == "h1"
    assert set(read.headings[1:]) == {"h2"}


def test_a_finding_whose_section_is_not_on_the_page_has_no_link() -> None:
    report = report_of(headline={"no_data": True, "by_class": {"flapping": 1}}, completeness={"rows": 0})

    assert {finding.see for finding in report.findings} == {"basis", "brokers"}
    assert [link for link in outline(render(report)).links if link == "#brokers"] == []


@pytest.mark.parametrize("report", [report_of(), busy_report()], ids=["calm", "busy"])
def test_every_table_has_a_name_and_headers_for_columns_and_rows(report: Report) -> None:
    tables = tables_of(render(report))

    assert {"Clusters", "Brokers by reliability"} <= set(tables)
    for table in tables.values():
        assert table.name
        assert {len(row) for row in table.rows} <= {len(table.head)}


def _colours(start: str) -> dict[str, str]:
    block = STYLE[STYLE.index(start) :]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", block[: block.index("}")]))


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


LIGHT = _colours(":root")
DARK = LIGHT | _colours("@media screen and (prefers-color-scheme: dark)")
PRINT = LIGHT | _colours("@media print")


@pytest.mark.parametrize("palette", [LIGHT, DARK, PRINT], ids=["light", "dark", "print"])
def test_text_has_contrast_with_its_background(palette: dict[str, str]) -> None:
    written = {(name, on) for name in ("ink", "soft", "link") for on in ("paper", "tint", "bad-tint", "fine-tint")}
    faint = {(a, b): _contrast(palette[a], palette[b]) for a, b in written | {("bad", "paper")}}
    lines = {name: _contrast(palette[name], palette["paper"]) for name in palette if name.startswith("curve")}

    assert {pair: ratio for pair, ratio in faint.items() if ratio < 4.5} == {}
    assert {name: ratio for name, ratio in lines.items() if ratio < 3} == {}


def test_the_style_sheet_knows_every_colour_of_the_plots_in_light_and_dark() -> None:
    dark = _colours("@media screen and (prefers-color-scheme: dark)")

    assert set(VARIABLES.values()) <= set(LIGHT)
    assert set(VARIABLES.values()) <= set(dark)


def _incidents(*found: Incident) -> Incidents:
    return Incidents(list(found), in_all=len(found))


def _texts(text: str, pattern: str) -> list[str]:
    """The texts of the elements that match, without tags."""
    found = re.findall(pattern, text, flags=re.DOTALL)
    return [" ".join(re.sub("<[^>]*>", " ", element).split()).replace(" ,", ",") for element in found]


def test_an_incident_shows_when_it_began_was_detected_and_ended_and_how_long_that_took() -> None:
    times = {"last_heard_at": "2026-03-05T09:59:48.500Z", "from_at": "2026-03-05T10:00:00.000Z"}
    said: dict[str, Any] = {"scope": "zone", "cause": None, "evidence": None, "members": [], "topics": []} | times
    known = a_row(Incident, scope_name="z1", **said, back_at="2026-03-05T10:12:00.000Z")
    lasting = a_row(Incident, scope_name="z2", **said | {"last_heard_at": None}, back_at=None)
    brief = a_row(Incident, scope_name="z3", **said, back_at="2026-03-05T10:00:01.234Z")
    text = render(report_of(incidents=_incidents(known, lasting, brief)))
    steps = [_texts(element, "<li>(.*?)</li>") for element in re.findall("<ol class=.steps.>.*?</ol>", text, re.DOTALL)]

    assert steps == [
        [
            "Began 2026-03-05 09:59:48 last heartbeat of the first broker",
            "Detected 2026-03-05 10:00:00 time to detect 12 s",
            "Recovered 2026-03-05 10:12:00 time to recover 12 min",
        ],
        [
            "Began \N{EN DASH} last heartbeat of the first broker",
            "Detected 2026-03-05 10:00:00 removed from the routes",
            "Recovered not yet not observed",
        ],
        [
            "Began 2026-03-05 09:59:48.500 last heartbeat of the first broker",
            "Detected 2026-03-05 10:00:00.000 time to detect 12 s",
            "Recovered 2026-03-05 10:00:01.234 time to recover 1.234 s",
        ],
    ]


def test_the_first_incidents_are_unfolded_and_name_their_owners_and_commands() -> None:
    member = Member("a", 0)
    found = [
        a_row(Incident, incident_id=f"i{n}", scope="zone", cause=None, evidence=None, members=[member], topics=["t"])
        for n in range(5)
    ]
    hit = a_broker(owner="web <team>", outages=[a_row(Outage, incident_id="i0", cause=None)])
    text = render(report_of(incidents=_incidents(*found), brokers=[hit, replace(hit, broker_name="b")]))
    cards = re.findall("<details class=.incident.*?</details>", text, re.DOTALL)

    assert [" open>" in card for card in cards] == [True, True, True, False, False]
    assert [_texts(card, "<dt>Owners</dt><dd>(.*?)</dd>") for card in cards[:2]] == [
        ["web &lt;team&gt; (2 brokers)"],
        [],
    ]
    assert _texts(cards[0], "<code.*?</code>") == [
        "pointsman-report explain --at=2026-03-05T10:00:00.000Z --cluster=orders --warehouse=WAREHOUSE t",
        "pointsman-report history --to=2026-03-05 --days=7 --warehouse=WAREHOUSE orders/a/0",
    ]


def test_a_last_heartbeat_after_the_removal_by_another_clock_is_not_a_time_to_detect() -> None:
    unknown: dict[str, Any] = {"scope": "zone", "cause": None, "evidence": None, "members": [], "topics": []}
    late = a_row(Incident, last_heard_at="2026-03-05T10:00:02.000Z", from_at=TIME, **unknown)

    assert "time to detect" not in render(report_of(incidents=_incidents(late)))


def test_impact_comes_before_clusters_and_brokers_and_what_did_not_happen_is_folded_at_the_end() -> None:
    busy, calm = render(busy_report()), render(report_of())
    at_risk = replace(busy_report().topics_at_risk, unwritable=0)
    orders = [
        re.findall('<section id="([a-z]+)"', text)
        for text in (busy, render(replace(busy_report(), topics_at_risk=at_risk)))
    ]

    assert orders[0][:5] == ["owners", "topics", "incidents", "clusters", "brokers"]
    assert orders[1][:4] == ["owners", "incidents", "clusters", "brokers"]
    assert sorted(orders[1]) == sorted(orders[0])
    assert "Nothing to show" not in busy
    assert "<summary>Nothing to show: Incidents, Topics at risk, Queues, Heartbeats</summary>" in calm
    fold = calm.index("Nothing to show")
    assert fold < calm.index("No incidents (") < calm.index("</details>", fold)
    assert 'href="#incidents"' not in calm
    assert calm.index("<summary>Classes, causes, states, parameters</summary>") < calm.index(
        "flapping.half_life_minutes"
    )


def test_owners_are_listed_by_the_downtime_of_their_brokers() -> None:
    brokers = [
        a_broker("a", owner="search", down_seconds=60.0, down_count=1),
        a_broker("b", owner="search", down_seconds=90.0, down_count=2),
        a_broker("c", owner="web", down_seconds=600.0, down_count=1),
        a_broker("d", owner="idle"),
        a_broker("e", down_seconds=600.0),
    ]
    table = tables_of(render(report_of(brokers=brokers)))["Owners hit"]

    assert table.rows == [["web", "1", "1", "10 min", "c/c/0"], ["search", "2", "3", "2 min 30 s", "c/b/0, c/a/0"]]


def test_the_row_of_a_broker_opens_its_states_its_downtime_and_the_command_for_more() -> None:
    brief = a_row(
        Outage,
        start_at="2026-03-05T12:00:00.250Z",
        end_at="2026-03-05T12:00:01.500Z",
        seconds=1.25,
        cause="network",
        reason="SILENCE",
        evidence="<b>",
    )
    leave = a_row(
        Outage, start_at="2026-03-05T06:00:00.000Z", end_at=TIME, seconds=14_400.0, reason=None, evidence=None
    )
    report = report_of(brokers=[a_broker("a", outages=[brief], leaves=[leave], outages_left_out=3)])
    start, end = report.interval.window
    half = (start + end) // 2
    bars = [
        StateBar("c", "a", 0, "up", planned=False, start=start, end=half),
        StateBar("c", "a", 0, "down", planned=False, start=half, end=end),
    ]
    (more,) = re.findall("<details class=.timeline.*?</details>", page(report, Drawn(bars)), re.DOTALL)

    assert re.findall('<rect class="([a-z]+)" x="([0-9.]+)" width="([0-9.]+)"', more) == [
        ("up", "0.0", "500.0"),
        ("down", "500.0", "500.0"),
    ]
    assert _texts(more, "<li>(.*?)</li>") == [
        "2026-03-05 06:00:00 to 2026-03-05 10:00:00, 4 h: planned",
        "2026-03-05 12:00:00.250 to 2026-03-05 12:00:01.500, 1.250 s: network (SILENCE) &lt;b&gt;",
    ]
    assert "The 2 longest; 3 more." in more
    assert "pointsman-report history --to=2026-03-05 --days=7 --warehouse=WAREHOUSE c/a/0" in more
    assert "No downtime." in render(report_of())


def test_planned_work_lists_windows_and_planned_downtime() -> None:
    assert "Planned work" not in render(report_of())
    times = {"from_at": "2026-03-05T10:00:00.000Z", "to_at": "2026-03-05T10:30:00.000Z"}
    window = MaintenanceWindow("c", None, **times, open=False, until_at=None, nodes=["n1", "n2"])
    span = {"start_at": times["from_at"], "end_at": times["to_at"]}
    leave = a_row(Outage, **span, seconds=1_800.0, reason="MAINTENANCE", rolling_restart_id=None)
    report = report_of(
        maintenance_windows=Listing([window, replace(window, broker_name="a", open=True)], in_all=2),
        brokers=[a_broker("a", leaves=[leave, replace(leave, rolling_restart_id="r")], leaves_left_out=1)],
    )
    tables = tables_of(render(report))

    assert [row[:4] for row in tables["Maintenance windows"].rows] == [
        ["c | the whole cluster", "2026-03-05 10:00:00", "2026-03-05 10:30:00", "30 min"],
        ["c/a", "2026-03-05 10:00:00", "still open", "30 min"],
    ]
    assert tables["Planned downtime"].rows == [
        [
            "c/a/0",
            "2026-03-05 10:00:00",
            "2026-03-05 10:30:00 \N{BLACK RIGHT-POINTING SMALL TRIANGLE}",
            "30 min",
            "MAINTENANCE",
        ]
    ]
    assert "1 of 2 planned absences are shown" in render(report)
    assert "1 planned absence in rolling restarts, which are listed above." in render(report)


def test_the_title_has_the_product_and_the_fleet() -> None:
    named = replace(report_of(), parameters=Parameters(report=ReportParameters(fleet="prod <eu>")))
    many = report_of(headline={"clusters": [a_cluster(name) for name in ("a", "b", "c", "d")], "clusters_left_out": 2})

    assert "<title>Pointsman: prod &lt;eu&gt;, 2026-03-05</title>" in render(named)
    assert _texts(render(named), "<h1>(.*?)</h1>") == ["prod &lt;eu&gt; 2026-03-05"]
    assert "<title>Pointsman: a, b, c and 3 more, 2026-03-05</title>" in render(many)
    assert "<title>Pointsman, 2026-03-05</title>" in render(report_of(headline={"clusters": []}))
