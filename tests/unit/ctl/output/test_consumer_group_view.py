"""Agents share no state and may disagree: merging, counting once, flagging and display."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from rich.console import RenderableType

from pointsman.v1 import broker_pb2
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.v1.agent_service_pb2 import (
    DRAIN_STEP_STATE_DONE,
    DRAIN_STEP_STATE_FAILED,
    DRAIN_STEP_STATE_TIMED_OUT,
    DRAIN_STEP_UNREGISTER,
    DRAIN_STEP_WAIT_FOR_CONSUMERS,
    DRAIN_STEP_WAIT_FOR_PRODUCERS,
    DrainResponse,
    DrainStep,
    DrainStepState,
    UnreadGroup,
)
from pointsman.v1.route_service_pb2 import ClusterData
from pointsman.wire.error_details import ErrorDetails
from pointsman.wire.json_document import to_document
from pointsman.wire.refusals import FieldViolation
from pointsman_client import AgentFailedError, BrokerTimeoutError, RequestRejectedError
from pointsman_ctl.commands import drain_broker_command
from pointsman_ctl.commands.offset_commands import group_totals, offset_rows, offsets_parts, without_empty_retries
from pointsman_ctl.output import output_layout
from pointsman_ctl.output.consumer_group_view import (
    GroupView,
    group_parts,
    group_rows,
    group_view,
    groups_parts,
    shared_groups,
)
from pointsman_ctl.output.error_report import AGAIN_HINT, AGENT_HINT, agents_failed, to_error_report
from pointsman_ctl.output.group_queue_view import GroupQueuesView
from pointsman_ctl.servers.agent_queries import AgentGroup
from pointsman_ctl.servers.found_agents import Agent, agents_in

WARMING, READY = wire.GROUP_STATE_WARMING, wire.GROUP_STATE_READY
CLUSTERING, BROADCASTING = wire.MESSAGE_MODEL_CLUSTERING, wire.MESSAGE_MODEL_BROADCASTING
ONE, TWO, REPLICA = Agent("a:1", ("c1/a/0",)), Agent("b:1", ("c1/b/0",)), Agent("a:2", ("c1/a/1",))


def cluster(*replicas: tuple[int, str], name: str = "a", acting_master: bool = False) -> ClusterData:
    found = [
        broker_pb2.BrokerReplica(broker_id=each, addr=f"10.0.0.{each}:1", agent_addr=addr) for each, addr in replicas
    ]
    data = broker_pb2.BrokerData(cluster="c1", broker_name=name, replicas=found, acting_master=acting_master)
    return ClusterData(cluster="c1", broker_datas=[data])


def view_of(answers: Iterable[tuple[Agent, AgentGroup]]) -> GroupView:
    return group_view(answers, GroupQueuesView((), {}), now=datetime.fromtimestamp(1_000, tz=UTC))


def groups(*summaries: wire.GroupSummary, state: wire.GroupState.ValueType = READY) -> wire.ListGroupsResponse:
    return wire.ListGroupsResponse(state=state, groups=summaries)


def summary(
    group: str = "g", members: int = 1, model: wire.MessageModel.ValueType = CLUSTERING, **facts: object
) -> wire.GroupSummary:
    return wire.GroupSummary(group=group, members=members, message_model=model, **facts)  # type: ignore[arg-type]  # whatever the test sets


def member(
    client_id: str, *, joined: int = 100, silent: int = 5, topics: Iterable[str] = ("t",), peer: str = "10.0.0.9:5"
) -> wire.GroupMember:
    return wire.GroupMember(
        client_id=client_id,
        peer=peer,
        joined_at=Timestamp(seconds=joined),
        silent_for=Duration(seconds=silent),
        subscriptions=[wire.Subscription(topic=topic, expression="*") for topic in topics],
        is_connected=True,
    )


def group(*members: wire.GroupMember, state: wire.GroupState.ValueType = READY) -> AgentGroup:
    ids = [each.client_id for each in members]
    membership = wire.GroupMembership(group="g", state=state, client_ids=ids, message_model=CLUSTERING)
    return AgentGroup(wire.GetGroupResponse(membership=membership, members=members))


def offsets(
    *progress: tuple[int, int, int | None], group: str = "g", topic: str = "t"
) -> offsets_wire.ListOffsetsResponse:
    return offsets_wire.ListOffsetsResponse(
        progress=[
            offsets_wire.QueueProgress(
                group=group,
                committed=offsets_wire.QueueOffset(topic=topic, queue_id=queue_id, offset=offset),
                max_offset=end,
            )
            for queue_id, offset, end in progress
        ],
    )


def shown(capsys: pytest.CaptureFixture[str], parts: Iterable[RenderableType]) -> list[str]:
    output_layout.show(parts)
    return capsys.readouterr().out.splitlines()


# Which agents to query


def test_agents_are_those_of_masters_or_of_all_each_once() -> None:
    known = [cluster((0, "h:1"), (1, "h:2")), cluster((0, "h:1"), name="b")]

    assert agents_in(known, replicas_too=False).agents == (Agent("h:1", ("c1/a/0", "c1/b/0")),)
    assert [agent.addr for agent in agents_in(known, replicas_too=True).agents] == ["h:1", "h:2"]


def test_a_replica_that_acts_as_master_is_queried_in_its_place() -> None:
    replicas = ((1, "h:2"), (2, "h:3"))

    assert agents_in([cluster(*replicas)], replicas_too=False).agents == ()
    acting = agents_in([cluster(*replicas, acting_master=True)], replicas_too=False)
    assert acting.agents == (Agent("h:2", ("c1/a/1",)),)


def test_agents_of_all_name_servers_are_queried_and_only_a_broker_without_any_is_listed_as_such() -> None:
    found = agents_in(
        [cluster((0, "h:1")), cluster((0, "h:9")), cluster((0, "")), cluster((0, "no address"), name="b")],
        replicas_too=False,
    )

    assert [(agent.addr, agent.name) for agent in found.agents] == [("h:1", "c1/a/0"), ("h:9", "c1/a/0")]
    assert found.without == ("c1/b/0",)


def test_brokers_without_an_agent_are_queried_themselves_if_they_are_rocketmqs() -> None:
    known = [cluster((0, ""), (1, "")), cluster((0, ""), name="b"), cluster((0, "h:1"), name="c")]
    found = agents_in(known, replicas_too=False, rocketmq={"c1/a/0", "c1/a/1", "c1/c/0"})

    assert found.agents == (Agent("10.0.0.0:1", ("c1/a/0",), is_rocketmq=True), Agent("h:1", ("c1/c/0",)))
    assert found.without == ("c1/b/0",)


# Groups


def test_a_member_that_several_agents_know_counts_once() -> None:
    answers = [(ONE, groups(summary(members=2))), (TWO, groups(summary(members=2), summary("alone", members=7)))]
    assert shared_groups(answers) == {ONE: ["g"], TWO: ["g"]}

    members = {ONE: {"g": frozenset({"x", "y"})}, TWO: {"g": frozenset({"y", "z"})}}
    alone, both = group_rows(answers, members)
    assert (alone.members, alone.is_exact, alone.flags) == (7, True, ())
    assert (both.members, both.is_exact, both.flags) == (3, True, ("DIFFERS",))


@pytest.mark.parametrize(
    ("listed", "at_least"), [({}, 5), ({ONE: {"g": frozenset(map(str, range(9)))}}, 9), ({ONE: {}, TWO: {}}, 5)]
)
def test_where_ids_did_not_arrive_in_time_the_count_is_a_minimum(
    capsys: pytest.CaptureFixture[str], listed: dict[Agent, dict[str, frozenset[str]]], at_least: int
) -> None:
    answers = [(ONE, groups(summary(members=4))), (TWO, groups(summary(members=5)))]
    (row,) = rows = group_rows(answers, listed)

    assert (row.members, row.is_exact) == (at_least, False)
    assert f">={at_least}" in shown(capsys, groups_parts(answers, rows))[1]


def test_a_group_is_in_conflict_when_agents_report_different_allocations() -> None:
    answers = [(ONE, groups(summary())), (TWO, groups(summary(model=BROADCASTING, is_pinned=True)))]
    (row,) = group_rows(answers, {})

    assert row.models == ("BROADCASTING", "CLUSTERING")
    assert row.flags == ("CONFLICT", "PINNED")


def test_an_agent_that_warms_up_or_stops_is_not_compared_with_others() -> None:
    answers = [(ONE, groups(summary(members=2))), (TWO, groups(summary(), state=WARMING))]
    (row,) = group_rows(answers, {ONE: {"g": frozenset("xy")}, TWO: {"g": frozenset("x")}})
    assert (row.members, row.flags) == (2, ("WARMING",))

    view = view_of([(ONE, group(member("x"), member("y"))), (TWO, group(member("x"), state=WARMING))])
    assert view.is_agreed


def test_a_member_is_as_old_as_its_first_beat_and_as_silent_as_its_last_anywhere() -> None:
    first, later = member("x", joined=50, silent=9, topics=["t", "u"]), member("x", joined=60, silent=2, topics=["t"])
    view = view_of([(ONE, group(later)), (TWO, group(first)), (REPLICA, AgentGroup(None))])
    (row,) = view.members

    assert (row.joined_first.joined_at.seconds, row.silent_seconds) == (50, 2.0)
    assert row.subscriptions == (("t", "*"), ("u", "*"))
    assert (row.missing_at, view.unknown_at) == ((), (REPLICA,))


def test_what_rocketmq_brokers_do_not_report_is_left_open_unless_an_agent_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unknown = member("x@1")
    unknown.ClearField("joined_at")
    unknown.ClearField("silent_for")
    of_broker = AgentGroup(group(unknown).group, {"x@1": "JAVA 5.3.3"})

    (row,) = view_of([(ONE, of_broker)]).members
    assert (row.client, row.silent_seconds, row.joined_first.HasField("joined_at")) == ("JAVA 5.3.3", None, False)
    header, line, *_ = shown(capsys, group_parts(view_of([(ONE, of_broker)])))
    assert header.split()[2] == "CLIENT"
    assert " ".join(line.split()).startswith("x@1 10.0.0.9:5 JAVA 5.3.3 - - 1/1")

    (row,) = view_of([(ONE, of_broker), (TWO, group(member("x@1")))]).members
    assert (row.silent_seconds, row.joined_first.joined_at.seconds) == (5.0, 100)


@pytest.mark.parametrize(
    ("peers", "words"),
    [
        (["h:1"], " h:1 "),
        (["h:1", "h:2"], " h "),
        (["[::1]:1", "g:2"], " [::1] g "),
        (["h:1", "g:1", "f:1", "e:1"], " h g and 2 more "),
    ],
)
def test_a_member_is_where_its_connections_come_from(
    capsys: pytest.CaptureFixture[str], peers: list[str], words: str
) -> None:
    agents = [Agent(f"agent:{number}") for number in range(1, len(peers) + 1)]
    answers = [(agent, group(member("x", peer=peer))) for agent, peer in zip(agents, peers, strict=True)]
    assert words in shown(capsys, group_parts(view_of(answers)))[1]


def test_names_from_clients_cannot_control_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "10.0.0.1@\x1b[2J"
    known = group(member(evil), member("other"))
    lines = shown(capsys, group_parts(view_of([(ONE, known), (TWO, group(member("other")))])))

    assert "\x1b" not in "\n".join(lines)
    assert any(line.startswith("DIFFERS: b:1 (c1/b/0) does not know 10.0.0.1@") for line in lines)


def test_values_that_are_newer_than_this_program_are_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    newer = summary(model=77)  # type: ignore[arg-type]  # a value of a later version
    answers = [(ONE, groups(newer, state=99))]  # type: ignore[arg-type]  # as above
    assert "77" in shown(capsys, groups_parts(answers, group_rows(answers, {})))[1]
    words = drain_broker_command.outcome_text(DrainResponse(step=42, state=43))  # type: ignore[arg-type]  # as above
    assert words == "42 43"


def test_a_drain_shows_each_group_with_its_unread_messages_and_why_one_is_not_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    news = DrainResponse(
        step=DRAIN_STEP_WAIT_FOR_CONSUMERS,
        state=DRAIN_STEP_STATE_TIMED_OUT,
        detail="16 unread messages of 3 groups; going on",
        groups=[
            UnreadGroup(group="billing", lag=7, retry_lag=2, member_count=3),
            UnreadGroup(group="young", lag=1),
            UnreadGroup(group="old", lag=8, member_count=0),
        ],
    )

    assert shown(capsys, drain_broker_command.drain_parts(news))[1:] == [
        "          billing: 7 unread, 2 of them in retry queues; members: 3",
        "          young: 1 unread; members unknown",
        "          old: 8 unread; no member: not waited for",
    ]
    assert drain_broker_command.outcome_text(news) == "WAIT_FOR_CONSUMERS TIMED_OUT (unread: billing 7, young 1, old 8)"
    assert to_document(news)["groups"] == [
        {"group": "billing", "lag": 7, "retryLag": 2, "memberCount": 3},
        {"group": "young", "lag": 1, "retryLag": 0, "memberCount": None},
        {"group": "old", "lag": 8, "retryLag": 0, "memberCount": 0},
    ]


@pytest.mark.parametrize(
    ("step", "state", "is_late"),
    [
        (DRAIN_STEP_WAIT_FOR_CONSUMERS, DRAIN_STEP_STATE_TIMED_OUT, True),
        (DRAIN_STEP_WAIT_FOR_PRODUCERS, DRAIN_STEP_STATE_TIMED_OUT, True),
        (DRAIN_STEP_WAIT_FOR_CONSUMERS, DRAIN_STEP_STATE_FAILED, True),
        (DRAIN_STEP_UNREGISTER, DRAIN_STEP_STATE_FAILED, False),
        (DRAIN_STEP_WAIT_FOR_CONSUMERS, DRAIN_STEP_STATE_DONE, False),
    ],
)
def test_a_drain_is_late_when_a_wait_timed_out_or_messages_stay_unread(
    step: DrainStep.ValueType, state: DrainStepState.ValueType, is_late: bool
) -> None:
    assert drain_broker_command.is_late(DrainResponse(step=step, state=state)) is is_late


# Offsets


def test_a_queue_that_a_replicas_agent_reports_too_counts_once_with_the_highest_offset() -> None:
    answers = [(ONE, offsets((0, 9, 10), (1, 5, None))), (REPLICA, offsets((0, 4, 10))), (TWO, offsets((0, 1, 3)))]
    (total,) = group_totals(offset_rows(answers))

    assert (total.queues, total.lag, total.without_end) == (3, 3, 1)


def test_an_offset_beyond_the_end_gives_a_lag_of_zero() -> None:
    (row,) = offset_rows([(ONE, offsets((0, 9, 4)))])
    assert (row.lag, row.is_beyond_end) == (0, True)


def test_retry_queues_that_are_read_to_their_end_are_folded_and_others_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    retries = offsets((0, 0, 0), (1, 7, 7), (2, 3, 5), (3, 9, 4), (4, 0, None), topic="%RETRY%g")
    rows = offset_rows([(ONE, offsets((0, 5, 5))), (ONE, retries)])
    kept = without_empty_retries(rows)
    places = [(row.progress.committed.topic, row.progress.committed.queue_id) for row in kept]
    assert places == [("t", 0), ("%RETRY%g", 2), ("%RETRY%g", 3)]
    lines = shown(capsys, offsets_parts(kept, group_totals(rows), folded=2))
    assert "2 queues of retry topics hidden; show with --retry" in lines
    assert lines[-1].split() == ["g", "1", "2", "1", "retry", "queue"]


def test_a_group_with_empty_retry_queues_alone_has_its_total(capsys: pytest.CaptureFixture[str]) -> None:
    rows = offset_rows([(ONE, offsets((0, 0, 0), topic="%RETRY%g"))])
    lines = shown(capsys, offsets_parts((), group_totals(rows), folded=1))
    assert lines[0] == "1 queue of retry topics hidden; show with --retry"
    assert lines[-1].split() == ["g", "0", "0", "-"]


@given(st.dictionaries(st.integers(0, 50), st.tuples(st.integers(0, 2**63), st.none() | st.integers(0, 2**63))))
def test_totals_are_the_sums_of_the_rows(queues: dict[int, tuple[int, int | None]]) -> None:
    rows = offset_rows([(ONE, offsets(*((queue_id, *ends) for queue_id, ends in queues.items())))])
    lags = [max(0, end - offset) for offset, end in queues.values() if end is not None]
    totals = group_totals(rows)

    assert [(total.queues, total.lag, total.without_end) for total in totals] == (
        [(len(queues), sum(lags), len(queues) - len(lags))] if queues else []
    )


# Failures


def test_a_refusal_names_each_field_and_is_not_tried_again() -> None:
    details = ErrorDetails("INVALID_REQUEST", {}, (FieldViolation("to[0]", "must not be empty: ''"),))
    refusal = RequestRejectedError("a:1", grpc.StatusCode.INVALID_ARGUMENT, "to[0] must not be empty", details)
    alone = agents_failed({"a:1": refusal}, of=["a:1"], is_change=False)
    some = agents_failed({"a:1": refusal}, of=["a:1", "b:1"], is_change=True)

    assert alone.to_line() == "pointsmanctl: rejected by a:1 (to[0] must not be empty: '')"
    assert alone.code == some.code == "INVALID_REQUEST"
    assert (some.message, some.hint) == ("1 of 2 agents failed: a:1 (to[0] must not be empty: ''); done at b:1", "")
    assert to_error_report(refusal).message == "a:1 rejected the request: to[0] must not be empty: ''"


def test_servers_that_respond_and_fail_are_not_called_silent() -> None:
    read = agents_failed({"a:1": BrokerTimeoutError("a:1", "full")}, of=["a:1"], is_change=False, noun="broker")
    made = agents_failed({"a:1": BrokerTimeoutError("a:1", "full")}, of=["a:1"], is_change=True, noun="server")
    assert (read.message, read.hint) == ("1 of 1 brokers failed: a:1 (broker a:1: full)", "")
    assert (made.message, made.hint) == ("1 of 1 servers failed: a:1 (broker a:1: full)", AGAIN_HINT)


def test_each_kind_of_failure_has_its_own_exit_code_and_one_hint() -> None:
    refused = AgentFailedError("a:1", grpc.StatusCode.UNAVAILABLE, "Connection refused")
    late = AgentFailedError("b:1", grpc.StatusCode.DEADLINE_EXCEEDED, "")
    no = RequestRejectedError("a:2", grpc.StatusCode.FAILED_PRECONDITION, "held", ErrorDetails("HELD_BY_OTHER"))
    report = agents_failed({"a:1": refused, "b:1": late, "a:2": no}, of=["a:1", "b:1", "a:2"], is_change=False)

    assert report.code == "AGENTS_FAILED"
    assert report.hint == AGENT_HINT
    assert report.servers == {"a:1": "connection refused", "b:1": "no response in time", "a:2": "held"}
