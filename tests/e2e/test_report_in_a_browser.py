"""The report's page in a real browser, under its own Content-Security-Policy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from pointsman_report.report.broker_plots import StateBar
from pointsman_report.report.collect import with_findings
from pointsman_report.report.page import page
from pointsman_report.report.sections.broker_states import Drawn
from pointsman_report.report.sections.worst_brokers import Ranking
from tests.kit.report.browser import browser, complaints, fits_width, set_width
from tests.kit.report.busy import busy_report
from tests.kit.report.contents import a_broker, a_cluster, a_row, calm_report

pytestmark = pytest.mark.e2e

LINE_PIXELS = 20
"""Height of a line of a table, small text included, and a little more."""

MARKUP = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>'\"&amp;"


def test_the_report_is_rendered_completely_names_are_text_and_a_script_would_not_run(tmp_path: Path) -> None:
    named = a_broker(MARKUP, class_="flapping", cluster=MARKUP, reasons={MARKUP: 1})
    hostile = with_findings(calm_report(headline={"by_class": {"flapping": 1}}, brokers=[named]))
    with browser(tmp_path / "profile") as shown:
        for name, report in (("busy", busy_report()), ("hostile", hostile)):
            file = tmp_path / f"{name}.html"
            file.write_text(page(report, Drawn()), encoding="utf-8")
            shown.get(file.as_uri())
            title = shown.title
            assert title.startswith("Pointsman: ")
            heading = shown.find_element(By.TAG_NAME, "h1")
            assert heading.value_of_css_property("font-weight") == "650"
            assert shown.find_elements(By.CSS_SELECTOR, "img, script") == []
            assert complaints(shown) == []
            assert bool(shown.find_elements(By.TAG_NAME, "svg")) == (name == "busy")
        assert MARKUP in shown.find_element(By.TAG_NAME, "body").text

        shown.execute_script(
            "const it = document.createElement('script'); it.textContent = 'document.title = \"run\"';"
            " document.head.append(it);"
        )
        assert shown.title == title
        assert "Content Security Policy" in json.dumps(complaints(shown))


def test_on_a_phone_plots_fit_the_page_and_each_row_of_a_table_is_a_card(tmp_path: Path) -> None:
    report = busy_report()
    start, end = report.interval.window
    bars = [StateBar(*broker.key, "up", planned=False, start=start, end=end) for broker in report.brokers]
    file = tmp_path / "page.html"
    file.write_text(page(report, Drawn(bars)), encoding="utf-8")
    with browser(tmp_path / "profile") as shown:
        for width in (390, 500, 1280):
            set_width(shown, width)
            shown.get(file.as_uri())
            assert fits_width(shown, width)
            plots = [plot for plot in shown.find_elements(By.CSS_SELECTOR, "#states svg") if plot.is_displayed()]
            (plot,) = plots
            assert plot.rect["width"] <= width
            assert letters_of(plot) >= 7
            cell = shown.find_element(By.CSS_SELECTOR, "#outages tbody td")
            label = shown.execute_script("return getComputedStyle(arguments[0], '::before').content", cell)
            assert label == ('"Down at"' if width < 600 else "none")
            shown.execute_script("document.querySelectorAll('details').forEach(part => part.open = true)")
            assert fits_width(shown, width)
            cut_off = [
                part
                for part in shown.find_elements(By.CSS_SELECTOR, "td, .steps li, dd, .copied, .strip, .tiles div, li")
                if not part.is_displayed() or part.rect["x"] + part.rect["width"] > width
            ]
            assert cut_off == []


def test_a_row_of_a_broker_opens_without_a_script_and_paper_shows_what_is_folded(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(busy_report(), Drawn()), encoding="utf-8")
    with browser(tmp_path / "profile") as shown:
        shown.get(file.as_uri())
        without_smooth_scrolling(shown)
        first = shown.find_element(By.CSS_SELECTOR, ".timeline")
        folded = first.find_element(By.TAG_NAME, "ul")
        assert not folded.is_displayed()
        first.find_element(By.TAG_NAME, "summary").click()
        assert folded.is_displayed()
        first.find_element(By.TAG_NAME, "summary").click()
        shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        # Selenium's own answer does not consider styles of a closed element.
        assert shown.execute_script("return arguments[0].checkVisibility()", folded)
        assert folded.rect["height"] > 0
        assert not shown.find_element(By.CSS_SELECTOR, ".fold").is_displayed()


def test_one_click_selects_a_complete_command(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(busy_report(), Drawn()), encoding="utf-8")
    with browser(tmp_path / "profile") as shown:
        shown.get(file.as_uri())
        without_smooth_scrolling(shown)
        command = shown.find_element(By.CSS_SELECTOR, ".incident .copied")
        command.click()
        assert shown.execute_script("return getSelection().toString()").strip() == command.text
        assert command.text.startswith("pointsman-report explain ")


def test_on_a_screen_no_table_scrolls_sideways_and_no_row_is_a_tower(tmp_path: Path) -> None:
    long = {
        "cause": "agent_hung",
        "cause_says": "no heartbeats, no failed probe, 79 brokers silent together on 21 hosts, 2 of them on one host",
        "reasons": {"SILENCE": 62, "STREAM_BROKEN": 135, "PROBE": 17},
        "mttr_seconds": 4_000.0,
        "mtbf_seconds": 90_000.0,
        "longest_outage_seconds": 80_000.0,
        "censored": 13,
        "incident_downs": 117,
        "ranking": a_row(Ranking, outlier=True, rank=12, ratio=724.3),
    }
    budget = {"budget_left_seconds": -2_779_200.0, "budget_seconds": 644_400.0, "down_seconds": 3_423_600.0}
    cluster = a_cluster("cluster-3", availability=0.99472, planned_seconds=66_000.0, **budget)
    report = busy_report()
    report = replace(
        report,
        brokers=[a_broker(f"broker-{n:05}", class_="flapping", **long) for n in range(3)],
        headline=replace(report.headline, clusters=[cluster]),
    )
    file = tmp_path / "page.html"
    file.write_text(page(report, Drawn()), encoding="utf-8")
    with browser(tmp_path / "profile") as shown:
        set_width(shown, 1280)
        shown.get(file.as_uri())
        tables = shown.find_elements(By.CSS_SELECTOR, ".scroll")
        widths = [
            shown.execute_script("return [arguments[0].scrollWidth, arguments[0].clientWidth]", it) for it in tables
        ]
        assert len(widths) > 20
        assert [wide for wide, seen in widths if wide > seen] == []
        rows = shown.find_elements(By.CSS_SELECTOR, "#clusters tbody tr, #brokers tbody tr")
        assert max(row.rect["height"] for row in rows) < 6 * LINE_PIXELS


def without_smooth_scrolling(shown: Chrome) -> None:
    """A click would hit what is there before the page has arrived."""
    shown.execute_script("document.documentElement.style.scrollBehavior = 'auto'")


def letters_of(plot: WebElement) -> float:
    """Height of the lowest text of a plot, in pixels."""
    return min(float(text.rect["height"]) for text in plot.find_elements(By.TAG_NAME, "text"))
