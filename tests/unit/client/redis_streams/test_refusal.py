"""What answers of Redis mean: RocketMQ's code, and what to do."""

from __future__ import annotations

import pytest
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError

from pointsman_client.errors import ResponseCode
from pointsman_client.redis_streams.refusal import is_error_reply, refused

NO, NOT_NOW, BUSY, BROKEN = (
    ResponseCode.NO_PERMISSION,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SYSTEM_ERROR,
)


@pytest.mark.parametrize(
    ("answer", "code", "advice"),
    [
        ("READONLY You can't write against a read only replica.", NO, "send to the master"),
        ("NOAUTH Authentication required.", NO, "username and password"),
        ("ERR Protocol error: unauthenticated multibulk length", NO, "username and password"),
        ("WRONGPASS invalid username-password pair or user is disabled.", NO, "username and password"),
        ("NOPERM this user has no permissions to run the 'xadd' command", NO, "ACL SETUSER"),
        ("LOADING Redis is loading the dataset in memory", NOT_NOW, "another broker"),
        ("MASTERDOWN Link with MASTER is down", NOT_NOW, "another broker"),
        ("MISCONF Redis is configured to save RDB snapshots", NOT_NOW, "log"),
        ("CLUSTERDOWN The cluster is down", NOT_NOW, "Cluster"),
        ("NOREPLICAS Not enough good replicas to write.", NOT_NOW, "min-replicas-to-write"),
        ("OOM command not allowed when used memory > 'maxmemory'.", BUSY, "maxmemory"),
        ("BUSY Redis is busy running a script.", BUSY, "SCRIPT KILL"),
        ("ERR max number of clients reached", BUSY, "maxclients"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", BROKEN, "not a stream"),
        ("MOVED 3999 127.0.0.1:6381", BROKEN, "Redis Cluster"),
        ("ERR Invalid stream ID specified as stream command argument", BROKEN, "Redis 7.0"),
        ("ERR The ID specified in XADD is equal or smaller than the target stream top item", BROKEN, "not offsets"),
        ("ERR unknown command 'WAITAOF', with args beginning with: '1'", BROKEN, "Redis 7.2"),
        ("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.", BROKEN, "appendonly on"),
        ("ERR something new", BROKEN, "something new"),
    ],
)
def test_a_response_has_rocketmqs_code_and_an_action(answer: str, code: ResponseCode, advice: str) -> None:
    error = DefaultParser.parse_error(answer)  # type: ignore[no-untyped-call]  # so redis-py has it
    assert is_error_reply(error)
    refusal = refused("10.0.0.1:6379", error)
    assert (refusal.addr, refusal.response_code) == ("10.0.0.1:6379", code)
    assert advice in str(refusal)


def test_a_broken_connection_is_not_an_answer() -> None:
    assert not is_error_reply(RedisConnectionError("Connection closed by server."))
