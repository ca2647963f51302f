"""A real Prometheus with the shipped rules, as a process."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kit.broker.redis.process import free_port
from tests.kit.operations.monitoring_kit import RULES, Dashboard, expressions

PATIENCE_SECONDS = 120.0


class Prometheus:
    """Its HTTP API."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def get(self, path: str, **parameters: str) -> Any:
        """Return ``data`` of a response; raises OSError while there is none, and for an error."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"

        def read() -> bytes:
            with urllib.request.urlopen(url, timeout=30) as response:
                return bytes(response.read())

        answer = json.loads(await asyncio.to_thread(read))
        assert answer["status"] == "success", answer
        return answer["data"]

    async def series(self, expression: str) -> list[Any]:
        return list((await self.get("query", query=expression))["result"])

    async def firing(self, alert: str) -> list[dict[str, str]]:
        """Return labels and annotations of an alert that fires, together."""
        found = (await self.get("alerts"))["alerts"]
        fires = [each for each in found if each["state"] == "firing" and each["labels"]["alertname"] == alert]
        return [each["labels"] | each["annotations"] for each in fires]

    async def without_data(self, dashboard: Dashboard) -> set[str]:
        """Query each expression; return the titles of panels without a series."""
        return {
            title
            for title, texts in expressions(dashboard).items()
            if not any([await self.series(text) for text in texts])
        }

    async def await_data(self, dashboard: Dashboard, *, besides: set[str]) -> None:
        empty = set[str]()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    empty = await self.without_data(dashboard) - besides
                    if not empty:
                        return
                    await asyncio.sleep(1.0)
        except TimeoutError:
            raise AssertionError(f"panels without data: {sorted(empty)}") from None

    async def await_series(self, expression: str, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    if len(await self.series(expression)) >= count:
                        return
                except OSError:
                    pass  # it starts
                await asyncio.sleep(0.2)


@asynccontextmanager
async def prometheus(folder: Path, targets: dict[str, str]) -> AsyncIterator[Prometheus]:
    """Run one with the shipped rules, in which an alert waits for 1 s only, and a range is read in steps of 1 s."""
    executable = shutil.which("prometheus")
    assert executable, "prometheus is needed: run 'make setup', or install it"
    rules = re.sub(r"^( +for:) \w+$", r"\1 1s", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    rules = rules.replace(":1m]", ":1s]")
    (folder / "rules.yaml").write_text(rules, encoding="utf-8")
    jobs = [{"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()]
    once_a_second = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings = {"global": once_a_second, "rule_files": ["rules.yaml"], "scrape_configs": jobs}
    (folder / "prometheus.yaml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    port = free_port()
    arguments = [
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(executable, *arguments, stderr=output, stdout=output)
    try:
        yield Prometheus(port)
    finally:
        process.kill()
        await process.wait()
