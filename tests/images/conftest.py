"""Podman for each test of the images."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.images.podman import Podman


@pytest.fixture
def podman(pytestconfig: pytest.Config) -> Iterator[Podman]:
    if shutil.which("podman") is None:
        pytest.fail("podman is missing: run `make test-images`")
    found = Podman(pytestconfig.getoption("--images"))
    yield found
    found.remove_all()
