"""A real Prometheus with the shipped rules scrapes a real name server and an agent until one is killed."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.kit.agent.in_process import agent_config, running_agent
from tests.kit.broker.redis.process import free_port
from tests.kit.name_server.process import real_name_server
from tests.kit.operations.monitoring_kit import RULES, alerts, expressions

PATIENCE_SECONDS = 120.0
WITHOUT_DATA = {
    "RPC errors",
    "Remoting requests",
    "Remoting connections",
    "Rejected calls",
    "Certificate lifetime",
    "Equal name servers",
    "Age of the nightly report",
    "Changes of the expiry guard",
    "Expiry guard",
    "Watch lag",
    "Route responses built",
}
"""Panels without data here: their events do not happen in this test, or are not set up."""


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
    """Run one with the shipped rules, in which an alert waits for 1 s only."""
    executable = shutil.which("prometheus")
    assert executable, "prometheus is needed: run 'make setup', or install it"
    rules = re.sub(r"^( +for:) \w+$", r"\1 1s", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE)
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


async def test_every_panel_has_data_and_a_killed_name_server_fires_its_alerts(tmp_path: Path) -> None:
    settings = {"server.warm_up_seconds": 45.0, "snapshot.enabled": True, "snapshot.directory": tmp_path / "state"}
    async with real_name_server(tmp_path / "ns", settings=settings) as server:
        config = agent_config([server.addr])
        monitoring = replace(config.monitoring, listen=f"127.0.0.1:{free_port()}")
        targets = {"pointsman-namesrv": server.monitoring_addr, "pointsman-agent": monitoring.listen}
        async with (
            running_agent(replace(config, monitoring=monitoring)) as agent,
            prometheus(tmp_path, targets) as monitor,
        ):
            await agent.counts_beats(server.addr, 1)
            await monitor.await_series("up == 1", 2)
            await monitor.await_series("rate(process_cpu_seconds_total[1m])", 2)
            await monitor.await_series('pointsman_namesrv_brokers{state="UP"}', 1)
            loaded = (await monitor.get("rules"))["groups"]
            empty = {
                title
                for title, texts in expressions().items()
                if not any([await monitor.series(text) for text in texts])
            }

            await server.kill()
            await monitor.await_series('ALERTS{alertname="PointsmanNameServerDown", alertstate="firing"}', 1)
            await monitor.await_series('ALERTS{alertname="PointsmanAgentNotRegistered", alertstate="firing"}', 1)
            firing = (await monitor.get("alerts"))["alerts"]

    assert sorted(rule["name"] for group in loaded for rule in group["rules"]) == sorted(alerts())
    assert [rule["name"] for group in loaded for rule in group["rules"] if rule["health"] == "err"] == []
    assert empty <= WITHOUT_DATA
    texts = {alert["labels"]["alertname"]: alert["annotations"] for alert in firing}
    assert texts["PointsmanNameServerDown"]["summary"] == f"Name server {targets['pointsman-namesrv']} is down"
    assert "error" not in json.dumps(texts)
