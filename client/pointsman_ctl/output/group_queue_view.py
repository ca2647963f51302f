"""The queues of a consumer group over all agents, what is wrong with them, and their table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from rich.console import RenderableType
from rich.text import Text

from pointsman.group_topics import is_retry_topic
from pointsman.names import printable
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.json_document import Document, enum_name
from pointsman.wire.operator_texts import counted, duration_text, rate_text
from pointsman.wire.wire_time import seconds_of
from pointsman_ctl.output.output_layout import ALARM, WARNING, new_table
from pointsman_ctl.servers.agent_queries import AgentQueues, QueueCache
from pointsman_ctl.servers.found_agents import Agent

FLAGS = {"STUCK_CALL": "STUCK", "STUCK_OFFSET": "STUCK", "BEHIND": "BEHIND", "NO_READER": "NO READER"}
STYLES = {"STUCK": ALARM, "NO READER": ALARM, "BEHIND": WARNING, "IDLE": WARNING}
MAX_LINES = 10
"""Queues that are named below the members."""
SETTLED_SECONDS = 60.0
"""A member without queues is idle this long after it joined: it reports its queues with the next heartbeat."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue, by the agent of its broker."""

    agent: Agent
    queue: wire.GroupQueue
    cache: QueueCache | None = None
    """What its client reports, where the broker is RocketMQ's."""

    @property
    def owner(self) -> str:
        """Client id of the member that reads it; empty: none is known."""
        return self.queue.client_id or (self.cache.client_id if self.cache is not None else "")

    @property
    def lag(self) -> int | None:
        """Number of unread messages; None: not known."""
        queue = self.queue
        if not (queue.HasField("max_offset") and queue.HasField("committed")):
            return None
        return max(0, queue.max_offset - queue.committed)

    @property
    def rates(self) -> tuple[float, float] | None:
        """Messages that arrive and that are read, per second; None: not measured twice yet."""
        return (self.queue.put_rate, self.queue.commit_rate) if self.queue.HasField("commit_rate") else None

    @property
    def catch_up_seconds(self) -> float | None:
        """Time until the lag is 0 at these rates; infinite: it grows, or stays; None: not known."""
        if self.lag is None or self.rates is None:
            return None
        puts, commits = self.rates
        if self.lag == 0:
            return 0.0
        return self.lag / (commits - puts) if commits > puts else math.inf

    @property
    def still_seconds(self) -> float | None:
        """Time for which the offset has not moved although there are unread messages; None: it moves."""
        return seconds_of(self.queue.still_for) if self.queue.HasField("still_for") else None

    @property
    def since_commit_seconds(self) -> float | None:
        """Time since the last commit, even of the same offset; None: none since the agent started, or not known."""
        return seconds_of(self.queue.since_commit) if self.queue.HasField("since_commit") else None

    @property
    def oldest_call_seconds(self) -> float | None:
        """Time for which the oldest listener call has run; None: none runs, or it is not known."""
        reading = self.queue.reading
        return seconds_of(reading.oldest_call) if reading.HasField("oldest_call") else None

    @property
    def standing(self) -> str:
        """What is wrong, as the wire names it; empty: nothing is known to be."""
        return enum_name(self.queue, "standing") if self.queue.standing else ""

    @property
    def flag(self) -> str:
        """The same for the table."""
        return FLAGS.get(self.standing, self.standing) or ("WAITING" if self.queue.reading.is_waiting else "")

    @property
    def place(self) -> str:
        """Its name in a sentence."""
        return f"queue {self.queue.reading.queue_id} of {self.queue.topic} on {self.agent.name}"


@dataclass(frozen=True)
class GroupQueuesView:
    """The queues of one group."""

    rows: tuple[QueueRow, ...]
    """Sorted by topic, the retry topic last, then broker and number."""
    counts: Mapping[str, wire.MemberCounts]
    """What members report of themselves, by client id. Clients of earlier versions and of RocketMQ report nothing."""

    @cached_property
    def _by_member(self) -> dict[str, list[QueueRow]]:
        found = defaultdict[str, list[QueueRow]](list)
        for row in self.rows:
            found[row.queue.client_id].append(row)
        return found

    def flags_of(self, member: str, *, since_seconds: float | None, is_clustering: bool) -> Iterator[str]:
        """Yield what is wrong with the queues of a member that joined ``since_seconds`` ago."""
        own = self._by_member.get(member, [])
        flags = {row.flag for row in own}
        yield from (flag for flag in ("STUCK", "BEHIND") if flag in flags)
        is_settled = since_seconds is not None and since_seconds > SETTLED_SECONDS
        reads = any(not is_retry_topic(row.queue.topic) for row in own)
        if member in self.counts and not reads and is_settled and is_clustering:
            yield "IDLE"


def group_queues_view(responses: Iterable[tuple[Agent, AgentQueues]]) -> GroupQueuesView:
    """Merge the responses of all agents. Of what a member reports to several agents the highest counts are kept."""
    rows, counts = [], dict[str, wire.MemberCounts]()
    for agent, queues in responses:
        caches = queues.caches
        rows += [
            QueueRow(agent, each, caches.get((each.topic, each.reading.queue_id))) for each in queues.response.queues
        ]
        for member in queues.response.members:
            known = counts.get(member.client_id)
            if known is None or _total(known) < _total(member):
                counts[member.client_id] = member
    rows.sort(key=lambda row: (is_retry_topic(row.queue.topic), row.queue.topic, row.agent.name, _number(row)))
    return GroupQueuesView(tuple(rows), counts)


def queue_parts(view: GroupQueuesView) -> Iterable[RenderableType]:
    """Show one row per queue, without retry queues that have no messages."""
    rows = [row for row in view.rows if row.lag or not is_retry_topic(row.queue.topic)]
    if not rows:
        yield Text("no queue is read, and no offset is committed")
        return
    has_caches = any(row.cache is not None for row in rows)
    of_caches = ("CACHED", "LAST PULL") if has_caches else ()
    numbers = ("QUEUE", "LAG", "IN/S", "OUT/S", "CATCH-UP", "LAST COMMIT", "UNMOVED", "OLDEST CALL", *of_caches)
    table = new_table("TOPIC", "BROKER", "QUEUE", "OWNER", *numbers[1:], "FLAGS", right=numbers)
    for row in rows:
        flag = row.flag
        table.add_row(
            printable(row.queue.topic),
            row.agent.name,
            str(_number(row)),
            printable(row.owner) or "-",
            "-" if row.lag is None else str(row.lag),
            *(("-", "-") if row.rates is None else map(rate_text, row.rates)),
            _catch_up(row.catch_up_seconds),
            _time(row.since_commit_seconds),
            _time(row.still_seconds),
            _time(row.oldest_call_seconds),
            *(_cache(row.cache) if has_caches else ()),
            Text(flag, style=STYLES.get(flag, WARNING)) if flag else "-",
        )
    yield table
    if folded := len(view.rows) - len(rows):
        yield Text(f"{counted(folded, 'queue')} of the retry topic without messages hidden", style="dim")


def standings(view: GroupQueuesView) -> list[tuple[str, str]]:
    """Return the flag of each queue in which something is wrong, with a sentence, the worst first."""
    order = list(FLAGS)
    wrong = sorted((row for row in view.rows if row.standing in FLAGS), key=lambda row: order.index(row.standing))
    return [(row.flag, _sentence(row)) for row in wrong]


def standing_lines(view: GroupQueuesView) -> Iterator[Text]:
    """Say what is wrong, one line per queue, the worst first."""
    wrong = standings(view)
    for flag, sentence in wrong[:MAX_LINES]:
        yield Text(printable(f"{flag}: {sentence}"), style=STYLES[flag])
    if len(wrong) > MAX_LINES:
        yield Text(f"{len(wrong) - MAX_LINES} more queues; show them with --queues", style=ALARM)


def _sentence(row: QueueRow) -> str:
    queue, lag = row.queue, counted(row.lag or 0, "message")
    at = f" at offset {queue.committed}" if queue.HasField("committed") else ""
    if row.standing == "STUCK_CALL":
        call = duration_text(row.oldest_call_seconds or 0.0)
        return f"{queue.client_id} stands{at} of {row.place}: a listener call has run for {call}"
    if row.standing == "STUCK_OFFSET":
        unmoved = duration_text(row.still_seconds or 0.0)
        return f"{queue.client_id or 'a member'} stands{at} of {row.place}: unmoved for {unmoved}, {lag} unread"
    if row.standing == "BEHIND":
        puts, commits = row.rates or (0.0, 0.0)
        rates = f"{rate_text(puts)}/s arrive, {rate_text(commits)}/s are read"
        return f"{queue.client_id} falls behind in {row.place}: {rates}, {lag} unread"
    return f"no member reads {row.place}: {lag} unread"


def to_queues_document(view: GroupQueuesView) -> list[Document]:
    """Render the queues."""
    return [
        {
            "topic": row.queue.topic,
            "agent": row.agent.addr,
            "brokers": list(row.agent.brokers),
            "queueId": _number(row),
            "clientId": row.owner or None,
            "position": row.queue.reading.position if row.queue.client_id else None,
            "inFlight": row.queue.reading.in_flight if row.queue.client_id else None,
            "isWaiting": row.queue.reading.is_waiting if row.queue.client_id else None,
            "committedOffset": row.queue.committed if row.queue.HasField("committed") else None,
            "maxOffset": row.queue.max_offset if row.queue.HasField("max_offset") else None,
            "lag": row.lag,
            "putRate": None if row.rates is None else row.rates[0],
            "commitRate": None if row.rates is None else row.rates[1],
            "catchUpSeconds": row.catch_up_seconds if row.catch_up_seconds not in {None, math.inf} else None,
            "sinceCommitSeconds": row.since_commit_seconds,
            "unmovedSeconds": row.still_seconds,
            "oldestCallSeconds": row.oldest_call_seconds,
            "cachedMessages": None if row.cache is None else row.cache.cached,
            "sinceLastPullSeconds": None if row.cache is None else row.cache.since_pull_seconds,
            "standing": row.standing or None,
        }
        for row in view.rows
    ]


def _number(row: QueueRow) -> int:
    return row.queue.reading.queue_id


def _total(member: wire.MemberCounts) -> int:
    return member.retries + member.dead_letters + sum(each.count for each in member.rebalances)


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration_text(seconds)


def _cache(cache: QueueCache | None) -> tuple[str, str]:
    return ("-", "-") if cache is None else (str(cache.cached), _time(cache.since_pull_seconds))


def _catch_up(seconds: float | None) -> str:
    if seconds is None or seconds == 0:
        return "-"
    return "never" if seconds == math.inf else duration_text(seconds)
