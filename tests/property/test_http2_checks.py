"""The checks that atheris runs by hand, with usual requests, what it found, and what Hypothesis makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.http2_checks import CHECKS, check, seeds


@pytest.mark.parametrize("number", range(len(CHECKS)))
def test_known_bytes_pass_each_check(number: int) -> None:
    of_check = [seed for seed in seeds() if seed[0] % len(CHECKS) == number]
    assert of_check
    for seed in of_check:
        check(seed)


@given(st.sampled_from(seeds()), st.integers(1, 10_000), st.binary(max_size=4), st.integers(0, 4))
def test_changed_bytes_pass_each_check(seed: bytes, at: int, put: bytes, cut: int) -> None:
    at = 1 + at % len(seed)
    check(seed[:at] + put + seed[at + cut :])
