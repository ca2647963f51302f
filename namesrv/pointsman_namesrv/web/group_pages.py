"""The pages of consumer groups, as far as a name server knows them: by the measurements of the agents. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pointsman.wire.operator_texts import duration_text
from pointsman.wire.refusals import Refusal
from pointsman_namesrv.core.fleet_queues import BrokerLag, Finding, GroupNow
from pointsman_namesrv.web.page_data import LiveData
from pointsman_namesrv.web.page_links import broker_path, command, group_path, option, topic_path
from pointsman_namesrv.web.page_query import Column, Paged, PageQuery, columns_of, distinct, sort_of, sorted_page

PARAMETERS = ("name", "cluster", "sort", "page")
TITLES = {
    "name": "Group",
    "topic": "Topic",
    "members": "Members",
    "lag": "Unread",
    "catch_up": "Catches up in",
    "behind": "Queues behind",
    "stuck": "Queues stuck",
}
NUMBERS = ("members", "lag", "catch_up", "behind", "stuck")
MAX_LAGS = 200


class GroupUnknown(Refusal):
    """No agent's last measurement names the group."""

    code = "GROUP_UNKNOWN"
    status = "NOT_FOUND"

    def __init__(self, group: str) -> None:
        super().__init__(
            f"no measurement of an agent names group {group}: it may be too small to be named, or consume nothing; "
            f"`pointsmanctl group` reads it from the agents"
        )


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """One group in one topic."""

    group: GroupNow
    path: str
    topic_path: str
    catch_up: str
    findings: Sequence[Finding]

    @property
    def state(self) -> tuple[str, str]:
        """Return a word for its state, and the verdict."""
        kinds = {each.kind for each in self.findings}
        for kind, text, verdict in _STATES:
            if kind in kinds:
                return text, verdict
        return "", ""


_STATES = (
    ("stuck", "STUCK", "alarm"),
    ("no_members", "NO MEMBERS", "alarm"),
    ("dead_letters", "DEAD LETTERS", "alarm"),
    ("falling_behind", "BEHIND", "warning"),
    ("too_few_queues", "BEHIND", "warning"),
    ("rebalance_storm", "REBALANCES", "warning"),
    ("idle_members", "IDLE MEMBERS", "warning"),
)


@dataclass(frozen=True, slots=True)
class GroupsPage:
    """What the template shows."""

    data: LiveData
    query: PageQuery
    groups: Paged[ShownGroup]
    columns: Mapping[str, Column]
    clusters: Sequence[str]
    command: str


@dataclass(frozen=True, slots=True)
class ShownLag:
    """One queue in which a group lags."""

    lag: BrokerLag
    broker_path: str
    topic_path: str
    oldest: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """What the template shows."""

    data: LiveData
    query: PageQuery
    group: str
    topics: Sequence[ShownGroup]
    lags: Sequence[ShownLag]
    more_lags: int
    commands: Sequence[tuple[str, str]]
    """What an agent knows, and the command that reads it there."""


def groups_page(data: LiveData, query: PageQuery) -> GroupsPage:
    """Filter and sort all groups. Raises InvalidRequest."""
    name, cluster = query.text("name").lower(), query.text("cluster")
    by, is_descending = sort_of(query, TITLES, default="-lag")
    found = [
        _shown(group, findings)
        for group, findings in data.groups
        if name in group.group.lower() and (not cluster or group.cluster == cluster)
    ]
    part = sorted_page(found, _KEYS[by], query, is_descending=is_descending)
    return GroupsPage(
        data=data,
        query=query,
        groups=part,
        columns=columns_of(query, TITLES, default="-lag", highest_first=NUMBERS),
        clusters=distinct([group.cluster for group, _ in data.groups]),
        command=command(data.node.servers, "groups"),
    )


def group_page(data: LiveData, group: str, query: PageQuery) -> GroupPage:
    """Show one group. Raises GroupUnknown."""
    topics = [_shown(each, findings) for each, findings in data.groups if each.group == group]
    if not topics:
        raise GroupUnknown(group)
    lags = [
        ShownLag(
            each,
            broker_path(*each.key),
            topic_path(each.lag.topic),
            "" if each.lag.oldest_unread is None else duration_text(each.lag.oldest_unread),
        )
        for each in data.lags
        if each.lag.group == group
    ]
    lags.sort(key=lambda each: (-each.lag.lag.lag, each.lag.key, each.lag.lag.topic, each.lag.lag.queue_id))
    servers = data.node.servers
    return GroupPage(
        data=data,
        query=query,
        group=group,
        topics=topics,
        lags=lags[:MAX_LAGS],
        more_lags=max(0, len(lags) - MAX_LAGS),
        commands=[
            ("Members, what each holds, stuck queues", command(servers, "group", "--queues", argument=group)),
            ("Settings that differ between members, pins", command(servers, "group", argument=group)),
            (
                "Rebalances of each member since its start, by trigger",
                command(servers, "--output=json", "group", argument=group),
            ),
            ("Offset and lag of every queue", command(servers, "offsets", argument=group)),
            ("Queue locks", command(servers, "locks", *option("group", group))),
            ("All that is wrong with it, with the next step", command(servers, "doctor", argument=group)),
        ],
    )


def _shown(group: GroupNow, findings: Sequence[Finding]) -> ShownGroup:
    seconds = group.catch_up_seconds
    catch_up = (
        ("not at this rate" if group.commit_rate is not None else "") if seconds is None else duration_text(seconds)
    )
    return ShownGroup(group, group_path(group.group), topic_path(group.topic), catch_up if group.lag else "", findings)


def _catch_up(shown: ShownGroup) -> float:
    seconds = shown.group.catch_up_seconds
    return float("inf") if seconds is None else seconds


_KEYS: Mapping[str, Callable[[ShownGroup], tuple[object, ...]]] = {
    "name": lambda each: (each.group.group, each.group.topic, each.group.cluster),
    "topic": lambda each: (each.group.topic, each.group.group, each.group.cluster),
    "members": lambda each: (each.group.member_count, each.group.group),
    "lag": lambda each: (each.group.lag, each.group.group),
    "catch_up": lambda each: (_catch_up(each), each.group.group),
    "behind": lambda each: (each.group.behind_queue_count, each.group.group),
    "stuck": lambda each: (each.group.stuck_queue_count, each.group.group),
}
