"""When a topic or a consumer group needs action, what to say of it and what to do.

The same for what a name server sees now and for the nightly report, which has them as formats of Spark expressions.
Pure: imports nothing.
"""

from __future__ import annotations

ALARMS = frozenset({"stuck", "no_members", "dead_letters"})
"""Kinds of findings in which messages are not consumed; the others are warnings."""

SKEW_ABOVE = 3.0
"""A queue that is filled more than this many times as fast as the mean of its topic is hot."""
PUT_RATE_ABOVE = 1.0
"""Topics with fewer messages per second are not checked for skew: with few messages one queue is always ahead."""

SKEW = "queue %d of topic %s on %s gets %.1f of %.1f messages per second, %.1f times the mean of the %d queues"
CURE_OF_SKEW = (
    "one large key: send_by_key with sharding=SubShards({key: %d}) and second=, which keeps order within a second "
    "value; a few large ones: ExplicitTable gives each a queue; else shard by a key that has more values"
)
"""How to spread a hot key; messages are then ordered only within a sub-shard."""

IDLE_MEMBERS = "%d of %d members of group %s have no queue of topic %s (%d queues)"
CURE_OF_IDLE_MEMBERS = "add queues (write_queues and read_queues) or stop members"

TOO_FEW_QUEUES = "; each of its %d members already has a queue (%d queues)"
"""Follows what is said of the lag."""
CURE_OF_TOO_FEW_QUEUES = "more members would be idle: add queues first, then members; or raise consume_concurrency"

CURE_OF_FALLING_BEHIND = (
    "start more members (up to %d get a queue each), raise consume_concurrency, or speed up the listener"
)
CURE_OF_NO_MEMBERS = "the group has no members: start its consumers"

STORM_ABOVE, STORM_WINDOW_SECONDS = 20, 600.0
"""A group whose membership changes more often than this in this time is rebalanced all the time; as the alert."""
CURE_OF_STORM = "`pointsmanctl group %s` shows who has just joined: a member that crashes, or set hold_down_seconds"

CURE_OF_DEAD_LETTERS = "the logs of its consumers name each with its error: repair the listener, then consume %s"
