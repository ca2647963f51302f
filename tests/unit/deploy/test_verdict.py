"""The demo's verdict: it accepts the right report, and notices each kind of wrong one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deploy.demo.verdict import PROCESS_DIED, STREAM_BROKEN, Deeds, faults, longest_delay, message_faults, wipe_faults

KILLED_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
FLAPPING, QUIET = ("broker-c", 0), ("broker-a", 1)
ALL = {FLAPPING, QUIET}


def deeds() -> Deeds:
    made = Deeds(flapping=FLAPPING)
    for second in (0, 10):
        made.note(FLAPPING, KILLED_AT + timedelta(seconds=second), cause=PROCESS_DIED)
    return made


def entry(name: str, broker_id: int, kind: str, *starts: float) -> dict[str, Any]:
    outages = [
        {
            "start_at": (KILLED_AT + timedelta(seconds=at)).isoformat(),
            "cause": PROCESS_DIED,
            "reason": "REFUSED",
            "evidence": "probe refused, new process afterwards",
        }
        for at in starts
    ]
    return {
        "broker_name": name,
        "broker_id": broker_id,
        "class": kind,
        "down_count": len(starts),
        "incident_downs": 0,
        "outages": outages,
    }


def report() -> dict[str, Any]:
    none: dict[str, Any] = {"rows": [], "in_all": 0}
    brokers = [entry(*FLAPPING, "flapping", 1.0, 12.9), entry(*QUIET, "healthy")]
    return {"brokers": brokers, "incidents": dict(none), "rolling_restarts": dict(none)}


def test_a_correct_report_passes() -> None:
    assert list(faults(report(), deeds(), expected=ALL)) == []
    assert longest_delay(report(), deeds()) == pytest.approx(2.9)


def _swap(found: dict[str, Any]) -> None:
    found["brokers"].reverse()


def _lose(found: dict[str, Any]) -> None:
    found["brokers"].pop()


def _class(found: dict[str, Any]) -> None:
    found["brokers"][0]["class"] = "degraded"


def _count(found: dict[str, Any]) -> None:
    found["brokers"][0]["down_count"] = 3


def _late(found: dict[str, Any]) -> None:
    found["brokers"][0] = entry(*FLAPPING, "flapping", 1.0, 30.1)


def _early(found: dict[str, Any]) -> None:
    found["brokers"][0] = entry(*FLAPPING, "flapping", -0.1, 12.0)


def _blame(found: dict[str, Any]) -> None:
    found["brokers"][1] = entry(*QUIET, "degraded", 5.0)


def _incident(found: dict[str, Any]) -> None:
    found["incidents"]["rows"] = [{"brokers": 3, "from_at": "12:00", "cause": "network"}]


def _rolling(found: dict[str, Any]) -> None:
    found["rolling_restarts"]["rows"] = [{"brokers": 3, "from_at": "12:00"}]


def _cause(found: dict[str, Any]) -> None:
    found["brokers"][0]["outages"][1]["cause"] = "network"


def _forgive(found: dict[str, Any]) -> None:
    found["brokers"][0]["incident_downs"] = 2


def _unknown(found: dict[str, Any]) -> None:
    found["brokers"][1]["outages"] = entry(*QUIET, "healthy", 5.0)["outages"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_swap, "broker-a/1 tops the list"),
        (_lose, "the report lists"),
        (_class, "broker-c/0 is classed degraded"),
        (_count, "counts 3 downs, 2 kills"),
        (_late, "outage 2 of broker-c/0 starts 20.100 s after its kill"),
        (_early, "outage 1 of broker-c/0 starts -0.100 s after its kill"),
        (_blame, "broker-a/1 counts 1 downs, 0 kills"),
        (_incident, "an incident of 3 brokers from 12:00 (cause network)"),
        (_rolling, "a rolling restart of 3 brokers from 12:00"),
        (_cause, "outage 2 of broker-c/0 has the cause network (probe refused, new process afterwards)"),
        (_forgive, "2 outages of broker-c/0 count against an incident"),
        (_unknown, "broker-a/1 lists 1 outages, 0 kills"),
    ],
)
def test_a_wrong_report_is_noticed(spoil: Callable[[dict[str, Any]], None], message: str) -> None:
    found = report()
    spoil(found)
    assert any(message in line for line in faults(found, deeds(), expected=ALL))


def test_without_a_flapping_broker_none_may_be_classified_as_flapping() -> None:
    quiet = Deeds(flapping=None, kills=deeds().kills)
    found = report()
    assert list(faults(found, quiet, expected=ALL)) == ["broker-c/0 is classed flapping"]
    found["brokers"] = [entry(*QUIET, "healthy"), entry(*FLAPPING, "degraded", 1.0, 12.9)]
    assert list(faults(found, quiet, expected=ALL)) == []


def test_an_outage_with_another_reason_than_the_sign_that_was_given_is_noticed() -> None:
    made = Deeds(flapping=FLAPPING)
    for second, reason in ((0, "REFUSED"), (10, STREAM_BROKEN)):
        made.note(FLAPPING, KILLED_AT + timedelta(seconds=second), cause=PROCESS_DIED, reason=reason)
    (message,) = faults(report(), made, expected=ALL)
    assert message == "outage 2 of broker-c/0 has the reason REFUSED, it was STREAM_BROKEN"


def changed(node: str, *, writable: bool, broker: str = "broker-b", reason: str = "ADMIN") -> dict[str, Any]:
    detail = {"writable": writable}
    return {"node": node, "event": "PERM_CHANGED", "broker_name": broker, "reason": reason, "detail": detail}


WIPED = [changed(node, writable=writable) for writable in (False, True) for node in ("one", "two")]


def test_a_wipe_and_its_end_in_every_history_pass() -> None:
    beside: dict[str, Any] = {
        "node": "one",
        "event": "REGISTERED",
        "broker_name": "broker-b",
        "reason": None,
        "detail": {},
    }
    assert list(wipe_faults([beside, *WIPED], "broker-b", nodes=("one", "two"))) == []


@pytest.mark.parametrize(
    "rows",
    [
        [],
        WIPED[:3],
        WIPED[::-1],
        [*WIPED, changed("two", writable=False)],
        [*WIPED[:3], changed("two", writable=True, reason="DATA_VERSION")],
        [*WIPED, changed("two", writable=True, broker="broker-a")],
    ],
    ids=["none", "not given back", "the wrong way round", "wiped again", "ended by the broker", "another broker too"],
)
def test_a_history_other_than_one_wipe_is_noticed(rows: list[dict[str, Any]]) -> None:
    assert any("the history of two has changes" in line for line in wipe_faults(rows, "broker-b", nodes=("one", "two")))


@pytest.mark.parametrize(
    ("produced", "unsure", "consumed", "message"),
    [
        ({"m1", "m2"}, [], ["m1", "m2", "m1"], []),
        ({"m1"}, ["m2"], ["m1", "m2"], []),
        ({"m1", "m2"}, ["m2"], ["m1"], ["1 messages were produced and not consumed, m2 is one of them"]),
        ({"m1"}, [], ["m1", "m3"], ["1 messages were consumed and not produced, m3 is one of them"]),
    ],
)
def test_messages_must_be_consumed_as_they_were_produced(
    produced: set[str], unsure: list[str], consumed: list[str], message: list[str]
) -> None:
    assert list(message_faults(produced, unsure, consumed)) == message
