"""The source that the configuration asks for."""

from __future__ import annotations

from pathlib import Path

from pointsman_agent.config import NameServersSection
from pointsman_agent.name_servers import NameServerSource
from pointsman_agent.name_servers.dns import DnsNameServers
from pointsman_agent.name_servers.file import FileNameServers


def build_source(section: NameServersSection) -> NameServerSource | None:
    """Build the configured source; None where the configuration lists the name servers itself."""
    if section.dns:
        return DnsNameServers(section.dns)
    if section.file:
        return FileNameServers(Path(section.file))
    return None
