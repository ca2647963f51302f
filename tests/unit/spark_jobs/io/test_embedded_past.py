"""Tables and files read without Spark. That both readers agree is tested in tests/spark/test_embedded_past.py."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from pointsman.history.topic_selection import TopicQuestion, TopicRows
from pointsman_report.io import embedded_past
from pointsman_report.io.embedded_past import EmbeddedPast, sql_type
from pointsman_report.io.past import Past
from pointsman_report.io.warehouse import LABEL
from pointsman_report.report_errors import ReportError
from pointsman_report.schemas import TABLES, WAREHOUSE_VERSION
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, moment, write_history

DAY = MIDNIGHT.date()
TOPIC = 'a/b~c "d" {é}'
QUESTION = TopicQuestion(TOPIC, moment(100), DAY - timedelta(days=1), DAY)


def written() -> list[Row]:
    """Two brokers with the topic, one of them with a removal of it, and one without."""
    server = NameServer().start()
    for n, name in enumerate(("has", "had", "never")):
        server.say("REGISTERED", moment(10 + n), broker(name))
        topics = {TOPIC: [4, 8, 6, 0]} if name == "has" else {"other": [1, 1, 6, 0]}
        removed = [TOPIC] if name == "had" else []
        detail = {"part": 1, "parts": 1, "full": False, "base": "0.0.1", "topics": topics, "removed": removed}
        server.say("TOPICS", moment(20 + n), broker(name), detail=detail)
    server.say("HEARTBEATS", moment(30), broker("has"))
    server.say("MAINTENANCE_ON", moment(40), {"cluster": "c1", "broker_name": None, "broker_id": None})
    return server.rows


def store(warehouse: Path, table: str, rows: list[Row]) -> Path:
    """Write a table's day as a nightly run would, by another program."""
    import duckdb  # noqa: PLC0415  # what is imported during collection is never freed, and DuckDB complains at the end

    schema = TABLES[table].schema
    lines = warehouse.parent / f"{table}.jsonl"
    texts = ({**row, "detail": json.dumps(row["detail"])} if "detail" in row else row for row in rows)
    lines.write_text("".join(json.dumps(row) + "\n" for row in texts), encoding="utf-8")
    columns = {field.name: sql_type(field.dataType) for field in schema.fields if field.name != "dt"}
    path = warehouse / table / f"dt={DAY}" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    read = "SELECT * FROM read_json($lines, format = 'newline_delimited', columns = $columns)"
    duckdb.connect().execute(f"COPY ({read}) TO '{path}'", {"lines": str(lines), "columns": columns})
    return path


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "the ware[house] *?"
    folder.mkdir()
    (folder / LABEL).write_text(json.dumps({"warehouse_version": WAREHOUSE_VERSION}), encoding="utf-8")
    return folder


@pytest.fixture
def tables(warehouse: Path) -> Path:
    """The file of the day's rows."""
    return store(warehouse, "registration_events", written())


def facts(found: TopicRows) -> list[tuple[object, ...]]:
    return sorted((row["seq"], row["event"], row["broker_name"]) for row in found.rows)


@pytest.mark.usefixtures("tables")
def test_the_rows_of_the_brokers_with_the_topic_of_their_clusters_and_of_the_name_servers(
    warehouse: Path, tmp_path: Path
) -> None:
    history = write_history(tmp_path / "history", written())
    pasts: list[Past] = [
        EmbeddedPast(warehouse),
        EmbeddedPast(histories=[history]),
        EmbeddedPast(warehouse, [history]),
    ]
    of_tables, of_files, of_both = (past.topic_rows(QUESTION) for past in pasts)

    assert facts(of_tables) == [
        (1, "NAMESRV_STARTED", None),
        (2, "NAMESRV_READY", None),
        (3, "REGISTERED", "has"),
        (4, "TOPICS", "has"),
        (5, "REGISTERED", "had"),
        (6, "TOPICS", "had"),
        (10, "MAINTENANCE_ON", None),
    ]
    entries = {row["broker_name"]: row["entry"] for row in of_tables.rows if row["event"] == "TOPICS"}
    assert (entries["has"]["queues"], entries["had"]["removed"]) == ([4, 8, 6, 0], True)
    assert facts(of_files) == facts(of_both) == facts(of_tables)
    assert of_files.observers == of_both.observers == of_tables.observers


def test_rows_that_only_the_files_have_are_added(warehouse: Path, tmp_path: Path) -> None:
    rows = written()
    store(warehouse, "registration_events", rows[:3])
    history = write_history(tmp_path / "history", rows)

    found = EmbeddedPast(warehouse, [history]).topic_rows(QUESTION)

    assert facts(found) == facts(EmbeddedPast(histories=[history]).topic_rows(QUESTION))
    assert [(one.rows, one.first_seq, one.last_seq) for one in found.observers] == [(10, 1, 10)]


def test_times_are_in_utc_at_every_depth_and_rows_are_chosen_by_value(warehouse: Path) -> None:
    gap = {"from_seq": 3, "to_seq": 4, "after_at": "2026-03-02T00:00:01.5", "before_at": "2026-03-02T00:00:02"}
    windows = [{"node": node, "boot_id": "b1", "gaps": [gap], "from_at": None} for node in ("ns1", "ns2")]
    store(warehouse, "observer_windows", windows)

    found = EmbeddedPast(warehouse).rows(
        "observer_windows", ("dt", "node", "from_at", "gaps"), first_day=DAY, last_day=DAY, where={"node": ["ns2"]}
    )

    times = {"after_at": moment(1.5), "before_at": moment(2)}
    assert found == [{"dt": DAY, "node": "ns2", "from_at": None, "gaps": [gap | times]}]


def test_a_day_that_a_run_replaces_in_the_meantime_is_listed_again(
    warehouse: Path, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = EmbeddedPast(warehouse)
    listed: list[list[str]] = [[str(tables.with_name("part-1.parquet"))], [str(tables)]]
    monkeypatch.setattr(embedded_past._Tables, "files", lambda *_: listed.pop(0))

    assert len(past.topic_rows(QUESTION).rows) == 7
    assert listed == []


def test_a_damaged_table_is_named_in_one_line(warehouse: Path, tables: Path) -> None:
    tables.write_bytes(tables.read_bytes()[:100])

    with pytest.raises(ReportError, match=rf"cannot read the warehouse {re.escape(str(warehouse))}: .*part-0\.parquet"):
        EmbeddedPast(warehouse).topic_rows(QUESTION)


def test_a_warehouse_of_another_version_is_refused(warehouse: Path) -> None:
    (warehouse / LABEL).write_text('{"warehouse_version": 1}', encoding="utf-8")

    with pytest.raises(ReportError, match="has version 1, but this release needs version"):
        EmbeddedPast(warehouse)


def test_tables_that_are_not_parquet_are_refused(warehouse: Path) -> None:
    label = {"warehouse_version": WAREHOUSE_VERSION, "table_format": "orc"}
    (warehouse / LABEL).write_text(json.dumps(label), encoding="utf-8")

    with pytest.raises(ReportError, match="are in orc format, but this release reads only Parquet"):
        EmbeddedPast(warehouse)


def test_a_missing_reader_is_named_with_what_to_install(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)

    with pytest.raises(ReportError, match=r"pip install 'pointsman-report\[questions\]', or use --engine spark"):
        EmbeddedPast(warehouse)
    assert EmbeddedPast(histories=[]).has_tables is False


@pytest.mark.usefixtures("tables")
def test_nothing_is_written_into_the_working_directory(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    EmbeddedPast(warehouse).topic_rows(QUESTION)

    assert list(folder.iterdir()) == []


def test_a_column_that_an_earlier_release_did_not_write_is_null(warehouse: Path) -> None:
    import duckdb  # noqa: PLC0415  # as in `store`

    columns = ["incident_id", "last_heard_at", "members"]
    store(warehouse, "incidents", [{"incident_id": "later", "last_heard_at": "2026-03-02T10:00:00Z"}])
    day_before = DAY - timedelta(days=1)
    earlier = warehouse / "incidents" / f"dt={day_before}" / "part-0.parquet"
    earlier.parent.mkdir()
    duckdb.connect().execute(f"COPY (SELECT 'earlier' AS incident_id) TO '{earlier}'")

    of_both = EmbeddedPast(warehouse).rows("incidents", columns, first_day=day_before, last_day=DAY)
    of_earlier = EmbeddedPast(warehouse).rows("incidents", columns, first_day=day_before, last_day=day_before)

    assert of_earlier == [{"incident_id": "earlier", "last_heard_at": None, "members": None}]
    heard = {row["incident_id"]: row["last_heard_at"] for row in of_both}
    assert (heard["earlier"], heard["later"].hour) == (None, 10)
