"""The report's figures for Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pointsman_report.report.output import write_textfile
from tests.fakes.report_contents import a_cluster, calm_report

AWKWARD = 'a"b\\c\nd'


def read(path: Path) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_headline_stands_in_the_file(tmp_path: Path) -> None:
    report = calm_report(
        headline={"findings": ["one"], "clusters": [a_cluster(AWKWARD, outages=3, budget_left_seconds=-4.0)]},
        topics_at_risk={"by_worst": {"unwritable": 2, "no_master": 1}, "unwritable": 3},
        completeness={"rows_missing": 5},
        coverage={"seconds": 21_600.0},
    )
    path = tmp_path / "new" / "report.prom"

    write_textfile(path, report, succeeded_at=1_795_227_044.5)

    told = read(path)
    cluster = (("cluster", AWKWARD),)
    assert told["namesrv_report_last_success_timestamp_seconds", ()] == 1_795_227_044.5
    assert told["namesrv_report_findings", ()] == 1
    assert told["namesrv_report_rows_missing", ()] == 5
    assert told["namesrv_report_topics_at_risk", (("worst", "unwritable"),)] == 2
    assert told["namesrv_report_topics_unwritable", ()] == 3
    assert told["namesrv_report_watched_ratio", ()] == 0.25
    assert told["namesrv_report_outages", cluster] == 3
    assert told["namesrv_report_slo_budget_left_seconds", cluster] == -4
    assert told["namesrv_report_brokers", (("class", "healthy"), *cluster)] == 1


def test_a_cluster_that_nobody_watched_has_no_availability(tmp_path: Path) -> None:
    path = tmp_path / "report.prom"

    write_textfile(path, calm_report(headline={"clusters": [a_cluster(availability=None)]}), succeeded_at=1.0)

    assert not [name for name, _ in read(path) if name == "namesrv_report_availability_ratio"]


def test_a_file_that_cannot_be_written_leaves_the_old_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
