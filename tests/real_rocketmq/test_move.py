"""The rehearsal of docs/moving-from-rocketmq.md, with brokers and Java clients of each version, and Python clients.

Brokers and Java clients ask for the list every two minutes, which decides how long this test takes.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from deploy.demo.move import MoveDemo
from tests.real_rocketmq.conftest import VERSIONS, Jars

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(2400)]


def test_a_fleet_of_each_version_moves_to_pointsman_and_back_by_its_list_alone(
    jars: Jars, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def rehearse() -> None:
        demo = MoveDemo(tmp_path / "move", versions=("5.3.3", *VERSIONS), cache=jars.cache)
        try:
            await demo.run()
        finally:
            await demo.kill_all()

    asyncio.run(rehearse())
    printed = capsys.readouterr().out
    assert len(re.findall(r"[0-9,]+ messages sent, 0 messages lost", printed)) == 4
    assert "0 sends failed in steps 1 to 4" in printed
    assert "no broker and no client was restarted" in printed
    assert '"level": "ERROR"' not in "".join(
        log.read_text() for log in (tmp_path / "move" / "logs").glob("namesrv-*.log")
    )
