"""The 95 % interval of a rate of which so many events were counted (Garwood's, for Poisson counts).

Its limits are half a chi-square quantile, by Wilson and Hilferty's cube within 0.5 %; the cube is poor for the lower
limits of few events, so those are given. Where none was counted all of the 5 % lies above: the rule of three.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

Z = 1.959964
NONE_HIGH = 2.995732
FEW_LOW = (0.0, 0.025318, 0.242209, 0.618672, 1.089865, 1.623486, 2.201894, 2.814363, 3.453832, 4.115373)
"""Lower limits by the number of events."""


def low(events: Column) -> Column:
    """Of the expected number of events."""
    few = F.get(F.array(*map(F.lit, FEW_LOW)), events.cast("int"))
    return F.when(events < len(FEW_LOW), few).otherwise(_half_chi_square(events, -Z))


def high(events: Column) -> Column:
    """Of the expected number of events."""
    return F.when(events == 0, NONE_HIGH).otherwise(_half_chi_square(events + 1, Z))


def _half_chi_square(half_degrees: Column, z: float) -> Column:
    # With k degrees of freedom 2/(9k) is 1/(9 * half_degrees).
    share = F.try_divide(F.lit(1.0), half_degrees * 9.0)
    return half_degrees * F.pow(1.0 - share + z * F.sqrt(share), 3)
