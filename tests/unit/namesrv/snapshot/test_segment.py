"""The form of a segment: whole or refused, whatever happened to its bytes."""

from __future__ import annotations

import pytest

from pointsman_namesrv.core.model import Position
from pointsman_namesrv.snapshot.segment import HEADER_SIZE, SegmentRefused, broker_name_of, seal, unseal

CONTENT = b"what a broker said of itself"


def test_what_was_sealed_comes_out_again() -> None:
    assert unseal(seal(CONTENT)) == CONTENT
    assert unseal(seal(b"")) == b""


def test_each_flipped_byte_is_found() -> None:
    whole = seal(CONTENT)
    for offset in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            broken = bytearray(whole)
            broken[offset] ^= flip
            with pytest.raises(SegmentRefused):
                unseal(bytes(broken))


def test_each_lost_or_added_end_is_found() -> None:
    whole = seal(CONTENT)
    for length in range(len(whole)):
        with pytest.raises(SegmentRefused):
            unseal(whole[:length])
    with pytest.raises(SegmentRefused, match=r"has 75 bytes, its header says 74"):
        unseal(whole + b"\0")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"PMSS", f"ends within its header, after 4 of {HEADER_SIZE} bytes", id="torn-header"),
        pytest.param(b"\x89PNG" + bytes(100), r"is no segment of a snapshot: it begins with b'\\x89PNG'", id="foreign"),
        pytest.param(b"PMSS\0\2" + bytes(100), "has format version 2, this server reads 1", id="another-version"),
        pytest.param(seal(CONTENT)[:-1] + b"?", "is damaged: its checksum does not fit", id="damaged"),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, problem: str) -> None:
    with pytest.raises(SegmentRefused, match=problem):
        unseal(data)


def test_each_place_has_a_file_of_its_own_whatever_stands_in_its_names() -> None:
    places = [Position("c", "a", 0), Position("c", "a", 1), Position("c", "a|1", 0), Position("ca", "", 0)]
    names = {broker_name_of(place) for place in places}
    assert len(names) == len(places)
    assert all(name.isascii() and "/" not in name for name in names)
