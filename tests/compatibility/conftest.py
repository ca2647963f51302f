"""The versions that are compared."""

from __future__ import annotations

import pytest

from tests.compatibility.released import Installed, NotInThisClone, Release, released, this_version


@pytest.fixture(scope="session", params=released(), ids=lambda release: release.version)
def release(request: pytest.FixtureRequest) -> Release:
    """Each released version."""
    found: Release = request.param
    return found


@pytest.fixture(scope="session")
def old(release: Release) -> Installed:
    """Its programs; skipped in a clone without its commit."""
    try:
        return release.installed()
    except NotInThisClone as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def new() -> Installed:
    """The programs of this version."""
    return this_version()
