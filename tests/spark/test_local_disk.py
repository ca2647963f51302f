"""Files of a local session."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pointsman_report.hadoop_files import Files

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_CHILDREN_PAGES = 11
"""The field of /proc/PID/stat, numbered from 1, that grows with each child that a process has waited for."""


def test_a_folder_and_its_day_get_their_permissions_without_a_process(spark: SparkSession, tmp_path: Path) -> None:
    def make(table: str) -> None:
        Files(spark).make(str(tmp_path / table))
        spark.sql("SELECT 1 AS one, 2 AS dt").write.partitionBy("dt").mode("append").parquet(str(tmp_path / table))

    # Hadoop starts processes to learn about the machine.
    make("first")
    before = pages_of_children(spark)

    make("table")

    assert pages_of_children(spark) == before
    assert [permissions(tmp_path / name) for name in ("table", "table/dt=2")] == ["drwxr-xr-x"] * 2


def test_a_permission_that_only_a_process_can_set_is_set_by_one(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path))

    system = path.getFileSystem(spark._jsc.hadoopConfiguration())
    system.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission("1777"))

    assert permissions(tmp_path) == "drwxrwxrwt"


def test_a_folder_of_another_disk_is_copied_as_hadoop_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "staged").mkdir()
    (tmp_path / "staged" / "part").write_text("rows", encoding="utf-8")

    def rename(_: Path, target: Path) -> Path:
        raise OSError(18, "Invalid cross-device link", str(target))

    monkeypatch.setattr(Path, "rename", rename)
    Files(spark).move(str(tmp_path / "staged"), str(tmp_path / "published"))

    assert (tmp_path / "published" / "part").read_text(encoding="utf-8") == "rows"


def permissions(path: Path) -> str:
    return stat.filemode(path.stat().st_mode)


def pages_of_children(spark: SparkSession) -> int:
    jvm: Any = spark._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    # The first two fields are the number and the name.
    return int(fields[_CHILDREN_PAGES - 3])
