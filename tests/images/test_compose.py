"""deploy/compose by podman-compose: messages, a broker that is killed, its alert, and nothing left at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.images.podman import Podman
from tests.kit.broker.redis.process import free_port
from tests.kit.operations.monitoring_kit import ROOT
from tests.kit.waiting import until

pytestmark = [pytest.mark.images, pytest.mark.timeout(900)]

PODMAN_COMPOSE = [
    str(Path(sys.executable).parent / "uv"),
    "tool",
    "run",
    "--from=podman-compose==1.6.0",
    "podman-compose",
]
PORTS = ("NS1_PORT", "NS1_PAGES_PORT", "NS2_PORT", "NS2_PAGES_PORT", "PROMETHEUS_PORT")


@dataclass
class Compose:
    """One project."""

    podman: Podman
    project: str
    environment: dict[str, str]

    def __call__(self, *words: str, seconds: float = 300.0) -> str:
        command = [*PODMAN_COMPOSE, "-f", str(ROOT / "deploy/compose/compose.yaml"), "-p", self.project, *words]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=seconds, env=os.environ | self.environment
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def left(self) -> list[str]:
        """Return what there is of the project: containers, volumes, networks."""
        kinds = {"container": ["ps", "--all"], "volume": ["volume", "ls"], "network": ["network", "ls"]}
        names = [
            self.podman(*words, "--format={{.Name}}" if kind != "container" else "--format={{.Names}}").split()
            for kind, words in kinds.items()
        ]
        return [name for each in names for name in each if self.project in name]

    def container(self, service: str) -> str:
        labels = [f"label=io.podman.compose.project={self.project}", f"label=com.docker.compose.service={service}"]
        return self.podman("ps", "--quiet", *(f"--filter={label}" for label in labels))

    def firing(self, alert: str) -> list[dict[str, str]]:
        """Return the labels of an alert that fires."""
        url = f"http://127.0.0.1:{self.environment['PROMETHEUS_PORT']}/api/v1/alerts"
        with urllib.request.urlopen(url, timeout=30) as response:
            found: list[dict[str, Any]] = json.loads(response.read())["data"]["alerts"]
        labels = [each["labels"] for each in found if each["state"] == "firing"]
        return [each for each in labels if each["alertname"] == alert]


@pytest.fixture
def compose(podman: Podman) -> Iterator[Compose]:
    images = {
        "POINTSMAN_IMAGES": "localhost/",
        "POINTSMAN_TAG": podman.suite,
        "REDIS_IMAGE": podman.image("test-redis"),
        "PROMETHEUS_IMAGE": podman.image("test-prometheus"),
    }
    made = Compose(podman, f"trial{uuid.uuid4().hex[:8]}", images | {name: str(free_port()) for name in PORTS})
    made("up", "--detach", "--no-build")
    yield made
    made("down", "--volumes")
    assert made.left() == []


def test_messages_go_through_and_a_killed_broker_is_seen_by_its_alert(compose: Compose) -> None:
    ctl = ["exec", compose.container("ns2"), "pointsmanctl", "--namesrv=ns1:9876,ns2:9876"]
    compose.podman(*ctl, "wait", "--route=orders", "--timeout=2m", seconds=150)
    assert compose("--profile=try", "run", "--rm", "-T", "try").splitlines()[-1] == "consumed: all 100"

    compose.podman("stop", "--time=0", compose.container("redis-a"))
    compose.podman(*ctl, "wait", "--broker=broker-a", "--state=OUT", "--timeout=1m", seconds=90)
    sent = compose("--profile=try", "run", "--rm", "-T", "try")
    assert "broker-a" not in sent
    assert sent.splitlines()[-1] == "consumed: all 100"
    (alert,) = until(lambda: compose.firing("PointsmanBrokerProbeFailing"), seconds=240, what="the alert")
    assert alert["instance"] == "agent-a:9881"
