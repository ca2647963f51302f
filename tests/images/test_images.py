"""The images as people run them: read-only, without capabilities, as user 65532; with podman on the host's network."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.images.podman import Podman
from tests.kit.broker.redis.process import free_port, redis_process
from tests.kit.waiting import until

pytestmark = [pytest.mark.images, pytest.mark.timeout(600)]

GRACE = 35
STATE, WAREHOUSE = "/var/lib/pointsman", "/var/lib/pointsman-report"
MOST_BYTES = 120e6
"""Of a daemon over its base."""


@dataclass
class NameServer:
    """A name server in a container."""

    podman: Podman
    volume: str
    port: int = field(default_factory=free_port)
    monitoring: int = field(default_factory=free_port)
    name: str = ""

    def start(self) -> None:
        self.name = self.podman.start(
            "namesrv",
            f"--volume={self.volume}:{STATE}",
            f"--env=NAMESRV_SERVER__LISTEN=127.0.0.1:{self.port}",
            f"--env=NAMESRV_MONITORING__LISTEN=127.0.0.1:{self.monitoring}",
            "--env=NAMESRV_SERVER__NODE=ns1",
            "--env=NAMESRV_SERVER__WARM_UP_SECONDS=1",
        )
        until(self.is_healthy, what="health")

    def is_healthy(self) -> bool:
        """By the image's own check."""
        return self.podman("healthcheck", "run", self.name, codes=(0, 1)) != "unhealthy"

    def routes(self, topic: str) -> list[str]:
        """Return the broker names that serve a topic."""
        command = ["pointsmanctl", f"--namesrv=127.0.0.1:{self.port}", "--output=json", "route", topic]
        found = json.loads(self.podman("exec", self.name, *command, codes=(0, 1, 2)) or "{}")  # nothing: no such topic
        return [broker["brokerName"] for broker in found.get("brokerDatas", ())]

    def stop(self) -> int:
        """Return its exit code; 137 means that it did not end within the grace."""
        self.podman("stop", f"--time={GRACE}", self.name)
        return int(self.podman.inspect("State", self.name)["ExitCode"])


async def test_a_broker_is_registered_and_routed_over_a_restart_and_the_night_reads_the_history(
    podman: Podman, tmp_path: Path
) -> None:
    server = NameServer(podman, podman.volume())
    server.start()
    assert podman("exec", server.name, "id", "-u") == "65532"
    assert "CapEff:\t0000000000000000" in podman("exec", server.name, "cat", "/proc/1/status")
    podman("exec", server.name, "touch", "/opt/pointsman/written", codes=(1,))

    async with redis_process(tmp_path / "redis") as redis:
        config = tmp_path / "agent.toml"
        config.write_text(
            f"""
            [broker]
            cluster = "c"
            name = "orders-1"
            addr = "{redis.addr}"
            [name_servers]
            addrs = ["127.0.0.1:{server.port}"]
            [probe]
            kind = "redis"
            [[topics.topic]]
            name = "orders"
            read_queues = 4
            write_queues = 4
            """,
            encoding="utf-8",
        )
        config.chmod(0o644)
        agent = podman.start(
            "agent",
            f"--volume={config}:/etc/pointsman/agent.toml:ro",
            f"--env=AGENT_MONITORING__LISTEN=127.0.0.1:{free_port()}",
        )
        until(lambda: server.routes("orders") == ["orders-1"], what="the route")
        podman("kill", "--signal=KILL", agent)

    assert server.stop() == 0
    server.start()
    assert server.routes("orders") == ["orders-1"], "by the snapshot in the volume: the agent is gone"
    assert server.stop() == 0

    report = podman.volume()
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    night = ["nightly", f"--date={today}", "--exit-zero", "--history=/histories/ns1/history"]
    podman.run(
        "report",
        ["--tmpfs=/tmp", f"--volume={server.volume}:/histories/ns1:ro", f"--volume={report}:{WAREHOUSE}"],
        *night,
        f"--warehouse={WAREHOUSE}/warehouse",
        "--memory=1g",
        seconds=500,
    )
    page = f"{WAREHOUSE}/warehouse/report/dt={today}/report.html"
    text = podman.run("report", ["--entrypoint=cat", f"--volume={report}:{WAREHOUSE}"], page)
    assert "orders-1" in text


@pytest.mark.parametrize("image", ["namesrv", "agent"])
def test_a_daemon_is_small(podman: Podman, image: str) -> None:
    base = podman.inspect("Size", f"localhost/pointsman-base:{podman.suite}", "image")
    over = podman.inspect("Size", podman.image(image), "image") - base
    print(f"pointsman-{image}: {over / 1e6:.0f} MB over its base of {base / 1e6:.0f} MB")
    assert over <= MOST_BYTES


@pytest.mark.parametrize("image", ["namesrv", "agent", "report"])
def test_each_image_runs_its_program(podman: Podman, image: str) -> None:
    assert "Usage" in podman.run(image, ["--tmpfs=/tmp"], "--help")
