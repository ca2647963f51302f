"""Containers of one release of the images, by podman."""

from __future__ import annotations

import json
import subprocess
import uuid
from dataclasses import dataclass, field
from typing import Any

LOCKED_DOWN = ["--network=host", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]


@dataclass
class Podman:
    """Runs containers of one release of the images, and removes them with their volumes."""

    suite: str
    within: list[str] = field(default_factory=list)
    """Words before each command: those that enter a namespace."""
    names: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)

    def __call__(self, *words: str, seconds: float = 120.0, codes: tuple[int, ...] = (0,)) -> str:
        command = [*self.within, "podman", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
        assert done.returncode in codes, f"podman {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def volume(self) -> str:
        self.volumes.append(self("volume", "create", f"pointsman-{uuid.uuid4().hex[:8]}"))
        return self.volumes[-1]

    def start(self, image: str, *options: str) -> str:
        """Return the name of a new container."""
        name = f"pointsman-{image}-{uuid.uuid4().hex[:8]}"
        self.names.append(name)
        self("run", "--detach", f"--name={name}", *LOCKED_DOWN, *options, self.image(image))
        return name

    def run(self, image: str, options: list[str], *words: str, **how: Any) -> str:
        """Return what a container prints until it has ended."""
        return self("run", "--rm", *LOCKED_DOWN, *options, self.image(image), *words, **how)

    def image(self, name: str) -> str:
        return f"localhost/pointsman-{name}:{self.suite}"

    def inspect(self, what: str, name: str, *kind: str) -> Any:
        return json.loads(self(*kind, "inspect", name))[0][what]

    def remove_all(self) -> None:
        for name in self.names:
            self("rm", "--force", "--time=0", name)
        for volume in self.volumes:
            self("volume", "rm", "--force", volume)
