"""What the rules of the name server draw: brokers, topics, versions, times, and courses of events."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pointsman_namesrv.core.guard import GuardMode
from tests.property.compared_name_server import CLUSTERS, TOPIC_NAMES

NAMES = ("a", "b")


def home(cluster: str, name: str, number: int) -> str:
    """An address that only replicas of one broker name have."""
    return f"{'h' if (cluster, name) == ('c1', 'a') else cluster + name}{number}:1"


WHO = st.tuples(
    st.sampled_from(["c1", "c1", "c2"]),
    st.sampled_from(NAMES),
    st.sampled_from([0, 0, 1, 2]),
    st.sampled_from([1, 2, 3]),
).flatmap(lambda who: st.sampled_from([(*who[:3], home(*who[:2], who[3]))] * 4 + [(*who[:3], f"h{who[3]}:1")]))
"""One of five may have the address of another broker name."""
KEY = st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(NAMES))
QUEUES = st.tuples(st.integers(0, 8), st.sampled_from([2, 4, 6]))
TOPICS = st.dictionaries(st.sampled_from(TOPIC_NAMES), QUEUES, max_size=5)
VERSION = st.tuples(st.integers(0, 2), st.just(0), st.integers(1, 2))
PROBE = st.sampled_from(["UNKNOWN", "PASSING", "PASSING", "FAILING", "FAILING", "REFUSED"])
"""A verdict; REFUSED: it fails on strong evidence."""
EVER_PASSED = st.sampled_from([None, None, True, False])
PACE = st.sampled_from([(30.0, 120.0), (30.0, 120.0), (1.0, 4.0), (10.0, 300.0)])
TIMES = st.sampled_from(
    [0.5, 1.0, 2.5, 4.0, 10.0, 10.5, 15.0, 25.0, 30.0, 45.0, 45.5, 60.0, 60.5, 75.0, 75.5, 120.0, 120.5, 300.0]
)
"""Seconds. Their sums are exact in binary: no two formulas differ by a rounding."""

AFTER_A_FAULT = st.lists(
    st.tuples(
        st.sampled_from([0.5, 15.0, 30.0, 45.5, 76.0, 121.0]),
        st.sampled_from(["wait", "PASSING", "FAILING", "REFUSED", "leave", "AUTO", "pause", "restart"]),
    ),
    min_size=2,
    max_size=5,
)
"""Seconds, and the next event of the first broker that was lost."""
KNOWN_FAULTS = st.sampled_from(
    [
        # One returns in time, which ends the guard; then the others get their time.
        (GuardMode.AUTO, "silence", [(76.0, "wait"), (30.0, "PASSING"), (30.0, "wait"), (45.5, "wait")]),
        # It fails again after that.
        (GuardMode.AUTO, "silence", [(76.0, "wait"), (30.0, "PASSING"), (0.5, "FAILING"), (0.5, "pause")]),
        # This process is paused during the others' time.
        (GuardMode.AUTO, "FAILING", [(0.5, "wait"), (0.5, "PASSING"), (30.0, "pause"), (15.0, "wait")]),
        (GuardMode.AUTO, "FAILING", [(0.5, "wait"), (0.5, "restart"), (0.5, "wait")]),
        # All expire, and nothing is left to keep.
        (GuardMode.OFF, "silence", [(121.0, "wait"), (0.5, "AUTO"), (0.5, "wait")]),
    ]
)

AT_A_BOUND: list[dict[str, Any]] = [
    # Most unregister, which does not count as lost.
    {"size": 4, "lost": 3, "fault": "leave", "steps": [(0.5, "wait")]},
    # Exactly half are lost, and the others have not been heard since a restart.
    {"size": 4, "lost": 2, "restarts": True, "steps": [(0.5, "wait")]},
    # A guard that an operator held, with fewer lost brokers than would turn it on.
    {"size": 3, "lost": 2, "mode": GuardMode.HOLD, "steps": [(0.5, "AUTO"), (0.5, "wait")]},
]

ONE_TOPIC: dict[str, Any] = {
    "topics": {"t1": (4, 6)},
    "probe": "PASSING",
    "pace": (30.0, 120.0),
    "acting": True,
    "incarnation": "i1",
    "zone": "",
    "ever_passed": None,
}

AT_ONE_ADDRESS = st.lists(
    st.sampled_from(["ab", "ab", "a", "b", "", "restart", "b hands over"]), min_size=1, max_size=5
)
"""For each step the brokers, a and b, that are heard."""
