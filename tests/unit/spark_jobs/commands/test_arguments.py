"""Arguments that commands share: days, paths, parameters, other numbers."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click import BadParameter, UsageError

from pointsman.config import ConfigError
from pointsman_report.cli import cli, main
from pointsman_report.commands import arguments
from pointsman_report.commands.arguments import Outcome, ParameterOptions, instant, moment
from pointsman_report.parameters import Parameters, ReportParameters
from tests.kit.report.command_line import parsed

FAR_EAST, FAR_WEST = "Pacific/Kiritimati", "Pacific/Niue"


def test_today_is_that_of_where_the_report_is_read() -> None:
    # Their clocks are 25 hours apart: at every moment one of them has another date than the other.
    east, west = (arguments.today(ReportParameters(timezone=zone)) for zone in (FAR_EAST, FAR_WEST))
    assert east - west in {timedelta(days=1), timedelta(days=2)}


def test_yesterday_has_ended_in_utc_too() -> None:
    east, utc, west = (arguments.yesterday(ReportParameters(timezone=zone)) for zone in (FAR_EAST, "UTC", FAR_WEST))
    assert east == utc
    assert utc - west in {timedelta(0), timedelta(days=1)}


def test_nightly_computes_yesterday_by_default() -> None:
    given = ["nightly", "--history", "h", "--warehouse", "w"]
    assert parsed(given)["requested_day"] == "yesterday"
    assert parsed([*given, "--date", "2026-11-20"])["requested_day"] == date(2026, 11, 20)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_only_the_exit_code_of_findings_is_accepted(code: int) -> None:
    assert Outcome("table", exit_zero=False).exit_code(code) == code
    assert Outcome("table", exit_zero=True).exit_code(code) == (2 if code == 2 else 0)


def test_the_zone_of_the_command_overrides_the_files(tmp_path: Path) -> None:
    file = tmp_path / "report.toml"
    file.write_text('[report]\ntimezone = "Europe/Berlin"\n[flapping]\nsuppress_above = 2000.0\n')
    from_file = ParameterOptions(file, None).loaded()
    over = ParameterOptions(file, "Asia/Tokyo").loaded()

    assert (from_file.report.timezone, over.report.timezone) == ("Europe/Berlin", "Asia/Tokyo")
    assert from_file.flapping == over.flapping


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(ConfigError, match=r"command line: report\.timezone: 'Mars/Olympus' is not an IANA time zone"):
        ParameterOptions(None, "Mars/Olympus").loaded()


def test_numbers_are_put_over_the_given_ones() -> None:
    given = Parameters()
    other = ParameterOptions(None, None).loaded({"flapping.suppress_above": 2000, "flapping.reuse_below": 500.5})

    assert (other.flapping.suppress_above, other.flapping.reuse_below) == (2000, 500.5)
    assert other.incidents == given.incidents


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        pytest.param("flap.x=1", "flap.x: no such section; there are flapping,", id="unknown-table"),
        pytest.param("flapping.x=1", "flapping.x: no such setting; there are half_life_minutes,", id="unknown-name"),
        pytest.param("flapping.suppress_above=-1", "flapping.suppress_above: -1.0 is not", id="absurd"),
        pytest.param("flapping.reuse_below=9e9", "flapping.reuse_below: 9000000000.0", id="against-another"),
        pytest.param("flapping.chronic_days=2.5", "flapping.chronic_days: must be a whole number", id="half-a-day"),
    ],
)
def test_a_number_that_cannot_be_is_named(
    setting: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "warehouse.json").touch()
    span = ["--from", "2026-11-01", "--to", "2026-11-02"]
    assert main(["simulate", "--set", setting, *span, "--warehouse", str(tmp_path)]) == 2
    assert f"pointsman-report: command line: {message}" in capsys.readouterr().err


def test_local_paths_are_distinguished_from_those_of_other_file_systems() -> None:
    assert arguments.local_path("some/where") == Path("some/where")
    assert arguments.local_path("file:///some/where") == arguments.local_path("file:/some/where") == Path("/some/where")
    assert arguments.local_path("s3a://bucket/history") is None


@pytest.mark.parametrize("name", list(cli.commands))
def test_the_help_of_a_command_has_an_example_that_can_be_typed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    examples = [line.split()[1:] for line in shown.splitlines() if line.startswith("    pointsman-report ")]
    assert examples
    for words in examples:
        assert words[0] == name
        assert parsed(words)


def test_the_overview_names_every_command_with_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in cli.commands:
        # Complete: click truncates text that is too long for its column.
        assert [line for line in lines if line.startswith(f"  {name} ") and line.endswith((".", ")"))]
    examples = [line.split()[1:] for line in lines if line.startswith("      pointsman-report ")]
    assert len(examples) == 11
    for words in examples:
        if "..." not in words:
            assert parsed(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["route-at", "t", "--at", "03:12"], "give --warehouse DIR", id="no-place"),
        pytest.param(
            ["route-at", "t", "--at", "03:12", "--warehouse", "hdfs:///w", "--engine", "embedded"],
            "--engine embedded reads disks of this machine, not hdfs:///w: use --engine spark",
            id="embedded-and-remote",
        ),
        pytest.param(
            ["explain", "t", "--at", "03:12", "--warehouse", "nowhere"],
            "--warehouse nowhere: no such directory",
            id="no-warehouse",
        ),
        pytest.param(
            ["compare", "2026-11-20", "2026-11-21", "--warehouse", "nowhere"],
            "--warehouse nowhere: no such directory",
            id="nothing-to-compare",
        ),
        pytest.param(
            ["ingest", "--history", "nowhere", "--warehouse", "w"],
            "--history nowhere: no such directory",
            id="no-history",
        ),
        pytest.param(
            ["nightly", "--date=2999-01-01", "--history=h", "--warehouse=w"],
            "2999-01-01 is in the future: today is 20",
            id="a-night-to-come",
        ),
        pytest.param(
            ["backfill", "--from=2026-11-01", "--to=2035-01-01", "--history=h", "--warehouse=w"],
            "2035-01-01 is in the future",
            id="days-to-come",
        ),
        pytest.param(
            ["nightly", "--report=h/raw/file", "--history=h", "--warehouse=w"],
            "--report h/raw/file: not a directory",
            id="report-is-a-file",
        ),
        pytest.param(
            ["nightly", "--textfile=h/raw", "--history=h", "--warehouse=w"],
            "--textfile h/raw: is a directory; give a file in it",
            id="textfile-is-a-directory",
        ),
        pytest.param(
            ["simulate", "--set=flapping.x=1", "--from=2026-11-20", "--to=2026-11-20", "--warehouse=."],
            "command line: flapping.x: no such setting",
            id="unknown-number",
        ),
    ],
)
def test_unusable_arguments_are_reported_in_one_line_before_spark_starts(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h" / "raw").mkdir(parents=True)
    (tmp_path / "h" / "raw" / "file").touch()
    monkeypatch.setattr("pointsman_report.commands.running.spark_session", _never)

    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def _never(*_: object, **__: object) -> None:
    raise AssertionError("Spark was started")


def test_a_number_that_is_not_written_as_one_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    for written in ("suppress_above=1", "flapping.suppress_above", "flapping.suppress_above=two"):
        words = ["simulate", "--set", written, "--from=2026-11-20", "--to=2026-11-20", "--warehouse=w"]
        assert main(words) == 2
        assert "e.g. flapping" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["--memory", "much"], "invalid size 'much': use e.g. 4g", id="size"),
        pytest.param(["--conf", "ui=false"], "invalid setting 'ui=false': use spark.NAME=VALUE", id="setting"),
        pytest.param(
            ["--conf", "spark.pointsman.tableFormat=orc"],
            "unknown setting 'spark.pointsman.tableFormat': the only spark.pointsman setting is",
            id="setting-of-pointsman",
        ),
        pytest.param(["--date", "2026-02-30"], "invalid day '2026-02-30': use YYYY-MM-DD", id="day"),
    ],
)
def test_an_invalid_value_is_named_with_its_argument(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nightly", "--history", "h", "--warehouse", "w", *words]) == 2
    error = capsys.readouterr().err
    assert f"Invalid value for '{words[0]}': {message}" in error
    assert error.endswith(". See `pointsman-report nightly --help`.\n")
    assert error.count("\n") == 1


def test_months_to_come_are_not_compacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", "--warehouse", str(tmp_path), "--before", "9999-01-01"]) == 2
    assert "--before 9999-01-01 is in the future: today is " in capsys.readouterr().err


BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def moment_of(text: str, zone: ZoneInfo = BERLIN, *, now: datetime = NOW) -> datetime:
    return instant(moment(text), zone, now=now)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        pytest.param("2026-11-20T03:12Z", "2026-11-20T03:12:00", id="utc"),
        pytest.param("2026-11-20T03:12:07.5+05:30", "2026-11-19T21:42:07.500000", id="an-offset"),
        pytest.param("2026-11-20 03:12", "2026-11-20T02:12:00", id="by-the-zones-clock"),
        pytest.param("2026-07-20T03:12", "2026-07-20T01:12:00", id="in-summer"),
        pytest.param("03:12", "2026-11-21T02:12:00", id="earlier-today"),
        pytest.param("13:30", "2026-11-20T12:30:00", id="later-than-now-is-yesterday"),
        pytest.param("03:12Z", "2026-11-21T03:12:00", id="a-clock-with-an-offset"),
        pytest.param("2026-10-25 02:30", "2026-10-25T00:30:00", id="of-an-hour-that-was-twice-the-first"),
    ],
)
def test_a_time_is_read_in_its_zone(text: str, meant: str) -> None:
    assert moment_of(text) == datetime.fromisoformat(meant).replace(tzinfo=UTC)
    assert moment_of(text).tzinfo is UTC


def test_a_time_skipped_by_daylight_saving_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--at 2026-03-29 02:30:00: this time does not exist in Europe/Berlin"):
        moment_of("2026-03-29 02:30")


@pytest.mark.parametrize("now", ["2026-03-29T12:00Z", "2026-03-29T23:00Z"])
def test_a_clock_time_skipped_on_its_last_day_is_refused(now: str) -> None:
    with pytest.raises(UsageError, match=r"--at 2026-03-29 02:30:00: this time does not exist in Europe/Berlin"):
        moment_of("02:30", now=datetime.fromisoformat(now))


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-20", "25:00", "2026-11-31T03:12"])
def test_an_invalid_time_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(BadParameter, match=r"use e\.g\. 2026-11-20T03:12Z"):
        moment(text)
