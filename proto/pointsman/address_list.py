"""Lists of name servers as RocketMQ's brokers and clients get them over HTTP (``DefaultTopAddressing``).

They ask ``http://HOST:PORT/rocketmq/nsaddr``, those with a unit name ``/rocketmq/nsaddr-UNIT?nofix=1``, brokers every
two minutes and clients, too; the body is ``a:9876;b:9876``. Name servers have each list as a key of their KV
configuration, which is named as the last part of the path.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from pointsman.names import addr_problem, name_problem, text_problem

NAMESPACE = "NSADDR"
PATH = "/rocketmq/"
MAX_ADDRESSES = 16
_KEY = "nsaddr"


def key_of(unit: str) -> str:
    """Return the key of a unit's list; empty: that of all without a unit."""
    return f"{_KEY}-{unit}" if unit else _KEY


def unit_of(key: str) -> str | None:
    """Return the unit of a key; None: it is not the key of a list."""
    if key == _KEY:
        return ""
    unit = key.removeprefix(f"{_KEY}-")
    return None if unit == key or name_problem(unit) else unit


def list_problem(text: str) -> str | None:
    """Check a list: 1 to 16 addresses host:port, each once, with semicolons between them."""
    addrs = text.split(";")
    if not text:
        return "has no address"
    if len(addrs) > MAX_ADDRESSES:
        return f"has {len(addrs)} addresses, at most {MAX_ADDRESSES} are allowed"
    for addr in addrs:
        if problem := addr_problem(addr):
            return f"has the address {addr[:100]!r}, which {problem}"
    if len(set(addrs)) < len(addrs):
        return f"has the address {next(addr for addr in addrs if addrs.count(addr) > 1)} twice"
    return None


def to_addrs(text: str) -> tuple[str, ...]:
    """Return the addresses of a list without a problem."""
    return tuple(text.split(";"))


def to_text(addrs: Sequence[str]) -> str:
    """Return a list as text."""
    return ";".join(addrs)


def url_problem(url: str) -> str | None:
    """Check the URL of a list. The caller must not show one that has a user name: it may have a password as well."""
    if "@" in url:
        return "must not have a user name or password"
    if problem := text_problem(url):
        return problem
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if not url.startswith(("http://", "https://")) or not parts.hostname or port == 0:
        return "must be http://HOST:PORT/PATH or https://HOST:PORT/PATH"
    return None
