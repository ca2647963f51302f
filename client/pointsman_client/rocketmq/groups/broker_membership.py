"""A consumer's place in its group at RocketMQ brokers: heartbeats (34, 35) and the list of members (38, 40).

Every broker of the subscribed topics gets heartbeats, slaves too (RocketMQ ``sendHeartbeatToAllBroker``), since each
knows only the members that send some to it. One of them is asked for the list.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pointsman.clock import Clock
from pointsman.group_topics import retry_topic
from pointsman.rocketmq.codes import BrokerRequestCode, BrokerResponseCode
from pointsman.rocketmq.frames import compact
from pointsman.tag_expression import ALL
from pointsman_client.aio import Wakeup, end_tasks, start_task
from pointsman_client.core.rebalance import ConsumeFrom, Members, MessageModel
from pointsman_client.core.route import BrokerData
from pointsman_client.core.subscription import SqlFilter, Subscription, expression_type
from pointsman_client.errors import BrokerRefusedError, PointsmanError
from pointsman_client.ports.coordination import RoutedBrokers
from pointsman_client.rocketmq.groups.member_links import MemberLinks, json_object
from pointsman_client.rocketmq.message_codec import tag_code

HEARTBEAT_INTERVAL_SECONDS = 30.0
"""RocketMQ ``heartbeatBrokerInterval``; a broker expires a member 120 s after its last heartbeat."""
RETRY_SECONDS = 3.0
"""Interval while a broker has not accepted a heartbeat, or no route is known."""
FIRST_POLL_SECONDS = 0.5
"""The same before the first broker is known."""
MIN_ROUND_SECONDS = 0.2
"""Shortest time between two rounds of heartbeats, however often connections break."""
CALL_SECONDS = 3.0
REFRESH_SECONDS = 1.0
UNLISTED_SECONDS = 2 * RETRY_SECONDS
"""After this time without a list that has this member it is logged: the broker may not know the group."""
LEAVE_SECONDS = 1.5
MAX_CLIENT_IDS = 20_000
"""Longest list of members that is accepted from a broker."""
STALE_CONNECTION_SECONDS = 130.0
"""How long a broker may list a client id twice after its connection broke: brokers remove a silent connection after 120
to 130 s."""

SUBSCRIPTIONS = "subscriptions"

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Joined:
    error: PointsmanError | None = None
    """Of the last heartbeat; None: accepted."""
    sent_at: float = -math.inf
    next_at: float = -math.inf
    lost_at: float = -math.inf
    """When the last connection broke."""
    list_failed_at: float = -math.inf
    """When it last did not return the list of members."""


class BrokerMembership:
    """See :class:`~pointsman_client.ports.coordination.GroupMembership`. A broadcasting group has no list."""

    def __init__(
        self,
        brokers: RoutedBrokers,
        links: MemberLinks,
        *,
        group: str,
        client_id: str,
        is_listener: bool,
        leases: bool = False,
        retries: bool,
        message_model: MessageModel,
        consume_from: ConsumeFrom,
        subscriptions: Callable[[], Mapping[str, str]],
        on_change: Callable[[], None],
        on_joined: Callable[[], None],
        clock: Clock,
    ) -> None:
        """``subscriptions``: topics with their tag expressions, now. ``retries``: the retry topic is subscribed, too.

        ``on_change``: called when :attr:`members` differs. ``on_joined``: called when a broker accepted this member for
        the first time, or again after its connection broke: it may have lost what it knew.
        """
        self._brokers = brokers
        self._links = links
        self._group = group
        self._client_id = client_id
        self._is_listener = is_listener
        self._leases = leases
        self._retries = retries
        self._message_model = message_model
        self._consume_from = consume_from
        self._subscriptions = subscriptions
        self._on_change = on_change
        self._on_joined = on_joined
        self._clock = clock
        self._joined: dict[str, _Joined] = {}
        self._members: Members | None = None
        self._lists_requested = self._list_accepted = 0
        """Lists are numbered by their requests: an earlier one that arrives late is not used."""
        self._unlisted_since: float | None = None
        """Since when no broker listed this client; infinite: that was logged."""
        self._doubles = 0
        """Lists in a row in which this client id was more than once, without a broken connection as the cause."""
        self._differences: tuple[str, ...] = ()
        """In what members differ, as far as a broker shows it."""
        self._is_compared = False
        """Whether all are equal, since the members or the own subscriptions changed."""
        self._version: tuple[Mapping[str, str], int] = ({}, 0)
        """The subscriptions that were sent last, and their ``subVersion``."""
        self._wakeup = Wakeup(clock)
        self._list_changed = Wakeup(clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._has_left = False

    async def start(self) -> None:
        """See :meth:`GroupMembership.start`; a second call changes nothing."""
        if self._tasks or self._has_left:
            return
        self._tasks.append(start_task(self._send_heartbeats(), name=f"pointsman-heartbeats-{self._group}"))
        if self._message_model is MessageModel.CLUSTERING:
            self._tasks.append(start_task(self._follow_list(), name=f"pointsman-members-{self._group}"))

    @property
    def members(self) -> Members | None:
        """See :attr:`GroupMembership.members`."""
        return self._members

    async def refresh_members(self) -> None:
        """See :meth:`GroupMembership.refresh_members`.

        Asks the brokers in one order for all members, so that they use the same list; those last that did not return it
        recently. A list without this client id is not used: the broker does not know all members yet.
        """
        deadline = self._clock.monotonic() + REFRESH_SECONDS
        self._lists_requested += 1
        number = self._lists_requested
        for addr in sorted(self._addrs(), key=self._failed_list_recently):
            seconds = deadline - self._clock.monotonic()
            if seconds <= 0:
                return
            joined = self._joined.get(addr)
            if joined is None or joined.error is not None:
                continue
            try:
                client_ids = await self._list_at(addr, seconds)
            except PointsmanError as error:
                if not self._failed_list_recently(addr):
                    logger.info("broker %s did not return the members of group %s: %s", addr, self._group, error)
                    self._list_changed.wake()
                joined.list_failed_at = self._clock.monotonic()
                continue
            if number < self._list_accepted:
                return
            if self._client_id in client_ids:
                self._list_accepted = number
                self._unlisted_since = None
                self._note_doubles(joined, client_ids)
                self._accept(client_ids)
                return
            self._note_unlisted(addr)
            joined.next_at = min(joined.next_at, self._clock.monotonic() + RETRY_SECONDS)
            self._wakeup.wake()

    def subscriptions_changed(self) -> None:
        """See :meth:`GroupMembership.subscriptions_changed`."""
        self._is_compared = False
        for joined in self._joined.values():
            joined.next_at = -math.inf
        self._wakeup.wake()

    def routes_changed(self) -> None:
        """See :meth:`GroupMembership.routes_changed`."""
        self._wakeup.wake()

    def connection_lost(self, addr: str) -> None:
        """Join again at a broker: it removes a member whose connection ended.

        At most every :data:`RETRY_SECONDS`: a broker may end each connection.
        """
        joined = self._joined.get(addr)
        if joined is not None:
            joined.lost_at = self._clock.monotonic()
            joined.next_at = min(joined.next_at, joined.sent_at + RETRY_SECONDS)
            self._wakeup.wake()

    def list_changed(self) -> None:
        """Get the list of members again: a broker reported a change (NOTIFY_CONSUMER_IDS_CHANGED)."""
        self._list_changed.wake()

    def problems(self) -> Sequence[str]:
        """See :meth:`GroupMembership.problems`."""
        if not self._joined:
            return ["no broker is known for the subscribed topics"]
        if all(each.error is not None for each in self._joined.values()):
            errors = "; ".join(f"{addr}: {each.error}" for addr, each in self._joined.items())
            return [f"not a member at any broker: {errors}"]
        if self._members is None and self._message_model is MessageModel.CLUSTERING:
            return ["no broker has returned a list of the group's members that has this client yet"]
        return [f"client id {self._client_id} is used twice"] if self._doubles > 1 else []

    def describe(self) -> Mapping[str, object]:
        """See :meth:`GroupMembership.describe`."""
        return {
            "members": None if self._members is None else list(self._members.client_ids),
            "pinned": [],
            "queuePins": {},
            "conflictingSubscriptions": SUBSCRIPTIONS in self._differences,
            "differences": list(self._differences),
            "duplicateClientId": self._doubles > 1,
            "brokers": {
                addr: {"state": "joined" if each.error is None else "failed", "error": str(each.error or "")}
                for addr, each in self._joined.items()
            },
        }

    async def leave(self) -> None:
        """See :meth:`GroupMembership.leave`."""
        self._has_left = True
        tasks, self._tasks = self._tasks, []
        # First the heartbeats: one after the unregistration would join again.
        await end_tasks(tasks, timeout_seconds=0.5)
        leaving = [
            start_task(self._unregister(addr), name=f"pointsman-leave-{self._group}")
            for addr, joined in self._joined.items()
            if joined.error is None
        ]
        if leaving:
            await asyncio.wait(leaving, timeout=LEAVE_SECONDS)
        await end_tasks(leaving, timeout_seconds=0.1)

    async def _unregister(self, addr: str) -> None:
        ext = {"clientID": self._client_id, "consumerGroup": self._group}
        try:
            await self._links.call(addr, BrokerRequestCode.UNREGISTER_CLIENT, ext, timeout_seconds=LEAVE_SECONDS)
        except PointsmanError as error:
            logger.info("%s did not unregister group %s before its connection ended: %s", addr, self._group, error)

    # Heartbeats

    async def _send_heartbeats(self) -> None:
        while True:
            addrs = self._replica_addrs()
            for addr in [each for each in self._joined if each not in addrs]:
                del self._joined[addr]
            now = self._clock.monotonic()
            due = [addr for addr in addrs if self._joined.setdefault(addr, _Joined()).next_at <= now]
            if due:
                body = self._heartbeat()
                await asyncio.gather(*(self._heartbeat_at(addr, body) for addr in due))
            self._links.retire_others(addrs)
            await self._clock.sleep(MIN_ROUND_SECONDS)
            next_at = min((each.next_at for each in self._joined.values()), default=-math.inf)
            wait = next_at - self._clock.monotonic() if self._joined else FIRST_POLL_SECONDS
            await self._wakeup.wait(max(wait, 0.0))

    async def _heartbeat_at(self, addr: str, body: bytes) -> None:
        joined = self._joined[addr]
        was_accepted = joined.sent_at > joined.lost_at and joined.error is None
        is_periodic = joined.next_at > -math.inf
        # Set before the call: a wake-up during the call makes it due again.
        joined.sent_at = self._clock.monotonic()
        joined.next_at = joined.sent_at + HEARTBEAT_INTERVAL_SECONDS
        if was_accepted and is_periodic and not self._is_compared and addr in self._addrs()[:1]:
            await self._compare_settings(addr)
        try:
            await self._links.call(addr, BrokerRequestCode.HEART_BEAT, {}, body, timeout_seconds=CALL_SECONDS)
        except PointsmanError as error:
            joined.next_at = self._clock.monotonic() + RETRY_SECONDS
            if joined.error is None:
                logger.warning("heartbeat of group %s failed at broker %s: %s", self._group, addr, error)
            joined.error = error
            # The list may have come from this broker.
            self._list_changed.wake()
            return
        self._list_changed.wake()
        if joined.error is not None:
            logger.warning("heartbeat of group %s accepted by broker %s", self._group, addr)
            joined.error = None
        if not was_accepted:
            self._on_joined()

    def _heartbeat(self) -> bytes:
        subscriptions = self._all_subscriptions()
        if subscriptions != self._version[0]:
            # The broker keeps the subscriptions with the highest version of any member.
            at = int(self._clock.utc_now().timestamp() * 1000)
            self._version = subscriptions, max(at, self._version[1] + 1)
        consumer = {
            "groupName": self._group,
            "consumeType": self._consume_type,
            "messageModel": self._message_model.value,
            "consumeFromWhere": f"CONSUME_FROM_{self._consume_from.value}",
            "unitMode": False,
            "subscriptionDataSet": [
                _subscription(Subscription.parse(topic, expression), version=self._version[1])
                for topic, expression in sorted(subscriptions.items())
            ],
        }
        return compact({"clientID": self._client_id, "producerDataSet": [], "consumerDataSet": [consumer]})

    async def _compare_settings(self, addr: str) -> None:
        """Log when other members differ in what a broker shows, and when all are equal again.

        A broker keeps one value of each for the group and replaces it with each heartbeat. Just before this member's
        heartbeat it is that of another one. It does not know strategies. Nothing is compared before a heartbeat with
        changed subscriptions: other members may be changing theirs, too.
        """
        if self._members is None:
            return
        differences: tuple[str, ...] = ()
        if len(self._members.client_ids) > 1:
            try:
                response = await self._links.call(
                    addr,
                    BrokerRequestCode.GET_CONSUMER_CONNECTION_LIST,
                    {"consumerGroup": self._group},
                    timeout_seconds=REFRESH_SECONDS,
                    is_read=True,
                )
                differences = self._differences_to(json_object(addr, response.body))
            except PointsmanError as error:
                logger.info("broker %s did not return the subscriptions of group %s: %s", addr, self._group, error)
                self._is_compared = isinstance(error, BrokerRefusedError)  # For example, the account may not.
                return
        self._log_differences(differences)
        self._differences, self._is_compared = differences, not differences

    def _differences_to(self, others: Mapping[str, object]) -> tuple[str, ...]:
        """Return in what this member differs from a group as a broker shows it."""
        own = {topic: _selection(Subscription.parse(topic, text)) for topic, text in self._subscriptions().items()}
        found = []
        if _selections(others.get("subscriptionTable"), besides=retry_topic(self._group)) != own:
            found.append(SUBSCRIPTIONS)
        for key, name, value in (
            ("messageModel", "message models", self._message_model.value),
            ("consumeType", "consume types (push and pull)", self._consume_type),
        ):
            # Java members that use POP state another type than the broker.
            if others.get(key) not in {None, value} and not (key == "consumeType" and self._leases):
                found.append(name)
        return tuple(found)

    def _log_differences(self, differences: tuple[str, ...]) -> None:
        new = [each for each in differences if each not in self._differences]
        if SUBSCRIPTIONS in new:
            logger.warning(
                "members of group %s have different subscriptions, so some messages reach no member; "
                "give all members the same topics and tags",
                self._group,
            )
        for each in new:
            if each != SUBSCRIPTIONS:
                logger.warning("members of group %s have different %s; give all members the same", self._group, each)
        if self._differences and not differences:
            logger.warning("members of group %s have the same settings again", self._group)

    @property
    def _consume_type(self) -> str:
        if self._leases:
            return "CONSUME_POP"
        return "CONSUME_PASSIVELY" if self._is_listener else "CONSUME_ACTIVELY"

    def _all_subscriptions(self) -> dict[str, str]:
        subscriptions = dict(self._subscriptions())
        if self._retries:
            subscriptions[retry_topic(self._group)] = ALL
        return subscriptions

    def _groups(self) -> list[BrokerData]:
        # With the retry topic: it may be on a broker that has no subscribed topic any longer.
        return sorted(self._brokers.brokers_of(tuple(self._all_subscriptions())), key=lambda each: each.key)

    def _replica_addrs(self) -> dict[str, None]:
        return dict.fromkeys(each.addr for group in self._groups() for each in group.replicas if each.addr)

    def _addrs(self) -> list[str]:
        """Brokers that may be asked for the list: masters first, since a slave may lag behind in the routes."""
        groups = self._groups()
        masters = [group.master.addr for group in groups if group.master is not None]
        return [*dict.fromkeys([*masters, *self._replica_addrs()])]

    # The list

    async def _follow_list(self) -> None:
        while True:
            await self._list_changed.wait(HEARTBEAT_INTERVAL_SECONDS)
            await self.refresh_members()
            await self._clock.sleep(MIN_ROUND_SECONDS)

    def _failed_list_recently(self, addr: str) -> bool:
        joined = self._joined.get(addr)
        return joined is not None and self._clock.monotonic() - joined.list_failed_at < HEARTBEAT_INTERVAL_SECONDS

    async def _list_at(self, addr: str, seconds: float) -> list[str]:
        """The client ids at a broker; none if the group has no member there."""
        response = await self._links.call(
            addr,
            BrokerRequestCode.GET_CONSUMER_LIST_BY_GROUP,
            {"consumerGroup": self._group},
            timeout_seconds=seconds,
            allowed=(BrokerResponseCode.SUCCESS, BrokerResponseCode.SYSTEM_ERROR),
            is_read=True,
        )
        if response.command.code == BrokerResponseCode.SYSTEM_ERROR:
            return []
        listed = json_object(addr, response.body).get("consumerIdList")
        listed = listed if isinstance(listed, list) else []
        # Strategies encode client ids, and JSON may have unpaired surrogates.
        client_ids = [each.encode(errors="replace").decode() for each in listed if isinstance(each, str)]
        if len(client_ids) > MAX_CLIENT_IDS:
            # A part of it would give each member another share.
            text = f"{len(client_ids)} members are listed, more than the {MAX_CLIENT_IDS} that are accepted"
            raise BrokerRefusedError(addr, BrokerResponseCode.SYSTEM_ERROR, text)
        return client_ids

    def _note_unlisted(self, addr: str) -> None:
        now = self._clock.monotonic()
        if self._unlisted_since is None:
            self._unlisted_since = now
        elif now - self._unlisted_since >= UNLISTED_SECONDS:
            self._unlisted_since = math.inf
            logger.warning(
                "broker %s accepts heartbeats but does not list this member of group %s, which gets no queues: "
                "create the group, or set autoCreateSubscriptionGroup",
                addr,
                self._group,
            )

    def _note_doubles(self, joined: _Joined, client_ids: list[str]) -> None:
        is_double = client_ids.count(self._client_id) > 1
        if is_double and self._clock.monotonic() - joined.lost_at < STALE_CONNECTION_SECONDS:
            return  # The other one may be this client's own old connection.
        self._doubles = self._doubles + 1 if is_double else 0
        if self._doubles == 2:
            logger.error(
                "client id %s is used twice in group %s: both consumers read the same queues; use different client_ids",
                self._client_id,
                self._group,
            )

    def _accept(self, client_ids: list[str]) -> None:
        members = Members(tuple(sorted(set(client_ids))))
        if members != self._members:
            self._members = members
            self._is_compared = False
            self._on_change()


def _subscription(subscription: Subscription, *, version: int) -> dict[str, object]:
    tags = sorted(subscription.tags)
    return {
        "topic": subscription.topic,
        "subString": subscription.expression,
        "subVersion": version,
        "expressionType": expression_type(subscription.expression),
        "classFilterMode": False,
        "tagsSet": tags,
        "codeSet": [tag_code(tag) for tag in tags],
    }


def _selection(subscription: Subscription) -> object:
    """Return what a subscription selects, to be compared with that of other members."""
    return subscription.expression if subscription.is_sql else subscription.tags


def _selections(table: object, *, besides: str) -> dict[str, object]:
    """Read what is selected of each topic from a broker's ``subscriptionTable``; None: by a filter of another kind."""
    found: dict[str, object] = {}
    for topic, each in table.items() if isinstance(table, dict) else ():
        if topic == besides or not isinstance(each, dict):
            continue
        tags, kind = each.get("tagsSet"), each.get("expressionType", "TAG")
        if kind == "TAG":
            found[topic] = frozenset(map(str, tags)) if isinstance(tags, list) else None
        else:
            found[topic] = SqlFilter(each.get("subString")) if kind == "SQL92" else None
    return found
