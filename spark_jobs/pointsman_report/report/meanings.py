"""The meaning of classes, causes and states. Classes are listed worst first.

A broker that was protected by a guard, or silent while the name server itself was paused, has no separate class: that
time is excluded from its intervals (`blind_periods`), and the rest of the day decides.
"""

from __future__ import annotations

from pointsman_report.parameters import FlapParameters

UNWATCHED = "unwatched"

WORST_FIRST = ("chronic", "flapping", "dead", "unseen", UNWATCHED, "degraded", "retired", "new", "healthy")

FINDINGS = ("chronic", "flapping", "dead", "unseen")
"""Classes that need attention: with one of them the exit code is 1."""


def meanings(parameters: FlapParameters) -> dict[str, str]:
    """Explain each class with the numbers it was computed with."""
    suppress, reuse = f"{parameters.suppress_above:g}", f"{parameters.reuse_below:g}"
    return {
        "chronic": f"flapped on {parameters.chronic_days} or more of the last seven days",
        "flapping": f"penalty above {suppress} during the day, or not yet below {reuse} since the day before;"
        " outages in incidents do not count",
        "dead": f"down for more than {parameters.dead_after_hours:g} hours at the end of the day",
        "unseen": "did not unregister, but at the end of the day no name server knew it, only others of its cluster",
        UNWATCHED: "known from before, but without monitoring data on these days",
        "degraded": f"some downtime (also in incidents), or at least {parameters.degraded_points:g} points of penalty"
        " for late heartbeats, SUSPECT states, and changes of address or role",
        "retired": f"planned shutdown more than {parameters.dead_after_hours:g} hours ago, not back since",
        "new": "seen for the first time, although the history has earlier days",
        "healthy": "none of these",
    }


CAUSES = {
    "restart_loop": "new processes at a regular period",
    "deploy": "another version came back",
    "rolling_restart": "one of several brokers of its cluster that were restarted one after another, each back before "
    "the next went down",
    "process_died": "its machine refused the connection of the probe, and a new process came back",
    "agent_lost": "only this agent's stream broke, its probe had not failed, and the same broker process came back",
    "agent_hung": "only this agent fell silent, with its stream open, its probe had not failed, and the same broker "
    "process came back",
    "network": "several brokers fell silent at the same moment, and the same processes came back; or name servers "
    "disagreed for at least a minute",
    "host_lost": "several brokers of one host label fell silent at the same moment; new processes came back on it",
    "overload": "late heartbeats in the ten minutes before most outages",
    "planned": "most outages were planned shutdowns, or in a maintenance window",
    "unknown": "no evidence for any of these",
}
"""The evidence for each cause of an outage or of a broker's day."""

CAUSE_NAMES = {
    "process_died": "broker process died",
    "agent_lost": "agent lost",
    "agent_hung": "agent hung",
    "host_lost": "host lost",
}

STATES = (
    ("it unregistered, was evicted, or another identity registered its address", "GONE, planned"),
    ("expired in a maintenance window", "GONE, planned"),
    ("expired, but the guard protects it", "PROTECTED"),
    ("expired", "GONE"),
    ("the probe fails on strong evidence, in a maintenance window", "OUT, planned"),
    ("the probe fails on strong evidence", "OUT"),
    ("the probe fails on weak evidence, in a maintenance window", "OUT, planned"),
    ("the probe fails on weak evidence, but the guard protects it", "PROTECTED"),
    ("the probe fails on weak evidence", "OUT"),
    ("from the snapshot, no heartbeat yet", "PROVISIONAL"),
    ("its stream broke", "SUSPECT"),
    ("silent for more than 2.5 intervals", "SUSPECT"),
    ("heartbeats arrive in time and the probe does not fail", "UP"),
)
"""The table that gives a name server's state of a broker, the first row that applies; copied from the name server."""

ADVICE = {
    "restart_loop": "check the broker's log before each exit, and what restarts it",
    "deploy": "drain brokers or announce a maintenance window before the next deploy",
    "rolling_restart": "shut brokers down gracefully, or announce a maintenance window, before the next restart",
    "process_died": "check the broker's log and the kernel's around its outages: crash, out of memory, or kill",
    "agent_lost": "check the agent's log: the broker kept running without it",
    "agent_hung": "check the agent and its machine: memory, swap, a stopped process; the broker kept running",
    "network": "check the network between these brokers and the name servers: switch, link, firewall",
    "host_lost": "check the host: power, kernel, hypervisor",
    "overload": "check CPU, memory and pauses of the broker's host before its outages",
}
"""Advice by known cause; an unknown cause has none."""


def cause_name(cause: str | None) -> str:
    """The name of a cause as shown to readers; empty if there is none."""
    return CAUSE_NAMES.get(cause, cause.replace("_", " ")) if cause else ""
