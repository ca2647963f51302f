"""What an error that Redis answers means to whoever sent the request, and what to do about it. Pure."""

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

ANSWERS = (ResponseError, AuthenticationError, BusyLoadingError)
"""Errors that are answers: the connection that brought one is whole."""

_NO, _NOT_NOW, _BUSY, _BROKEN = (
    ResponseCode.NO_PERMISSION,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SYSTEM_ERROR,
)

_NO_MASTER = "a replica without its master that serves no old data: use another broker"
_CLUSTER_DOWN = "its Redis Cluster is down: use another broker"
_NO_CLUSTER = "brokers are single servers with replicas, not members of a Redis Cluster"

_BY_TYPE: tuple[tuple[type[RedisError], ResponseCode, str], ...] = (
    (ReadOnlyError, _NO, "it is a replica: send to the master"),
    (
        NoPermissionError,
        _NO,
        "let the user run XADD, XREAD, XRANGE, XINFO, MULTI and EXEC on the queues' keys (ACL SETUSER)",
    ),
    (AuthenticationError, _NO, "check username and password"),
    (BusyLoadingError, _NOT_NOW, "it reads its data from the disk: wait, or use another broker"),
    (MasterDownError, _NOT_NOW, _NO_MASTER),
    (ClusterDownError, _NOT_NOW, _CLUSTER_DOWN),
    (OutOfMemoryError, _BUSY, "its memory is full: consume, lower max_length, or raise maxmemory"),
    # The base of MovedError.
    (AskError, _BROKEN, _NO_CLUSTER),
)

_BY_PREFIX: tuple[tuple[str, ResponseCode, str], ...] = (
    # redis-py leaves these codes in the text; older ones also the first three.
    ("MASTERDOWN", _NOT_NOW, _NO_MASTER),
    ("CLUSTERDOWN", _NOT_NOW, _CLUSTER_DOWN),
    ("MOVED", _BROKEN, _NO_CLUSTER),
    ("MISCONF", _NOT_NOW, "it cannot write to its disk: see the server's log"),
    ("NOREPLICAS", _NOT_NOW, "too few replicas for min-replicas-to-write: use another broker"),
    ("UNKILLABLE", _BUSY, "a script holds the server"),
    ("BUSY", _BUSY, "a script holds the server: SCRIPT KILL"),
    ("WRONGTYPE", _BROKEN, "the queue's key is no stream: remove it or rename the topic"),
    ("max number of clients", _BUSY, "raise maxclients or use fewer processes"),
)

_BY_TEXT: tuple[tuple[str, ResponseCode, str], ...] = (
    # What a long request of somebody without a password is answered with, instead of NOAUTH.
    ("unauthenticated", _NO, "check username and password"),
    ("Invalid stream ID", _BROKEN, "entries with the id 0-* need Redis 7.0 or later"),
    ("equal or smaller", _BROKEN, "the stream has entries whose ids are no offsets (0-n): move it to another key"),
    ("WAITAOF", _BROKEN, "wait_fsync needs Redis 7.2 or later with appendonly on: set either, or wait_fsync=False"),
)


def refused(addr: str, answer: Exception) -> BrokerRefusedError:
    """The error for an answer of Redis."""
    text = str(answer)
    code, advice = _meaning(answer, text)
    return BrokerRefusedError(addr, code, f"{text} ({advice})" if advice else text)


def is_answer(error: Exception) -> bool:
    """Whether it came from the server rather than from the connection."""
    return isinstance(error, ANSWERS) or str(error).startswith("max number of clients")


def _meaning(answer: Exception, text: str) -> tuple[ResponseCode, str]:
    for kind, code, advice in _BY_TYPE:
        if isinstance(answer, kind):
            return code, advice
    for prefix, code, advice in _BY_PREFIX:
        if text.startswith(prefix):
            return code, advice
    for part, code, advice in _BY_TEXT:
        if part in text:
            return code, advice
    return _BROKEN, ""
