"""Test kit for applications: a fleet of brokers whose time is advanced by the test.

The pytest plugin (``plugin.py``) provides the fixture ``pointsman``; :class:`TestFleet` works without pytest too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pointsman_client.testing.fleet import FleetBroker, TestFleet
    from pointsman_client.testing.fleet_clock import FleetClock
    from pointsman_client.testing.process import FleetProcessError

_MODULES = {
    "FleetBroker": "pointsman_client.testing.fleet",
    "FleetClock": "pointsman_client.testing.fleet_clock",
    "FleetProcessError": "pointsman_client.testing.process",
    "TestFleet": "pointsman_client.testing.fleet",
}

__all__ = ["FleetBroker", "FleetClock", "FleetProcessError", "TestFleet"]


def __getattr__(name: str) -> object:
    """Import on demand: pytest imports this package with the plugin, before a test needs a fleet."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
