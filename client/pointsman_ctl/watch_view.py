"""How a change of a route is shown: a heading and what changed, or one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from pointsman_client.routes.route_document import Document, to_revision_document, to_route_document
from pointsman_client.rpc.wire_time import moment_text
from pointsman_ctl.layout import ALARM
from pointsman_ctl.route_difference import route_difference
from pointsman_ctl.table import route_parts
from pointsman_ctl.watching import RouteNews
from pointsman_ctl.wording import printable, time_words

DIFFERENCE_STYLES = {"+": "green", "-": ALARM, "~": "yellow"}


def to_news_document(addr: str, news: RouteNews, *, at: datetime) -> Document:
    """Render a change."""
    return {
        "at": moment_text(at),
        "addr": addr,
        "topic": news.topic,
        "revision": to_revision_document(news.revision),
        "route": to_route_document(news.new) if news.new else None,
    }


def news_parts(addr: str, news: RouteNews, *, at: datetime) -> Iterable[RenderableType]:
    """Show the route as it is the first time, then what changed."""
    yield Text(f"{time_words(at)}  {printable(news.topic)}  at {addr}, revision {news.revision.counter}", style="bold")
    if news.new is None:
        yield Text("no broker in the routes has it", style=ALARM)
    elif news.old is None:
        yield from route_parts(news.new)
    else:
        lines = route_difference(news.old, news.new)
        for line in lines:
            yield Text(line, style=DIFFERENCE_STYLES[line[0]])
        if not lines:
            yield Text("changed in what this pointsmanctl cannot read")
    yield ""
