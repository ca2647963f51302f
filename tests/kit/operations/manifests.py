"""What `make charts` renders from the Helm chart, read for tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from deploy.dev.render_charts import renderings

Manifest: TypeAlias = dict[str, Any]

RENDERED = {path.stem: path for path in renderings()}
"""Each rendered file by its name: those of deploy/k8s, and the snapshots."""


@cache
def manifests(path: Path) -> list[Manifest]:
    """Return the objects of a file of YAML, for reading only."""
    return [each for each in yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader) if each]


def of_kind(path: Path, kind: str) -> dict[str, Manifest]:
    """Return the objects of one kind, by name."""
    return {each["metadata"]["name"]: each for each in manifests(path) if each["kind"] == kind}


def pods(path: Path) -> dict[str, Manifest]:
    """Return the specification of every pod template, by the name of what makes its pods."""
    found = {name: each["spec"]["template"]["spec"] for name, each in of_kind(path, "StatefulSet").items()}
    jobs = {name: each["spec"]["jobTemplate"]["spec"] for name, each in of_kind(path, "CronJob").items()}
    return found | {name: job["template"]["spec"] for name, job in jobs.items()}


def containers(pod: Manifest) -> list[Manifest]:
    """Return the containers of a pod in the order in which they start, sidecars first."""
    return [*pod.get("initContainers", ()), *pod["containers"]]


def plain_environment(container: Manifest) -> dict[str, str]:
    """Return the variables that have a value, not a reference."""
    return {each["name"]: each["value"] for each in container.get("env", ()) if "value" in each}
