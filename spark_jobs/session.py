"""The Spark session of a run: quiet, local by default, nothing shared with a run beside it."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Without these Spark looks up the host's name, and waits where that name leads nowhere.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    # The default local file system wants a checksum file beside each file, whose name cannot hold a colon; histories
    # from elsewhere do.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.parquet.compression.codec": "zstd",
}
LOCAL_SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.default.parallelism": "4",
    "spark.driver.memory": "2g",
    # Else the folders of a table of more than 32 days are listed by a job with a task a folder.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "20000",
}
"""For one machine; a cluster's own configuration stands."""


class SparkUnavailableError(Exception):
    """No session can be had; the text says what to install."""


@contextmanager
def spark_session(master: str | None, *, name: str) -> Iterator[SparkSession]:
    """Open a session, and stop it afterwards unless it was there before.

    Raises:
        SparkUnavailableError: pyspark or Java is missing.
    """
    try:
        # Late: that it is missing must be one line, not a traceback.
        from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError as error:
        raise SparkUnavailableError("pyspark is missing: pip install 'pointsman[spark]'") from error
    _require_java()
    # Py4J logs a call that an interrupt broke off through the root logger; what matters comes back as an exception.
    logging.getLogger().addHandler(logging.NullHandler())
    existing = SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    builder = SparkSession.builder.appName(name)
    settings = SETTINGS | (LOCAL_SETTINGS if master is None or master.startswith("local") else {})
    if master is not None:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _quiet_start():
            spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkUnavailableError(f"Spark did not start: {str(error).strip().splitlines()[0]}") from error
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    install = f"install Java {OLDEST_JAVA} (Debian: apt-get install openjdk-{OLDEST_JAVA}-jre-headless)"
    if java is None:
        raise SparkUnavailableError(f"Java is missing: {install}")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkUnavailableError(f"{java} does not run: {install}, or correct JAVA_HOME") from error
    version = re.search(r'version "(\d+)', answer.stderr)
    if version and int(version[1]) < OLDEST_JAVA:
        raise SparkUnavailableError(f"{java} is version {version[1]}: {install}")


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep the JVM's own warnings off the terminal; its faults come back as exceptions."""
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
