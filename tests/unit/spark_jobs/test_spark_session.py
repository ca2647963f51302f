"""The session's settings, and those for one machine."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkConf

from pointsman_report.schemas.history_tables import INGESTED_FILES
from pointsman_report.spark_session import (
    BROKER_BYTES,
    JAVA_LOGS,
    LOCAL_SETTINGS,
    ONE_COMPILER,
    ONE_COMPILER_BYTES,
    SETTINGS,
    SMALL_BYTES,
    SMALL_SETTINGS,
    Seen,
    class_archive,
    default_memory,
    is_below,
    is_local,
    resolve_classes,
    settings_for,
)


def submitted(**given: str) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    for key, value in given.items():
        conf.set(key.replace("_", "."), value)
    return conf


@pytest.fixture
def history(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("{}\n")
    return tmp_path


def test_a_cluster_keeps_its_own_address_memory_and_partitions(history: Path) -> None:
    settings = settings_for("spark://master:7077", memory=None, reads=[history], submitted=None)

    assert set(LOCAL_SETTINGS) & set(settings) == set()
    assert set(SETTINGS) <= set(settings)


def test_settings_of_the_submitter_apply_except_for_the_zone_of_days() -> None:
    conf = submitted(
        spark_master="yarn",
        spark_sql_session_timeZone="Asia/Tokyo",
        spark_sql_parquet_compression_codec="snappy",
        spark_log_level="INFO",
    )
    settings = settings_for(None, memory=None, reads=[], submitted=conf)

    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert "spark.sql.parquet.compression.codec" not in settings
    assert "spark.log.level" not in settings
    assert settings["spark.hadoop.fs.file.impl"].endswith("RawLocalFileSystem")
    assert "spark.driver.host" not in settings


@pytest.mark.parametrize(
    ("master", "conf", "local"),
    [
        pytest.param(None, None, True, id="alone"),
        pytest.param("local[2]", None, True, id="asked-for"),
        pytest.param("spark://m:7077", None, False, id="asked-for-a-cluster"),
        pytest.param(None, submitted(spark_master="k8s://m"), False, id="submitted-to-a-cluster"),
        pytest.param(None, submitted(spark_master="local[*]"), True, id="submitted-here"),
        pytest.param("local[1]", submitted(spark_master="yarn"), True, id="the-command-before-the-submitter"),
    ],
)
def test_what_is_local(master: str | None, conf: SparkConf | None, local: bool) -> None:
    assert is_local(master, conf) is local


def test_little_to_read_spares_the_second_compiler_and_much_does_not(history: Path) -> None:
    def options() -> str:
        settings = settings_for(None, memory=None, reads=[history], submitted=None)
        return settings.get("spark.driver.extraJavaOptions", "")

    for size, has_one_compiler in ((0, True), (SMALL_BYTES, True), (ONE_COMPILER_BYTES, False)):
        with (history / "much.jsonl").open("wb") as file:
            file.truncate(size)
        assert ("TieredStopAtLevel=1" in options()) is has_one_compiler
        assert ("Tier4InvocationThreshold" in options()) is not has_one_compiler
        # Java's warnings would be printed before a command's JSON.
        assert JAVA_LOGS in options()


def test_java_is_given_the_archive_of_classes_where_there_is_one(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "an environment"))

    def options() -> str:
        return settings_for(None, memory=None, reads=[history], submitted=None)["spark.driver.extraJavaOptions"]

    without = options()
    class_archive().parent.mkdir(parents=True)
    class_archive().touch()
    assert options() == f'{without} "-XX:SharedArchiveFile={class_archive()}"'


def test_little_about_many_brokers_is_not_small_over_many_days(history: Path) -> None:
    with (history / "one-row-a-broker.jsonl").open("wb") as file:
        file.truncate(5_000 * BROKER_BYTES)

    def kind(days: int) -> tuple[bool, bool]:
        settings = settings_for(None, memory=None, reads=iter([history]), days=days, submitted=None)
        return set(SMALL_SETTINGS) <= set(settings), ONE_COMPILER in settings["spark.driver.extraJavaOptions"]

    assert kind(1) == (True, True)
    assert kind(39) == (True, True)
    assert kind(40) == (False, True)
    assert kind(199) == (False, True)
    assert kind(200) == (False, False)


def test_months_that_the_last_night_read_count_only_for_a_run_that_computes_their_days(
    history: Path, tmp_path: Path
) -> None:
    (ledger := tmp_path / "warehouse" / INGESTED_FILES).mkdir(parents=True)
    (months := history / "raw" / "dt=2026-03-02").mkdir(parents=True)

    def is_small(first_day: date) -> bool:
        seen = Seen(ledger.parent, first_day)
        settings = settings_for(None, memory=None, reads=[history], seen=seen, submitted=None)
        return set(SMALL_SETTINGS) <= set(settings)

    night, again = date(2026, 3, 4), date(2026, 3, 3)
    before = arrive(months / "a.jsonl", SMALL_BYTES, after=0.0)
    assert not is_small(night)
    last_night = arrive(ledger / "part.parquet", 0, after=before)
    assert is_small(night)
    assert not is_small(again)
    arrive(months / "copied.jsonl", SMALL_BYTES, after=last_night)
    assert not is_small(night)


def arrive(path: Path, size: int, *, after: float) -> float:
    """Write an old file; return when it came, which is later than ``after``: the file system's clock has 4 ms steps."""
    while True:
        path.write_bytes(b"")
        os.truncate(path, size)
        os.utime(path, (0, 0))
        if (arrived := path.stat().st_ctime) > after:
            return arrived


def test_input_of_unknown_size_counts_as_large() -> None:
    settings = settings_for(None, memory=None, reads=[], submitted=None)
    assert "TieredStopAtLevel" not in settings.get("spark.driver.extraJavaOptions", "")


def test_memory_is_the_requested_amount() -> None:
    assert settings_for(None, memory="3g", reads=[], submitted=None)["spark.driver.memory"] == "3g"


GB = 2**30


def limited(
    monkeypatch: pytest.MonkeyPatch, folder: Path, machine: int, container: str | None, cores: int = 16
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    pages = {"SC_PHYS_PAGES": machine // 4_096, "SC_PAGE_SIZE": 4_096}
    monkeypatch.setattr("os.sysconf", pages.__getitem__)
    limit = folder / "memory.max"
    if container is not None:
        limit.write_text(f"{container}\n")
    monkeypatch.setattr("pointsman_report.spark_session._CONTAINER_LIMIT", limit)


@pytest.mark.parametrize(
    ("machine", "container", "given"),
    [
        pytest.param(16 * GB, None, "4096m", id="a-quarter"),
        pytest.param(16 * GB, "max", "4096m", id="a-container-without-a-limit"),
        pytest.param(16 * GB, str(6 * GB), "1536m", id="a-container-with-one"),
        pytest.param(2 * GB, None, "1024m", id="at-least"),
        pytest.param(256 * GB, None, "8192m", id="at-most"),
    ],
)
def test_java_gets_a_quarter_of_the_memory_within_bounds(
    machine: int, container: str | None, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, tmp_path, machine, container)
    assert default_memory() == given


@pytest.mark.parametrize(
    ("cores", "given"),
    [pytest.param(1, "1024m", id="one"), pytest.param(2, "2048m", id="two"), pytest.param(64, "8192m", id="many")],
)
def test_java_gets_a_gigabyte_per_core_of_a_large_machine(
    cores: int, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, tmp_path, 64 * GB, None, cores)
    assert default_memory() == given


def test_the_files_below_all_folders_count_and_packed_ones_for_more(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two" / "deep"
    one.mkdir()
    two.mkdir(parents=True)
    (one / "a.jsonl").write_bytes(b"x" * 40)
    (two / "b.jsonl.gz").write_bytes(b"x" * 5)

    assert is_below(91, [one, tmp_path / "two"])
    assert not is_below(90, [one, tmp_path / "two"])


def test_a_linked_folder_counts_as_its_target(tmp_path: Path) -> None:
    elsewhere, view = tmp_path / "elsewhere", tmp_path / "view"
    elsewhere.mkdir()
    view.mkdir()
    (elsewhere / "a.jsonl").write_bytes(b"x" * 40)
    (view / "dt=2026-03-02").symlink_to(elsewhere)

    assert not is_below(40, [view])


def test_unknown_input_does_not_count_as_small(tmp_path: Path) -> None:
    assert not is_below(1, [])
    assert is_below(1, [tmp_path / "nowhere"])


class CountedLookups:
    """Stands for a Java class or the view of all: notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> CountedLookups:
        self.asked.append(name)
        return CountedLookups()


def test_classes_and_their_methods_are_looked_up_once_also_by_a_second_session() -> None:
    jvm = CountedLookups()
    spark = SimpleNamespace(_jvm=jvm)
    resolve_classes(spark)  # type: ignore[arg-type]  # only its view of Java's classes is used
    resolve_classes(spark)  # type: ignore[arg-type]
    assert len(jvm.asked) == len(set(jvm.asked))
    assert jvm.functions.col is jvm.functions.col
    assert jvm.functions.lit is not jvm.functions.col
