"""The pods of a name server and of a broker with its sidecar, as rendered for `kubectl`, by a simulated kubelet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from deploy.dev.render_charts import K8S
from tests.kit.certificates import Authority
from tests.kit.daemon_process import INSTALLED
from tests.kit.operations.manifests import of_kind, pods
from tests.kit.operations.simulated_kubelet import Node, Pod, can_simulate, node, pod
from tests.kit.waiting import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.redis,
    pytest.mark.skipif(not can_simulate(), reason="needs root, and namespaces of networks and mounts"),
]

SERVERS, BROKER = "pointsman-namesrv.pointsman.svc", "redis-0.redis.pointsman.svc"
Files: TypeAlias = dict[str, dict[str, str]]


@pytest.fixture
def files(authority: Authority) -> Files:
    """The config maps of both pods, and their secrets with certificates as the page asks for."""
    found: Files = {
        name: each["data"]
        for file in ("pointsman.yaml", "redis-with-agent.yaml")
        for name, each in of_kind(K8S / file, "ConfigMap").items()
    }
    names = {"pointsman-namesrv-tls": (SERVERS, f"*.{SERVERS}"), "redis-agent-tls": ("*.redis.pointsman.svc",)}
    for secret, dns in names.items():
        issued = authority.issue(secret, *dns)
        pems = {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": issued.ca}
        found[secret] = {file: path.read_text(encoding="utf-8") for file, path in pems.items()}
    return found


@pytest.fixture
def fleet(tmp_path: Path, files: Files) -> Iterator[Node]:
    """A node with a name server's pod."""
    with ExitStack() as stack:
        made = stack.enter_context(node(tmp_path, SERVERS, BROKER))
        spec = pods(K8S / "pointsman.yaml")["pointsman-namesrv"]
        extra = {"NAMESRV_SERVER__WARM_UP_SECONDS": "1"}
        server = stack.enter_context(pod(made, "pointsman-namesrv-0", spec, files, **extra))
        until(lambda: made.accepts(9876), what="the name server")
        yield made
        assert server.stop() == {"namesrv": 0}


@pytest.fixture
def ctl(fleet: Node, authority: Authority) -> Callable[..., str]:
    """pointsmanctl on the node, with a certificate; returns what it prints."""
    client = authority.issue("operator", "ops")
    options = ["--output=json", f"--namesrv={SERVERS}:9876", f"--tls-ca={client.ca}"]
    options += [f"--tls-certificate={client.certificate}", f"--tls-key={client.key}"]

    def call(*words: str, codes: tuple[int, ...] = (0, 1, 2)) -> str:
        return fleet.call(str(INSTALLED / "pointsmanctl"), *options, *words, codes=codes)

    return call


@pytest.fixture
def broker(fleet: Node, files: Files) -> Iterator[Pod]:
    with pod(fleet, "redis-0", pods(K8S / "redis-with-agent.yaml")["redis"], files) as made:
        yield made


def is_routed(ctl: Callable[..., str]) -> bool:
    route = json.loads(ctl("route", "orders") or "{}")
    return [each["brokerName"] for each in route.get("brokerDatas", ())] == ["redis-0"]


def leaves(ctl: Callable[..., str]) -> list[tuple[str, bool]]:
    """Return the reason of each time the broker was unregistered, and whether that was planned."""
    events = json.loads(ctl("why", "redis-0"))["nodes"][0]["events"]
    return [(each["reason"], each["planned"]) for each in events if each["event"] == "UNREGISTERED"]


def serve(fleet: Node, ctl: Callable[..., str]) -> None:
    """Make a topic at the broker, and wait for its route."""
    until(lambda: fleet.accepts(6379), what="redis")
    fleet.call("redis-cli", "xadd", "orders:queue:0", "0-*", "body", "first")
    until(lambda: is_routed(ctl), what="the route")


def test_the_agent_starts_first_and_ends_last_and_its_broker_leaves_with_a_reason(
    fleet: Node, broker: Pod, ctl: Callable[..., str]
) -> None:
    assert broker.events == ["runs agent", "started agent", "runs redis"]
    serve(fleet, ctl)

    assert broker.stop() == {"redis": 0, "agent": 0}
    assert broker.events[3:] == ["SIGTERM redis", "ended redis", "SIGTERM agent", "ended agent"]
    assert not is_routed(ctl)
    assert leaves(ctl) == [("SHUTDOWN", True)]


def test_a_drained_broker_leaves_before_its_pod_stops(fleet: Node, broker: Pod, ctl: Callable[..., str]) -> None:
    serve(fleet, ctl)

    ctl("drain-broker", "DefaultCluster/redis-0/0", "--yes", "--quiet=1s", codes=(0,))
    assert leaves(ctl) == [("DRAIN", True)]
    assert not is_routed(ctl)
    assert broker.stop() == {"redis": 0, "agent": 0}
    assert leaves(ctl) == [("DRAIN", True)]
