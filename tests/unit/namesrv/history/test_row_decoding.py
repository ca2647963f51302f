"""A row of the history gives its event back; anything else is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import GroupKey, Reason
from pointsman_namesrv.core.replica_state import Phase, ReplicaState
from pointsman_namesrv.history.row import Record, to_lines
from pointsman_namesrv.history.row_decoding import RowInvalid, to_record
from tests.kit.name_server.events import broker_event, facts

LOST = replace(facts(), state=ReplicaState(Phase.GONE, Reason.SILENCE, planned=True), state_for=0.0)
UNKNOWN = replace(facts(), generation=None, incarnation=None, data_version=None, state_for=None)
DETAIL = {"text": "ä", "number": 1.5, "list": [1, {"a": None}], "flag": True}


def row_of(event: Event) -> dict[str, Any]:
    record = Record(event, ManualClock().utc_now(), 1_234, 7)
    (line,) = to_lines(record, node="n:1", boot_id="b1")
    return dict(json.loads(line))


@pytest.mark.parametrize(
    "event",
    [
        Event(kind=EventKind.EXPIRED, reason=Reason.SILENCE, broker=LOST, interval=120.5, detail=DETAIL),
        Event(kind=EventKind.REGISTERED, broker=replace(facts(), state=ReplicaState(Phase.UP))),
        Event(kind=EventKind.SUSPECTED, reason=Reason.SILENCE, broker=UNKNOWN),
        Event(kind=EventKind.GUARD_ON, reason=Reason.SHARE, group=GroupKey("c1", "")),
        Event(kind=EventKind.PERM_CHANGED, reason=Reason.ADMIN, group=GroupKey("c1", "a"), detail={"writable": False}),
        Event(kind=EventKind.NAMESRV_STARTED, detail={"version": "1"}),
    ],
    ids=lambda event: event.kind,
)
def test_an_event_is_the_same_after_its_row(event: Event) -> None:
    record = to_record(row_of(event), run=-3)
    expected = event
    if event.broker is not None:  # the reason of a state is that of its event
        state = event.broker.state._replace(reason=event.reason)
        expected = replace(event, broker=replace(event.broker, state=state))
    assert record == Record(expected, ManualClock().utc_now(), 1_234, 7, run=-3, boot_id="b1", node="n:1")
    assert record.order == (-3, 7)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 1},
        {"event": "NEW_EVENT"},
        {"reason": "NEW_REASON"},
        {"state": "NEW_STATE"},
        {"event_at": "yesterday"},
        {"event_at": 5},
        {"seq": "7"},
        {"cluster": None},
        {"broker_id": 0.5},
        {"generation": "x"},
        {"data_version": "1.2.3.4"},
        {"detail": None},
        {"interval_ms": "1"},
    ],
    ids=str,
)
def test_another_row_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RowInvalid):
        to_record(row_of(broker_event()) | change, run=-1)


def test_a_row_without_a_field_is_refused() -> None:
    row = row_of(broker_event())
    for name in row:
        with pytest.raises(RowInvalid):
            to_record({key: value for key, value in row.items() if key != name}, run=-1)
