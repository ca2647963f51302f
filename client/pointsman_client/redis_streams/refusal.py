"""Error replies of Redis as errors of the client, with advice. Pure."""

from __future__ import annotations

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from pointsman_client.errors import BrokerRefusedError, ResponseCode

ERROR_REPLIES = (ResponseError, AuthenticationError, BusyLoadingError)
"""Errors that are replies of the server; the connection remains usable."""

_NO, _NOT_NOW, _BUSY, _BROKEN = (
    ResponseCode.NO_PERMISSION,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SYSTEM_ERROR,
)

_NO_MASTER = "a replica without its master, which does not serve stale data; use another broker"
_CLUSTER_DOWN = "its Redis Cluster is down; use another broker"
_NO_CLUSTER = "brokers are single servers with replicas, not members of a Redis Cluster"

_BY_TYPE: tuple[tuple[type[RedisError], ResponseCode, str], ...] = (
    (ReadOnlyError, _NO, "it is a replica; send to the master"),
    (
        NoPermissionError,
        _NO,
        (
            "permit the user XADD, XREAD, XRANGE, XINFO, MULTI and EXEC, and for leases EVAL_RO, EVAL, XGROUP, "
            "XREADGROUP, XPENDING, XCLAIM and XACK, on the queues' keys (ACL SETUSER)"
        ),
    ),
    (AuthenticationError, _NO, "check username and password"),
    (BusyLoadingError, _NOT_NOW, "it is loading its data from disk; wait, or use another broker"),
    (MasterDownError, _NOT_NOW, _NO_MASTER),
    (ClusterDownError, _NOT_NOW, _CLUSTER_DOWN),
    (OutOfMemoryError, _BUSY, "its memory is full; consume messages, lower max_length, or raise maxmemory"),
    # The base of MovedError.
    (AskError, _BROKEN, _NO_CLUSTER),
)

_BY_PREFIX: tuple[tuple[str, ResponseCode, str], ...] = (
    # redis-py has no class for these codes; older versions also for the first three.
    ("MASTERDOWN", _NOT_NOW, _NO_MASTER),
    ("CLUSTERDOWN", _NOT_NOW, _CLUSTER_DOWN),
    ("MOVED", _BROKEN, _NO_CLUSTER),
    ("MISCONF", _NOT_NOW, "it cannot write to its disk; see the server's log"),
    ("NOREPLICAS", _NOT_NOW, "too few replicas for min-replicas-to-write; use another broker"),
    ("UNKILLABLE", _BUSY, "a script blocks the server"),
    ("BUSY", _BUSY, "a script blocks the server; run SCRIPT KILL"),
    ("WRONGTYPE", _BROKEN, "the queue's key is not a stream; remove it or rename the topic"),
    ("max number of clients", _BUSY, "raise maxclients or use fewer processes"),
)

_BY_TEXT: tuple[tuple[str, ResponseCode, str], ...] = (
    # The reply to a long request without authentication, instead of NOAUTH.
    ("unauthenticated", _NO, "check username and password"),
    ("Invalid stream ID", _BROKEN, "entries with the id 0-* require Redis 7.0 or later"),
    ("equal or smaller", _BROKEN, "the stream has entries whose ids are not offsets (0-n); move it to another key"),
    (
        "WAITAOF",
        _BROKEN,
        "wait_fsync requires Redis 7.2 or later with appendonly on; configure it, or set wait_fsync=False",
    ),
)


def refused(addr: str, reply: Exception) -> BrokerRefusedError:
    """Return the error for an error reply."""
    text = str(reply)
    code, advice = _meaning(reply, text)
    return BrokerRefusedError(addr, code, f"{text} ({advice})" if advice else text)


def is_error_reply(error: Exception) -> bool:
    """Return whether the error is a reply of the server, not a failure of the connection."""
    return isinstance(error, ERROR_REPLIES) or str(error).startswith("max number of clients")


def _meaning(reply: Exception, text: str) -> tuple[ResponseCode, str]:
    for kind, code, advice in _BY_TYPE:
        if isinstance(reply, kind):
            return code, advice
    for prefix, code, advice in _BY_PREFIX:
        if text.startswith(prefix):
            return code, advice
    for part, code, advice in _BY_TEXT:
        if part in text:
            return code, advice
    return _BROKEN, ""
