"""``explain``: why the route of a topic was what it was at a moment."""

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
    from pointsman_report.questions.explain import explain  # noqa: PLC0415 - it imports pyspark

    return explain(source, topic, at, cluster=cluster)


def _run(options: argparse.Namespace) -> int:
    return asking.ask(options, _answer)


COMMAND = Command(
    name="explain",
    summary="who was missing from a topic's route at a moment: since when, why, who saw it, when clients could know",
    details="""\
  pointsman-report explain orders --at 2026-11-20T03:12Z --warehouse /srv/warehouse
  pointsman-report explain orders --at 03:12 --history /var/lib/pointsman/history --timezone Europe/Berlin""",
    arguments=asking.add_arguments,
    run=_run,
)
