"""What a change of a topic does at each broker: queues added and removed, groups concerned, keys that move. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pointsman.names import PERM_WRITE
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted, perm_text
from pointsman_client import MessageQueue
from pointsman_ctl.output.key_moves import KeyMoves
from pointsman_ctl.servers.topic_brokers import HeldQueue, HeldTopic, TopicGroup, TopicSettings


@dataclass(frozen=True, slots=True)
class TopicChange:
    """The change of a topic at one broker."""

    addr: str
    """Of its agent, or its own."""
    broker: str
    """CLUSTER/BROKER, or the address of an agent given by address."""
    held: HeldTopic
    groups: Sequence[TopicGroup]
    after: TopicSettings | None
    """None: the topic is deleted."""

    @property
    def before(self) -> TopicSettings | None:
        """The settings now; None: the broker does not have the topic."""
        return self.held.settings

    @property
    def first(self) -> TopicSettings | None:
        """The settings while groups read the queues that go: these are readable, and not writable."""
        if self.before is None or self.after is None:
            return self.after
        return self.after._replace(read_queues=max(self.before.read_queues, self.after.read_queues))

    @property
    def is_done(self) -> bool:
        """Whether the broker has these settings."""
        return self.before == self.after

    @property
    def added(self) -> int:
        """The number of queues that are added."""
        before, after = (each.queues if each is not None else 0 for each in (self.before, self.after))
        return max(0, after - before)

    @property
    def going(self) -> list[HeldQueue]:
        """The queues that are readable now and will not be."""
        if self.before is None:
            return []
        end = self.after.read_queues if self.after is not None else 0
        held = {each.queue_id: each for each in self.held.queues}
        return [held.get(queue_id, HeldQueue(queue_id)) for queue_id in range(end, self.before.read_queues)]

    @property
    def unused(self) -> list[HeldQueue]:
        """The queues that will be neither readable nor writable."""
        return [each for each in self.held.queues if each.queue_id >= (self.after.queues if self.after else 0)]

    @property
    def unused_messages(self) -> int:
        """The number of messages in the queues that will not be in use."""
        return 0 if self.held.is_replica else sum(each.message_count or 0 for each in self.unused)

    @property
    def has_unknown_ends(self) -> bool:
        """Whether the broker does not report ends of queues that go: what groups have read there is not known."""
        return not self.held.is_replica and any(each.max_offset is None for each in self.going)

    def text(self) -> str:
        """Describe the change in a line."""
        if self.is_done:
            return f"already {self.after}" if self.after else "does not have it"
        return f"{self.before or 'none'} -> {self.after or 'deleted'}"

    def document(self) -> Document:
        """Return the facts for the output in JSON."""
        return {
            "addr": self.addr,
            "broker": self.broker,
            "source": self.held.kind,
            "before": settings_document(self.before),
            "after": settings_document(self.after),
            "unwritable": self.held.unwritable or None,
            "queuesAdded": self.added,
            "queuesGoing": [each.queue_id for each in self.going],
            "unusedMessages": self.unused_messages,
        }


def settings_document(settings: TopicSettings | None) -> Document | None:
    """Return settings for the output in JSON."""
    if settings is None:
        return None
    return {
        "readQueueNums": settings.read_queues,
        "writeQueueNums": settings.write_queues,
        "perm": perm_text(settings.perm),
    }


@dataclass(frozen=True, slots=True)
class Behind:
    """A group that has not read all of the queues that go, at one broker."""

    broker: str
    group: TopicGroup
    messages: int

    @property
    def is_stuck(self) -> bool:
        """Whether waiting does not help: its members keep the offsets, or it has none."""
        return self.group.is_broadcasting or not self.group.members

    def text(self) -> str:
        """Describe it in a line."""
        what = f"{self.group.group} at {self.broker}"
        if self.group.is_broadcasting:
            return f"{what}: broadcasting, so what its members have read is not known"
        without = "" if self.group.members else ", and has no member"
        return f"{what}: has not committed {counted(self.messages, 'message')}{without}"


def groups_behind(broker: str, groups: Iterable[TopicGroup], going: Sequence[HeldQueue]) -> list[Behind]:
    """Return the groups that have messages to read in the queues that go."""
    if all(each.is_empty for each in going):
        return []
    found = [Behind(broker, each, each.lag_in(going)) for each in groups]
    return [each for each in found if each.messages or each.group.is_broadcasting]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The change of a topic at all brokers."""

    topic: str
    changes: Sequence[TopicChange]
    others: Sequence[tuple[str, HeldTopic]] = ()
    """Brokers, as CLUSTER/BROKER, that have the topic and are not changed."""
    is_ordered_by_operators: bool = False
    """Whether an order-topic configuration, not the topic, says which queues keys have."""

    @property
    def open_changes(self) -> list[TopicChange]:
        """The changes that are not done."""
        return [each for each in self.changes if not each.is_done]

    @property
    def key_moves(self) -> KeyMoves:
        """The queues of keys before and after."""
        kept = {broker: held.settings for broker, held in self.others}
        before = {each.broker: each.before for each in self.changes}
        after = {each.broker: each.after for each in self.changes}
        return KeyMoves(_queues(self.topic, {**kept, **before}), _queues(self.topic, {**kept, **after}))

    @property
    def groups(self) -> dict[str, int]:
        """Members of each group of the topic, by name: those with members rebalance."""
        found: dict[str, int] = {}
        for change in self.open_changes:
            for each in change.groups:
                found[each.group] = max(found.get(each.group, 0), each.members)
        return dict(sorted(found.items()))

    @property
    def behind(self) -> list[Behind]:
        """The groups that have to read queues that go."""
        return [each for change in self.changes for each in groups_behind(change.broker, change.groups, change.going)]

    @property
    def unused_messages(self) -> int:
        """The number of messages in queues that will not be in use."""
        return sum(each.unused_messages for each in self.changes)

    def document(self) -> Document:
        """Return the facts for the output in JSON."""
        return {
            "topic": self.topic,
            "brokers": [each.document() for each in self.changes],
            "keyMoves": self.key_moves.document(),
            "groups": [{"group": group, "members": members} for group, members in self.groups.items()],
            "behind": [
                {
                    "group": each.group.group,
                    "broker": each.broker,
                    "members": each.group.members,
                    "isBroadcasting": each.group.is_broadcasting,
                    "messages": each.messages,
                    "isStuck": each.is_stuck,
                }
                for each in self.behind
            ],
            "unusedMessages": self.unused_messages,
        }


def _queues(topic: str, settings: Mapping[str, TopicSettings | None]) -> tuple[MessageQueue, ...]:
    return tuple(sorted(_queues_of(topic, settings)))


def _queues_of(topic: str, settings: Mapping[str, TopicSettings | None]) -> Iterator[MessageQueue]:
    for broker, each in settings.items():
        cluster, _, name = broker.partition("/")
        for queue_id in range(each.write_queues if each is not None and each.perm & PERM_WRITE else 0):
            yield MessageQueue(topic, cluster, name or cluster, queue_id)
