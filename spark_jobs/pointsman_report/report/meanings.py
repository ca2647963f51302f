"""What the classes mean, in the order in which a report names them: worst first.

A broker that a name server's guard kept, or that went unheard while the server itself was paused, has no class of its
own: that fault was ours, the time is left out of its intervals (`blind_periods`), and what is left decides.
"""

from __future__ import annotations

from pointsman_report.parameters import FlapParameters

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
        "unseen": "did not unregister, but at the day's end name servers knew others of its cluster and not this one",
        UNWATCHED: "known from before, but no name server watched it in these days",
        "degraded": f"some down time, in an incident too, or {parameters.degraded_points:g} points of late beats,"
        " suspicions and moves",
        "retired": f"shut down as planned and did not return for more than {parameters.dead_after_hours:g} hours",
        "new": "seen for the first time, in a history that began earlier",
        "healthy": "none of these",
    }


CAUSES = {
    "restart_loop": "new processes at a regular period",
    "deploy": "another version came back",
    "rolling_restart": "one of several brokers of its cluster that were restarted one after another, each back before "
    "the next went down",
    "process_died": "broker process died: the probe was refused by its own machine, and a new process came back",
    "agent_lost": "the agent's stream broke alone, no probe of it failed, and the same broker process came back",
    "network": "several brokers fell silent at the same moment, and the same processes came back; or name servers "
    "disagreed for at least a minute",
    "host_lost": "several brokers of one host label fell silent at the same moment, and new processes came back on it",
    "overload": "late heartbeats in the ten minutes before most outages",
    "planned": "mostly planned shutdowns, or in a maintenance window",
    "unknown": "the evidence shows none of these",
}
"""The evidence for each cause of an outage, and of a broker's bad day."""

CAUSE_NAMES = {"process_died": "broker process died", "agent_lost": "agent lost", "host_lost": "host lost"}

STATES = (
    ("it unregistered, was evicted, or its address registered elsewhere", "GONE, planned"),
    ("expired in a maintenance window", "GONE, planned"),
    ("expired, but the guard keeps it", "PROTECTED"),
    ("expired", "GONE"),
    ("the probe fails on strong evidence, in a maintenance window", "OUT, planned"),
    ("the probe fails on strong evidence", "OUT"),
    ("the probe fails on weak evidence, in a maintenance window", "OUT, planned"),
    ("the probe fails on weak evidence, but the guard keeps it", "PROTECTED"),
    ("the probe fails on weak evidence", "OUT"),
    ("from the snapshot, no heartbeat yet", "PROVISIONAL"),
    ("its stream broke", "SUSPECT"),
    ("silent for more than 2.5 intervals", "SUSPECT"),
    ("heartbeats arrive in time and the probe does not fail", "UP"),
)
"""The table that gives a name server's state of a broker, the first row that applies; quoted from the name server."""

ADVICE = {
    "restart_loop": "see the broker's log before each exit, and what restarts it",
    "deploy": "drain brokers or announce a maintenance window before the next deploy",
    "rolling_restart": "shut brokers down gracefully, or announce a maintenance window, before the next restart",
    "process_died": "see the broker's log and the kernel's around its outages: crash, out of memory, or kill",
    "agent_lost": "see the log of the agent: the broker ran on without it",
    "network": "check the network between these brokers and the name servers: switch, link, firewall",
    "host_lost": "check the host: power, kernel, hypervisor",
    "overload": "check CPU, memory and pauses of the broker's host before its outages",
}
"""What to do where the cause is known; an unknown cause has no advice."""


def cause_name(cause: str | None) -> str:
    """Write a cause for a reader; empty for none."""
    return CAUSE_NAMES.get(cause, cause.replace("_", " ")) if cause else ""
