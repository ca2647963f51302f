"""The news of a broker's drain, as lines and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.text import Text

from pointsman.v1 import agent_service_pb2 as wire
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.wire_time import seconds_of
from pointsman_ctl.layout import ALARM, WARNING
from pointsman_ctl.wording import duration_words, printable

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
    for group in news.groups:
        yield Text(f"{'':10}{_unread_words(group)}", style=WARNING if _is_alone(group) else "")


def outcome_words(news: wire.DrainResponse) -> str:
    """Name a step that is incomplete, with its state and the groups that have unread messages."""
    unread = ", ".join(f"{printable(group.group)} {group.lag}" for group in news.groups)
    words = f"{step_words(news.step)} {step_state_words(news.state)}"
    return f"{words} (unread: {unread})" if unread else words


def is_late(news: wire.DrainResponse) -> bool:
    """Return whether a wait ended before what it waited for, or left messages unread."""
    is_unread = news.step == wire.DRAIN_STEP_WAIT_FOR_CONSUMERS and news.state == wire.DRAIN_STEP_STATE_FAILED
    return is_unread or news.state == wire.DRAIN_STEP_STATE_TIMED_OUT


def _is_alone(group: wire.UnreadGroup) -> bool:
    return group.HasField("member_count") and not group.member_count


def _unread_words(group: wire.UnreadGroup) -> str:
    retry = f", {group.retry_lag} of them in retry queues" if group.retry_lag else ""
    members = f"members: {group.member_count}" if group.HasField("member_count") else "members not known yet"
    if _is_alone(group):
        members = "no member: not waited for"
    return f"{printable(group.group)}: {group.lag} unread{retry}; {members}"


def to_drain_document(agent: str, news: wire.DrainResponse) -> Document:
    """Render one piece of news."""
    return {
        "agent": agent,
        "step": step_words(news.step),
        "state": step_state_words(news.state),
        "detail": news.detail,
        "nameServers": [{"addr": said.addr, "done": said.done, "answer": said.answer} for said in news.name_servers],
        "groups": [
            {
                "group": each.group,
                "lag": each.lag,
                "retryLag": each.retry_lag,
                "members": each.member_count if each.HasField("member_count") else None,
            }
            for each in news.groups
        ],
        "elapsedSeconds": seconds_of(news.elapsed),
    }
