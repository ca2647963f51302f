"""Quantiles of a number of events whose rate is uncertain: the negative binomial distribution.

It is the Poisson distribution with a rate that is gamma distributed; its variance is mean + mean² / size.

The probabilities are summed from 0 on, each from the one before: p(n) = p(n-1) (n-1+size)/n mean/(size+mean). The sum
ends where the one-sided inequality of Chebyshev (Cantelli) puts the highest quantile at most. Where p(0) is below the
smallest double, or above a mean of `MAX_EXACT`, they are those of the gamma distribution with the same mean and
variance, by Wilson and Hilferty's cube.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from pyspark.sql import Column
from pyspark.sql import functions as F

MAX_EXACT = 1_000.0
"""A mean above this is not summed exactly: that takes as many steps as there are events."""
MIN_LOG = -700.0


def quantiles(mean: Column, size: Column, *, low: float, high: float) -> Column:
    """Two fields ``low`` and ``high``: the smallest n with P(number <= n) of at least that probability.

    Null where the mean or the size is null.
    """
    first = -size * F.log1p(mean / size)
    is_exact = (mean <= MAX_EXACT) & (first >= MIN_LOG)
    spread = F.sqrt(mean + mean * mean / size)
    most = mean + F.lit(math.sqrt(high / (1 - high))) * spread
    # Both are evaluated: the sum must be short where it is not used.
    steps = F.when(is_exact, F.ceil(most)).otherwise(F.lit(0)).cast("int") + 1
    share = mean / (size + mean)
    zero = F.lit(0).cast("long")
    begin = F.struct(F.exp(first).alias("p"), F.exp(first).alias("sum"), zero.alias("low"), zero.alias("high"))

    def step(so_far: Column, n: Column) -> Column:
        p = so_far["p"] * (n - 1 + size) / n * share
        return F.struct(
            p.alias("p"),
            (so_far["sum"] + p).alias("sum"),
            (so_far["low"] + (so_far["sum"] < low).cast("long")).alias("low"),
            (so_far["high"] + (so_far["sum"] < high).cast("long")).alias("high"),
        )

    exact = F.aggregate(
        F.sequence(F.lit(1), steps), begin, step, lambda so_far: F.struct(so_far["low"], so_far["high"])
    )
    about = [_cube(mean, spread, share_below).alias(name) for name, share_below in (("low", low), ("high", high))]
    none = F.struct(zero.alias("low"), zero.alias("high"))
    # Of a broker that never fails even 0 has the higher probability: no sum is needed.
    is_none = is_exact & (F.exp(first) >= high)
    return F.when(is_none, none).when(is_exact, exact).when(spread.isNotNull(), F.struct(*about))


def _cube(mean: Column, spread: Column, share_below: float) -> Column:
    """Wilson and Hilferty's quantile of the gamma distribution; 1 / shape is (spread / mean)²."""
    ninth = F.pow(F.try_divide(spread, mean), 2) / 9
    z = NormalDist().inv_cdf(share_below)
    return F.ceil(mean * F.pow(F.greatest(1 - ninth + F.lit(z) * F.sqrt(ninth), F.lit(0.0)), 3))
