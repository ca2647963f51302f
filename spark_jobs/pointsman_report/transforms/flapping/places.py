"""Where each broker ran: the scopes in which several can fall at once.

A host lies within its zone and a zone within its cluster. A broker that never named its zone or host has none, and
falls with its cluster alone.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE

SCOPE = ("dt", "cluster", "scope", "scope_name")


def places(availability: DataFrame, facts: DataFrame) -> DataFrame:
    """Columns: ``dt``, instance, ``zone``, ``host``; each broker that was watched on the day."""
    named = facts.select(
        "dt", *INSTANCE, *(F.nullif(F.col(place), F.lit("")).alias(place) for place in ("zone", "host"))
    )
    return availability.select("dt", *INSTANCE).join(named, on=["dt", *INSTANCE], how="left")


def by_scope(placed: DataFrame) -> DataFrame:
    """Repeat each row for its broker's host, zone and cluster, as far as it has them: ``scope``, ``scope_name``."""
    scopes = F.array(
        *(
            F.struct(F.lit(scope).alias("scope"), F.col(scope).alias("scope_name"))
            for scope in ("cluster", "zone", "host")
        )
    )
    return placed.select("*", F.inline(scopes)).filter(F.col("scope_name").isNotNull())


def brokers_by_scope(placed: DataFrame) -> DataFrame:
    """``known_brokers`` of each host, zone and cluster."""
    return by_scope(placed).groupBy(*SCOPE).agg(F.count("*").alias("known_brokers"))
