"""The settings of the section ``groups`` reach the service."""

from __future__ import annotations

import dataclasses

from broker_agent.config import GroupRow, GroupsSection
from broker_agent.core.group_rules import GroupRules, NoticeRules
from broker_agent.groups.assembly import build_groups
from tests.fakes.manual_clock import ManualClock


async def test_every_setting_reaches_the_rules(clock: ManualClock) -> None:
    section = GroupsSection(
        expiry_seconds=1.0,
        scan_interval_seconds=2.0,
        stream_grace_seconds=3.0,
        warm_up_seconds=4.0,
        notify=False,
        hold_down_seconds=5.0,
        max_clients=6,
        max_groups=7,
        max_watchers=8,
        group=(GroupRow(name="g", notify=True, hold_down_seconds=9.0),),
    )
    groups = build_groups(section, clock=clock, boot=10)
    assert groups.core._rules == GroupRules(
        expiry=1.0,
        scan_interval=2.0,
        stream_grace=3.0,
        warm_up=4.0,
        notices=NoticeRules(notify=False, hold_down=5.0),
        notices_of={"g": NoticeRules(notify=True, hold_down=9.0)},
        max_clients=6,
        max_groups=7,
    )
    assert (groups.core.boot, groups.watches._max_watchers) == (10, 8)


async def test_the_defaults_of_section_and_rules_are_the_same(clock: ManualClock) -> None:
    rules = build_groups(GroupsSection(), clock=clock, boot=1).core._rules
    assert dataclasses.asdict(rules) == dataclasses.asdict(GroupRules())
