"""Other clients for Python in the bench: without one of them the others are measured all the same."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from deploy.demo.processes import ProcessFailed
from tests.bench.peers import python_clients
from tests.bench.peers.python_clients import aiokafka, started


def refuse(*_: object, **__: object) -> str:
    raise ProcessFailed("uv ended with 2:\n\nno such package")


async def test_one_that_cannot_be_had_is_skipped_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(python_clients, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(python_clients, "run_program", refuse)
    async with AsyncExitStack() as stack:
        assert await started(stack, aiokafka(tmp_path, jvm=())) == ()
    assert capsys.readouterr().out == "  a peer is skipped: uv ended with 2: no such package\n"
