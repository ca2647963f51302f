"""Invariants of RocketMQ's codec for any bytes, and the recorded frames to begin with."""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from typing import Any

from pointsman.rocketmq import bodies, frames
from pointsman_namesrv.remoting import register_body
from tests.kit.broker.rocketmq import frames as recorded

SHORT_BYTES = 4_096
"""Values up to this length are read completely, so a body up to it can be compared with ``json.loads``."""


class _Doubled(Exception):
    """An object has a key twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise _Doubled
    return dict(pairs)


def _strict_json(data: bytes) -> Any:
    """Return the bytes as ``json`` reads them, None where they are not JSON or have a key twice."""
    try:
        return json.loads(data.decode(errors="replace"), object_pairs_hook=_once)
    except (ValueError, RecursionError, _Doubled):
        return None


def _read_all(chunks: list[bytes]) -> list[object]:
    reader, found = frames.FrameReader(), list[object]()
    try:
        for chunk in chunks:
            reader.feed(chunk)
            while (frame := reader.next()) is not None:
                found.append(frame)
    except frames.BadFrame as bad:
        found.append(bad.cause)
    return found


def check_frames(data: bytes) -> None:
    """Frames do not depend on how their bytes are divided."""
    if not data:
        return
    size = data[0] or 256
    data = data[1:]
    found = _read_all([data])
    assert found == _read_all([data[at : at + size] for at in range(0, len(data), size)])
    for frame in found:
        if isinstance(frame, frames.Frame):
            check_header(bytes([frame.form]) + frame.header)


def check_header(data: bytes) -> None:
    """A header is read or refused, and its known bytes identify the same request."""
    if not data:
        return
    form, header = data[0] % 2, data[1:]
    try:
        command = frames.read_header(form, header)
    except frames.BadFrame:
        return
    assert frames.read_header(frames.JSON_FORM, frames.encode(command)[8:]) == command
    cut = frames.cut_opaque(form, header)
    if cut is None or cut[1] != b"%d" % command.opaque or not command.opaque or "opaque" in command.ext:
        return
    # A request is identified by its header without the opaque: with another opaque it must be the same request.
    for opaque in (0, -1, 2**31 - 1):
        if form == frames.BINARY_FORM:
            other = header[:5] + opaque.to_bytes(4, "big", signed=True) + header[9:]
        else:
            other = header.replace(b'"opaque":' + cut[1], b'"opaque":%d' % opaque)
        assert frames.cut_opaque(form, other) == (cut[0], b"%d" % opaque)
        again = frames.read_header(form, other)
        assert again.opaque == opaque
        again.opaque = command.opaque
        assert again == command


def _topics_of(data: bytes) -> dict[str, register_body.TopicConfig] | None:
    found: dict[str, register_body.TopicConfig] = {}
    try:
        for topics in register_body.RegisterBody().slices(data, version=frames.OWN_VERSION):
            found.update(topics)
    except register_body.UnreadableBody:
        return None
    return found


def check_body(data: bytes) -> None:
    """A registration has the topics that ``json`` finds in it."""
    start, end = register_body.mapping_version_span(data)
    assert 0 <= start <= end <= len(data)
    found = _topics_of(data)
    whole = _strict_json(data) if len(data) <= SHORT_BYTES and data[:1] != b"x" else None
    if not isinstance(whole, dict):
        return
    wrappers = [each for each in (whole, whole.get("topicConfigSerializeWrapper")) if isinstance(each, dict)]
    try:
        for wrapper in wrappers:
            register_body.data_version(wrapper.get("dataVersion"))
    except register_body.UnreadableBody:
        assert found is None
        return
    tables = [table for wrapper in wrappers if isinstance(table := wrapper.get("topicConfigTable"), dict)]
    expected = {}
    for table in tables:
        for topic, fields in table.items():
            if not isinstance(fields, dict):
                continue
            names = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
            defaults = register_body.TopicConfig()[: len(names)]
            numbers = [fields.get(name, default) for name, default in zip(names, defaults, strict=True)]
            if all(type(number) is int for number in numbers):
                expected[topic] = register_body.TopicConfig(*numbers)
    if len(tables) == 1:
        assert found == expected
    else:
        assert found is not None


def check_compressed(data: bytes) -> None:
    """A compressed registration is read or refused."""
    _topics_of(zlib.compress(data, 1))
    _topics_of(b"x" + data)


def check_short_bodies(data: bytes) -> None:
    """Upstream's JSON is read as ``json`` does where both can."""
    with contextlib.suppress(register_body.UnreadableBody):
        register_body.read_data_version(data)
    try:
        read: object = bodies.read_json(data)
    except ValueError:
        read = ValueError
    if (expected := _strict_json(data)) is not None and data.isascii():
        # As text, since a NaN is not equal to itself.
        assert repr(read) == repr(expected)


CHECKS = (check_frames, check_header, check_body, check_compressed, check_short_bodies)


def check(data: bytes) -> None:
    """Run the check named by the first byte with the remaining bytes."""
    if data:
        CHECKS[data[0] % len(CHECKS)](data[1:])


def seeds() -> list[bytes]:
    """Return the recorded frames as inputs: the number of a check, and its bytes."""
    found = []
    for name in recorded.REQUESTS:
        for data in (recorded.request(name), recorded.response(name)):
            if data is None:
                continue
            found.append(b"\x00\x00" + data)
            for frame in recorded.frames(data):
                found.append(bytes([1, frame.form]) + frame.header)
                command = frames.read_header(frame.form, frame.header)
                found.append(bytes([1, frames.BINARY_FORM]) + frames.encode(command, form=frames.BINARY_FORM)[8:])
                found += [bytes([check]) + frame.body for check in (2, 4) if frame.body]
    version = b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}'
    texts = [version, b"\x00\x00\x00\x01", b'TBW102 8 8 7 SINGLE_TAG {"a":"b"}', b"[]"]
    sized = b"".join(text if text[:1] == b"\x00" else struct.pack(">i", len(text)) + text for text in texts)
    return [*found, b"\x03" + sized, b"\x03" + zlib.compress(sized)[1:]]
