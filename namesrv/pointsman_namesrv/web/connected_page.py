"""The page of who is connected: what an operator checks before a name server is drained. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman_namesrv.web.page_data import ConnectedData
from pointsman_namesrv.web.page_links import command
from pointsman_namesrv.web.page_query import PageQuery


@dataclass(frozen=True, slots=True)
class ShownAgents:
    """Registrations of one kind and version."""

    kind: str
    version: str
    registered: int
    streams: int


@dataclass(frozen=True, slots=True)
class ConnectedPage:
    """What the template shows."""

    data: ConnectedData
    query: PageQuery
    agents: Sequence[ShownAgents]
    commands: Sequence[str]


def connected_page(data: ConnectedData, query: PageQuery) -> ConnectedPage:
    """Show the peers of this name server."""
    agents = [ShownAgents(kind, version, *counts) for (kind, version), counts in data.agents.items()]
    return ConnectedPage(data, query, agents, [command((data.node.addr,), "info"), command((data.node.addr,), "drain")])
