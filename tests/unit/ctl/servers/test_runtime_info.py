"""What a RocketMQ broker reports of itself: every version has other values, and any may be missing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pointsman.rocketmq.bodies import BadBodyError
from pointsman_ctl.servers.runtime_info import RuntimeInfo, read_runtime_info, runtime_of

BODY = (
    b'{"table":{"brokerVersionDesc":"V5_3_3","bootTimestamp":"1700000000000","putTps":"12.5 3.0 1.0",'
    b'"getTotalTps":"7.0 3.0 1.0","commitLogDiskRatio":"0.43","msgPutTotalTodayNow":"150",'
    b'"msgPutTotalTodayMorning":"50","runtime":"[ 0 days ]"}}'
)
UNKNOWN = RuntimeInfo(None, None, None, None, None, None)


def test_the_values_of_a_broker_are_read() -> None:
    values = read_runtime_info(BODY)
    assert values["runtime"] == "[ 0 days ]"
    started_at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert runtime_of(values) == RuntimeInfo("5.3.3", started_at, 12.5, 7.0, 0.43, 100)


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "1e400", " ", "\u0661"])
def test_a_value_that_is_missing_or_unusual_is_not_known(text: str) -> None:
    names = ("bootTimestamp", "putTps", "getTotalTps", "commitLogDiskRatio", "msgPutTotalTodayNow")
    assert runtime_of(dict.fromkeys(names, text)) == UNKNOWN
    assert runtime_of({}) == UNKNOWN


@pytest.mark.parametrize("body", [b"", b"[]", b'{"table":[]}'])
def test_another_body_is_an_error(body: bytes) -> None:
    with pytest.raises(BadBodyError):
        read_runtime_info(body)
