"""The name server's pod template of the Helm chart, by `podman kube play`."""

from __future__ import annotations

import copy
import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.images.podman import Podman
from tests.kit.operations.manifests import RENDERED, of_kind, pods

pytestmark = [pytest.mark.images, pytest.mark.timeout(600)]

UNKNOWN = ("affinity", "topologySpreadConstraints", "serviceAccountName", "automountServiceAccountToken")
"""What podman has no use for."""
CTL = ["pointsmanctl", "--namesrv=127.0.0.1:9876"]


WRITABLE = """
for controller in net_cls net_prio perf_event hugetlb; do
  folder=/sys/fs/cgroup/$controller
  if [ -d "$folder" ] && [ ! -e "$folder/tasks" ]; then mount -t tmpfs none "$folder"; fi
done
echo ready
exec cat
"""
"""Some sandboxes have empty folders of controllers, in which podman makes one for a pod, and must be able to."""


@pytest.fixture
def podman(podman: Podman) -> Iterator[Podman]:
    with subprocess.Popen(
        ["unshare", "--mount", "bash", "-c", WRITABLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        podman.within = ["nsenter", f"--target={holder.pid}", "--mount"]
        yield podman
        podman.remove_all()
        podman.volumes.clear()
        podman.within = []


@pytest.fixture
def played(podman: Podman, tmp_path: Path) -> Iterator[str]:
    """The name of the container of a pod that was played, in plaintext: podman 4.3 plays no Secrets."""
    path = RENDERED["plaintext"]
    (config,) = [each for name, each in of_kind(path, "ConfigMap").items() if name == "pointsman-namesrv"]
    spec = copy.deepcopy(pods(path)["pointsman-namesrv"])
    for name in UNKNOWN:
        spec.pop(name, None)
    (container,) = spec["containers"]
    container["image"] = podman.image("namesrv")
    pod, claim = f"pointsman-namesrv-{uuid.uuid4().hex[:8]}", f"state-{uuid.uuid4().hex[:8]}"
    # As the StatefulSet does with its claim template.
    spec["volumes"].append({"name": "state", "persistentVolumeClaim": {"claimName": claim}})
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec}
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump_all([config, made]), encoding="utf-8")
    podman.volumes += [claim, config["metadata"]["name"]]  # podman makes one for the config map, too
    try:
        podman("kube", "play", "--network=podman", str(file))
        yield f"{pod}-namesrv"
    finally:
        # 125: it cannot remove its folders of such controllers.
        podman("pod", "rm", "--force", "--time=0", pod, codes=(0, 125))
        podman("pod", "exists", pod, codes=(1,))


def test_the_rendered_pod_of_a_name_server_gets_ready_and_stops_in_order(podman: Podman, played: str) -> None:
    podman("exec", played, *CTL, "wait", "--ready", "--timeout=2m", seconds=150)
    assert podman("exec", played, "id", "-u") == "65532"
    podman("exec", played, "touch", "/opt/pointsman/written", codes=(1,))
    assert json.loads(podman("exec", played, *CTL, "--output=json", "topics")) is not None
    podman("stop", "--time=45", played)
    assert podman.inspect("State", played)["ExitCode"] == 0
