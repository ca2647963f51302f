"""Commands as bytes."""

from __future__ import annotations

from pointsman_client.redis_streams.resp import pack


def test_a_command_is_its_arguments_with_their_lengths() -> None:
    assert pack(b"XADD", b"", b"\r\n\x00") == b"*3\r\n$4\r\nXADD\r\n$0\r\n\r\n$3\r\n\r\n\x00\r\n"
