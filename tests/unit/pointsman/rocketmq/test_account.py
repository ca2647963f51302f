"""Accounts of RocketMQ's access control; a file of one is read in tests/unit/ctl/test_command_line.py."""

from __future__ import annotations

import pytest

from pointsman.rocketmq.account import Account, parse_account


def test_a_request_is_signed_over_its_sorted_values_and_its_body() -> None:
    account = Account("RocketMQ", "12345678", "token")
    signed = account.signed({"topic": "T", "b": "2", "a": "1"}, b"body")
    # printf RocketMQtoken12Tbody | openssl dgst -sha1 -hmac 12345678 -binary | base64
    assert signed == {
        "topic": "T",
        "b": "2",
        "a": "1",
        "AccessKey": "RocketMQ",
        "SecurityToken": "token",
        "Signature": "l6VSE7elWj6pDRf6pxJoNxb8BBk=",
    }


def test_a_secret_is_in_no_text() -> None:
    account = Account("RocketMQ", "hunter2", "hunter3")
    assert "hunter" not in f"{account!r} {account}"
    with pytest.raises(ValueError, match="line 1 of FILE must be accessKey") as raised:
        parse_account("hunter2", "FILE")
    assert "hunter" not in str(raised.value)
