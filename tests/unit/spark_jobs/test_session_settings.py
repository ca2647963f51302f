"""Which settings a session gets: the project's on this machine, the cluster's on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkConf

from pointsman_report.spark_session import LOCAL_SETTINGS, SETTINGS, SMALL_BYTES, is_local, settings_for


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

    assert "TieredStopAtLevel=1" in options()
    with (history / "much.jsonl").open("wb") as file:
        file.truncate(SMALL_BYTES)
    assert "TieredStopAtLevel" not in options()


def test_input_of_unknown_size_counts_as_large() -> None:
    settings = settings_for(None, memory=None, reads=[], submitted=None)
    assert "TieredStopAtLevel" not in settings.get("spark.driver.extraJavaOptions", "")


def test_memory_is_the_requested_amount() -> None:
    assert settings_for(None, memory="3g", reads=[], submitted=None)["spark.driver.memory"] == "3g"
