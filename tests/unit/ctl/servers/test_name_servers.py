"""Pages of a name server's past, joined."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pointsman.v1 import admin_service_pb2 as admin
from pointsman_ctl.servers import name_servers
from pointsman_ctl.servers.name_servers import EVENTS_PER_PAGE

EVENTS = [admin.BrokerEvent(seq=seq) for seq in range(2 * EVENTS_PER_PAGE + 1, 0, -1)]


async def ask(size: int, token: str) -> tuple[str, Sequence[admin.BrokerEvent], str]:
    first = int(token or 0)
    last = first + size
    return "ns1:9876", EVENTS[first:last], str(last) if last < len(EVENTS) else ""


@pytest.mark.parametrize(
    ("limit", "found", "is_cut"),
    [
        pytest.param(10, 10, True, id="part-of-a-page"),
        pytest.param(EVENTS_PER_PAGE + 1, EVENTS_PER_PAGE + 1, True, id="a-second-page"),
        pytest.param(len(EVENTS), len(EVENTS), False, id="exactly-all"),
        pytest.param(10 * len(EVENTS), len(EVENTS), False, id="more-than-there-are"),
    ],
)
async def test_pages_are_read_until_the_limit_or_the_end(limit: int, found: int, is_cut: bool) -> None:
    page = await name_servers._newest(ask, limit)
    assert (page.found, page.is_cut) == (EVENTS[:found], is_cut)
