"""The pytest plugin: one fixture, and nothing that costs anything before a test asks for it.

Projects name it in ``pytest_plugins``. An entry point would import gRPC, 0.17 s, in every pytest run of every project
that has this distribution installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pointsman_client.testing.fleet import TestFleet


@pytest.fixture
def pointsman() -> Iterator[TestFleet]:
    """A fleet of one real name server and no broker yet: see ``pointsman_client.testing.TestFleet``.

    ``add_broker`` adds one, ``kill_broker`` kills it, ``advance`` lets time pass. Give a producer or a consumer
    ``pointsman.name_servers``, ``transport=pointsman.transport`` and ``clock=pointsman.clock``.
    """
    from pointsman_client.testing.fleet import TestFleet  # noqa: PLC0415  # gRPC is for tests that need it

    with TestFleet() as fleet:
        yield fleet
