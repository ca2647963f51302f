"""Strategies by their configured name."""

from __future__ import annotations

import pytest

from pointsman_client.core.allocation import STRATEGIES, to_strategy
from pointsman_client.errors import AllocationError, InvalidOptionError


@pytest.mark.parametrize(
    ("name", "options", "made"),
    [
        ("averagely", {}, "AVG"),
        ("averagely_by_circle", {}, "AVG_BY_CIRCLE"),
        ("by_config", {"queues": ()}, "CONFIG"),
        ("machine_room", {"rooms": ["r1"]}, "MACHINE_ROOM"),
        ("machine_room_nearby", {"inner": "consistent_hash"}, "MACHINE_ROOM_NEARBY-CONSISTENT_HASH"),
        ("consistent_hash", {"virtual_nodes": 100}, "CONSISTENT_HASH"),
    ],
)
def test_the_librarys_name_and_rocketmqs_name_make_the_same_strategy(
    name: str, options: dict[str, object], made: str
) -> None:
    assert name in STRATEGIES
    assert to_strategy(name, **options).name == made
    assert to_strategy(made.partition("-")[0], **options).name == made


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidOptionError, match="'pinned' must be one of averagely, averagely_by_circle, by_config"):
        to_strategy("pinned")
    with pytest.raises(InvalidOptionError, match=r"has invalid arguments: .*rooms"):
        to_strategy("machine_room")
    with pytest.raises(AllocationError, match="illegal virtualNodeCnt :-2"):
        to_strategy("consistent_hash", virtual_nodes=-2)
