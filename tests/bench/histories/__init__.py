"""Synthetic histories of fleets: seeded, of any size, with labelled faults.

Every row is an event of the name server's core, made a line and a file by the name server's own history. Nodes are
name servers that see the same brokers, each at its own moments.
"""

from __future__ import annotations

from tests.bench.histories.faults import Label, read_labels
from tests.bench.histories.fleet import SHOULD_BE_FLAGGED, FaultRates, Fleet, Kind
from tests.bench.histories.writing import Written, write

__all__ = ["SHOULD_BE_FLAGGED", "FaultRates", "Fleet", "Kind", "Label", "Written", "read_labels", "write"]
