"""When a server that has just started knows enough to say that a topic is not there.

Until then an unknown topic may be one of a broker that it has not heard yet (RocketMQ ``needWaitForService``).
"""

from __future__ import annotations

MIN_WARM_UP = 5.0
"""Seconds in which agents reconnect: a broker that the snapshot does not know may be among them."""


class WarmUp:
    """The wait from the start to READY. Once it is over, it stays over.

    ``restored`` is how many brokers the snapshot brought, ``complete`` whether nothing of it was lost: what is missing
    from it can only be waited for. Times are monotonic seconds.
    """

    def __init__(self, *, started_at: float, warm_up_seconds: float, restored: int = 0, complete: bool = True) -> None:
        self._earliest = started_at + min(MIN_WARM_UP, warm_up_seconds)
        self._latest = started_at + warm_up_seconds
        self._is_enough_to_hear_all = restored > 0 and complete
        self._over = False

    def is_over(self, *, now: float, still_provisional: int) -> bool:
        """Whether the server is READY; ``still_provisional``: how many of the snapshot were not heard and have time."""
        if now >= self._latest or (now >= self._earliest and self._is_enough_to_hear_all and still_provisional == 0):
            self._over = True
        return self._over
