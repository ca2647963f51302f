"""Error codes of brokers, with what to do."""

from __future__ import annotations

import pytest

from pointsman.rocketmq.frames import Command
from pointsman_client.rocketmq.broker_refusals import refused


@pytest.mark.parametrize(
    ("code", "remark", "message"),
    [
        (16, "check signature failed.", "NO_PERMISSION 16: check signature failed. (check access_key, "),
        (1, "x.AclException: No accessKey is configured", "is configured (check access_key)"),
        (1, "disk full", "SYSTEM_ERROR 1: disk full"),
        (1, None, "SYSTEM_ERROR 1: no reason given"),
        (4711, None, "response code 4711: no reason given"),
    ],
)
def test_a_refusal_has_the_brokers_reason_and_advice(code: int, remark: str | None, message: str) -> None:
    error = refused("a:1", Command(code=code, remark=remark))
    assert message in str(error)
    assert ("access_key" in str(error)) is ("access_key" in message)
    assert error.response_code == code


def test_a_reason_is_one_line_of_limited_length() -> None:
    remark = "CODE: 1\nDESC:\x1b[31m " + "\ud800" + "x" * 60_000
    message = str(refused("a:1", Command(code=1, remark=remark)))
    assert message.startswith("broker a:1: SYSTEM_ERROR 1: CODE: 1 DESC: [31m  xxx")
    assert message.isprintable()
    assert len(message) < 400
