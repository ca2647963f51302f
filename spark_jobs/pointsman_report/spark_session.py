"""The Spark session of a run: quiet, local by default, independent of concurrent runs.

A local session is configured here, by the machine's memory and the size of the input. On a cluster the settings of the
cluster and of the user apply; only settings that the tables depend on are set.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointsman_report.local_disk import use_local_disk

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

MIN_MB, MAX_MB = 1_024, 8_192
MB_PER_CORE = 1_024
"""Each core runs one task; with more memory Java only keeps more garbage."""
GZIP_RATIO = 10
"""A history file is about ten times as large as its gzip."""
_FOLDER_DAY = re.compile(r"/dt=(\d{4}-\d{2}-\d{2})/")
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
MIN_JAVA = 17
SMALL_BYTES = 32 * 2**20
"""With less input, planning and compiling take longer than the rows; measured up to 29 MB."""
ONE_COMPILER_BYTES = 64 * 2**20
"""With less input, Java's second compiler takes more time than its code saves; measured up to 56 MB."""
SMALL_BROKER_DAYS, ONE_COMPILER_BROKER_DAYS = 200_000, 1_000_000
"""A day has a row for each known broker in a dozen tables, however little is in the history about it."""
LEDGER = "ingested_files"
"""The table of files that were read; its module needs pyspark."""
BROKER_BYTES = 300
"""A broker takes at least one row of the history, of about this size."""

MEMORY_SETTING = "spark.pointsman.intermediatesInMemory"
"""Set to "true" for small input. The only setting of Pointsman's among Spark's."""
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    # The default local file system needs a checksum file for each file, and fails for names with a colon, which some
    # histories have.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # On disk, the default, S3A needs the default local file system.
    "spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer",
    "spark.sql.parquet.compression.codec": "zstd",
    # Files of days on which nothing happened are a hundred times as large in memory, and a join would send such a table
    # to each task as if it were small.
    "spark.sql.sources.fileCompressionFactor": "50",
    # Without this, the folders of a table with more than 32 days are listed by a job with one task per folder.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "20000",
    # Rows divided by broker need not be divided again for a join by broker and day.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # Rows on the driver have times without the calendar of java.sql, which depends on the machine's time zone.
    "spark.sql.datetime.java8API.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # Without this, each call on a column or table makes five calls to Java for its position in the code: 30 % of all
    # calls.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # And Java looks at its own stack for the same purpose.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.log.level": "ERROR",
}
"""For every master; settings given to spark-submit take precedence, except for the time zone."""
JAVA_LOGS = "-Xlog:disable -Xlog:all=warning:stderr"
"""Otherwise Java's warnings appear on standard output, before a command's JSON."""
ONE_COMPILER = (
    # With only one compiler Java's code cache has 48 MB; a nightly run fills it, and compilation stops.
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
)
TWO_COMPILERS = (
    # Ten times the default: the second compiler took a third of the CPU of a backfill, most of it for code that ran for
    # seconds.
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000 -XX:+UseParallelGC"
)
LOCAL_SETTINGS = {
    "spark.driver.extraJavaOptions": f"{TWO_COMPILERS} {JAVA_LOGS}",
    "spark.ui.enabled": "false",
    # Without these Spark resolves the host's name, and hangs if that fails.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.default.parallelism": "4",
    # Each sort and each hash table of a task begins with a page; by default one of 64 MB, which Java must clear.
    "spark.buffer.pageSize": "4m",
    "spark.driver.memory": "2g",
}
"""For one machine; not applied on a cluster."""
CLUSTER_SETTINGS = {
    # spark-submit has opened the default local file system before these settings apply.
    "spark.hadoop.fs.file.impl.disable.cache": "true",
}
_CLASSES = (
    "functions",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.expressions.Window",
    "PythonUtils",
    "PythonSQLUtils",
)
"""As PySpark names them."""
SMALL_SETTINGS = {
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {ONE_COMPILER} {JAVA_LOGS}",
    # For few rows, compiling a plan costs more than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    # Parsing of lines is the one thing that several cores do faster.
    "spark.sql.files.minPartitionNum": "4",
    "spark.buffer.pageSize": "1m",
    # Re-planning a query after each stage costs more than a better plan saves.
    "spark.sql.adaptive.enabled": "false",
    # Writing few rows to files and reading them back costs more than computing them.
    MEMORY_SETTING: "true",
}
"""Added to the local settings for small input: planning and compiling then dominate."""


def default_memory() -> str:
    """Return Java's heap size: at most a quarter of the memory of this machine or container, within limits."""
    by_cores = (os.cpu_count() or 1) * MB_PER_CORE
    return f"{min(MAX_MB, max(MIN_MB, min(by_cores, _memory_bytes() // 4 // 2**20)))}m"


def _memory_bytes() -> int:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(_CONTAINER_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        # Not a container, or one without a limit ("max").
        return machine


@dataclass(frozen=True)
class Seen:
    """Files that a run does not read: the last run read them, and they are of days before those that are computed."""

    warehouse: Path
    first_day: date
    """The first day that is computed; rows of the day before may belong to it."""

    def ended_at(self) -> float:
        """Return the Unix time at which the last run noted what it had read; 0 without one."""
        # st_ctime and not st_mtime: a copy keeps the time of its original.
        return max((found.st_ctime for _, found in _files(self.warehouse / LEDGER)), default=0.0)


def is_below(most: int, folders: Iterable[Path], *, seen: Seen | None = None) -> bool:
    """Return whether the files below the folders have fewer than ``most`` bytes, unpacked; False without a folder."""
    known, total = False, 0
    since = seen.ended_at() if seen is not None else 0.0
    from_day = f"{seen.first_day - timedelta(days=1)}" if seen is not None else ""
    for folder in folders:
        known = True
        for path, found in _files(folder):
            day = _FOLDER_DAY.search(path)
            if found.st_ctime >= since or day is None or day[1] >= from_day:
                total += found.st_size * (GZIP_RATIO if path.endswith(".gz") else 1)
            if total >= most:
                return False
    return known


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    # Spark follows links.
    for path, _, names in os.walk(folder, followlinks=True):
        for name in names:
            try:
                yield f"{path}/{name}", (Path(path) / name).stat()
            except OSError:
                # Compressed or removed in the meantime.
                continue


class SparkUnavailableError(Exception):
    """Spark cannot be started; the message names what to install."""


class _Resolved:
    """A Java class whose static methods are looked up once."""

    def __init__(self, java_class: Any) -> None:  # noqa: ANN401  # Py4J has no types
        self._class = java_class

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        found = getattr(self._class, name)
        setattr(self, name, found)
        return found


def resolve_classes(spark: SparkSession) -> None:
    """Look up the classes behind PySpark's functions once.

    Py4J asks Java for a class and for its method at each use, 12,000 times in a small night, and Java looks for some of
    them in each of its jars. That was a sixth of Java's time.
    """
    jvm = spark._jvm  # noqa: SLF001
    for name in _CLASSES:
        found = getattr(jvm, name)
        if not isinstance(found, _Resolved):
            setattr(jvm, name, _Resolved(found))


@contextmanager
def spark_session(
    master: str | None,
    *,
    name: str,
    memory: str | None = None,
    reads: Iterable[Path] = (),
    days: int = 1,
    seen: Seen | None = None,
    over: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Open a session, and stop it afterwards unless it existed before.

    ``memory``, the size of what the run ``reads`` and the number of ``days`` that it computes determine the settings of
    a local session, without what was ``seen``; ``over`` overrides settings.

    Raises:
        ModuleNotFoundError: pyspark is missing.
        SparkUnavailableError: Java is missing, or Spark did not start.
    """
    # Imported late, so that a missing package is reported in one line.
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    _require_java()
    # Py4J logs interrupted calls through the root logger; relevant errors are raised as exceptions.
    logging.getLogger().addHandler(logging.NullHandler())
    existing = SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    submitted = None
    if _is_submitted():
        # Without a JVM a SparkConf is empty; PySpark has no public way to connect to the one that spark-submit started.
        SparkContext._ensure_initialized()  # noqa: SLF001
        submitted = SparkConf()
    settings = settings_for(master, memory=memory, reads=reads, days=days, seen=seen, submitted=submitted)
    if is_local(master, submitted):
        # Even with the driver's address set, Java resolves the machine's name.
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
    resolve_classes(spark)
    if is_local(master, submitted):
        use_local_disk(spark)
    try:
        yield spark
    finally:
        spark.stop()


def settings_for(
    master: str | None,
    *,
    memory: str | None,
    reads: Iterable[Path],
    days: int = 1,
    seen: Seen | None = None,
    submitted: SparkConf | None,
) -> dict[str, str]:
    """Choose the settings of a session, without those given to spark-submit."""
    settings = dict(SETTINGS)
    if is_local(master, submitted):
        settings |= LOCAL_SETTINGS | {"spark.driver.memory": memory or default_memory()}
        is_less = partial(is_below, folders=list(reads), seen=seen)
        if is_less(min(SMALL_BYTES, SMALL_BROKER_DAYS * BROKER_BYTES // days)):
            settings |= SMALL_SETTINGS
        elif is_less(min(ONE_COMPILER_BYTES, ONE_COMPILER_BROKER_DAYS * BROKER_BYTES // days)):
            settings["spark.driver.extraJavaOptions"] = f"{ONE_COMPILER} {JAVA_LOGS}"
        if class_archive().is_file():
            settings["spark.driver.extraJavaOptions"] += f' "-XX:SharedArchiveFile={class_archive()}"'
    else:
        settings |= CLUSTER_SETTINGS
    if submitted is not None:
        needed = {"spark.sql.session.timeZone"}
        settings = {key: value for key, value in settings.items() if key in needed or not submitted.contains(key)}
    return settings


def class_archive() -> Path:
    """The archive of Java classes of this installation; ``prepare`` writes it."""
    return Path(sys.prefix) / "share" / "pointsman-report" / "classes.jsa"


def is_local(master: str | None, submitted: SparkConf | None) -> bool:
    """Return whether driver and executors are one process on this machine."""
    chosen = master or (submitted.get("spark.master") if submitted is not None else None) or "local"
    return chosen.startswith("local")


def _is_submitted() -> bool:
    """Return whether spark-submit started this process: then a Java process exists already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    install = f"install Java {MIN_JAVA} (Debian: apt-get install openjdk-{MIN_JAVA}-jre-headless)"
    if java is None:
        raise SparkUnavailableError(f"Java is missing: {install}")
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkUnavailableError(f"{java} does not run: {install}, or correct JAVA_HOME") from error
    version = re.search(r'version "(\d+)', result.stderr)
    if version and int(version[1]) < MIN_JAVA:
        raise SparkUnavailableError(f"{java} is version {version[1]}: {install}")


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep the JVM's warnings off the terminal; errors are raised as exceptions."""
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
