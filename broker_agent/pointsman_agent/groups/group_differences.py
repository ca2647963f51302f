"""Reports members whose settings differ: in the log once for each change, and as a metric with their names.

At most once a second, since each report reads all members of the changed groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pointsman.clock import Clock
from pointsman_agent.core.group_membership import Agreement, Standing
from pointsman_agent.core.groups import Groups

PAUSE_SECONDS = 1.0
MAX_NAMED = 20
"""Members that one line of the log, and the metric, name at most."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NamedDifference:
    """One member of one group, and one thing in which it differs."""

    group: str
    client_id: str
    difference: str
    stands_aside: bool


class GroupDifferences:
    """What was reported last. :meth:`run` must run while groups change."""

    def __init__(self, groups: Groups, *, clock: Clock) -> None:
        self.members = 0
        """Members that differ, over all groups."""
        self.standing_aside = 0
        self.named: tuple[NamedDifference, ...] = ()
        """Of the first :data:`MAX_NAMED` members, by group and client id. Replaced as a whole: scrapes read it."""
        self._groups = groups
        self._clock = clock
        self._reported: dict[str, Mapping[str, Standing]] = {}
        self._touched: set[str] = set()
        self._is_touched = asyncio.Event()

    def note(self, groups: Iterable[str]) -> None:
        """Compare these groups soon."""
        self._touched.update(groups)
        if self._touched:
            self._is_touched.set()

    async def run(self) -> None:
        """Report changes, until cancelled."""
        while True:
            await self._is_touched.wait()
            self._is_touched.clear()
            touched, self._touched = self._touched, set()
            for group in sorted(touched):
                self._compare(group)
            self._count()
            await self._clock.sleep(PAUSE_SECONDS)

    def _compare(self, group: str) -> None:
        agreement = self._groups.agreement(group)
        before = self._reported.get(group, {})
        if agreement.differing == before:
            return
        if agreement.differing:
            self._reported[group] = agreement.differing
            log.warning("members of a group have different settings", extra={"facts": _facts(group, agreement)})
        else:
            del self._reported[group]
            log.warning("members of a group have the same settings again", extra={"facts": {"group": group}})

    def _count(self) -> None:
        standings = [each for differing in self._reported.values() for each in differing.values()]
        self.members, self.standing_aside = len(standings), sum(each.stands_aside for each in standings)
        named: list[NamedDifference] = []
        members = 0
        for group, differing in sorted(self._reported.items()):
            for client_id, standing in differing.items():
                members += 1
                if members > MAX_NAMED:
                    break
                named += (
                    NamedDifference(group, client_id, each.value, standing.stands_aside)
                    for each in standing.differences
                )
        self.named = tuple(named)


def _facts(group: str, agreement: Agreement) -> dict[str, object]:
    differing = [
        {
            "client_id": client_id,
            "differs_in": [each.value for each in standing.differences],
            **({"strategy": standing.strategy} if standing.strategy else {}),
            "holds_queues": not standing.stands_aside,
        }
        for client_id, standing in list(agreement.differing.items())[:MAX_NAMED]
    ]
    settings = agreement.settings
    held = {} if settings is None else {"strategy": settings.strategy.text, "ordered": settings.is_ordered}
    return {
        "group": group,
        "holder": agreement.holder,
        **held,
        "members": len(agreement.differing),
        "differing": differing,
    }
