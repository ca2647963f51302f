"""A PostgreSQL server of this machine's package, started for one test."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.kit.broker.redis.process import free_port
from tests.kit.waiting import until

START_SECONDS = 60.0
UNPRIVILEGED = 65534
"""Every Linux has a user of this id, without rights."""


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """Run it for the length of the block; its URL. Skips the test where it is not installed."""
    # Debian has its programs outside of PATH.
    folders = [*sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin"))), os.environ["PATH"]]
    initdb = shutil.which("initdb", path=os.pathsep.join(folders))
    if initdb is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    port = free_port()
    # It refuses to run as root, and other users may not enter root's folders of a test.
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pointsman-postgres-") as name:
        if user is not None:
            shutil.chown(name, user)
        log = Path(name, "log")
        with log.open("wb") as output:
            made = [initdb, "-D", f"{name}/data", "-U", "shop", "-A", "trust", "--no-sync"]
            subprocess.run(made, check=True, cwd=name, user=user, stdout=output, stderr=output)
            serve: list[str | Path] = [
                Path(initdb).with_name("postgres"),
                "-D",
                f"{name}/data",
                "-k",
                name,
                "-p",
                str(port),
                "-F",
            ]
            with subprocess.Popen(serve, cwd=name, user=user, stdout=output, stderr=output) as server:
                try:
                    url = f"postgresql://shop@127.0.0.1:{port}/postgres"
                    until(lambda: _accepts(url), seconds=START_SECONDS, what=f"PostgreSQL ({log})")
                    yield url
                finally:
                    server.send_signal(signal.SIGINT)  # ends sessions, too


def _accepts(url: str) -> bool:
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url):
        return True
    return False
