"""The command as a process: its output may end before it is read."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "while printing"])
def test_a_reader_that_has_enough_ends_the_command_without_a_word(unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pointsman_report", "stages"],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)

    assert (ended.returncode, ended.stderr) == (2, "")
