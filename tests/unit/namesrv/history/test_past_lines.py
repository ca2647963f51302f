"""What is seen of a line of history without parsing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman.history.row_format import FIELDS
from pointsman_namesrv.history.past_lines import NOT_INDEXED, lines_of, read_line
from tests.spark.histories import NameServer, Row, broker, moment


def text_of(row: Row) -> bytes:
    """The line as a name server writes it."""
    return json.dumps({name: row.get(name) for name in FIELDS}).encode()


@pytest.mark.parametrize("name", ["a", 'x", "broker_id": 7, "y', '"broker_id": 7,', "\\", '\\"broker_id": 7,'])
@pytest.mark.parametrize("broker_id", [0, 3, None])
def test_the_id_of_a_replica_is_that_of_the_parsed_row(name: str, broker_id: int | None) -> None:
    about = broker(name) | {"broker_id": broker_id, "broker_addr": '"broker_id": 9,'}
    row = NameServer().say("CHECKPOINT", moment(1), about, detail={"broker_id": 8})
    for text in (text_of(row), json.dumps(row).encode()):
        line = read_line(text)
        assert line is not None
        assert line.broker_id == broker_id


def test_frequent_lines_are_left_out_and_no_others(tmp_path: Path) -> None:
    server = NameServer().start(moment(0))
    for event in (*sorted(NOT_INDEXED), "REGISTERED", "CHECKPOINT", "TOPICS", "LATE_HEARTBEAT"):
        server.say(event, moment(1), broker("a"), detail={"event": "HEARTBEATS"})
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(text_of(row) + b"\n" for row in server.rows))

    every = [line.event for line in lines_of(path)]
    assert set(every) > NOT_INDEXED
    assert [line.event for line in lines_of(path, with_frequent=False)] == [
        event for event in every if event not in NOT_INDEXED
    ]
