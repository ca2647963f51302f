"""The command from end to end: exit codes, bad input, the report compared with the tables."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from pointsman_report.cli import main
from pointsman_report.jobs import pipeline
from pointsman_report.jobs.history_reading import Work
from pointsman_report.jobs.stage_graph import Context, Part, Stage
from pointsman_report.run import Run
from pointsman_report.schemas import TABLES
from pointsman_report.schemas.liveness_tables import AVAILABILITY
from tests.kit.report.webhook_receiver import SECRET, receiving
from tests.spark.histories import NameServer, broker, moment, write_history
from tests.spark.nights import DAY, Again, Night
from tests.spark.storybook import LAST, SECOND, Stories
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def copied(night: Night, tmp_path: Path) -> Path:
    """The night's warehouse, to be spoilt."""
    return shutil.copytree(night.warehouse, tmp_path / "copied")


def files_in(warehouse: Path) -> dict[str, bytes]:
    return {str(path.relative_to(warehouse)): path.read_bytes() for path in warehouse.rglob("*") if path.is_file()}


def nightly(history: Path, warehouse: Path, *more: str) -> int:
    return main(["nightly", "--history", str(history), "--warehouse", str(warehouse), "--date", str(DAY), *more])


def test_findings_are_exit_1_and_are_printed(night: Night) -> None:
    assert "1 flapping: c1/a/0" in night.output
    assert "s  read " in night.progress


def test_the_flapping_broker_tops_the_list_with_its_outages_and_the_other_has_none(night: Night) -> None:
    worst, other = night.numbers["brokers"]

    assert (worst["broker_name"], worst["class"], worst["down_count"]) == ("a", "flapping", 5)
    starts = [outage["start_at"] for outage in worst["outages"]]
    assert starts == [f"2026-03-02T00:0{1 + (40 + n * 8) // 60}:{(40 + n * 8) % 60:02d}.000Z" for n in range(5)]
    assert {outage["observers"] for outage in worst["outages"]} == {2}
    assert (other["broker_name"], other["class"], other["outages"]) == ("b", "healthy", [])


def test_bad_lines_are_quarantined_once_with_their_reasons(night: Night, run_days: DayRunner) -> None:
    rows = run_days.rows(night.warehouse, "quarantine", DAY, DAY)

    assert sorted(row["reason"] for row in rows) == [
        "empty line",
        "event_at is not an RFC 3339 time",
        "missing: schema_version, event_at, event, node, boot_id, seq",
        "not a JSON object",
        "torn or not JSON",
    ]
    assert night.numbers["completeness"]["quarantined_lines"] == 5
    assert all(row["file"].endswith("/bad.jsonl") for row in rows)


def test_a_row_in_two_files_counts_once_and_a_missing_number_is_a_lost_row(night: Night) -> None:
    data = night.numbers["completeness"]

    assert data["rows"] == 2 * 16 - 1
    assert data["rows_missing"] == 1
    (gappy,) = [observer for observer in night.numbers["observers"] if observer["rows_missing"]]
    assert (gappy["node"], gappy["gaps"]) == ("[::1]:2", [{"from_seq": 15, "to_seq": 15}])
    assert data["unknown_events"] == {"SOMETHING_NEW": 1}


def test_the_reports_numbers_equal_the_tables(night: Night, run_days: DayRunner) -> None:
    brokers = {broker["broker_name"]: broker for broker in night.numbers["brokers"]}
    for row in run_days.rows(night.warehouse, "availability", DAY, DAY):
        shown = brokers[row["broker_name"]]
        for name in ("up_seconds", "down_seconds", "availability", "mttr_seconds"):
            assert shown[name] == pytest.approx(row[name]), name
        # Of a few minutes it would mean nothing.
        assert shown["mtbf_seconds"] is None
    for row in run_days.rows(night.warehouse, "flapping", DAY, DAY):
        shown = brokers[row["broker_name"]]
        assert {name: shown[name] for name in ("class", "down_count", "penalty_max")} == {
            name: row[name] for name in ("class", "down_count", "penalty_max")
        }


def test_the_page_is_self_contained_and_shows_the_same_numbers(night: Night) -> None:
    worst = night.numbers["brokers"][0]

    assert "<script" not in night.page
    assert "://" not in night.page.replace("http://www.w3.org/", "")
    assert "url(" not in night.page.replace("url(#", "")
    assert night.page.count("<svg") == 2 + night.page.count('<div class="narrow">') + night.page.count('class="strip"')
    assert night.page.count('class="strip"') == len(night.numbers["brokers"])
    assert f">{worst['penalty_max']:,.0f}<" in night.page
    assert "SILENCE (5)" in night.page
    assert len(night.page.encode()) < 2_000_000


@pytest.mark.parametrize("table", TABLES)
def test_days_computed_again_from_the_state_before_them_have_the_same_tables(
    stories: Stories, again: Again, table: str
) -> None:
    """One pass in memory, and again from yesterday's state with intermediates in files."""
    # The stories last for fewer days than a forecast or four weeks: those are in test_outage_memory.
    assert stories.tables[table] or table in {"quarantine", "forecast_checks", "weekly_patterns"}
    # Two charges of one cause at one moment have equal keys.
    assert sorted(again.tables[table], key=repr) == sorted(stories.tables[table], key=repr)


def test_days_computed_again_have_one_report_of_both(again: Again) -> None:
    (flapping,) = [one for one in again.numbers["brokers"] if one["cluster"] == "flaps_every_day"]

    assert again.code == 1
    assert (again.numbers["from"], again.numbers["to"]) == (str(SECOND), str(LAST))
    assert (flapping["class"], flapping["down_count"], len(flapping["outages"])) == ("chronic", 8, 8)
    assert f"no monitoring data for cluster comes_later on {LAST}" in again.numbers["headline"]["findings"]


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_running_a_day_again_gives_the_same_tables_and_report(night: Night, copied: Path, run_days: DayRunner) -> None:
    with receiving() as receiver:
        receiver.statuses = [404]
        assert nightly(night.history, copied, "--notify", receiver.url) == 1
    assert len(receiver.received) == 1
    for table in TABLES:
        assert run_days.rows(copied, table, DAY, DAY) == run_days.rows(night.warehouse, table, DAY, DAY), table
    report = copied / "report" / f"dt={DAY}"
    assert json.loads((report / "report.json").read_text(encoding="utf-8")) == night.numbers
    # The commands on the page name the warehouse.
    page = (report / "report.html").read_text(encoding="utf-8").replace(f"{copied}", f"{night.warehouse}")
    assert page == night.page


@pytest.mark.usefixtures("spark")
def test_a_run_that_fails_leaves_the_tables_as_they_were(
    night: Night, copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_in(copied)
    staged: list[Path] = []

    def full(_: Context) -> DataFrame:
        staged.extend((copied / "_staging").glob("*/observer_windows"))
        raise OSError("No space left on device")

    monkeypatch.setattr(pipeline, "STAGES", (Part("fails", (Stage(AVAILABILITY, (), full),)),))
    assert nightly(night.history, copied) == 2
    assert staged
    assert capsys.readouterr().err.endswith("pointsman-report: OSError: No space left on device\n")
    assert files_in(copied) == before
    assert not list((copied / "_staging").iterdir())


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (KeyboardInterrupt(), "interrupted; the tables are published, the report is incomplete"),
        (OSError(28, "No space left on device"), "the tables are published, but the report failed: "),
    ],
    ids=["interrupt", "disk-full"],
)
def test_an_error_after_the_publication_states_that_the_tables_are_new(
    fault: BaseException,
    says: str,
    night: Night,
    copied: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def computed(work: Work) -> None:
        work.warehouse.published = True
        raise fault

    monkeypatch.setattr("pointsman_report.jobs.days.compute", computed)
    assert nightly(night.history, copied) == 2
    assert says in capsys.readouterr().err


@pytest.fixture
def nothing_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the report, from the tables in the warehouse."""
    nothing = Run(files=0, continues_yesterday=False, ends_before=None, rows_ahead=0)
    monkeypatch.setattr("pointsman_report.jobs.days.compute", lambda _: nothing)


def day_without_a_row(night: Night, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = str(DAY - timedelta(days=9))
    arguments = ["--history", str(night.history), "--warehouse", str(tmp_path), "--date", empty, "--output", "json"]

    with receiving() as receiver:
        assert main(["nightly", *arguments, "--notify", receiver.url]) == 1
    ((_, _, body),) = receiver.received
    message = json.loads(body)
    page = tmp_path / "report" / f"dt={empty}" / "report.html"
    assert (message["report"], message["from"], message["exit_code"]) == (str(page), empty, 1)
    assert message["text"] == page.with_name("report.md").read_text(encoding="utf-8")
    printed = capsys.readouterr()
    assert f"summary posted to {receiver.place}, attempts: 1\n" in printed.err
    numbers = json.loads(printed.out)
    assert numbers["headline"]["no_data"] is True
    assert numbers["headline"]["findings"][0].startswith("NO DATA")
    assert message["summary"]["headline"] == numbers["headline"]
    assert "NO DATA" in page.read_text(encoding="utf-8")
    assert "NO DATA" in message["text"]


@pytest.mark.usefixtures("spark", "nothing_computed")
def test_a_report_without_data_has_a_prominent_warning(
    night: Night, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day_without_a_row(night, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_day_without_rows_has_a_prominent_warning(
    night: Night, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day_without_a_row(night, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_range_has_one_report_of_all_its_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = NameServer().start()
    server.say("REGISTERED", moment(10), broker("a"))
    for n in range(5):
        server.outage(broker("a"), moment(-20 + 8 * n, day=1), until=moment(-16 + 8 * n, day=1))
    server.stop(moment(60, day=1))
    write_history(tmp_path / "history", server.rows)
    days = ["--from", str(DAY), "--to", str(DAY + timedelta(days=2))]
    places = [
        "--history",
        str(tmp_path / "history"),
        "--warehouse",
        str(tmp_path / "w"),
        "--report",
        str(tmp_path / "r"),
    ]

    assert main(["backfill", *places, *days, "--output", "json"]) == 1
    numbers = json.loads(capsys.readouterr().out)
    (entry,) = numbers["brokers"]
    assert (numbers["from"], numbers["to"]) == (str(DAY), str(DAY + timedelta(days=2)))
    assert (entry["class"], entry["down_count"], len(entry["outages"])) == ("flapping", 5, 5)
    assert "no monitoring data for cluster c1 on 2026-03-04" in numbers["headline"]["findings"]
    assert json.loads((tmp_path / "r" / "report.json").read_text(encoding="utf-8")) == numbers


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"--history": "nowhere"}, "--history nowhere: no such directory", id="missing-history"),
        pytest.param({"--history": "."}, "raw/ is missing", id="no-history-directory"),
        pytest.param({"--to": "2026-03-01"}, "--to 2026-03-01 is before --from 2026-03-02", id="range-backwards"),
        pytest.param({"--parameters": "none.toml"}, "none.toml: cannot be read: No such file", id="missing-parameters"),
        pytest.param({"--timezone": "Mars/Olympus"}, "timezone: 'Mars/Olympus' is not an IANA", id="unknown-zone"),
    ],
)
def test_unusable_input_is_one_line_and_exit_2(
    change: dict[str, str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h" / "raw").mkdir(parents=True)
    given = {"--history": "h", "--warehouse": "w", "--from": "2026-03-02", "--to": "2026-03-02"} | change

    assert main(["backfill", *(part for pair in given.items() for part in pair)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_invalid_day_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nightly", "--history", "h", "--warehouse", "w", "--date", "tomorrow"]) == 2
    assert "invalid day 'tomorrow': use YYYY-MM-DD" in capsys.readouterr().err


@pytest.mark.usefixtures("spark", "nothing_computed")
def test_with_exit_zero_and_quiet_findings_do_not_change_the_exit_code_and_nothing_is_printed(
    night: Night, copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures" / "pointsman.prom"

    assert nightly(night.history, copied, "--exit-zero", "--quiet", "--textfile", str(figures)) == 0
    assert capsys.readouterr().err == ""
    assert "_findings " in figures.read_text(encoding="utf-8")


@pytest.mark.usefixtures("spark", "nothing_computed")
def test_a_post_that_fails_is_one_line_and_the_url_is_in_no_output(
    night: Night, copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.toml"
    with receiving() as receiver:
        receiver.statuses = [404]
        file.write_text(f'[report]\nnotify_url = "{receiver.url}"\n', encoding="utf-8")
        assert nightly(night.history, copied, "--quiet", "--output", "json", "--parameters", str(file)) == 1
    printed = capsys.readouterr()
    assert printed.err == (
        f"pointsman-report: the summary was not posted to {receiver.place}: HTTP status 404, attempts: 1; "
        "the report is complete\n"
    )
    assert json.loads(receiver.received[0][2])["exit_code"] == 1
    outputs = [printed.out.encode(), receiver.received[0][2], *files_in(copied).values()]
    assert not [output for output in outputs if SECRET.encode() in output]


def test_a_url_that_cannot_be_used_is_an_error_before_spark_starts_that_does_not_quote_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw").mkdir()
    file = tmp_path / "report.toml"
    file.write_text('[report]\nnotify_url = "https://chat.example.com/x"\n', encoding="utf-8")

    # The option overrides the file.
    assert nightly(tmp_path, tmp_path / "w", "--notify", f"file:///{SECRET}", "--parameters", str(file)) == 2
    error = capsys.readouterr().err
    assert error.startswith("pointsman-report: command line: report.notify_url: is not a URL such as https://")
    assert SECRET not in error


def test_missing_java_is_one_line_that_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert nightly(tmp_path, tmp_path / "w") == 2
    assert capsys.readouterr().err.startswith("pointsman-report: Java is missing: install Java 17")
