"""The news of a broker's drain, as lines and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.text import Text

from pointsman.v1 import agent_service_pb2 as wire
from pointsman_client.ctl.layout import ALARM, WARNING
from pointsman_client.ctl.wording import duration_words, printable
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.wire_time import seconds_of

_STATE_STYLES = {"DONE": "green", "TIMED_OUT": WARNING, "FAILED": ALARM}
INCOMPLETE = frozenset({"TIMED_OUT", "FAILED"})


def step_words(step: wire.DrainStep.ValueType) -> str:
    """Name a step; one that is newer than this program is a number."""
    known = step in wire.DrainStep.values()
    return wire.DrainStep.Name(step).removeprefix("DRAIN_STEP_") if known else str(step)


def step_state_words(state: wire.DrainStepState.ValueType) -> str:
    """Name how a step is; a state that is newer than this program is a number."""
    known = state in wire.DrainStepState.values()
    return wire.DrainStepState.Name(state).removeprefix("DRAIN_STEP_STATE_") if known else str(state)


def drain_parts(news: wire.DrainResponse) -> Iterable[RenderableType]:
    """Show one piece of news, and below it what name servers said, where they were asked."""
    state = step_state_words(news.state)
    line = Text(f"{duration_words(seconds_of(news.elapsed)):>8}  {step_words(news.step):<18} ")
    line.append(state, style=_STATE_STYLES.get(state, ""))
    if news.detail:
        line.append(f": {printable(news.detail)}")
    yield line
    for said in news.name_servers:
        words = printable(f"{said.addr}: {said.answer or ('done' if said.done else 'not done')}")
        yield Text(f"{'':10}{words}", style="dim" if said.done else ALARM)


def to_drain_document(agent: str, news: wire.DrainResponse) -> Document:
    """Render one piece of news."""
    return {
        "agent": agent,
        "step": step_words(news.step),
        "state": step_state_words(news.state),
        "detail": news.detail,
        "nameServers": [{"addr": said.addr, "done": said.done, "answer": said.answer} for said in news.name_servers],
        "elapsedSeconds": seconds_of(news.elapsed),
    }
