"""The row's JSON Schema and ``pointsman-report validate``: no Spark, no Java."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pointsman_report.cli import main
from pointsman_report.row_validation import known_events, row_schema

GOOD: dict[str, Any] = {
    "schema_version": 2,
    "event_at": "2026-11-21T02:10:44.123Z",
    "uptime_ms": 5,
    "event": "REGISTERED",
    "reason": None,
    "node": "127.0.0.1:9876",
    "boot_id": "b1",
    "seq": 1,
    "cluster": "c1",
    "broker_name": "a",
    "broker_id": 0,
    "generation": "18446744073709551615",
    "state": "UP",
    "since_ms": 0,
    "planned": False,
    "detail": {},
}


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def test_the_schema_is_a_schema_and_describes_every_field() -> None:
    Draft202012Validator.check_schema(row_schema())

    assert all(field["description"] for field in row_schema()["properties"].values())
    assert {"NAMESRV_READY", "EXPIRED", "MAINTENANCE_OFF"} <= known_events()


def test_good_rows_and_unknown_fields_and_events_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = GOOD | {"event": "SOMETHING_NEW", "colour": "red", "cluster": None}
    file = write(tmp_path / "a.jsonl", json.dumps(GOOD), json.dumps(other))

    assert main(["validate", str(file)]) == 0
    assert capsys.readouterr().out == "1 files: 2 good rows, 0 bad lines\n"


@pytest.mark.parametrize(("queues", "valid"), [([4, 4, 6], False), ([4, 4, 6, 0], True), ([4, 4, 6, 0, 3], True)])
def test_a_topic_has_four_numbers_and_perhaps_a_weight(queues: list[int], valid: bool) -> None:
    detail = {"part": 1, "parts": 1, "full": True, "topics": {"orders": queues}, "removed": []}

    row = GOOD | {"event": "TOPICS", "data_version": "0.0.1", "detail": detail}

    assert Draft202012Validator(row_schema()).is_valid(row) is valid


@pytest.mark.parametrize(
    ("before", "valid"),
    [("100", True), (None, True), ({"length": 3, "sha256": "0" * 64}, True), ({"length": 3}, False), (7, False)],
    ids=str,
)
def test_an_old_value_of_a_key_is_a_text_or_a_digest(before: object, valid: bool) -> None:
    detail = {"namespace": "LIMITS", "key": "orders", "value": "200", "before": before, "by": "ann"}
    row = GOOD | dict.fromkeys(("cluster", "broker_name", "broker_id", "state", "since_ms", "planned"))
    assert Draft202012Validator(row_schema()).is_valid(row | {"event": "KV_CHANGED", "detail": detail}) is valid


def test_a_row_that_is_not_about_a_replica_has_no_state(tmp_path: Path) -> None:
    nothing: dict[str, Any] = dict.fromkeys(("broker_id", "state", "since_ms", "planned"))
    rows = (GOOD | nothing | {"event": event} for event in ("PERM_CHANGED", "GUARD_ON", "NAMESRV_ALIVE"))

    assert main(["validate", str(write(tmp_path / "a.jsonl", *map(json.dumps, rows)))]) == 0


@pytest.mark.parametrize("missing", ["state", "since_ms", "planned"])
def test_a_row_about_a_replica_has_its_state(missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {name: value for name, value in GOOD.items() if name != missing}
    file = write(tmp_path / "a.jsonl", json.dumps(row))

    assert main(["validate", str(file)]) == 1
    assert f"{file}:1: {missing}: missing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"event_at": "21.11.2026"}, "1: event_at: '21.11.2026' does not match", id="time"),
        pytest.param({"seq": 0}, "1: seq: 0 is less than the minimum of 1", id="seq-zero"),
        pytest.param({"seq": 2**63}, "1: seq: 9223372036854775808 is greater than the maximum", id="seq-too-large"),
        pytest.param({"seq": "7"}, "1: seq: '7' is not of type 'integer'", id="seq-text"),
        pytest.param({"event": "expired"}, "1: event: 'expired' does not match", id="event-name"),
        pytest.param({"schema_version": 1}, "1: schema_version: 2 was expected", id="version"),
        pytest.param({"state": "BETTER"}, "1: state: 'BETTER' is not one of", id="state-name"),
        pytest.param({"state": None}, "1: state: None is not of type 'string'", id="broker-event-without-state"),
        pytest.param({"since_ms": -1}, "1: since_ms: -1 is less than the minimum of 0", id="since-below-zero"),
        pytest.param({"planned": True}, "1: state: 'UP' is not one of ['OUT', 'GONE']", id="planned-and-up"),
        pytest.param({"event": "EXPIRED"}, "1: state: 'GONE' was expected", id="expired-and-up"),
        pytest.param({"state": "GONE"}, "1: event: 'REGISTERED' is not one of", id="registered-and-gone"),
        pytest.param({"event": "CHECKPOINT"}, "1: i: missing", id="checkpoint-without-i"),
        pytest.param(
            {"event": "CHECKPOINT", "state": "GONE", "detail": {"i": 1, "n": 1, "gone_reason": "ADMIN"}},
            "1: detail.gone_reason: 'ADMIN' is not one of",
            id="checkpoint-of-a-retired-broker",
        ),
        pytest.param({"generation": 7}, "1: generation: 7 is not of type", id="generation-number"),
        pytest.param({"cluster": None}, "1: cluster: None is not of type 'string'", id="broker-event-without-cluster"),
    ],
)
def test_a_bad_field_is_named_with_its_line(
    change: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "a.jsonl", json.dumps(GOOD | change))

    assert main(["validate", str(file)]) == 1
    output = capsys.readouterr().out
    assert f"{file}:{message}" in output
    assert output.endswith("1 files: 0 good rows, 1 bad lines\n")


def test_every_missing_field_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.jsonl", json.dumps({"schema_version": 2, "event": "TOPICS"}))

    assert main(["validate", str(file)]) == 1
    output = capsys.readouterr().out
    assert [f"{file}:1: {name}: missing" in output for name in ("event_at", "node", "boot_id", "seq")] == [True] * 4


def test_a_torn_last_line_is_reported_as_torn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.jsonl", json.dumps(GOOD), "", json.dumps(GOOD)[:30], end="")

    assert main(["validate", str(file)]) == 1
    output = capsys.readouterr().out
    assert f"{file}:2: line: empty" in output
    assert f"{file}:3: line: torn" in output


def test_a_gzip_is_read_and_a_truncated_one_is_reported_as_torn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = gzip.compress("".join(json.dumps(GOOD | {"seq": n}) + "\n" for n in range(1, 500)).encode())
    whole, cut = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    whole.write_bytes(packed)
    cut.write_bytes(packed[: len(packed) // 2])

    assert main(["validate", str(whole)]) == 0
    assert main(["validate", str(cut)]) == 1
    assert "torn: the gzip ends in the middle" in capsys.readouterr().out


def test_json_output_carries_the_same_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.jsonl", json.dumps(GOOD), json.dumps(GOOD | {"seq": 0}))

    assert main(["validate", "--output", "json", str(file)]) == 1
    totals = json.loads(capsys.readouterr().out)
    assert (totals["files"], totals["good_rows"], totals["bad_lines"]) == (1, 1, 1)
    assert totals["problems"][0] | {"problem": ""} == {"file": str(file), "line": 2, "field": "seq", "problem": ""}


@pytest.mark.parametrize("name", ["missing.jsonl", "plain.jsonl.gz"])
def test_an_unreadable_file_is_one_line_and_exit_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain.jsonl.gz").write_text("not packed", encoding="utf-8")

    assert main(["validate", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert name in error
    assert error.count("\n") == 1


def test_a_file_that_cannot_be_read_does_not_keep_the_others_from_being_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain.jsonl.gz").write_text("not packed", encoding="utf-8")
    good = write(tmp_path / "a.jsonl", json.dumps(GOOD))

    assert main(["validate", str(tmp_path / "plain.jsonl.gz"), str(good)]) == 2
    assert capsys.readouterr().out == "2 files: 1 good rows, 0 bad lines\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("[" * 200_000, "nested too deeply", id="deep"),
        pytest.param("\ufeff" + json.dumps(GOOD), "byte order mark", id="byte-order-mark"),
        pytest.param(json.dumps(GOOD) + " xx", "not JSON", id="text-behind"),
    ],
)
def test_a_line_that_a_reader_would_choke_on_is_named(
    line: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "a.jsonl", line, json.dumps(GOOD))

    assert main(["validate", str(file)]) == 1
    output = capsys.readouterr().out
    assert f"{file}:1: line: " in output
    assert message in output
    assert output.endswith("1 files: 1 good rows, 1 bad lines\n")


def test_validating_needs_neither_pyspark_nor_java(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", json.dumps(GOOD))
    program = (
        "import sys; sys.modules['pyspark'] = None; from pointsman_report.cli import main; sys.exit(main(sys.argv[1:]))"
    )

    command = [sys.executable, "-c", program]
    assert subprocess.run([*command, "validate", str(file)], env={"PATH": ""}, check=False).returncode == 0
    nightly = ["nightly", "--history", str(tmp_path), "--warehouse", str(tmp_path / "w"), "--date", "2026-11-21"]
    (tmp_path / "raw").mkdir()
    done = subprocess.run([*command, *nightly], env={"PATH": ""}, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "pointsman-report: pyspark is missing: pip install pointsman-report\n",
    )


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib", "jsonschema"])
def test_a_missing_library_is_one_line_before_any_day_is_computed(missing: str, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    file = write(tmp_path / "raw" / "a.jsonl", json.dumps(GOOD))
    program = (
        "import sys, contextlib; sys.modules[sys.argv[1]] = None; from pointsman_report.commands import computing;"
        "computing.running = lambda *_, **__: contextlib.nullcontext((None, print));"
        "from pointsman_report.cli import main; sys.exit(main(sys.argv[2:]))"
    )
    nightly = ["nightly", "--history", str(tmp_path), "--warehouse", str(tmp_path / "w"), "--date", "2026-11-21"]
    command = ["validate", str(file)] if missing == "jsonschema" else nightly

    done = subprocess.run(
        [sys.executable, "-c", program, missing, *command], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (
        2,
        f"pointsman-report: {missing} is missing: pip install pointsman-report\n",
    )
