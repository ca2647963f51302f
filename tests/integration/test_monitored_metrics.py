"""Each metric that an alert or a dashboard names is one that the programs have: both daemons are scraped."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry

from pointsman_agent.config import OffsetsSection, RpcSection
from pointsman_client.prometheus import PrometheusMetrics
from pointsman_namesrv.config import AddressServerConfig
from pointsman_namesrv.observe.observer_config import ObserverMonitoringConfig
from tests.kit.agent.in_process import agent_config, running_agent
from tests.kit.broker.redis.process import free_port
from tests.kit.certificates import Authority
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.observed import observe, observed_servers, polled
from tests.kit.operations.monitoring_kit import DASHBOARDS, RULES, RULES_TEST, named_metrics
from tests.kit.tls_peers import tls_config
from tests.kit.waiting import eventually, read_until

OF_THE_REPORT = Path(__file__).parents[2] / "spark_jobs" / "pointsman_report" / "report" / "output.py"


def named() -> set[str]:
    texts = RULES.read_text(encoding="utf-8"), RULES_TEST.read_text(encoding="utf-8"), json.dumps(DASHBOARDS)
    return set[str]().union(*map(named_metrics, texts))


async def scraped(port: int) -> set[str]:
    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            return str(response.read().decode())

    return set(re.findall(r"^# TYPE (\S+)", await asyncio.to_thread(get), re.MULTILINE))


async def scraped_of_an_observer(folder: Path) -> set[str]:
    """Of a name server that does not respond: each metric has a type without a sample."""
    stop, port = asyncio.Event(), free_port()
    monitoring = ObserverMonitoringConfig(f"127.0.0.1:{port}")
    servers = observed_servers(folder, polled(f"127.0.0.1:{free_port()}"))
    running = asyncio.create_task(observe(servers, folder, stop, monitoring=monitoring))
    found = set[str]()

    async def is_scraped() -> bool:
        with suppress(OSError):  # it starts
            found.update(await scraped(port))
        return bool(found)

    await read_until(is_scraped)
    stop.set()
    assert await running == 0
    return found


async def test_each_metric_that_an_alert_or_a_dashboard_names_is_scraped(tmp_path: Path) -> None:
    """With TLS, roles and a followed list, whose metrics are not made without. The agent has no certificate, so it is
    not registered."""
    tls = tls_config(Authority(tmp_path).issue("server"))
    (tmp_path / "list").write_text("ns1:9876\n")
    lists = AddressServerConfig(listen="127.0.0.1:0", file=str(tmp_path / "list"))
    history, state = tmp_path / "history", tmp_path / "state"
    async with running_name_server(history=history, snapshot=state, tls=tls, address_server=lists) as server:
        config = agent_config([server.addr])
        monitoring = replace(config.monitoring, listen=f"127.0.0.1:{free_port()}")
        offsets = OffsetsSection(path=str(tmp_path / "offsets.db"))
        config = replace(config, rpc=RpcSection(listen="127.0.0.1:0"), offsets=offsets, monitoring=monitoring, tls=tls)
        async with running_agent(config) as agent:
            # Its metrics are made with its parts, while it starts; those of the queues last.
            await eventually(lambda: hasattr(agent.agent, "parts"))
            found = await scraped(server.monitoring_port) | await scraped(int(monitoring.listen.rpartition(":")[2]))
    found |= await scraped_of_an_observer(tmp_path / "observed")
    client = CollectorRegistry()
    PrometheusMetrics(client)
    found |= {f"{each.name}_total" if each.type == "counter" else each.name for each in client.collect()}
    report = OF_THE_REPORT.read_text(encoding="utf-8")
    found |= {f"pointsman_report_{name}" for name in re.findall(r'gauge\("([a-z_]+)"', report)}

    assert {"pointsman_namesrv_ready", "pointsman_agent_offsets", "pointsman_client_sends_total"} <= found
    assert named() - found == set()
