"""Whether a consumer does its work, for readiness probes and people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerHealth:
    """What keeps a consumer from its work now."""

    problems: tuple[str, ...]
    """Each in a sentence; empty: none."""
    queues: int
    """Number of queues that it holds, without the retry topic. A healthy member of a large group may hold none."""
    oldest_call_seconds: float = 0.0
    """Time for which its oldest running listener call has run; 0 without one."""

    @property
    def is_ready(self) -> bool:
        """Whether nothing keeps it from its work."""
        return not self.problems


NOT_STARTED = ConsumerHealth(("it is not started, or closed",), 0)
"""Of a consumer that holds nothing."""
