"""docs/http2.md: its example runs, and its limits are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from pointsman.daemon.lane.lane_server import CONNECTION_WINDOW, RECEIVED_BYTES, STREAM_WINDOW, UNSENT_BYTES
from pointsman.daemon.lane.lane_waiting import UNREAD_SECONDS
from pointsman.daemon.waiting_bytes import FRAME_SECONDS
from pointsman.http2.peer_limits import Bound, Limits, Rate
from pointsman_namesrv.config import ServerConfig

PAGE = (Path(__file__).parents[2] / "docs" / "http2.md").read_text(encoding="utf-8")


def default_of(bound: Bound) -> str:
    """The default as the page writes it."""
    limits = Limits()
    special = {
        Bound.CONTINUATIONS: f"{limits.max_continuations}",
        Bound.HEADER_BYTES: f"{limits.max_header_bytes // 1024} KiB",
        Bound.STREAMS: f"{limits.max_concurrent_streams:,}",
        Bound.UNSENT: f"{limits.max_unsent_bytes // 1024**2} MiB",
        Bound.CONNECTIONS: f"{ServerConfig().max_connections:,}",
        Bound.HANDSHAKES: "10 s",
        Bound.SLOW_REQUESTS: f"{FRAME_SECONDS:g} s",
        Bound.RECEIVED_BYTES: f"{RECEIVED_BYTES // 1024**2} MiB",
        Bound.UNREAD_RESPONSES: f"{UNREAD_SECONDS:g} s",
        Bound.UNSENT_BYTES: f"{UNSENT_BYTES // 1024**2} MiB",
    }
    if bound in special:
        return special[bound]
    rate: Rate = getattr(limits, bound)
    then = f"{rate.per_second:g} per second" if rate.per_second >= 1 else f"one in {1 / rate.per_second:g} s"
    return f"{rate.burst:,}, then {then}"


def test_the_example_runs() -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "http2.md", "exec"), {})


def test_the_limits_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE))
    assert rows == {"limit": "Default"} | {bound.value: default_of(bound) for bound in Bound}


def test_the_windows_are_those_of_the_code() -> None:
    assert (
        f"{STREAM_WINDOW // 1024**2} MiB of one request and {CONNECTION_WINDOW // 1024**2} MiB of a connection" in PAGE
    )
