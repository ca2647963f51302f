"""What the classes mean, in the order in which a report names them: worst first."""

from __future__ import annotations

from spark_jobs.parameters import FlapParameters

UNWATCHED = "unwatched"

WORST_FIRST = ("chronic", "flapping", "dead", "unseen", UNWATCHED, "degraded", "retired", "new", "healthy")

FINDINGS = ("chronic", "flapping", "dead", "unseen")
"""Classes that somebody has to look at: they make a report's exit code 1."""


def meanings(parameters: FlapParameters) -> dict[str, str]:
    """Explain each class with the numbers it was computed with."""
    suppress, reuse = f"{parameters.suppress_above:g}", f"{parameters.reuse_below:g}"
    return {
        "chronic": f"flapped on {parameters.chronic_days} or more of the last seven days",
        "flapping": f"penalty above {suppress} at some time of the day, or not yet below {reuse} since the day before",
        "dead": f"down for more than {parameters.dead_after_hours:g} hours and not back at the day's end",
        "unseen": "took no leave, but at the day's end name servers knew others of its cluster and not this one",
        UNWATCHED: "known from before, but no name server watched it for one second of the days",
        "degraded": f"some down time, or {parameters.degraded_points:g} points of late beats, suspicions and moves",
        "retired": f"took leave politely and stayed away for more than {parameters.dead_after_hours:g} hours",
        "new": "seen for the first time, in a history that began earlier",
        "healthy": "none of these",
    }
