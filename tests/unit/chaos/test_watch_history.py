"""The checker of watch histories: it accepts what a watch promises, and detects each violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.watch_history import GONE, Opened, Record, Seen, Synced, Truth, faults, read, to_line

BOOT, NEXT_BOOT = 11, 12
TRUTH: Truth = {BOOT: {"orders": "d3", "pay": GONE}, NEXT_BOOT: {"orders": "d3", "pay": GONE}}


def seen(topic: str, counter: int, digest: str, *, connection: int = 1, boot: int = BOOT, client: str = "c") -> Seen:
    return Seen(client, connection, boot, topic, counter, digest)


GOOD: list[Record] = [
    Opened("c", 1, ("orders", "pay")),
    seen("orders", 1, "d1"),
    seen("pay", 2, "p1"),
    Synced("c", 1),
    seen("orders", 4, "d2"),
    seen("pay", 5, GONE),
    # The connection broke; the same node, which knows the client's revision of one topic.
    Opened("c", 2, ("orders", "pay"), known=("orders", "pay")),
    seen("orders", 7, "d3", connection=2),
    Synced("c", 2, unchanged=1),
]


def test_a_history_that_keeps_every_promise_passes() -> None:
    assert faults(GOOD, TRUTH) == []


def test_another_boot_starts_over_and_its_counters_may_be_lower() -> None:
    again: list[Record] = [
        Opened("c", 3, ("orders", "pay"), known=("orders", "pay")),
        seen("orders", 1, "d3", connection=3, boot=NEXT_BOOT),
        seen("pay", 1, GONE, connection=3, boot=NEXT_BOOT),
        Synced("c", 3),
    ]
    assert faults([*GOOD, *again], TRUTH) == []


def test_a_warming_node_may_omit_a_topic_and_send_it_later() -> None:
    history: list[Record] = [
        Opened("c", 1, ("orders", "pay"), ready=False),
        Synced("c", 1),
        seen("orders", 3, "d3"),
        seen("pay", 3, GONE),
    ]
    assert faults(history, TRUTH) == []


@pytest.mark.parametrize(
    ("history", "said"),
    [
        pytest.param(
            [*GOOD[:-2], Synced("c", 2, unchanged=2)], "lost the final state of orders", id="lost final state"
        ),
        pytest.param(
            [*GOOD, seen("orders", 6, "d3", connection=2)], "orders went back", id="going back on one connection"
        ),
        pytest.param(
            [*GOOD, Opened("c", 3, ("orders",)), seen("orders", 4, "d3", connection=3), Synced("c", 3)],
            "orders went back",
            id="going back over a reconnect",
        ),
        pytest.param(
            [*GOOD[:6], seen("pay", 4, "p1"), seen("pay", 6, GONE), seen("orders", 6, "d3")],
            "pay came back from before its end",
            id="resurrected topic",
        ),
        pytest.param(
            [Opened("c", 1, ("orders", "pay")), seen("orders", 3, "d3"), Synced("c", 1), seen("pay", 5, GONE)],
            r"the first state of connection 1 misses topics: \['pay'\]",
            id="first state without a topic",
        ),
        pytest.param(
            [*GOOD[:-1], Synced("c", 2)], r"connection 2 misses topics: \['pay'\]", id="known topic not counted"
        ),
        pytest.param(
            [*GOOD[:-1], Synced("c", 2, unchanged=2)], "2 topics unchanged", id="more unchanged than were known"
        ),
        pytest.param(
            [
                *GOOD,
                Opened("c", 3, ("orders", "pay"), known=("pay",)),
                seen("orders", 1, "d3", connection=3, boot=NEXT_BOOT),
                Synced("c", 3, unchanged=1),
            ],
            "pay was known from another boot only",
            id="foreign boot taken for known",
        ),
        pytest.param([*GOOD, seen("orders", 7, "d3", connection=2)], "twice at one revision", id="sent twice"),
        pytest.param(
            [
                *GOOD,
                Opened("other", 1, ("orders",)),
                seen("orders", 4, "d3", client="other"),
                Synced("other", 1),
            ],
            "two states at one revision",
            id="two clients with different states",
        ),
        pytest.param([*GOOD, Opened("c", 3, ("orders",))], "never had its first state", id="never synced"),
        pytest.param([*GOOD, seen("orders", 9, "d3", connection=1)], "outside its connection", id="stray record"),
        pytest.param(
            [Opened("c", 1, ("orders",), ready=False), Synced("c", 1)], "orders was never seen", id="silence for ever"
        ),
    ],
)
def test_a_broken_promise_is_named(history: list[Record], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert faults(history, TRUTH) == []


def test_the_last_state_of_a_node_without_a_query_proves_nothing() -> None:
    assert any("no fresh query" in fault for fault in faults(GOOD, {NEXT_BOOT: TRUTH[NEXT_BOOT]}))


def test_records_survive_the_disk_and_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text("".join(f"{to_line(record)}\n" for record in GOOD) + to_line(GOOD[0])[:20])
    assert list(read(file)) == GOOD
