"""deploy/compose as text: what its services run, mount and reach; `make test-images` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pointsman_agent.config import load as load_agent
from pointsman_namesrv.config import load as load_name_server
from tests.kit.operations.monitoring_kit import RULES

COMPOSE = Path(__file__).parents[3] / "deploy" / "compose"


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))
    return found["services"]


def settings(name: str, prefix: str) -> dict[str, str]:
    return {key: value for key, value in services()[name]["environment"].items() if key.startswith(prefix)}


def test_the_name_servers_know_each_other_and_take_both_wires_on_one_port() -> None:
    for name in ("ns1", "ns2"):
        # The image's own settings, and those of the service.
        listens = {"NAMESRV_SERVER__LISTEN": "0.0.0.0:9876", "NAMESRV_MONITORING__LISTEN": "0.0.0.0:9877"}
        config = load_name_server(None, listens | settings(name, "NAMESRV_"))
        assert config.server.node == services()[name]["hostname"] == name
        assert config.peers.name_servers == ("ns1:9876", "ns2:9876")
        assert config.remoting.listen == config.server.listen


@pytest.mark.parametrize("broker", ["a", "b"])
def test_an_agent_registers_its_redis_by_the_name_of_its_service(broker: str) -> None:
    config = load_agent(COMPOSE / "agent.toml", settings(f"agent-{broker}", "AGENT_"))
    assert config.broker.name == f"broker-{broker}"
    assert config.broker.addr.split(":")[0] in services()
    assert config.broker.agent_addr == f"agent-{broker}:{config.rpc.listen.rpartition(':')[2]}"
    assert config.name_servers.addrs == ("ns1:9876", "ns2:9876")
    assert f"redis-{broker}" in services()[f"agent-{broker}"]["depends_on"]


def test_every_file_that_is_mounted_exists_and_every_port_is_of_this_machine_alone() -> None:
    mounted = 0
    for service in services().values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                mounted += 1
                assert (COMPOSE / source).exists(), source
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")
    assert mounted > 5
    assert (COMPOSE / "../monitoring/prometheus/rules.yaml").resolve() == RULES


def test_prometheus_scrapes_every_daemon() -> None:
    config = yaml.safe_load((COMPOSE / "prometheus.yml").read_text(encoding="utf-8"))
    targets = {
        target.split(":")[0]
        for job in config["scrape_configs"]
        for each in job["static_configs"]
        for target in each["targets"]
    }
    assert targets == {name for name in services() if name.startswith(("ns", "agent-"))}
