"""The life cycle of a node: its transitions, the end of its warm-up, and its history rows."""

from __future__ import annotations

import pytest

from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import NodeState

START = 1_000.0
WARM_UP = 45.0


def warming(*, warm_up_seconds: float = WARM_UP, restored: int = 0, complete: bool = True) -> NodeLifecycle:
    lifecycle = NodeLifecycle(started_at=START, warm_up_seconds=warm_up_seconds)
    lifecycle.restored(restored, complete=complete)
    return lifecycle


def after(*steps: str) -> tuple[NodeLifecycle, list[Event]]:
    """A node after these steps, and its history; "over" is the end of its warm-up."""
    lifecycle, events = warming(), list[Event]()
    now = START
    for step in steps:
        match step:
            case "over":
                now = START + WARM_UP
            case "sweep":
                events += lifecycle.end_warm_up(now=now, still_provisional=0)
            case "drain":
                events += lifecycle.drain(by="ann")
            case "undrain":
                events += lifecycle.undrain(by="ann", now=now, still_provisional=0)
            case "stop":
                lifecycle.stop()
    return lifecycle, events


def short(event: Event) -> str:
    return {"READY": "READY", "DRAINING": f"draining={event.detail.get('draining')}"}[
        event.kind.removeprefix("NAMESRV_")
    ]


READY = ("over", "sweep")


@pytest.mark.parametrize(
    ("steps", "state", "events"),
    [
        pytest.param([], "WARMING", [], id="just-started"),
        pytest.param(["sweep"], "WARMING", [], id="the-warm-up-lasts"),
        pytest.param(["over"], "WARMING", [], id="over-and-not-swept"),
        pytest.param(READY, "READY", ["READY"], id="ready"),
        pytest.param([*READY, "sweep"], "READY", ["READY"], id="ready-once"),
        pytest.param([*READY, "undrain"], "READY", ["READY"], id="ready-and-undrained"),
        pytest.param([*READY, "drain"], "DRAINING", ["READY", "draining=True"], id="drained"),
        pytest.param([*READY, "drain", "drain"], "DRAINING", ["READY", "draining=True"], id="drained-once"),
        pytest.param([*READY, "drain", "sweep"], "DRAINING", ["READY", "draining=True"], id="a-sweep-undrains-nothing"),
        pytest.param(
            [*READY, "drain", "undrain"], "READY", ["READY", "draining=True", "draining=False"], id="undrained"
        ),
        pytest.param(["undrain"], "WARMING", [], id="undrained-while-warming"),
        pytest.param(["over", "undrain"], "WARMING", [], id="an-undrain-ends-no-warm-up"),
        pytest.param(["drain"], "DRAINING", ["draining=True"], id="drained-while-warming"),
        pytest.param(["drain", *READY], "DRAINING", ["draining=True"], id="drained-beyond-the-warm-up"),
        pytest.param(
            ["drain", "undrain"], "WARMING", ["draining=True", "draining=False"], id="undrained-and-still-warming"
        ),
        pytest.param(
            ["drain", "undrain", *READY],
            "READY",
            ["draining=True", "draining=False", "READY"],
            id="undrained-and-ready-later",
        ),
        pytest.param(
            ["drain", "over", "undrain"],
            "READY",
            ["draining=True", "READY", "draining=False"],
            id="undrained-after-the-warm-up",
        ),
    ],
)
def test_the_state_after_each_sequence_of_steps(steps: list[str], state: str, events: list[str]) -> None:
    lifecycle, recorded = after(*steps)
    assert (lifecycle.state, lifecycle.is_stopping) == (state, False)
    assert [short(event) for event in recorded] == events


@pytest.mark.parametrize("before", [[], READY, ["drain"], ["stop"]], ids=["warming", "ready", "draining", "stopping"])
@pytest.mark.parametrize("step", ["sweep", "drain", "undrain", "stop"])
def test_a_node_that_stops_stays_draining(before: list[str], step: str) -> None:
    lifecycle, events = after(*before, "stop", "over", step)
    assert (lifecycle.state, lifecycle.is_stopping) == (NodeState.DRAINING, True)
    assert events == after(*before)[1]


def test_a_drain_names_the_operator() -> None:
    _, (event,) = after("drain")
    assert (event.reason, event.detail) == ("ADMIN", {"draining": True, "by": "ann"})


@pytest.mark.parametrize(
    ("step", "calls"),
    [("drain", 1), ("undrain", 0), ("sweep", 1), ("stop", 1)],
)
def test_each_change_is_reported_to_the_listeners_and_nothing_else_is(step: str, calls: int) -> None:
    lifecycle = warming()
    seen: list[NodeState] = []
    lifecycle.on_change(lambda: seen.append(lifecycle.state))
    match step:
        case "drain":
            lifecycle.drain(by="ann")
        case "undrain":
            lifecycle.undrain(by="ann", now=START, still_provisional=0)
        case "sweep":
            lifecycle.end_warm_up(now=START + WARM_UP, still_provisional=0)
        case "stop":
            lifecycle.stop()
    assert seen == [lifecycle.state] * calls


# --- the warm-up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lifecycle", "seconds", "still_provisional", "ready"),
    [
        pytest.param(warming(restored=3), 4.9, 0, False, id="all-registered-but-others-may-be-reconnecting"),
        pytest.param(warming(restored=3), 5.0, 0, True, id="all-registered"),
        pytest.param(warming(restored=3), 5.0, 1, False, id="one-missing"),
        pytest.param(warming(restored=3), 44.9, 1, False, id="one-missing-for-long"),
        pytest.param(warming(restored=3), 45.0, 1, True, id="at-the-latest"),
        pytest.param(warming(), 44.9, 0, False, id="no-broker-restored"),
        pytest.param(warming(), 45.0, 0, True, id="no-broker-restored-at-the-latest"),
        pytest.param(warming(restored=2, complete=False), 44.9, 0, False, id="a-part-was-lost"),
        pytest.param(warming(restored=2, complete=False), 45.0, 0, True, id="a-part-was-lost-at-the-latest"),
        pytest.param(warming(warm_up_seconds=2.0, restored=3), 1.9, 0, False, id="a-short-one"),
        pytest.param(warming(warm_up_seconds=2.0, restored=3), 2.0, 3, True, id="a-short-one-at-the-latest"),
        pytest.param(warming(warm_up_seconds=0.0, restored=3), 0.0, 3, True, id="none"),
    ],
)
def test_when_the_warm_up_is_over(
    lifecycle: NodeLifecycle, seconds: float, still_provisional: int, ready: bool
) -> None:
    lifecycle.end_warm_up(now=START + seconds, still_provisional=still_provisional)
    assert (lifecycle.state is NodeState.READY) is ready


def test_once_it_is_over_it_stays_over() -> None:
    lifecycle = warming(restored=3)
    lifecycle.end_warm_up(now=START + 6.0, still_provisional=0)
    lifecycle.drain(by="ann")
    lifecycle.undrain(by="ann", now=START + 7.0, still_provisional=1)
    assert lifecycle.state is NodeState.READY
