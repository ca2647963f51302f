"""The grammar of names and addresses, the same for server, agent and client. Pure.

Each check returns the problem as a sentence without its subject, or ``None``; the caller knows the field.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

MAX_NAME_LENGTH = 127
"""RocketMQ's ``TopicValidator.TOPIC_MAX_LENGTH``."""

MAX_REGISTERED_NAME_LENGTH = 262
"""RocketMQ's longest topic: ``%RETRY%`` and a group of 255 characters."""

PERM_MASK = 0b1111
"""Permission bits: priority 8, read 4, write 2, inherit 1 (RocketMQ ``PermName``)."""

PERM_READ = 4
PERM_WRITE = 2

MAX_QUEUES = 65_535
MAX_TOPIC_SYS_FLAG = 3
"""Topic flag bits: unit 1, unit-sub 2."""

MAX_QUEUE_WEIGHT = 100

MAX_BROKER_ID = 2**31 - 1
MAX_TEXT_LENGTH = 1_024
"""Bound on free text (zone, host, versions, probe detail)."""

MAX_LABELS = 32
MAX_LABEL_LENGTH = 128
MAX_FILTER_SERVERS = 32
MAX_CHUNK_TOPICS = 5_000
"""Topics in one message: more would block the server's loop for too long (design, section 9)."""

ROCKETMQ_SCHEME = "rocketmq://"
OBSERVE_SCHEME = "observe://"
"""Before the address of an observer (``pointsman-observe``); a path behind it names one of its name servers."""
OBSERVED_KEY = "pointsman-name-server"
"""Metadata of a call to an observer: the address of the name server that it is about."""
"""Prefix of the address of a name server that is queried over RocketMQ's remoting protocol."""

MIN_EXPIRY_INTERVALS = 3
"""A broker may miss two heartbeats before it expires."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_REGISTERED_NAME = re.compile(r"[%|a-zA-Z0-9_.+-]+")
_HOST = re.compile(
    r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*"
)
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?")
_SEPARATOR = re.compile(r"[,;]")
_SEPARATOR_AT_END = re.compile(r"[,;]\s*$")
_ROCKETMQ_PORT = 9876
_ROCKETMQ_WITHOUT_PORT = re.compile(r"rocketmq://(?:\[[^\[\]]*\]|[^\[\]:/]+)")
_ADDR = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[^:\[\]]*)")


def printable(text: str) -> str:
    """Replace control characters, line ends included, by a visible one: any client may have chosen the text."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def name_problem(name: str) -> str | None:
    """Check a topic, group, broker or cluster name (RocketMQ's grammar)."""
    if not name:
        return "must not be empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters, at most {MAX_NAME_LENGTH} are allowed"
    if _NAME.fullmatch(name) is None:
        return "may hold only letters, digits and %|_-"
    return None


def registered_name_problem(name: str) -> str | None:
    """Check a name in a registration: also the names that RocketMQ's own brokers register.

    Their default broker name is the host's, with dots; a pop retry topic has a plus (``%RETRY%group+topic``).
    """
    if not name:
        return "must not be empty"
    if len(name) > MAX_REGISTERED_NAME_LENGTH:
        return f"has {len(name)} characters, at most {MAX_REGISTERED_NAME_LENGTH} are allowed"
    if _REGISTERED_NAME.fullmatch(name) is None:
        return "may hold only letters, digits and %|_-.+"
    return None


def addr_problem(addr: str) -> str | None:
    """Check an address ``host:port`` or ``[v6]:port`` with a port from 1 to 65,535."""
    if not addr:
        return "must not be empty"
    if len(addr) > 300:
        return f"has {len(addr)} characters, at most 300 are allowed"
    if "://" in addr:
        return "must be host:port without a scheme"
    match = _ADDR.fullmatch(addr)
    if match is None:
        return "must be host:port" if addr.count(":") < 2 else "must be host:port, an IPv6 host in brackets"
    if match["v6"] is not None:
        if ":" not in match["v6"] or _IPV6.fullmatch(match["v6"]) is None:
            return "has no IPv6 address between its brackets"
    elif _HOST.fullmatch(match["host"]) is None:
        return "has no valid host before the port"
    port = match["port"]
    if not (port.isascii() and port.isdigit()):
        return "has no port number after the colon"
    if len(port) > 5 or not 1 <= int(port) <= 65_535:
        return "has a port outside 1 to 65535"
    return None


def is_rocketmq(addr: str) -> bool:
    """Return whether the address of a name server is to be queried over RocketMQ's remoting protocol."""
    return addr.startswith(ROCKETMQ_SCHEME)


def is_observed(addr: str) -> bool:
    """Return whether an address is of an observer, or of one of its name servers."""
    return addr.startswith(OBSERVE_SCHEME)


def read_observed(addr: str) -> tuple[str, str]:
    """Return the observer's address, and that of the name server, empty: of all.

    Raises ValueError.
    """
    observer, slash, name_server = addr.removeprefix(OBSERVE_SCHEME).partition("/")
    for part in (observer, *([name_server] if slash else ())):
        if problem := addr_problem(part):
            raise ValueError(
                f"{addr!r} {problem}: write {OBSERVE_SCHEME}HOST:PORT, or {OBSERVE_SCHEME}HOST:PORT/NAMESRV:PORT"
            )
    return observer, name_server


def observed_addr(observer: str, name_server: str) -> str:
    """Return the address of one name server at an observer; an empty one: of all."""
    return f"{OBSERVE_SCHEME}{observer}/{name_server}" if name_server else f"{OBSERVE_SCHEME}{observer}"


def read_name_servers(given: str | Iterable[str]) -> tuple[str, ...]:
    """Read addresses of name servers; in a str commas or (as in RocketMQ) semicolons are between them or at its end.

    A RocketMQ name server is ``rocketmq://host:port``, its port 9876 if omitted. Duplicates are removed. Raises
    ValueError with all problems.
    """
    listed = _SEPARATOR.split(_SEPARATOR_AT_END.sub("", given)) if isinstance(given, str) else given
    addrs = [addr.strip() for addr in listed]
    if not any(addrs):
        raise ValueError("no name server given: pass at least one host:port")
    addrs = [f"{addr}:{_ROCKETMQ_PORT}" if _ROCKETMQ_WITHOUT_PORT.fullmatch(addr) else addr for addr in addrs]
    of_rocketmq = [addr for addr in addrs if is_rocketmq(addr)]
    if of_rocketmq and len(of_rocketmq) < len(addrs):
        other = next(addr for addr in addrs if addr not in of_rocketmq)
        raise ValueError(
            f"name server addresses must be of one kind, but {of_rocketmq[0]!r} is of RocketMQ and {other!r} is not: "
            f"write {ROCKETMQ_SCHEME} before each address or before none"
        )
    problems = [
        f"{addr!r} {problem}" + (f", or {ROCKETMQ_SCHEME}host:port" if "scheme" in problem else "")
        for addr in addrs
        if (problem := addr_problem(addr.removeprefix(ROCKETMQ_SCHEME)))
    ]
    if problems:
        raise ValueError("name server address " + "; ".join(problems))
    return tuple(dict.fromkeys(addrs))


def text_problem(text: str, *, longest: int = MAX_TEXT_LENGTH) -> str | None:
    """Check free text: bounded, and without control characters."""
    if len(text) > longest:
        return f"has {len(text)} characters, at most {longest} are allowed"
    if not text.isprintable():
        return "must not hold control characters"
    return None


def join_addr(host: str, port: int) -> str:
    """Join host (an IPv6 one without brackets) and port to an address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_addr(addr: str) -> tuple[str, int]:
    """Split an address that :func:`addr_problem` accepts into host (without brackets) and port."""
    host, _, port = addr.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(addr: str) -> bool:
    """Return whether only this machine can reach host:port. A host name other than localhost counts as reachable."""
    host = addr.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
