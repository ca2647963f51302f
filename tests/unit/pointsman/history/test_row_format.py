"""Lines of history: which are rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.history.row_format import Row, good_row
from tests.spark.histories import MIDNIGHT, NameServer, broker, moment

DAY = MIDNIGHT.date()


def registered(**fields: Any) -> Row:
    return NameServer().say("REGISTERED", moment(1.5), broker("a"), **fields)


def test_a_row_has_its_fields_its_day_and_its_time() -> None:
    row = good_row(f" {json.dumps(registered(detail={'a': 1}))}\r\n")

    assert row is not None
    assert (row["dt"], row["at"], row["detail"]) == (DAY, 1_772_409_601_500_000, {"a": 1})
    assert (row["broker_name"], row["zone"]) == ("a", None)


def test_a_text_that_is_not_one_is_kept_as_json() -> None:
    row = good_row(json.dumps(registered(host={"n": [1]}, zone=7)))

    assert row is not None
    assert (row["host"], row["zone"]) == ('{"n":[1]}', "7")


@pytest.mark.parametrize(
    "fields",
    [
        {"schema_version": 1},
        {"node": None},
        {"seq": 0},
        {"seq": 1.5},
        {"seq": True},
        {"seq": 2**63},
        {"schema_version": 2**31},
        {"planned": 1},
        {"event": "registered"},
        {"event_at": "2026-03-02 00:00:00Z"},
        {"event_at": "2026-13-02T00:00:00Z"},
        {"broker_id": None},
        {"state": None},
        {"state": "BETTER"},
        {"event": "TOPICS", "state": None},
    ],
    ids=str,
)
def test_a_row_against_the_rules_is_left_out(fields: Row) -> None:
    assert good_row(json.dumps(registered() | fields)) is None


@pytest.mark.parametrize("line", ["", "[]", "7", "{", "\ufeff{}", "{'a': 1}", "{}{}", "{} x"])
def test_a_line_that_is_not_one_object_is_left_out(line: str) -> None:
    assert good_row(line) is None
