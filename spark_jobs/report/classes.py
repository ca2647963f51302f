"""What the classes mean, in the order in which a report names them: worst first.

A broker that a name server's guard kept, or that went unheard while the server itself was paused, has no class of its
own: that fault was ours, the time is left out of its intervals (`blind_periods`), and what is left decides.
"""

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
        "flapping": f"penalty above {suppress} at some time of the day, or not yet below {reuse} since the day before;"
        " outages of an incident add nothing to it",
        "dead": f"down for more than {parameters.dead_after_hours:g} hours and not back at the day's end",
        "unseen": "took no leave, but at the day's end name servers knew others of its cluster and not this one",
        UNWATCHED: "known from before, but no name server watched it for one second of the days",
        "degraded": f"some down time, in an incident too, or {parameters.degraded_points:g} points of late beats,"
        " suspicions and moves",
        "retired": f"took leave politely and stayed away for more than {parameters.dead_after_hours:g} hours",
        "new": "seen for the first time, in a history that began earlier",
        "healthy": "none of these",
    }


CAUSES = {
    "restart_loop": "new processes at a regular period",
    "deploy": "a new version within a quarter of an hour after most of its outages and restarts",
    "network": "most outages began together with other brokers', or name servers disagreed for a minute and more",
    "overload": "late beats in the ten minutes before most outages",
    "planned": "most of it were polite leaves",
}
"""What speaks for each likely cause, in the order in which they are tried; none of it is proof."""
