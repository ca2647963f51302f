"""Where the routes of two name servers differ, told from their digests. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman_ctl.question import NodeDigests


@dataclass(frozen=True, slots=True)
class DigestDifference:
    """Topics that the two do not agree on, sorted."""

    differing: tuple[str, ...]
    """Both have a route, and not the same."""
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether they agree on every topic."""
        return not (self.differing or self.only_first or self.only_second)


def digest_difference(first: NodeDigests, second: NodeDigests) -> DigestDifference:
    """Compare two nodes' routes."""
    ours, theirs = first.digests, second.digests
    return DigestDifference(
        differing=tuple(sorted(topic for topic in ours.keys() & theirs.keys() if ours[topic] != theirs[topic])),
        only_first=tuple(sorted(ours.keys() - theirs.keys())),
        only_second=tuple(sorted(theirs.keys() - ours.keys())),
    )
