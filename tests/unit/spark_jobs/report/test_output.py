"""The output files of a report: JSON, and metrics for Prometheus."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pointsman_report.jobs.history_reading import made_by
from pointsman_report.parameters import Parameters, ReportParameters
from pointsman_report.report.chat_message import markdown
from pointsman_report.report.output import report_files, write_textfile
from pointsman_report.report.sections.broker_states import Drawn
from tests.kit.report.contents import DAY, a_broker, a_cluster, calm_report

AWKWARD = 'a"b\\c\nd'


def read(path: Path) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_headline_is_in_the_file(tmp_path: Path) -> None:
    report = calm_report(
        headline={"findings": ["one"], "clusters": [a_cluster(AWKWARD, outages=3, budget_left_seconds=-4.0)]},
        topics_at_risk={"by_worst": {"unwritable": 2, "no_master": 1}, "unwritable": 3},
        completeness={"rows_missing": 5},
        coverage={"seconds": 21_600.0},
    )
    path = tmp_path / "new" / "report.prom"

    write_textfile(path, report, succeeded_at=1_795_227_044.5)

    written = read(path)
    cluster = (("cluster", AWKWARD),)
    assert written["pointsman_report_last_success_timestamp_seconds", ()] == 1_795_227_044.5
    assert written["pointsman_report_findings", ()] == 1
    assert written["pointsman_report_history_rows_missing", ()] == 5
    assert written["pointsman_report_topics_at_risk", (("worst", "unwritable"),)] == 2
    assert written["pointsman_report_topics_unwritable", ()] == 3
    assert written["pointsman_report_coverage_ratio", ()] == 0.25
    assert written["pointsman_report_outages", cluster] == 3
    assert written["pointsman_report_slo_budget_remaining_seconds", cluster] == -4
    assert written["pointsman_report_brokers", (("class", "healthy"), *cluster)] == 1


def test_the_json_has_a_key_for_each_field_dates_as_text_and_null_for_a_number_that_it_cannot_write() -> None:
    report = calm_report(
        brokers=[a_broker(class_="flapping", penalty_max=math.nan)], completeness={"unwatched_clusters": {"c": [DAY]}}
    )
    written: Any = report.as_dict()

    assert (written["date"], written["from"], written["to"]) == ("2026-03-05",) * 3
    assert (written["brokers"][0]["class"], written["brokers"][0]["penalty_max"]) == ("flapping", None)
    assert written["completeness"]["unwatched_clusters"] == {"c": ["2026-03-05"]}
    assert written["interval"]["utc_days"] == ["2026-03-05", "2026-03-05"]
    assert written["parameters"] == Parameters().as_dict()
    assert json.loads(report_files(report, Drawn())["report.json"]) == written


def test_the_report_is_three_files_and_the_page_is_written_last() -> None:
    files = report_files(calm_report(), Drawn())

    assert list(files) == ["report.json", "report.md", "report.html"]
    assert files["report.md"] == markdown(calm_report())


def test_no_file_has_the_url_of_the_webhook() -> None:
    url = "https://chat.example.com/hooks/secret"
    parameters = Parameters(report=ReportParameters(notify_url=url))

    texts = [*report_files(calm_report(parameters=parameters), Drawn()).values(), str(parameters), *made_by(parameters)]
    assert [text for text in texts if "notify_url" in text or "chat.example.com" in text] == []


def test_a_cluster_without_monitoring_has_no_availability(tmp_path: Path) -> None:
    path = tmp_path / "report.prom"

    write_textfile(path, calm_report(headline={"clusters": [a_cluster(availability=None)]}), succeeded_at=1.0)

    assert not [name for name, _ in read(path) if name == "pointsman_report_availability_ratio"]


def test_a_failed_write_leaves_the_old_file_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.prom"
    write_textfile(path, calm_report(), succeeded_at=1.0)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("prometheus_client.exposition.generate_latest", full)
    with pytest.raises(OSError, match="No space"):
        write_textfile(path, calm_report(), succeeded_at=2.0)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.prom"]
