"""Names of every kind in the plots."""

from __future__ import annotations

import warnings

from spark_jobs.parameters import FlapParameters
from spark_jobs.report.plots import Key, penalty_curves, timeline

NAMES = ("c/$a$_{/0", "_hidden", "\N{CJK UNIFIED IDEOGRAPH-4E2D}")
WINDOW = (0, 3_600_000_000)


def test_a_name_is_drawn_as_it_is_and_nothing_is_said_of_its_signs() -> None:
    keys: list[tuple[Key, str]] = [(("c", name, 0), name) for name in NAMES]
    charges = [
        {"cluster": "c", "broker_name": name, "broker_id": 0, "at": 60_000_000, "penalty": 1_000.0} for name in NAMES
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bars = timeline(keys, [], window=WINDOW)
        curves = penalty_curves([(key, name, 0.0) for key, name in keys], charges, FlapParameters(), window=WINDOW)

    assert [name for name in NAMES if name not in bars or name not in curves] == []
