"""``route-at``: what the route of a topic was at a moment."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from pointsman_report.commands import asking
from pointsman_report.commands.command import Command

if TYPE_CHECKING:
    from pointsman_report.questions.answer import Answer
    from pointsman_report.questions.source import Source


def _answer(source: Source, topic: str, at: datetime, cluster: str | None) -> Answer:
    from pointsman_report.questions.route_at import route_at  # noqa: PLC0415 - it imports pyspark

    return route_at(source, topic, at, cluster=cluster)


def _run(options: argparse.Namespace) -> int:
    return asking.ask(options, _answer)


COMMAND = Command(
    name="route-at",
    summary="what each name server would have answered for a topic at a moment",
    details="""\
  pointsman-report route-at orders --at 2026-11-20T03:12Z --warehouse /srv/warehouse
  pointsman-report route-at orders --at 03:12 --history /var/lib/pointsman/history --timezone Europe/Berlin""",
    arguments=asking.add_arguments,
    run=_run,
)
