"""The shares that ``order-topic set`` shows, compared with the maps that producers use."""

from __future__ import annotations

import pytest

from pointsman_client import HashRing, MessageQueue, ModuloMap
from pointsman_ctl.output.key_moves import KeyMoves, largest
from tests.kit.client.queues import queues

KEYS = [f"key-{number}" for number in range(3_000)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (queues(a=4, b=4), queues(a=4, b=4, c=4)),
        (queues(a=8, b=8), queues(a=8, b=4)),
        (queues(a=6, b=6), queues(b=6, c=6)),
        (queues(a=4, b=4), tuple(reversed(queues(a=4, b=4)))),
        (queues(a=4), queues(a=4)),
    ],
    ids=["added", "removed", "replaced", "another order", "equal"],
)
def test_the_shares_are_those_of_the_maps(before: tuple[MessageQueue, ...], after: tuple[MessageQueue, ...]) -> None:
    moves = KeyMoves(before, after)
    for share, rule in ((moves.hash_ring, HashRing()), (moves.modulo, ModuloMap())):
        old, new = rule.over(before), rule.over(after)
        moved = sum(old.queue_of(key) != new.queue_of(key) for key in KEYS) / len(KEYS)
        assert moved == pytest.approx(share, abs=0.06)
    assert moves.moves_keys == (before != after)


def test_without_queues_before_no_key_moves_and_without_queues_after_all_do() -> None:
    assert (KeyMoves((), queues(a=4)).moves_keys, KeyMoves((), queues(a=4)).hash_ring) == (False, 0.0)
    gone = KeyMoves(queues(a=4), ())
    assert (gone.moves_keys, gone.hash_ring, gone.modulo) == (True, 1.0, 1.0)


def test_of_several_name_servers_the_one_that_moves_most_is_shown() -> None:
    few, many = KeyMoves(queues(a=4), queues(a=5)), KeyMoves(queues(a=4), queues(b=4))
    assert largest([few, many, KeyMoves((), ())]) == many
    assert largest([KeyMoves(queues(a=4), queues(a=4))]) is None
