"""Spark standalone on this machine, from the installed pyspark: a master and workers, each a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.kit.waiting import until

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 90.0
STOP_SECONDS = 10.0
_DAEMON = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_HOME": str(SPARK_HOME),
}
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_IN = re.compile("Successfully registered with master")


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster."""

    master: str
    workers: list[Path]
    """The folder of each worker, where its executors leave what they print."""

    def submit(
        self, main_file: Path, *arguments: str, py_files: Path, seconds: float, settings: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a main file under ``spark-submit``, as a user would; ``settings`` are added to those of a small run."""
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.master, "--py-files", str(py_files)]
        small: dict[str, str] = {
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.log.level": "INFO",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        command += [word for key, value in {**small, **settings}.items() for word in ("--conf", f"{key}={value}")]
        # The zip must do alone: nothing of these sources is on the path that the process is given.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK_HOME)}
        # Executors need no Python: one that was asked for would not be found.
        environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": "no-python-at-executors"}
        return subprocess.run(
            [*command, str(main_file), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


@contextmanager
def spark_cluster(folder: Path, *, workers: int, cores: int) -> Iterator[SparkCluster]:
    """Run a cluster on free ports, ``cores`` for each worker; all its processes have ended afterwards."""
    with ExitStack() as stack:
        log = folder / "master.log"
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        stack.enter_context(_process(log, "master.Master", *here, "--port", "0"))
        (master,) = _said(log, _MASTER_URL)
        folders = [folder / f"worker-{number}" for number in range(workers)]
        for place in folders:
            place.mkdir()
            sizes = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(place))
            stack.enter_context(_process(place.with_suffix(".log"), "worker.Worker", *here, *sizes, master))
        for place in folders:
            _said(place.with_suffix(".log"), _WORKER_IN)
        yield SparkCluster(master, folders)


def _said(log: Path, wanted: re.Pattern[str]) -> list[str]:
    """Wait until a log says it, and return what the pattern found."""
    until(lambda: wanted.search(log.read_text(encoding="utf-8", errors="replace")), seconds=START_SECONDS)
    return wanted.findall(log.read_text(encoding="utf-8", errors="replace"))


@contextmanager
def _process(log: Path, daemon: str, *arguments: str) -> Iterator[None]:
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=os.environ | _DAEMON, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield
    finally:
        # The group: a worker's executors are its children.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
