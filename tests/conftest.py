"""Fixtures and options for every layer."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, is_hypothesis_test, settings

from pointsman.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kit.certificates import Authority
    from tests.spark.tables import DayRunner

pytest_plugins = ["tests.leaks"]

# As in the daemons (pointsman.daemon), wherever a test imports gRPC first.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

settings.register_profile("fast", max_examples=30, stateful_step_count=20, derandomize=True, deadline=None)
FRESH: dict[str, Any] = {"derandomize": False, "deadline": None, "print_blob": True}
"""Explicit, because Hypothesis uses other defaults where the environment has CI."""
settings.register_profile("ci", max_examples=200, stateful_step_count=50, **FRESH)
settings.register_profile("fuzz", max_examples=200, stateful_step_count=50, database=None, **FRESH)  # the seed is all
# Fixed seeds: whether a mutant is noticed must not be luck.
settings.register_profile("mutants", max_examples=10_000, phases=(Phase.generate,), derandomize=True, deadline=None)

SEARCH_SECONDS = 900
"""No time limit interrupts a search: Hypothesis ends shrinking by itself after 300 s. A full load has as long."""

LAYERS = ("spark", "real_rocketmq", "peers", "compatibility", "e2e", "integration", "property")
"""The order of a parallel run: the longest first, so that no worker ends long after the others."""

ALONE = ("chaos", "images", "packages")
"""Marks of tests that run only, and then alone, with the option of the same name."""

WITH_THE_SHARED_HISTORY = (
    "against_plain_python",
    "bad_input",
    "causes",
    "command",
    "damaged_history",
    "demo_over_midnight",
    "health_job",
    "holes",
    "late_rows",
    "liveness",
    "report_processes",
    "stories",
)
GROUPS = {
    "machine": {"tests/integration/test_history_disk.py", "tests/e2e/test_faults.py"},
    "history": {f"tests/spark/test_{name}.py" for name in WITH_THE_SHARED_HISTORY},
}
"""Files that run in the same worker. ``machine`` mounts disks. ``history`` uses the session fixtures of tests/spark, so
that they are computed once, and has two more files that make it as long as the rest of tests/spark, which is the other
group. By path, since pytest 9.2 ignores xdist's mark for groups."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what scenarios print into their files")
    parser.addoption(
        "--full", action="store_true", help="also tests marked slow, full loads, Hypothesis with fresh seeds"
    )
    parser.addoption("--chaos", action="store_true", help="only tests marked chaos; they take half an hour")
    parser.addoption("--images", metavar="TAG", help="only tests marked images, of the images with this tag")
    parser.addoption("--packages", action="store_true", help="only tests marked packages: the deb and the rpm")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("ci" if config.getoption("--full") else "fast")
    # All checks of asyncio's debug mode, without recording where each future was created: that took 70 % of a run.
    patch = pytest.MonkeyPatch()
    patch.setattr(asyncio.BaseEventLoop, "get_debug", lambda _: False)
    patch.setattr("asyncio.constants.DEBUG_STACK_DEPTH", 1)
    config.add_cleanup(patch.undo)
    # Debug mode also logs callbacks over 0.1 s: on a busy machine that is any of them.
    logging.getLogger("asyncio").addFilter(lambda record: not record.getMessage().startswith("Executing "))
    # Accept SIGINT here and in child processes, also under a shell that ignores it (a job started with `&`).
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what collecting makes out of garbage collection: it stays, and looking through it takes long."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the options leave out, order the rest by LAYERS, and give searches and full loads their time."""
    full, only = config.getoption("--full"), {name for name in ALONE if config.getoption(f"--{name}")}

    def is_wanted(item: pytest.Item) -> bool:
        kinds = {name for name in ALONE if item.get_closest_marker(name) is not None}
        return kinds == only and (bool(only) or full or item.get_closest_marker("slow") is None)

    def layer(item: pytest.Item) -> int:
        folder = item.path.relative_to(config.rootpath).parts[1]
        return LAYERS.index(folder) if folder in LAYERS else len(LAYERS)

    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = sorted(filter(is_wanted, items), key=layer)
    for item in items:
        is_search, own = is_hypothesis_test(getattr(item, "obj", None)), item.get_closest_marker("timeout")
        has_longer = own is not None and own.args[0] > SEARCH_SECONDS
        if (is_search or full) and not has_longer and config.getoption("--timeout") is None:
            item.add_marker(pytest.mark.timeout(SEARCH_SECONDS))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assign each file to one worker, and a group of files to the same worker."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415

    class ByGroup(LoadFileScheduling):  # type: ignore[misc]  # has no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            group = next((name for name, files in GROUPS.items() if file in files), None)
            return group or ("spark" if file.startswith("tests/spark/") else file)

    return ByGroup(config, log)


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether this is a run of everything (--full): full loads, where a test can do with less."""
    return bool(request.config.getoption("--full"))


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves only when the test advances it."""
    return ManualClock()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A certificate authority of the test's, with its files."""
    from tests.kit.certificates import Authority  # noqa: PLC0415

    return Authority(tmp_path)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests that need one."""
    # Late: most runs need no Spark, and importing pyspark is slow.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from pointsman_report.local_disk import use_local_disk  # noqa: PLC0415
    from pointsman_report.spark_session import LOCAL_SETTINGS, SETTINGS, SMALL_SETTINGS, resolve_classes  # noqa: PLC0415

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[1]").appName("tests")
    # One core, and nothing that pays off only with many rows.
    for key, value in (SETTINGS | LOCAL_SETTINGS | SMALL_SETTINGS | {"spark.default.parallelism": "1"}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    resolve_classes(session)
    use_local_disk(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def run_days(spark: SparkSession) -> DayRunner:
    """Compute the days first..last of a history into a warehouse."""
    from tests.spark.tables import DayRunner  # noqa: PLC0415

    return DayRunner(spark)
