"""A network namespace with one link for each peer, so that a process inside can be cut off from one of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Namespace:
    """Addresses: ``10.231.N.1`` on the host and ``10.231.N.2`` inside, for link N."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.inside = ("ip", "netns", "exec", name)
        """Runs the command after it in the namespace."""

    def host(self, link: int) -> str:
        """Return the host's address of a link."""
        return f"10.231.{link}.1"

    def peer(self, link: int) -> str:
        """Return the address of a link inside."""
        return f"10.231.{link}.2"

    def cut(self, link: int) -> None:
        """Take a link down, inside: connections on it fall silent."""
        ip("-n", self._name, "link", "set", self._device(link, "i"), "down")

    def repair(self, link: int) -> None:
        """Take it up again."""
        ip("-n", self._name, "link", "set", self._device(link, "i"), "up")

    def make(self, links: int) -> None:
        """Make the namespace. Raises OSError."""
        ip("netns", "add", self._name)
        ip("-n", self._name, "link", "set", "lo", "up")
        for link in range(1, links + 1):
            outer, inner = self._device(link, "o"), self._device(link, "i")
            ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self._name)
            ip("addr", "add", f"{self.host(link)}/24", "dev", outer)
            ip("link", "set", outer, "up")
            ip("-n", self._name, "addr", "add", f"{self.peer(link)}/24", "dev", inner)
            self.repair(link)

    def remove(self) -> None:
        """Remove it with its links, if it was made."""
        subprocess.run(["ip", "netns", "del", self._name], capture_output=True, check=False, timeout=30)

    def _device(self, link: int, side: str) -> str:
        return f"pm{os.getpid() % 100_000}{side}{link}"


def ip(*words: str) -> None:
    """Run ``ip``. Raises OSError with its sentence."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def network_namespace(links: int) -> Iterator[Namespace]:
    """Make one for the length of the block. Skips where that is not permitted."""
    made = Namespace(f"pointsman-{os.getpid()}")
    try:
        made.make(links)
    except OSError as error:
        made.remove()
        pytest.skip(f"no network namespace can be made (it needs root and iproute2): {error}")
    try:
        yield made
    finally:
        made.remove()
