"""The pages of all topics and of one: its queues by broker, what is wrong, and how busy each queue is. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pointsman.group_topics import is_group_topic
from pointsman.wire.operator_texts import counted, duration_text, perm_text, rate_text
from pointsman.wire.topic_diagnosis import TopicHolder, TopicProblem, topic_problems, wiped_problems
from pointsman_namesrv.core.fleet_queues import GroupNow, TopicNow
from pointsman_namesrv.core.model import MASTER_ID, GroupKey
from pointsman_namesrv.core.replica_state import ROUTED
from pointsman_namesrv.web.page_data import (
    ALARM,
    MAX_HOLDERS,
    WARNING,
    Holder,
    LiveData,
    Problem,
    TopicData,
    TopicsData,
)
from pointsman_namesrv.web.page_links import broker_path, command, group_path, option, topic_path
from pointsman_namesrv.web.page_query import Column, Paged, PageQuery, columns_of, paged, sort_of

PARAMETERS = ("name", "cluster", "problem", "system", "sort", "page")
NO_BROKER, NOT_WRITABLE, NO_MASTER, ONE_LEFT, ANY_PROBLEM = "NO_BROKER", "NOT_WRITABLE", "NO_MASTER", "ONE_LEFT", "ANY"
PROBLEMS = (ANY_PROBLEM, NO_BROKER, NOT_WRITABLE, NO_MASTER, ONE_LEFT)
MEANINGS: Mapping[str, tuple[str, str]] = {
    NO_BROKER: (ALARM, "no broker is up"),
    NOT_WRITABLE: (ALARM, "cannot be written"),
    NO_MASTER: (WARNING, "not all of its brokers can be written"),
    ONE_LEFT: (WARNING, "one broker is left"),
}
TITLES = {
    "name": "Topic",
    "problem": "State",
    "brokers": "Brokers up",
    "queues": "Queues to write",
    "rate": "Messages/s",
}
NUMBERS = ("brokers", "queues", "rate")
HEAT_STEPS = 8
MAX_QUEUES = 64
"""Queues of one broker that the heat map shows."""
MAX_ABSENT = 50


def problem_of(known: int, up: int, writable: int) -> str:
    """Return what is wrong with a topic; empty: nothing.

    ``known``: broker names that have it; ``up``: with a routed broker; ``writable``: whose master takes messages.
    """
    if not up:
        return NO_BROKER
    if not writable:
        return NOT_WRITABLE
    if known > 1 and up == 1:
        return ONE_LEFT
    return NO_MASTER if writable < known else ""


@dataclass(frozen=True, slots=True)
class ShownTopic:
    """One row of the list."""

    name: str
    path: str
    problem: str
    severity: str
    known: int
    up: int
    queues: int
    rate: float | None
    """Messages per second; None: not measured."""
    skew: float

    @property
    def meaning(self) -> str:
        """Return the problem in words."""
        return MEANINGS[self.problem][1] if self.problem else ""


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """What the template shows."""

    data: TopicsData
    query: PageQuery
    topics: Paged[ShownTopic]
    columns: Mapping[str, Column]
    counts: Mapping[str, int]
    """Topics by problem."""
    command: str


def topics_page(data: TopicsData, live: LiveData, query: PageQuery) -> TopicsPage:
    """Filter and sort all topics; their objects are made for one page alone. Raises InvalidRequest."""
    name, problem, cluster = query.text("name").lower(), query.choice("problem", PROBLEMS), query.text("cluster")
    with_system = query.choice("system", ("yes",)) == "yes"
    by, is_descending = sort_of(query, TITLES, default="problem")
    rates, skews = dict[str, float](), dict[str, float]()
    for (of_cluster, topic), now in live.topics.items():
        if not cluster or of_cluster == cluster:
            rates[topic] = rates.get(topic, 0.0) + now.put_rate
            skews[topic] = max(skews.get(topic, 0.0), now.skew)
    problems = list(map(problem_of, data.known, data.up, data.writable))
    counts = dict.fromkeys(MEANINGS, 0)
    found = list[int]()
    for at, topic in enumerate(data.names):
        if not with_system and is_group_topic(topic):
            continue
        state = problems[at]
        if state:
            counts[state] += 1
        if (name and name not in topic.lower()) or (problem and (not state or problem not in {ANY_PROBLEM, state})):
            continue
        found.append(at)
    order = list(MEANINGS)
    ranks = {state: rank for rank, state in enumerate(order)}
    match by:
        case "problem":
            found.sort(key=lambda at: ranks.get(problems[at], len(order)), reverse=is_descending)
        case "brokers":
            found.sort(key=lambda at: data.up[at], reverse=is_descending)
        case "queues":
            found.sort(key=lambda at: data.queues[at], reverse=is_descending)
        case "rate":
            found.sort(key=lambda at: rates.get(data.names[at], -1.0), reverse=is_descending)
        case _:
            found = found[::-1] if is_descending else found
    part = paged(found, query)

    def shown(at: int) -> ShownTopic:
        topic, state = data.names[at], problems[at]
        severity = MEANINGS[state][0] if state else "ok"
        return ShownTopic(
            topic,
            topic_path(topic),
            state,
            severity,
            data.known[at],
            data.up[at],
            data.queues[at],
            rates.get(topic),
            skews.get(topic, 0.0),
        )

    rows = [shown(at) for at in part.rows]
    servers = data.node.servers
    words = ("topics", *option("cluster", cluster), *(("--system",) if with_system else ()))
    return TopicsPage(
        data=data,
        query=query,
        topics=Paged(rows, part.found, part.first, part.before, part.after),
        columns=columns_of(query, TITLES, default="problem", highest_first=NUMBERS),
        counts=counts,
        command=command(servers, *words),
    )


# --- one topic ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """One queue of the heat map."""

    queue_id: int
    heat: int
    """0 to HEAT_STEPS; -1: no measurement named it."""
    title: str


@dataclass(frozen=True, slots=True)
class ShownHolder:
    """One broker name that has the topic."""

    holder: Holder
    path: str
    perm: str
    state: str
    """State of the replica with the lowest id, or NO BROKER."""
    note: str
    puts: Sequence[Cell]
    lags: Sequence[Cell]
    more_queues: int


@dataclass(frozen=True, slots=True)
class ShownAbsent:
    """A broker that is not routed."""

    name: str
    path: str
    phase: str
    reason: str
    since: str


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """One group that reads the topic."""

    group: GroupNow
    path: str
    findings: Sequence[tuple[str, str]]
    """Sentences: what was found, and what to do."""


@dataclass(frozen=True, slots=True)
class TopicPage:
    """What the template shows."""

    data: TopicData
    query: PageQuery
    diagnosis: Sequence[Problem]
    holders: Sequence[ShownHolder]
    more_holders: int
    absent: Sequence[ShownAbsent]
    more_absent: int
    groups: Sequence[ShownGroup]
    rate: float | None
    highest_rate: float
    highest_lag: int
    is_measured: bool
    commands: Sequence[str]


def topic_page(data: TopicData, query: PageQuery) -> TopicPage:
    """Explain one topic."""
    of_topic = list(data.live.topics.values())
    puts = {(each.key, each.puts.queue_id): each.puts.put_rate for each in data.live.queues}
    lags = dict[tuple[GroupKey, int], int]()
    for each in data.live.lags:
        place = each.key, each.lag.queue_id
        lags[place] = max(lags.get(place, 0), each.lag.lag)
    highest_rate, highest_lag = max(puts.values(), default=0.0), max(lags.values(), default=0)

    def shown(holder: Holder) -> ShownHolder:
        count = max(holder.queues.read_queue_nums, holder.queues.write_queue_nums)
        lowest = next((row for row in holder.replicas if row.state.phase in ROUTED), None)
        numbers = range(min(count, MAX_QUEUES))
        return ShownHolder(
            holder,
            broker_path(*holder.key),
            perm_text(holder.perm),
            lowest.state.phase.value if lowest is not None else "NO BROKER",
            _note(holder),
            [_cell(number, puts.get((holder.key, number)), highest_rate, "messages/s") for number in numbers],
            [_cell(number, lags.get((holder.key, number)), highest_lag, "unread") for number in numbers],
            count - len(numbers),
        )

    absent = [
        ShownAbsent(
            f"{each.identity.position}",
            broker_path(*each.identity.group_key),
            each.phase.value,
            each.reason.value if each.reason is not None else "",
            "unknown" if since is None else f"{duration_text(since)} ago",
        )
        for each, since in data.absent[:MAX_ABSENT]
    ]
    groups = [
        ShownGroup(group, group_path(group.group), [(each.says, each.cure) for each in findings])
        for group, findings in data.live.groups
    ]
    servers = data.node.servers
    return TopicPage(
        data=data,
        query=query,
        diagnosis=list(diagnosis(data, of_topic)),
        holders=[shown(holder) for holder in data.holders[:MAX_HOLDERS]],
        more_holders=max(0, len(data.holders) - MAX_HOLDERS),
        absent=absent,
        more_absent=max(0, len(data.absent) - MAX_ABSENT),
        groups=groups,
        rate=sum(now.put_rate for now in of_topic) if of_topic else None,
        highest_rate=highest_rate,
        highest_lag=highest_lag,
        is_measured=bool(puts or lags or of_topic),
        commands=[
            command(servers, "route", argument=data.topic),
            command(servers, "queues", argument=data.topic),
            command(servers, "watchers", argument=data.topic),
        ],
    )


def diagnosis(data: TopicData, live: Sequence[TopicNow]) -> Iterator[Problem]:
    """Yield what is wrong with a topic, in words, the worst first."""
    paths = {str(holder.key): broker_path(*holder.key) for holder in data.holders}
    holders = list(map(_diagnosed, data.holders))

    def shown(problem: TopicProblem) -> Problem:
        return Problem(ALARM if problem.is_alarm else WARNING, _sentence(problem.text), paths.get(problem.broker, ""))

    if holders:
        yield from map(shown, topic_problems(holders))
    else:
        yield Problem(WARNING, "An operator deleted it: it is hidden until its brokers register other topics.")
    for text in data.surpluses:
        yield Problem(ALARM, _sentence(text))
    yield from map(shown, wiped_problems(holders))
    for finding in (finding for now in live for finding in now.findings()):
        yield Problem(WARNING, f"{_sentence(finding.says)} To do: {finding.cure}.")


def _diagnosed(holder: Holder) -> TopicHolder:
    return TopicHolder(
        str(holder.key),
        _is_up(holder),
        _has_master(holder),
        holder.perm,
        holder.queues.read_queue_nums,
        holder.queues.write_queue_nums,
        holder.wiped,
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _note(holder: Holder) -> str:
    down = [row for row in holder.replicas if row.state.phase not in ROUTED]
    found = (
        "write permission wiped" if holder.wiped else "",
        "no master" if _is_up(holder) and not _has_master(holder) else "",
        f"{counted(len(down), 'replica')} not routed" if down else "",
    )
    return ", ".join(filter(None, found))


def _is_up(holder: Holder) -> bool:
    return any(row.state.phase in ROUTED for row in holder.replicas)


def _has_master(holder: Holder) -> bool:
    return any(row.identity.broker_id == MASTER_ID and row.state.phase in ROUTED for row in holder.replicas)


def _cell(queue_id: int, value: float | None, highest: float, unit: str) -> Cell:
    if value is None:
        return Cell(queue_id, -1, f"queue {queue_id}: not among those that its agent names")
    # Not linear: one hot queue would leave all others white.
    heat = math.ceil(HEAT_STEPS * math.sqrt(value / highest)) if highest else 0
    return Cell(queue_id, heat, f"queue {queue_id}: {rate_text(value)} {unit}")
