"""The queues of a group: their table, what is wrong with them, and which members that concerns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pytest
from google.protobuf.duration_pb2 import Duration
from rich.console import RenderableType

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_ctl.output import output_layout
from pointsman_ctl.output.group_queue_view import (
    MAX_LINES,
    GroupQueuesView,
    QueueRow,
    group_queues_view,
    queue_parts,
    standing_lines,
    to_queues_document,
)
from pointsman_ctl.servers.agent_queries import AgentQueues, QueueCache
from pointsman_ctl.servers.found_agents import Agent

ONE, TWO = Agent("a:1", ("c1/a/0",)), Agent("b:1", ("c1/b/0",))
X, Y = "10.0.0.1@x", "10.0.0.2@y"


def queue(
    number: int = 0,
    *,
    topic: str = "orders",
    owner: str = X,
    committed: int | None = 10,
    end: int | None = 10,
    rates: tuple[float, float] | None = (2.0, 2.0),
    still: int | None = None,
    call: int | None = None,
    since_commit: int | None = None,
    standing: wire.QueueStanding.ValueType = wire.QUEUE_STANDING_UNSPECIFIED,
) -> wire.GroupQueue:
    puts, commits = rates or (None, None)
    return wire.GroupQueue(
        topic=topic,
        reading=wire.QueueReading(
            queue_id=number, position=12, in_flight=2, oldest_call=None if call is None else Duration(seconds=call)
        ),
        client_id=owner,
        committed=committed,
        max_offset=end,
        put_rate=puts,
        commit_rate=commits,
        still_for=None if still is None else Duration(seconds=still),
        since_commit=None if since_commit is None else Duration(seconds=since_commit),
        standing=standing,
    )


def counts(client_id: str, retries: int = 0) -> wire.MemberCounts:
    return wire.MemberCounts(client_id=client_id, retries=retries)


def view(
    *queues: wire.GroupQueue,
    members: Iterable[wire.MemberCounts] = (),
    caches: Mapping[tuple[str, int], QueueCache] | None = None,
) -> GroupQueuesView:
    return group_queues_view(
        [(ONE, AgentQueues(wire.ListGroupQueuesResponse(queues=queues, members=members), caches or {}))]
    )


def shown(capsys: pytest.CaptureFixture[str], parts: Iterable[RenderableType]) -> list[str]:
    output_layout.show(parts)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("of", "lag", "catch_up"),
    [
        (queue(), 0, 0.0),
        (queue(end=110, rates=(2.0, 12.0)), 100, 10.0),
        (queue(end=110, rates=(2.0, 2.0)), 100, math.inf),
        (queue(end=110, rates=None), 100, None),
        (queue(end=None), None, None),
        (queue(committed=None), None, None),
        (queue(end=5), 0, 0.0),
    ],
)
def test_lag_and_the_time_to_catch_up(of: wire.GroupQueue, lag: int | None, catch_up: float | None) -> None:
    row = QueueRow(ONE, of)
    assert (row.lag, row.catch_up_seconds) == (lag, catch_up)


def test_queues_are_sorted_with_the_retry_topic_last_and_members_counted_once() -> None:
    merged = group_queues_view(
        [
            (TWO, AgentQueues(wire.ListGroupQueuesResponse(queues=[queue(1)], members=[counts(X, 3)]))),
            (
                ONE,
                AgentQueues(
                    wire.ListGroupQueuesResponse(
                        queues=[queue(2, topic="%RETRY%g"), queue(2), queue(1), queue(topic="bills")],
                        members=[counts(X, 2), counts(Y)],
                    )
                ),
            ),
        ]
    )
    assert [row.place for row in merged.rows] == [
        "queue 0 of bills on c1/a/0",
        "queue 1 of orders on c1/a/0",
        "queue 2 of orders on c1/a/0",
        "queue 1 of orders on c1/b/0",
        "queue 2 of %RETRY%g on c1/a/0",
    ]
    assert {name: each.retries for name, each in merged.counts.items()} == {X: 3, Y: 0}


def test_the_table_shows_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    parts = queue_parts(
        view(
            queue(0, end=110, rates=(2.0, 12.0), since_commit=3),
            queue(1, owner="", committed=4, end=9, rates=None),
            queue(2, end=110, rates=(11.0, 0.0), still=300, call=301, standing=wire.QUEUE_STANDING_STUCK_CALL),
            queue(3, topic="%RETRY%g"),
            queue(4, topic="%RETRY%g", end=12),
        )
    )
    _, *lines = shown(capsys, parts)
    assert lines == [
        "orders c1/a/0 0 10.0.0.1@x 100 2.0 12 10.0s 3.0s - - -",
        "orders c1/a/0 1 - 5 - - - - - - -",
        "orders c1/a/0 2 10.0.0.1@x 100 11 0 never - 5m 00s 5m 01s STUCK",
        "%RETRY%g c1/a/0 4 10.0.0.1@x 2 2.0 2.0 never - - - -",
        "1 queue of the retry topic without messages hidden",
    ]


def test_messages_and_the_last_pull_of_clients_of_rocketmq_brokers_have_columns_where_one_responds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    of_client = {("orders", 0): QueueCache(Y, 7, 2.0), ("orders", 1): QueueCache(Y, 0, None)}
    queues = [queue(number, owner="", end=12, rates=None) for number in range(3)]
    head, *lines = shown(capsys, queue_parts(view(*queues, caches=of_client)))
    assert head.endswith("OLDEST CALL CACHED LAST PULL FLAGS")
    assert lines == [
        "orders c1/a/0 0 10.0.0.2@y 2 - - - - - - 7 2.0s -",
        "orders c1/a/0 1 10.0.0.2@y 2 - - - - - - 0 - -",
        "orders c1/a/0 2 - 2 - - - - - - - - -",
    ]
    head, *_ = shown(capsys, queue_parts(view(*queues)))
    assert "CACHED" not in head
    known, _, unknown = to_queues_document(view(*queues, caches=of_client))
    names = ("clientId", "cachedMessages", "sinceLastPullSeconds", "position")
    assert [known[name] for name in names] == [Y, 7, 2.0, None]
    assert [unknown[name] for name in names] == [None] * 4


def test_a_group_without_queues_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, queue_parts(view())) == ["no queue is read, and no offset is committed"]


def test_what_is_wrong_is_said_in_sentences_the_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    lines = standing_lines(
        view(
            queue(0, end=2_000, rates=(12.0, 2.5), standing=wire.QUEUE_STANDING_BEHIND),
            queue(1, owner="", end=13, standing=wire.QUEUE_STANDING_NO_READER),
            queue(2, end=11, still=130, standing=wire.QUEUE_STANDING_STUCK_OFFSET),
            queue(3, call=90, standing=wire.QUEUE_STANDING_STUCK_CALL),
            queue(4),
        )
    )
    assert shown(capsys, lines) == [
        f"STUCK: {X} stands at offset 10 of queue 3 of orders on c1/a/0: a listener call has run for 90.0s",
        f"STUCK: {X} stands at offset 10 of queue 2 of orders on c1/a/0: unmoved for 2m 10s, 1 message unread",
        f"BEHIND: {X} falls behind in queue 0 of orders on c1/a/0: 12/s arrive, 2.5/s are read, 1990 messages unread",
        "NO READER: no member reads queue 1 of orders on c1/a/0: 3 messages unread",
    ]


def test_many_queues_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    stuck = (queue(number, call=90, standing=wire.QUEUE_STANDING_STUCK_CALL) for number in range(MAX_LINES + 3))
    lines = shown(capsys, standing_lines(view(*stuck)))
    assert (len(lines), lines[-1]) == (MAX_LINES + 1, "3 more queues; show them with --queues")


@pytest.mark.parametrize(
    ("queues", "since", "flags"),
    [
        ([queue()], 100.0, []),
        ([queue(standing=wire.QUEUE_STANDING_STUCK_CALL)], 100.0, ["STUCK"]),
        (
            [queue(standing=wire.QUEUE_STANDING_BEHIND), queue(1, standing=wire.QUEUE_STANDING_STUCK_OFFSET)],
            100.0,
            ["STUCK", "BEHIND"],
        ),
        ([queue(owner=Y)], 100.0, ["IDLE"]),
        ([queue(topic="%RETRY%g")], 100.0, ["IDLE"]),
        ([queue(owner=Y)], 60.0, []),
        ([queue(owner=Y)], None, []),
    ],
)
def test_the_flags_of_a_member(queues: list[wire.GroupQueue], since: float | None, flags: list[str]) -> None:
    of = view(*queues, members=[counts(X)])
    assert list(of.flags_of(X, since_seconds=since, is_clustering=True)) == flags


def test_a_broadcasting_member_and_one_that_reports_nothing_are_not_idle() -> None:
    of = view(queue(owner=Y), members=[counts(X)])
    assert list(of.flags_of(X, since_seconds=100.0, is_clustering=False)) == []
    assert list(of.flags_of("10.0.0.3@z", since_seconds=100.0, is_clustering=True)) == []


def test_programs_get_null_for_what_is_not_known() -> None:
    unknown, known = to_queues_document(
        view(
            queue(0, owner="", committed=None, end=None, rates=None),
            queue(1, end=110, rates=(1.0, 0.0), call=7, since_commit=3),
        )
    )
    assert {name for name, value in unknown.items() if value is None} == {
        "clientId", "position", "inFlight", "isWaiting", "committedOffset", "maxOffset", "lag", "putRate",
        "commitRate", "catchUpSeconds", "sinceCommitSeconds", "unmovedSeconds", "oldestCallSeconds", "cachedMessages",
        "sinceLastPullSeconds", "standing",
    }  # fmt: skip
    assert (known["lag"], known["catchUpSeconds"], known["oldestCallSeconds"]) == (100, None, 7.0)
    assert known["sinceCommitSeconds"] == 3.0
    assert (known["queueId"], known["clientId"], known["agent"], known["brokers"]) == (1, X, "a:1", ["c1/a/0"])
