"""The pytest plugin, with one fixture. Imports are deferred until a test uses it.

Projects list it in ``pytest_plugins``. An entry point would import gRPC (0.17 s) in every pytest run of every project
with this distribution installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pointsman_client.testing.fleet import TestFleet


@pytest.fixture
def pointsman() -> Iterator[TestFleet]:
    """A fleet of one real name server without brokers: see ``pointsman_client.testing.TestFleet``.

    ``add_broker`` adds a broker, ``kill_broker`` kills it, ``advance`` advances time. Create a producer or a consumer
    with ``pointsman.name_servers``, ``transport=pointsman.transport`` and ``clock=pointsman.clock``.
    """
    from pointsman_client.testing.fleet import TestFleet  # noqa: PLC0415  # imports gRPC

    with TestFleet() as fleet:
        yield fleet
