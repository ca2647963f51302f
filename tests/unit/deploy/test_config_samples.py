"""Every sample configuration shows each setting with its default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pointsman.config import load, to_toml
from pointsman_agent.config import AgentConfig, BrokerSection, NameServersSection
from pointsman_agent.config import load as load_agent
from pointsman_namesrv.config import NameServerConfig
from pointsman_namesrv.config import load as load_name_server
from pointsman_namesrv.observe.observer_config import ObserverConfig
from pointsman_namesrv.observe.observer_config import load as load_observer
from pointsman_report.parameters import Parameters

FOLDER = Path(__file__).parents[3] / "deploy" / "config"

SAMPLES: dict[str, tuple[Callable[[Path], Any], Any]] = {
    "namesrv.example.toml": (lambda file: load_name_server(file, {}), NameServerConfig()),
    "agent.example.toml": (
        lambda file: load_agent(file, {}),
        AgentConfig(
            broker=BrokerSection(cluster="DefaultCluster", name="broker-a", addr="127.0.0.1:6379"),
            name_servers=NameServersSection(addrs=("127.0.0.1:9876",)),
        ),
    ),
    "observe.example.toml": (lambda file: load_observer(file, {}), ObserverConfig()),
    "report.example.toml": (lambda file: load(Parameters, file=file), Parameters()),
}
FEWEST_SETTINGS = {"observe.example.toml": 16}
"""Others have more than 20."""


def test_every_sample_equals_the_defaults() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_equals_the_defaults(name: str) -> None:
    loaded, defaults = SAMPLES[name]
    assert loaded(FOLDER / name) == defaults


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_shows_every_setting(name: str) -> None:
    shown = {line.split(" = ")[0] for line in (FOLDER / name).read_text().splitlines()}
    settings = {line.split(" = ")[0] for line in to_toml(SAMPLES[name][1]).splitlines() if " = " in line}
    assert len(settings) > FEWEST_SETTINGS.get(name, 20)
    assert settings - {"grants", "topic", "group", "slo_by_cluster"} <= shown
