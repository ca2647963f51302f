"""Configuration file of an agent in a test fleet. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence


def agent_file(
    *,
    broker_section: Mapping[str, object],
    name_servers: Sequence[str],
    offsets: str,
    warm_up_seconds: float,
    topics: Mapping[str, int],
) -> str:
    """Return the file: each topic with as many read as write queues, free ports, no probe."""
    sections: dict[str, Mapping[str, object]] = {
        "broker": broker_section,
        "name_servers": {"addrs": list(name_servers)},
        "rpc": {"listen": "127.0.0.1:0"},
        "monitoring": {"listen": "127.0.0.1:0"},
        "offsets": {"store": "file", "path": offsets},
        "groups": {"warm_up_seconds": warm_up_seconds},
    }
    lines = [line for title, values in sections.items() for line in _table(f"[{title}]", values)]
    for topic, queues in topics.items():
        lines += _table("[[topics.topic]]", {"name": topic, "read_queues": queues, "write_queues": queues})
    return "\n".join(lines) + "\n"


def _table(title: str, values: Mapping[str, object]) -> Iterator[str]:
    yield title
    # JSON's strings, numbers and lists are TOML's as well.
    yield from (f"{name} = {json.dumps(value)}" for name, value in values.items())
