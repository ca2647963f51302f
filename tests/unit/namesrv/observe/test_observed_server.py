"""Whether an observed name server is watched, and what is refused while it is not."""

from __future__ import annotations

import pytest

from pointsman_namesrv.core.model import NodeState
from pointsman_namesrv.observe.observed_server import ObservedServer, ObservedUnreachable, TopicsNotCollected


def test_it_is_away_until_its_first_watch_and_after_its_last() -> None:
    server = ObservedServer("ns1:9876", boot=1, now=0.0)
    assert (server.is_watched, server.lifecycle.state) == (False, NodeState.WARMING)
    assert server.away(now=3.0) == (3.0, "it has not responded yet")

    assert [server.begin(now=4.0), server.is_watched, server.lifecycle.state] == [0, True, NodeState.READY]
    assert server.away(now=5.0) is None
    server.refuse_unless_watched(now=5.0)

    server.not_watched("connection refused", now=10.0)
    server.not_watched("2 brokers known before are not listed again yet", now=15.0)
    assert server.away(now=20.0) == (10.0, "2 brokers known before are not listed again yet")
    with pytest.raises(ObservedUnreachable, match=r"not watched ns1:9876 for 10 s: 2 brokers.*state.*unknown"):
        server.refuse_unless_watched(now=20.0)
    assert server.begin(now=21.0) == 1, "each watch is a run of the history"


@pytest.mark.parametrize(("is_on", "why"), [(True, "has not ended; retry later"), (False, "--topics-seconds is 0")])
def test_without_a_walk_over_its_topics_none_is_called_unknown(is_on: bool, why: str) -> None:
    server = ObservedServer("ns1:9876", boot=1, now=0.0, collects_topics=is_on)
    with pytest.raises(ObservedUnreachable):
        server.refuse_unless_walked(now=0.0)
    server.begin(now=1.0)
    with pytest.raises(TopicsNotCollected, match=why):
        server.refuse_unless_walked(now=1.0)
    server.topics_walked_at = 2.0
    server.refuse_unless_walked(now=2.0)
