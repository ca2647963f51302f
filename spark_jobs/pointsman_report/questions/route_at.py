"""What the route of a topic was at a moment, from history: what each name server answered, and if they agreed."""

from __future__ import annotations

from datetime import UTC, datetime

from pointsman_report.questions.collecting import days_before, told_of
from pointsman_report.questions.replay import Replay
from pointsman_report.questions.route_answer import BrokerAnswer, NodeView, RouteAnswer, View
from pointsman_report.questions.source import Source
from pointsman_report.questions.told import Group, Life, Story


def route_at(source: Source, topic: str, at: datetime, *, cluster: str | None) -> RouteAnswer:
    """Answer from the rows of the moment's day and of the day before."""
    at = at.astimezone(UTC)
    days = days_before(at)
    events, windows = source.events(*days), source.windows(*days)
    story = told_of(events, topic, at=at, until=_end_of_day(at), cluster=cluster, windows=windows)
    return route_of(story, topic, at, cluster=cluster, of_warehouse=source.is_warehouse)


def route_of(story: Story, topic: str, at: datetime, *, cluster: str | None, of_warehouse: bool = False) -> RouteAnswer:
    """Play each name server's rows up to the moment, and put side by side what they make."""
    lives = _answering(story.lives, at)
    played = {life: _played(story, topic, life, at) for life in lives}
    keys = sorted({key for replay in played.values() for key in replay.groups if key[1]})
    brokers = tuple(BrokerAnswer(key, _views(key, played)) for key in keys)
    nodes = tuple(NodeView(life.node, life.boot_id, life.state(at), life.last_at, life.missing) for life in lives)
    return RouteAnswer(topic, at, cluster, nodes, brokers, story.last_row_at, of_warehouse)


def _views(key: Group, played: dict[Life, Replay]) -> tuple[View, ...]:
    by_shape: dict[tuple[object, ...], View] = {}
    for life, replay in played.items():
        seen = replay.view(key)
        known = by_shape.get(seen.shape())
        nodes = () if known is None else known.nodes
        by_shape[seen.shape()] = View((*nodes, life.node), seen if known is None else known.seen.joined(seen))
    return tuple(sorted(by_shape.values(), key=lambda view: (-len(view.nodes), view.nodes)))


def _answering(lives: list[Life], at: datetime) -> list[Life]:
    """The lives that answered; of one node the latest. Who still warmed up counts where nobody else was there."""
    latest: dict[str, Life] = {}
    for life in lives:
        if life.watched(at):
            latest[life.node] = max(latest.get(life.node, life), life, key=lambda one: one.first_at)
    ready = [life for life in latest.values() if life.state(at) != "WARMING"]
    return sorted(ready or latest.values(), key=lambda life: life.node)


def _played(story: Story, topic: str, life: Life, at: datetime) -> Replay:
    of_life = [row for row in story.rows if (row.node, row.boot_id) == (life.node, life.boot_id) and row.at <= at]
    own = sorted(of_life, key=lambda row: row.seq)
    before = None
    if any(row.event == "CHECKPOINT" and row.reason == "START" for row in own):
        earlier = [one for one in story.lives if one.node == life.node and one.first_at < life.first_at]
        previous = max(earlier, key=lambda one: one.first_at, default=None)
        before = None if previous is None else _played(story, topic, previous, at)
    return Replay(topic, before).play(own)


def _end_of_day(at: datetime) -> datetime:
    return at.replace(hour=23, minute=59, second=59, microsecond=999_999)
