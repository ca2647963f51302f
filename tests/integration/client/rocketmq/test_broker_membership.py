"""A consumer's place in its group, at brokers that coordinate groups themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman_client.core.rebalance import ConsumeFrom, Members, MessageModel
from pointsman_client.core.subscription import SqlFilter
from pointsman_client.rocketmq.groups.broker_membership import (
    HEARTBEAT_INTERVAL_SECONDS,
    MAX_CLIENT_IDS,
    STALE_CONNECTION_SECONDS,
    BrokerMembership,
)
from pointsman_client.rocketmq.groups.member_links import MemberLinks
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from tests.kit.broker.rocketmq.fake_broker import Answer
from tests.kit.broker.rocketmq.group_broker import GroupBroker, routed
from tests.kit.client.memory_group import RoutesInMemory
from tests.kit.waiting import eventually

C1, C2 = "10.0.0.1@1", "10.0.0.2@1"


@dataclass
class Member:
    """A membership, and what it reported to its consumer."""

    membership: BrokerMembership
    links: MemberLinks
    subscriptions: dict[str, str]
    changes: list[tuple[str, ...]] = field(default_factory=list)
    joins: int = 0

    @property
    def sees(self) -> tuple[str, ...] | None:
        members = self.membership.members
        return None if members is None else members.client_ids

    async def close(self) -> None:
        await self.membership.leave()
        await self.links.close()


Join = Callable[..., Awaitable[Member]]


@pytest.fixture
def routes(clock: ManualClock) -> RoutesInMemory:
    return RoutesInMemory(clock)


@pytest.fixture
async def join(clock: ManualClock, routes: RoutesInMemory) -> AsyncIterator[Join]:
    async with AsyncExitStack() as stack:

        async def join_group(
            client_id: str = C1,
            *,
            group: str = "billing",
            model: MessageModel = MessageModel.CLUSTERING,
            retries: bool = False,
            consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        ) -> Member:
            def handle(*_: object) -> None:
                member.membership.list_changed()

            def lost(addr: str) -> None:
                member.membership.connection_lost(addr)

            def changed() -> None:
                members = member.membership.members
                assert isinstance(members, Members)
                member.changes.append(members.client_ids)

            def joined() -> None:
                member.joins += 1

            links = MemberLinks(
                RocketmqOptions(connect_timeout_seconds=0.5),
                on_request=handle,
                on_lost=lost,
            )
            subscriptions = {"orders": "*"}
            membership = BrokerMembership(
                routes,
                links,
                group=group,
                client_id=client_id,
                is_listener=True,
                retries=retries,
                message_model=model,
                consume_from=consume_from,
                subscriptions=lambda: subscriptions,
                on_change=changed,
                on_joined=joined,
                clock=clock,
            )
            member = Member(membership, links, subscriptions)
            stack.push_async_callback(member.close)
            await membership.start()
            return member

        yield join_group


@pytest.fixture
async def broker(routes: RoutesInMemory) -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as broker:
        routes.set(routed("orders", {"a": broker.addr}))
        yield broker


async def passes(clock: ManualClock, seconds: float, *, step: float = 0.5) -> None:
    """Let time pass, with turns of the event loop in which sockets are read."""
    for _ in range(int(seconds / step)):
        await clock.advance(step)
        await asyncio.sleep(0.003)


def error_at(member: Member, broker: GroupBroker) -> str:
    brokers = member.membership.describe()["brokers"]
    assert isinstance(brokers, dict)
    return str(brokers[broker.addr]["error"])


# --- heartbeats -----------------------------------------------------------------------------------------------


async def test_a_heartbeat_is_that_of_rocketmqs_client(join: Join, broker: GroupBroker, clock: ManualClock) -> None:
    member = await join(retries=True)
    await eventually(lambda: broker.heartbeats, clock=clock)
    version = int(clock.utc_now().timestamp() * 1000)
    member.subscriptions["orders"] = "B||A"
    member.membership.subscriptions_changed()
    await eventually(lambda: len(broker.heartbeats) == 2, clock=clock)
    (consumer,) = broker.heartbeats[1].pop("consumerDataSet")
    assert broker.heartbeats[1] == {"clientID": C1, "producerDataSet": []}
    retries, orders = consumer.pop("subscriptionDataSet")
    assert consumer == {
        "groupName": "billing",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "unitMode": False,
    }
    assert abs(orders.pop("subVersion") - version) < 10_000
    assert orders == {
        "topic": "orders",
        "subString": "A || B",
        "expressionType": "TAG",
        "classFilterMode": False,
        "tagsSet": ["A", "B"],
        "codeSet": [65, 66],
    }
    assert (retries["topic"], retries["subString"], retries["codeSet"]) == ("%RETRY%billing", "*", [])


async def test_a_condition_is_in_the_heartbeat_and_compared_with_that_of_other_members(
    join: Join, broker: GroupBroker, clock: ManualClock
) -> None:
    member = await join()
    condition = SqlFilter("amount > 1")
    member.subscriptions["orders"] = condition
    member.membership.subscriptions_changed()
    await eventually(
        lambda: (
            broker.heartbeats
            and broker.heartbeats[-1]["consumerDataSet"][0]["subscriptionDataSet"][0]["subString"] != "*"
        ),
        clock=clock,
    )
    (sent,) = broker.heartbeats[-1]["consumerDataSet"][0]["subscriptionDataSet"]
    assert (sent["subString"], sent["expressionType"], sent["tagsSet"]) == ("amount > 1", "SQL92", [])
    broker.extra_ids = [C2]
    await eventually(lambda: member.sees is not None and C1 in member.sees, clock=clock)
    await member.membership.refresh_members()
    for shown, expected in (
        ({"expressionType": "SQL92", "subString": "amount > 2", "tagsSet": []}, True),
        ({"expressionType": "TAG", "subString": "amount > 1", "tagsSet": ["amount > 1"]}, True),
        ({"expressionType": "SQL92", "subString": "amount > 1", "tagsSet": []}, False),
    ):
        broker.subscriptions = {"orders": {"topic": "orders", **shown}}
        before = len(broker.heartbeats)
        await clock.advance(HEARTBEAT_INTERVAL_SECONDS)
        await eventually(lambda: len(broker.heartbeats) > before)  # noqa: B023
        assert member.membership.describe()["conflictingSubscriptions"] is expected, shown


async def test_the_version_of_subscriptions_rises_only_when_they_change(
    join: Join, broker: GroupBroker, clock: ManualClock
) -> None:
    member = await join()
    await eventually(lambda: broker.heartbeats, clock=clock)
    await eventually(lambda: len(broker.heartbeats) == 3, clock=clock, step=5.0)
    for expression in ("A", "*"):
        before = len(broker.heartbeats)
        member.subscriptions["orders"] = expression
        member.membership.subscriptions_changed()
        await eventually(lambda before=before: len(broker.heartbeats) > before, clock=clock)  # type: ignore[misc]
    versions = [each["consumerDataSet"][0]["subscriptionDataSet"][0]["subVersion"] for each in broker.heartbeats]
    assert versions[0] == versions[1] == versions[2] < versions[3] < versions[4]


async def test_heartbeats_are_sent_every_30_seconds(join: Join, broker: GroupBroker, clock: ManualClock) -> None:
    await join()
    await eventually(lambda: broker.heartbeats, clock=clock)
    await passes(clock, 10 * HEARTBEAT_INTERVAL_SECONDS + 5)
    assert 10 <= len(broker.heartbeats) <= 11


async def test_a_lost_connection_is_joined_again_soon_but_not_too_often(
    join: Join, broker: GroupBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    member = await join()
    await eventually(lambda: member.sees == (C1,), clock=clock)
    before = clock.monotonic()
    broker.close_connections()
    await eventually(lambda: len(broker.heartbeats) == 2 and broker.client_ids() == [C1], clock=clock)
    assert clock.monotonic() - before < HEARTBEAT_INTERVAL_SECONDS / 2
    await eventually(lambda: member.joins == 2, clock=clock)

    class Cutting(list[object]):
        """Heartbeats, after each of which the connection is closed."""

        def append(self, item: object) -> None:
            super().append(item)
            asyncio.get_running_loop().call_later(0.005, broker.close_connections)

    broker.heartbeats = Cutting()  # type: ignore[assignment]
    broker.close_connections()
    await passes(clock, 10.0, step=0.1)
    assert 2 <= len(broker.heartbeats) <= 5
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_broker_that_is_down_at_the_start_is_joined_when_it_is_up(
    join: Join, broker: GroupBroker, routes: RoutesInMemory, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with GroupBroker() as late:
        await late.stop()
        routes.set(routed("orders", {"a": late.addr, "b": broker.addr}))
        member = await join()
        await eventually(lambda: member.sees == (C1,), clock=clock)
        await passes(clock, 12.0)
        assert len(broker.heartbeats) == 1
        assert [text for text in caplog.messages if "failed at broker" in text] == [
            text for text in caplog.messages if late.addr in text and "cannot connect" in text
        ]
        await late.start()
        await eventually(lambda: late.client_ids() == [C1], clock=clock)
        await eventually(lambda: f"heartbeat of group billing accepted by broker {late.addr}" in caplog.messages)


async def test_a_slave_and_a_retry_topics_broker_get_heartbeats_too(
    join: Join, broker: GroupBroker, routes: RoutesInMemory, clock: ManualClock
) -> None:
    async with GroupBroker() as slave, GroupBroker() as other:
        route = routed("orders", {"a": broker.addr})
        (data,) = route.broker_datas
        replicas = (*data.replicas, replace(data.replicas[0], broker_id=1, addr=slave.addr))
        routes.set(replace(route, broker_datas=(replace(data, replicas=replicas),)))
        routes.set(routed("%RETRY%billing", {"b": other.addr}))
        member = await join(retries=True)
        await eventually(lambda: all(each.client_ids() for each in (broker, slave, other)), clock=clock)
        await eventually(lambda: member.sees == (C1,), clock=clock)
        assert Request.GET_CONSUMER_LIST_BY_GROUP not in slave.codes()


async def test_leaving_unregisters_at_every_broker(
    join: Join, broker: GroupBroker, routes: RoutesInMemory, clock: ManualClock
) -> None:
    async with GroupBroker() as other:
        routes.set(routed("orders", {"a": broker.addr, "b": other.addr}))
        first, second = await join(), await join(C2, model=MessageModel.BROADCASTING)
        await eventually(lambda: len(broker.client_ids()) == len(other.client_ids()) == 2, clock=clock)
        other.dropped.add(Request.UNREGISTER_CLIENT)  # It does it, and does not say so.
        async with asyncio.timeout(10):
            await first.membership.leave()
        assert broker.client_ids() == other.client_ids() == [C2]
        assert second.sees is None  # No member of a broadcasting group needs the list.
        heartbeats = len(broker.heartbeats)
        await passes(clock, 2 * HEARTBEAT_INTERVAL_SECONDS)
        assert len(broker.heartbeats) <= heartbeats + 2  # Those of the second.


async def test_a_broker_of_no_subscribed_topic_loses_the_member(
    join: Join, broker: GroupBroker, routes: RoutesInMemory, clock: ManualClock
) -> None:
    async with GroupBroker() as other:
        routes.set(routed("refunds", {"b": other.addr}))
        member = await join()
        member.subscriptions["refunds"] = "*"
        member.membership.subscriptions_changed()
        await eventually(lambda: broker.client_ids() and other.client_ids(), clock=clock)
        # A commit is on its way when the topic is removed; it is not lost.
        other.held.add(Request.UPDATE_CONSUMER_OFFSET)
        ext = {"consumerGroup": "billing", "topic": "refunds", "queueId": "0", "commitOffset": "7"}
        commit = asyncio.ensure_future(
            member.links.call(other.addr, Request.UPDATE_CONSUMER_OFFSET, ext, timeout_seconds=20)
        )
        await other.until_held()
        del member.subscriptions["refunds"]
        member.membership.subscriptions_changed()
        await eventually(lambda: len(broker.heartbeats) == 3, clock=clock)
        other.release()
        assert (await commit).command.code == Code.SUCCESS
        await eventually(lambda: not other.client_ids() and not other.peers, clock=clock)
        assert broker.client_ids() == [C1]


# --- the list -------------------------------------------------------------------------------------------------


async def test_members_are_known_when_the_broker_lists_this_client(
    join: Join, broker: GroupBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker.hidden_ids, broker.extra_ids = {C1}, [C2]
    member = await join()
    await eventually(lambda: Request.GET_CONSUMER_LIST_BY_GROUP in broker.codes(), clock=clock)
    await passes(clock, 10.0)
    assert member.sees is None
    assert 3 <= len(broker.heartbeats) <= 6  # It joins again each 3 s, since the broker does not know it.
    # A broker without autoCreateSubscriptionGroup accepts heartbeats of a group that it does not have.
    await passes(clock, 10.0)
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert warning.startswith(f"broker {broker.addr} accepts heartbeats but does not list this member of group billing")
    broker.hidden_ids = set()
    await eventually(lambda: member.sees == (C1, C2), clock=clock)
    assert member.changes == [(C1, C2)]


async def test_a_notice_of_a_broker_updates_the_list(join: Join, broker: GroupBroker, clock: ManualClock) -> None:
    first = await join()
    await eventually(lambda: first.sees == (C1,), clock=clock)
    heartbeats = len(broker.heartbeats)
    second = await join(C2)
    await eventually(lambda: first.sees == second.sees == (C1, C2), clock=clock)
    await second.close()
    await eventually(lambda: first.sees == (C1,), clock=clock)
    assert len(broker.heartbeats) == heartbeats + 1
    assert first.changes == [(C1,), (C1, C2), (C1,)]


async def test_notices_do_not_make_many_queries(join: Join, broker: GroupBroker, clock: ManualClock) -> None:
    member = await join()
    await eventually(lambda: member.sees == (C1,), clock=clock)
    before = broker.codes().count(Request.GET_CONSUMER_LIST_BY_GROUP)
    for _ in range(100):
        broker.notify()
        await passes(clock, 0.1, step=0.1)
    assert broker.codes().count(Request.GET_CONSUMER_LIST_BY_GROUP) - before <= 60


async def test_two_clients_with_one_id_are_reported_but_not_an_own_old_connection(
    join: Join, broker: GroupBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    member = await join()
    await eventually(lambda: member.sees == (C1,), clock=clock)
    broker.extra_ids = [C1]
    broker.close_connections()
    await eventually(lambda: member.joins == 2, clock=clock)
    for _ in range(5):
        await member.membership.refresh_members()
    assert (member.sees, member.membership.describe()["duplicateClientId"]) == ((C1,), False)
    await clock.advance(STALE_CONNECTION_SECONDS)
    for _ in range(5):
        await member.membership.refresh_members()
    assert member.membership.describe()["duplicateClientId"] is True
    assert member.membership.problems() == [f"client id {C1} is used twice"]
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        f"client id {C1} is used twice in group billing: both consumers read the same queues; use different client_ids"
    ]
    broker.extra_ids = []
    await member.membership.refresh_members()
    assert member.membership.describe()["duplicateClientId"] is False
    assert member.membership.problems() == []


async def test_a_list_that_arrives_late_does_not_replace_a_newer_one(
    join: Join, broker: GroupBroker, clock: ManualClock
) -> None:
    member = await join()
    await eventually(lambda: member.sees == (C1,), clock=clock)
    await passes(clock, 1.0, step=0.1)
    broker.held.add(Request.GET_CONSUMER_LIST_BY_GROUP)
    older = asyncio.ensure_future(member.membership.refresh_members())
    await broker.until_held()
    broker.extra_ids = [C2]
    newer = asyncio.ensure_future(member.membership.refresh_members())
    await broker.until_held(2)
    broker.release(reverse=True)
    await asyncio.gather(older, newer)
    assert member.sees == (C1, C2)


async def test_with_the_first_broker_down_the_list_is_taken_from_another(
    join: Join, routes: RoutesInMemory, clock: ManualClock
) -> None:
    async with GroupBroker() as a, GroupBroker() as b, GroupBroker() as c:
        routes.set(routed("orders", {"a": a.addr, "b": b.addr, "c": c.addr}))
        member = await join()
        await eventually(lambda: member.sees == (C1,), clock=clock)
        await eventually(lambda: b.client_ids() and c.client_ids(), clock=clock)
        await a.stop()
        c.extra_ids = ["not asked"]
        b.extra_ids = [C2]
        await eventually(lambda: member.sees == (C1, C2), clock=clock)
        # One that hangs is passed over, too, once it did not answer a heartbeat.
        b.is_hanging = True
        await eventually(lambda: member.sees == (C1, "not asked"), clock=clock, step=0.2)
        await a.start()


async def test_every_code_in_place_of_an_answer_changes_nothing(
    join: Join, broker: GroupBroker, clock: ManualClock
) -> None:
    member = await join()
    await eventually(lambda: member.sees == (C1,), clock=clock)
    broker.extra_ids = [C2]
    for code in [code for code in Code if code is not Code.SUCCESS]:
        broker.answers[Request.HEART_BEAT] = broker.answers[Request.GET_CONSUMER_LIST_BY_GROUP] = Answer(code)
        member.membership.subscriptions_changed()
        await eventually(lambda code=code: str(code.value) in error_at(member, broker), clock=clock)  # type: ignore[misc]
        await member.membership.refresh_members()
        assert member.sees == (C1,)
    broker.answers.clear()
    await eventually(lambda: member.sees == (C1, C2), clock=clock, step=0.5)
    assert error_at(member, broker) == ""


async def test_while_heartbeats_are_refused_they_are_sent_every_3_seconds(
    join: Join, broker: GroupBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker.answers[Request.HEART_BEAT] = Answer(Code.SYSTEM_BUSY)
    member = await join()
    await passes(clock, 31.0)
    assert 9 <= broker.codes().count(Request.HEART_BEAT) <= 11
    assert Request.GET_CONSUMER_LIST_BY_GROUP not in broker.codes()
    assert (member.joins, len([text for text in caplog.messages if "failed at broker" in text])) == (0, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"consumerIdList":null}',
        b'{"consumerIdList":{"a":1}}',
        b'{"consumerIdList":[1,null,["10.0.0.1@1"]]}',
        b'{"consumerIdList":["10.0.0.1@1"' + b',"x"' * MAX_CLIENT_IDS + b"]}",
    ],
)
async def test_a_list_that_cannot_be_used_changes_nothing(
    join: Join, broker: GroupBroker, clock: ManualClock, body: bytes
) -> None:
    member = await join()
    await eventually(lambda: member.sees == (C1,), clock=clock)
    broker.extra_ids = [C2]
    broker.answers[Request.GET_CONSUMER_LIST_BY_GROUP] = Answer(body=body)
    await member.membership.refresh_members()
    assert member.sees == (C1,)
    broker.answers.clear()
    await member.membership.refresh_members()
    assert member.changes == [(C1,), (C1, C2)]


async def test_of_a_broker_that_hangs_with_the_list_another_one_is_asked(
    join: Join, broker: GroupBroker, routes: RoutesInMemory, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with GroupBroker() as other:
        routes.set(routed("orders", {"a": broker.addr, "b": other.addr}))
        broker.dropped.add(Request.GET_CONSUMER_LIST_BY_GROUP)
        member = await join()
        await eventually(lambda: member.sees == (C1,), clock=clock)
        assert len([text for text in caplog.messages if "did not return the members" in text]) == 1


async def test_a_client_id_that_cannot_be_encoded_is_a_member_like_others(
    join: Join, broker: GroupBroker, clock: ManualClock
) -> None:
    broker.extra_ids.append("\ud800")
    member = await join()
    await eventually(lambda: member.sees == (C1, "?"), clock=clock)


@pytest.mark.parametrize("fault", ["cut", "doubled", "dropped"])
async def test_damaged_doubled_and_missing_answers_are_survived(
    join: Join, broker: GroupBroker, clock: ManualClock, fault: str
) -> None:
    codes = {Request.HEART_BEAT, Request.GET_CONSUMER_LIST_BY_GROUP}
    getattr(broker, fault).update(codes)
    member = await join()
    await eventually(lambda: broker.codes().count(Request.HEART_BEAT) >= 2, clock=clock, step=0.5)
    getattr(broker, fault).clear()
    await eventually(lambda: member.sees == (C1,), clock=clock, step=0.5)


async def test_two_groups_of_one_process_have_separate_connections(
    join: Join, broker: GroupBroker, clock: ManualClock
) -> None:
    first, second = await join(), await join(C1, group="audit")
    await eventually(lambda: first.sees == second.sees == (C1,), clock=clock)
    assert broker.connections == 2
    await second.close()
    assert (broker.client_ids(), broker.client_ids("audit")) == ([C1], [])


async def test_other_subscriptions_of_other_members_are_logged(
    join: Join, broker: GroupBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def table(**tags: list[str]) -> dict[str, Any]:
        everything: dict[str, list[str]] = {"%RETRY%billing": [], **tags}
        return {topic: {"topic": topic, "expressionType": "TAG", "tagsSet": each} for topic, each in everything.items()}

    async def after_a_heartbeat() -> tuple[bool, int]:
        before = len(broker.heartbeats)
        await clock.advance(HEARTBEAT_INTERVAL_SECONDS)
        await eventually(lambda: len(broker.heartbeats) > before)
        queries = broker.codes().count(Request.GET_CONSUMER_CONNECTION_LIST)
        return bool(member.membership.describe()["conflictingSubscriptions"]), queries

    member = await join()
    await eventually(lambda: member.sees == (C1,), clock=clock)
    assert await after_a_heartbeat() == (False, 0)
    broker.extra_ids, broker.subscriptions = [C2], table(orders=[], refunds=[])
    await member.membership.refresh_members()
    seen: list[tuple[dict[str, Any], bool]] = [
        (table(orders=[], refunds=[]), True),
        (table(orders=["paid"]), True),
        ({"orders": {"expressionType": "SQL92", "subString": "*", "tagsSet": []}}, True),
        ({"orders": "*"}, True),
        (table(orders=[]), False),
    ]
    for number, (others, expected) in enumerate(seen, start=1):
        broker.subscriptions = others
        assert await after_a_heartbeat() == (expected, number), others
    assert await after_a_heartbeat() == (False, 5)
    # They are compared again when they or the members changed. A broker may reject the query.
    heartbeats = len(broker.heartbeats)
    member.subscriptions["refunds"] = "*"
    member.membership.subscriptions_changed()
    await eventually(lambda: len(broker.heartbeats) > heartbeats, clock=clock)
    broker.subscriptions = table(orders=[], refunds=[])
    assert await after_a_heartbeat() == (False, 6)
    broker.extra_ids, broker.subscriptions = [C2, "10.0.0.3@1"], None
    await member.membership.refresh_members()
    assert await after_a_heartbeat() == (False, 7)
    assert await after_a_heartbeat() == (False, 7)
    first, last = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert first.startswith("members of group billing have different subscriptions, so some messages reach no member")
    assert last == "members of group billing have the same settings again"


async def test_another_message_model_or_consume_type_of_other_members_is_logged_under_its_name(
    join: Join, broker: GroupBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def differences_after(**shown: str) -> object:
        broker.shown = shown
        before = len(broker.heartbeats)
        await clock.advance(HEARTBEAT_INTERVAL_SECONDS)
        await eventually(lambda: len(broker.heartbeats) > before)
        return member.membership.describe()["differences"]

    member = await join()
    await eventually(lambda: member.sees == (C1,), clock=clock)
    broker.extra_ids = [C2]
    broker.subscriptions = {"orders": {"topic": "orders", "expressionType": "TAG", "tagsSet": []}}
    await member.membership.refresh_members()
    equal = {"messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY"}
    broadcasting = await differences_after(**equal | {"messageModel": "BROADCASTING"})
    polling = await differences_after(**equal | {"consumeType": "CONSUME_ACTIVELY"})
    assert (broadcasting, polling) == (["message models"], ["consume types (push and pull)"])
    assert await differences_after(**equal) == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "members of group billing have different message models; give all members the same",
        "members of group billing have different consume types (push and pull); give all members the same",
        "members of group billing have the same settings again",
    ]
