"""What the kubelet does with the containers of a pod, with processes in a separate network: a simulation.

Sidecars (init containers with restartPolicy Always) start in order, each after the startup probe of the one before has
passed; then the containers. At the stop the containers get SIGTERM after their preStop hook, and when all have ended
the sidecars in reverse order; whatever has not ended within the grace is killed. Images are programs of this machine.
Not simulated: users, limits, read-only file systems, restarts, readiness, volumes that outlive a pod.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.daemon_process import INSTALLED
from tests.kit.operations.manifests import Manifest
from tests.kit.waiting import until

HOLDER = """
import fcntl, socket, struct, subprocess, sys
with socket.socket() as any_socket:  # lo up: IFF_UP, IFF_RUNNING
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x41))
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/hosts"], check=True)
print("ready", flush=True)
sys.stdin.read()
"""
CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2)"
CALL_SECONDS = 60.0


@dataclass
class Node:
    """A network without a way out; ``hosts`` are names of 127.0.0.1 in it."""

    holder: int
    folder: Path

    def command(self, *words: str) -> list[str]:
        """Return the words that run a program in the network."""
        return ["nsenter", f"--target={self.holder}", "--net", "--mount", "--wd=/", *words]

    def call(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Return what a program prints; its words are as in :meth:`command`."""
        done = subprocess.run(
            self.command(*words),
            check=False,
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
            env=_environment({}),
        )
        assert done.returncode in codes, f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def accepts(self, port: int) -> bool:
        """Return whether a connection to a port succeeds: the probe tcpSocket."""
        words = self.command(sys.executable, "-c", CONNECT, str(port))
        return subprocess.run(words, check=False, capture_output=True, timeout=CALL_SECONDS).returncode == 0


def can_simulate() -> bool:
    """Return whether this user may make namespaces."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return False
    return subprocess.run(["unshare", "--net", "--mount", "true"], check=False, capture_output=True).returncode == 0


@contextmanager
def node(folder: Path, *hosts: str) -> Iterator[Node]:
    """Make one for the length of the block; its processes must have ended then."""
    names = folder / "hosts"
    names.write_text("".join(f"127.0.0.1 {host}\n" for host in ("localhost", *hosts)), encoding="utf-8")
    words = ["unshare", "--net", "--mount", sys.executable, "-c", HOLDER, str(names)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        yield Node(holder.pid, folder)


@dataclass
class Running:
    """A container that runs."""

    name: str
    spec: Manifest
    process: subprocess.Popen[bytes]


@dataclass
class Pod:
    """A pod. ``files``: of its config maps and secrets, by their names; ``events``: what happened, in order."""

    node: Node
    name: str
    spec: Manifest
    files: Mapping[str, Mapping[str, str]]
    programs: Mapping[str, list[str]]
    extra: Mapping[str, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)

    def start(self) -> None:
        """Start its containers; return when the last one has started."""
        volumes = self._volumes()
        for spec in self.spec.get("initContainers", ()):
            assert spec["restartPolicy"] == "Always", "only sidecars are simulated"
            self._run(spec, volumes)
            self._await_startup(spec)
        for spec in self.spec["containers"]:
            self._run(spec, volumes)

    def stop(self) -> dict[str, int]:
        """Stop it as the kubelet does; return the exit code of each container, -9 for one that was killed."""
        ends_at = time.monotonic() + self.spec["terminationGracePeriodSeconds"]
        sidecars = {each["name"] for each in self.spec.get("initContainers", ())}
        codes = {}
        for each in [one for one in self.running if one.name not in sidecars]:
            hook = each.spec.get("lifecycle", {}).get("preStop", {})
            time.sleep(hook.get("sleep", {}).get("seconds", 0))
            codes[each.name] = self._end(each, ends_at)
        for each in reversed([one for one in self.running if one.name in sidecars]):
            codes[each.name] = self._end(each, ends_at)
        self.running.clear()
        return codes

    def kill(self) -> None:
        """End what is left."""
        for each in self.running:
            each.process.kill()
            each.process.wait()

    def _end(self, each: Running, ends_at: float) -> int:
        self.events.append(f"SIGTERM {each.name}")
        each.process.send_signal(signal.SIGTERM)
        try:
            # Also a container for which no time is left has two seconds.
            code = each.process.wait(max(2.0, ends_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            each.process.kill()
            code = each.process.wait()
        self.events.append(f"ended {each.name}")
        return code

    def _await_startup(self, spec: Manifest) -> None:
        probe = spec["startupProbe"]
        seconds = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
        ports = {each["name"]: each["containerPort"] for each in spec["ports"]}
        port = ports[probe["tcpSocket"]["port"]]
        until(lambda: self.node.accepts(port), seconds=seconds, what=f"the startup probe of {spec['name']}")
        self.events.append(f"started {spec['name']}")

    def _volumes(self) -> dict[str, Path]:
        """Make the folder of each volume, with the files of config maps and secrets."""
        volumes = {}
        mounted = {
            mount["name"]
            for each in (*self.spec.get("initContainers", ()), *self.spec["containers"])
            for mount in each["volumeMounts"]
        }
        sources = {each["name"]: each for each in self.spec.get("volumes", ())}
        for name in mounted:
            folder = self.node.folder / self.name / name
            folder.mkdir(parents=True, exist_ok=True)
            source: dict[str, Any] = sources.get(name, {})
            given = source.get("configMap", {}).get("name") or source.get("secret", {}).get("secretName")
            for file, text in self.files[given].items() if given else ():
                (folder / file).write_text(text, encoding="utf-8")
            volumes[name] = folder
        return volumes

    def _run(self, spec: Manifest, volumes: Mapping[str, Path]) -> None:
        facts = {"metadata.name": self.name, "metadata.namespace": "pointsman", "status.podIP": "127.0.0.1"}
        at = {mount["mountPath"]: str(volumes[mount["name"]]) for mount in spec["volumeMounts"]}

        def on_this_machine(text: str) -> str:
            # The longest first: one mount may be below another.
            for path in sorted(at, key=len, reverse=True):
                text = re.sub(rf"(?<![\w.]){re.escape(path)}(?![\w-])", at[path], text)
            return text

        for mount in spec["volumeMounts"]:
            for file in volumes[mount["name"]].glob("*.toml"):
                file.write_text(on_this_machine(file.read_text(encoding="utf-8")), encoding="utf-8")
        environment: dict[str, str] = {}
        for each in spec.get("env", ()):
            value = each["value"] if "value" in each else facts[each["valueFrom"]["fieldRef"]["fieldPath"]]
            environment[each["name"]] = on_this_machine(
                re.sub(r"\$\((\w+)\)", lambda match: environment.get(match[1], match[0]), value)
            )
        arguments = [on_this_machine(word) for word in spec.get("args", ())]
        image = spec["image"].rpartition("/")[2].partition(":")[0]
        words = self.node.command(*self.programs[image], *arguments)
        folder = self.node.folder / self.name
        state = next((path for at_path, path in at.items() if at_path == "/var/lib/pointsman"), str(folder))
        words[words.index("--wd=/")] = f"--wd={state}"
        with (folder / f"{spec['name']}.log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, env=_environment({**environment, **self.extra}))
        self.events.append(f"runs {spec['name']}")
        self.running.append(Running(spec["name"], spec, process))


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Nothing of this process but where programs and packages are."""
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ} | dict(given)


PROGRAMS = {
    "pointsman-namesrv": [str(INSTALLED / "pointsman-namesrv")],
    "pointsman-agent": [str(INSTALLED / "pointsman-agent")],
    "redis": ["redis-server"],
}


@contextmanager
def pod(node: Node, name: str, spec: Manifest, files: Mapping[str, Mapping[str, str]], **extra: str) -> Iterator[Pod]:
    """Start a pod for the length of the block; killed at its end unless it was stopped. ``extra``: its environment."""
    with ExitStack() as stack:
        made = Pod(node, name, spec, files, PROGRAMS, extra)
        stack.callback(made.kill)
        made.start()
        yield made
