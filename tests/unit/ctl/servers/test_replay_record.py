"""Entries of the record of replays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.names import name_problem
from pointsman_ctl.servers.number_ranges import NumberRange
from pointsman_ctl.servers.replay_record import (
    MAX_ENTRY_BYTES,
    ReplayEntry,
    of_file,
    of_queue,
    read_body,
    record_topic,
    to_body,
)

ENTRY = ReplayEntry("0" * 32, "ann@host", of_queue(3), (NumberRange(0, 31), NumberRange(40, 40)))
DOCUMENT: dict[str, Any] = json.loads(to_body(ENTRY))


def test_an_entry_is_read_as_it_was_written() -> None:
    assert read_body(to_body(ENTRY)) == ENTRY
    assert DOCUMENT["source"] == "queue 3"
    assert of_file("ab12") == "file ab12"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b" " * MAX_ENTRY_BYTES + to_body(ENTRY),
        *(
            json.dumps(DOCUMENT | change).encode()
            for change in (
                {"format": 2},
                {"run": 7},
                {"run": "0" * 33},
                {"source": "queue " + "1" * 80},
                {"numbers": None},
                {"numbers": [[1]]},
                {"numbers": [[1, 0]]},
                {"numbers": [[True, 5]]},
                {"numbers": [[0, 2**63]]},
                {"numbers": [["0", "1"]]},
            )
        ),
    ],
)
def test_another_message_in_its_topic_is_not_an_entry(body: bytes) -> None:
    assert read_body(body) is None


def test_the_topic_of_a_long_group_has_a_valid_name_that_no_other_group_has() -> None:
    assert record_topic("billing") == "%RETRY%CID_RMQ_SYS_POINTSMAN_DLQ_billing"
    long = ["g" * 94, "g" * 95, "g" * 119 + "a", "g" * 119 + "b"]
    topics = [record_topic(group) for group in long]
    assert len(set(topics)) == len(long)
    assert [name_problem(topic) for topic in topics] == [None] * len(long)
