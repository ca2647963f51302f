"""The Poisson distribution as columns: its upper tail, and the 95 % interval of a rate.

`upper_tail`: the probability of at least N events at a given mean (the Poisson distribution's upper tail).

The tail is its first term times a falling series. Above the mean it is summed upwards, otherwise its complement is
summed downwards. Both have double precision for counts up to some ten thousands, down to the smallest double.

`low`, `high`: Garwood's 95 % interval of the expected number of events, from the number counted.

Its limits are half a chi-square quantile, by Wilson and Hilferty's cube within 0.5 %; the cube is poor for the lower
limits of few events, so these are tabulated. With no events, all of the 5 % is above: the rule of three.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

_EXACT_FACTORIALS = 20
Z = 1.959964
NONE_HIGH = 2.995732
FEW_LOW = (0.0, 0.025318, 0.242209, 0.618672, 1.089865, 1.623486, 2.201894, 2.814363, 3.453832, 4.115373)
"""Lower limits by the number of events."""


def upper_tail(count: Column, mean: Column) -> Column:
    """P(X >= count) for X with that mean; 1 for a count of 0, null where the mean is null."""
    mean = mean.cast("double")
    upwards = F.exp(_log_term(count, mean)) * _series(count, lambda n: mean / (count + n))
    below = count - F.lit(1)
    downwards = F.exp(_log_term(below, mean)) * _series(below, lambda n: (below - n + 1) / mean)
    tail = F.when(count > mean, upwards).otherwise(F.lit(1.0) - downwards)
    return (
        F.when(mean.isNull(), F.lit(None).cast("double"))
        .when(count <= 0, F.lit(1.0))
        .when(mean <= 0, F.lit(0.0))
        .otherwise(F.least(tail, F.lit(1.0)))
    )


def _log_term(count: Column, mean: Column) -> Column:
    """Logarithm of e^-mean mean^count / count!."""
    return count * F.log(mean) - mean - _log_factorial(count)


def _log_factorial(count: Column) -> Column:
    n = F.greatest(count, F.lit(1)).cast("double")
    stirling = n * F.log(n) - n + F.log(n * (2 * math.pi)) / 2
    corrected = stirling + F.lit(1.0) / (n * 12) - F.lit(1.0) / (F.pow(n, F.lit(3.0)) * 360)
    small = F.log(
        F.factorial(F.least(F.greatest(count, F.lit(0)), F.lit(_EXACT_FACTORIALS)).cast("int")).cast("double")
    )
    return F.when(count <= _EXACT_FACTORIALS, small).otherwise(corrected)


def _series(count: Column, ratio: Callable[[Column], Column]) -> Column:
    """1 + r1 + r1 r2 + ... with factors that fall from at most about 1; later terms are negligible."""
    terms = (F.lit(30) + F.ceil(F.sqrt(F.greatest(count, F.lit(0))) * 8)).cast("int")
    begin = F.struct(F.lit(1.0).alias("term"), F.lit(1.0).alias("sum"))

    def add(so_far: Column, n: Column) -> Column:
        term = so_far["term"] * F.greatest(ratio(n), F.lit(0.0))
        return F.struct(term.alias("term"), (so_far["sum"] + term).alias("sum"))

    return F.aggregate(F.sequence(F.lit(1), terms), begin, add, lambda so_far: so_far["sum"])


def low(events: Column) -> Column:
    """Lower limit of the expected number of events."""
    few = F.get(F.array(*map(F.lit, FEW_LOW)), events.cast("int"))
    return F.when(events < len(FEW_LOW), few).otherwise(_half_chi_square(events, -Z))


def high(events: Column) -> Column:
    """Upper limit of the expected number of events."""
    return F.when(events == 0, NONE_HIGH).otherwise(_half_chi_square(events + 1, Z))


def _half_chi_square(half_degrees: Column, z: float) -> Column:
    # With k degrees of freedom 2/(9k) is 1/(9 * half_degrees).
    share = F.try_divide(F.lit(1.0), half_degrees * 9.0)
    return half_degrees * F.pow(1.0 - share + z * F.sqrt(share), 3)
