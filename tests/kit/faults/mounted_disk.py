"""A small disk of a test's own, that can be full."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A separate disk; the test is skipped where it cannot be mounted."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("there is no mount here")
    folder.mkdir()
    done = subprocess.run(
        [mount, "-t", "tmpfs", *options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([umount, "--lazy", folder], check=True)


def make_read_only(disk: Path) -> None:
    """Remount it read-only, as a file system does after an error."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


def fill(disk: Path) -> None:
    """Fill the disk with the file ``ballast``."""
    ballast = os.open(disk / "ballast", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(ballast, b"\0" * 1_024)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(ballast)
