"""The settings of the section ``groups`` reach the service that the agent serves."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from prometheus_client import CollectorRegistry

from pointsman.manual_clock import ManualClock
from pointsman.wire.channel_opener import ChannelOpener
from pointsman_agent.config import GroupRow, GroupsSection, OffsetsSection
from pointsman_agent.core.group_rules import GroupRules, NoticeRules
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.groups.group_servicer import ConsumerGroups
from pointsman_agent.queue_stats.ends import UnknownQueueEnds
from pointsman_agent.services import ClientServices
from tests.kit.agent.in_process import agent_config

SECTION = GroupsSection(
    expiry_seconds=1.0,
    scan_interval_seconds=2.0,
    stream_grace_seconds=3.0,
    warm_up_seconds=4.0,
    notify=False,
    hold_down_seconds=5.0,
    max_clients=6,
    max_groups=7,
    max_watchers=8,
    max_subscriptions=10,
    max_subscriptions_per_client=11,
    group=(GroupRow(name="g", notify=True, hold_down_seconds=9.0),),
)


def served(section: GroupsSection, *, folder: Path, clock: ManualClock) -> ConsumerGroups:
    offsets = OffsetsSection(path=str(folder / "offsets.db"))
    return ClientServices(
        dataclasses.replace(agent_config([]), groups=section, offsets=offsets),
        topics=lambda: TopicSet.from_content((), state_version=0),
        ends=UnknownQueueEnds(),
        master_agent=lambda: "",
        is_master=lambda: True,
        opener=ChannelOpener(),
        clock=clock,
        registry=CollectorRegistry(),
    ).groups


async def test_every_setting_reaches_the_rules(tmp_path: Path, clock: ManualClock) -> None:
    default = GroupsSection()
    assert [
        each.name for each in dataclasses.fields(SECTION) if getattr(SECTION, each.name) == getattr(default, each.name)
    ] == []
    groups = served(SECTION, folder=tmp_path, clock=clock)
    assert groups.core._rules == GroupRules(
        expiry=1.0,
        scan_interval=2.0,
        stream_grace=3.0,
        warm_up=4.0,
        notices=NoticeRules(notify=False, hold_down=5.0),
        notices_of={"g": NoticeRules(notify=True, hold_down=9.0)},
        max_clients=6,
        max_groups=7,
        max_subscriptions=10,
        max_subscriptions_per_client=11,
    )
    assert groups.watches._bound.bound == 8


async def test_the_defaults_of_section_and_rules_are_the_same(tmp_path: Path, clock: ManualClock) -> None:
    assert served(GroupsSection(), folder=tmp_path, clock=clock).core._rules == GroupRules()
