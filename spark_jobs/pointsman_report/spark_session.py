"""The Spark session of a run: quiet, local by default, nothing shared with a run beside it.

On this machine the settings are ours, shaped by its memory and by how much there is to read; on a cluster those of the
cluster and of its user apply, and only what the tables depend on is set.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

LEAST_MB, MOST_MB = 1_024, 8_192
PACKED_HOLDS = 10
"""A gzip of history unpacks to some ten times its size."""
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
OLDEST_JAVA = 17
SMALL_BYTES = 8 * 2**20
"""A run over less is over before Java's second compiler has paid for itself."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    # The default local file system wants a checksum file beside each file, whose name cannot hold a colon; histories
    # from elsewhere do.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.parquet.compression.codec": "zstd",
    # Else the folders of a table of more than 32 days are listed by a job with a task a folder.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "20000",
    "spark.ui.showConsoleProgress": "false",
    # Else each call on a column or a table asks Java five times where in our code it stands: 30 % of all calls.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.log.level": "ERROR",
}
"""For every master; what a submitter says otherwise stands, but for the first."""
JAVA_LOGS = "-Xlog:disable -Xlog:all=warning:stderr"
"""Java's own warnings would stand on standard output, before a command's JSON."""
LOCAL_SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA_LOGS,
    "spark.ui.enabled": "false",
    # Without these Spark looks up the host's name, and waits where that name leads nowhere.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.default.parallelism": "4",
    "spark.driver.memory": "2g",
}
"""For one machine; a cluster's own configuration stands."""
CLUSTER_SETTINGS = {
    # spark-submit has opened the local file system before it could be told which one.
    "spark.hadoop.fs.file.impl.disable.cache": "true",
}
SMALL_SETTINGS = {
    # With one compiler alone Java keeps 48 MB for what it compiles, which a night fills; then it compiles no more.
    "spark.driver.extraJavaOptions": (
        f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m {JAVA_LOGS}"
    ),
    # Compiling a plan costs more than running it on so few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    # To plan a query again after each of its stages costs more than a better plan gains.
    "spark.sql.adaptive.enabled": "false",
    # To write so few rows to files and read them back costs more than to compute them.
    "spark.pointsman.intermediatesInMemory": "true",
}
"""Over the local ones where there is little to read: there a run is planning and compiling, and hardly any rows."""


def default_memory() -> str:
    """Give Java a quarter of what this machine or container has, within bounds."""
    return f"{min(MOST_MB, max(LEAST_MB, _memory_bytes() // 4 // 2**20))}m"


def _memory_bytes() -> int:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(_CONTAINER_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        # No container, or one without a limit, which says "max".
        return machine


def is_below(most: int, folders: Iterable[Path]) -> bool:
    """Say whether the files below some folders hold less than so many bytes, unpacked; False if there is no folder."""
    known, total = False, 0
    for folder in folders:
        known = True
        for size in _sizes(folder):
            total += size
            if total >= most:
                return False
    return known


def _sizes(folder: Path) -> Iterator[int]:
    # Spark reads what a link leads to.
    for path, _, names in os.walk(folder, followlinks=True):
        for name in names:
            try:
                size = (Path(path) / name).stat().st_size
            except OSError:
                # Packed or removed meanwhile.
                continue
            yield size * (PACKED_HOLDS if name.endswith(".gz") else 1)


class SparkUnavailableError(Exception):
    """No session can be had; the text says what to install."""


@contextmanager
def spark_session(
    master: str | None,
    *,
    name: str,
    memory: str | None = None,
    reads: Iterable[Path] = (),
    over: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Open a session, and stop it afterwards unless it was there before.

    ``memory`` and the size of what the run ``reads`` shape a local session alone; ``over`` are settings over ours.

    Raises:
        ModuleNotFoundError: pyspark is missing.
        SparkUnavailableError: Java is missing, or Spark did not start.
    """
    # Late: that it is missing must be one line, not a traceback.
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    _require_java()
    # Py4J logs a call that an interrupt broke off through the root logger; what matters comes back as an exception.
    logging.getLogger().addHandler(logging.NullHandler())
    existing = SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    submitted = None
    if _is_submitted():
        # Without a JVM a SparkConf is empty; PySpark has no public way to get at the one that waits for us.
        SparkContext._ensure_initialized()  # noqa: SLF001
        submitted = SparkConf()
    settings = settings_for(master, memory=memory, reads=reads, submitted=submitted)
    if is_local(master, submitted):
        # The driver's address alone does not keep Java from looking up the machine's name.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**settings, **(over or {})}.items():
        builder = builder.config(key, value)
    try:
        with _quiet_start():
            spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkUnavailableError(f"Spark did not start: {str(error).strip().splitlines()[0]}") from error
    if submitted is None:
        spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def settings_for(
    master: str | None, *, memory: str | None, reads: Iterable[Path], submitted: SparkConf | None
) -> dict[str, str]:
    """Choose the settings of a session; those that a submitter gave are left out."""
    settings = dict(SETTINGS)
    if is_local(master, submitted):
        settings |= LOCAL_SETTINGS | {"spark.driver.memory": memory or default_memory()}
        if is_below(SMALL_BYTES, reads):
            settings |= SMALL_SETTINGS
    else:
        settings |= CLUSTER_SETTINGS
    if submitted is not None:
        needed = {"spark.sql.session.timeZone"}
        settings = {key: value for key, value in settings.items() if key in needed or not submitted.contains(key)}
    return settings


def is_local(master: str | None, submitted: SparkConf | None) -> bool:
    """Say whether driver and executors are one process on this machine."""
    chosen = master or (submitted.get("spark.master") if submitted is not None else None) or "local"
    return chosen.startswith("local")


def _is_submitted() -> bool:
    """Say whether spark-submit started this process: then there is a Java process already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


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
