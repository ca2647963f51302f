"""A planned reset of offsets: each queue with its offset now and its new one, and who is affected. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf import json_format
from google.protobuf.struct_pb2 import Value
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted
from pointsman_ctl.output.output_layout import ALARM, WARNING, new_table
from pointsman_ctl.servers.found_agents import Agent
from pointsman_ctl.servers.topic_offsets import QueuePosition, TopicOffsets

MAX_VALUE_BYTES = 4_096
MAX_UNDO = 1_024
MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class QueueMove:
    """A queue and its new offset."""

    server: Agent
    position: QueuePosition
    new: int | None
    """None: it stays, because the target says nothing about it."""

    @property
    def name(self) -> str:
        """``CLUSTER/BROKER/N``, or with the address of an agent that was given by it."""
        return f"{self.server.queues_of}/{self.position.queue_id}"

    @property
    def is_changed(self) -> bool:
        """Whether the offset is another one afterwards."""
        return self.new is not None and self.new != self.position.committed

    @property
    def difference(self) -> int | None:
        """Messages that are skipped, or negative: read again; None: not known, or it stays."""
        committed = self.position.committed
        return None if self.new is None or committed is None else self.new - committed


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """What a reset would change."""

    group: str
    topic: str
    target: str
    moves: Sequence[QueueMove]
    """By name."""
    found: Mapping[Agent, TopicOffsets]
    """Servers that have the topic."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Brokers whose offsets are not reset, each with why."""

    @property
    def changed(self) -> list[QueueMove]:
        """The queues that get another offset."""
        return [move for move in self.moves if move.is_changed]

    @property
    def members(self) -> dict[str, bool]:
        """Running members, and whether each follows a reset while it runs."""
        members: dict[str, bool] = {}
        for offsets in self.found.values():
            for client_id, follows in offsets.members.items():
                members[client_id] = members.get(client_id, True) and follows
        return dict(sorted(members.items()))

    def document(self) -> Document:
        """Render the plan as JSON."""
        return {
            "group": self.group,
            "topic": self.topic,
            "to": self.target,
            "queues": [
                {
                    "queue": move.name,
                    "server": move.server.addr,
                    "committedOffset": move.position.committed,
                    "newOffset": move.position.committed if move.new is None else move.new,
                    "difference": move.difference,
                    "minOffset": move.position.min_offset,
                    "maxOffset": move.position.max_offset,
                    "isChanged": move.is_changed,
                }
                for move in self.moves
            ],
            "members": [{"clientId": each, "followsReset": follows} for each, follows in self.members.items()],
            "notReset": [{"broker": name, "reason": why} for name, why in self.failed.items()],
        }

    def parts(self) -> Iterator[RenderableType]:
        """Render the plan for people."""
        if self.moves:
            numbers = ("COMMITTED", "NEW", "DIFFERENCE", "MIN", "MAX")
            table = new_table("QUEUE", *numbers, right=numbers)
            for move in self.moves:
                position = move.position
                new = _number(move.new) if move.is_changed else "unchanged"
                difference = "-" if not move.difference else f"{move.difference:+d}"
                row = (_number(position.committed), new, difference)
                table.add_row(printable(move.name), *row, _number(position.min_offset), _number(position.max_offset))
            yield table
        yield Text(self.summary())
        if left := [each for each, follows in self.members.items() if not follows]:
            named = ", ".join(map(printable, left[:MAX_NAMED])) + (" ..." if len(left) > MAX_NAMED else "")
            what = "older than resets, to restart because they do not follow one while they run"
            yield Text(f"{counted(len(left), 'member')} {what}: {named}", style=WARNING)
        for name, why in self.failed.items():
            yield Text(f"{printable(name)}: not reset: {printable(why)}", style=ALARM)

    def summary(self) -> str:
        """What is skipped and read again, and by how many members, in a sentence."""
        again = -sum(min(0, move.difference or 0) for move in self.changed)
        skipped = sum(max(0, move.difference or 0) for move in self.changed)
        parts = [f"{len(self.changed)} of {counted(len(self.moves), 'queue')} of {self.topic} get another offset"]
        if again:
            parts.append(f"{counted(again, 'message')} read again")
        if skipped:
            parts.append(f"{counted(skipped, 'message')} skipped")
        members = counted(len(self.members), "member") if self.members else "no member"
        return f"{', '.join(parts)}; group {self.group} has {members} online"

    def record(self) -> admin.RecordChangeRequest:
        """Return the row for the history, without its author."""
        brokers = [move.server.queues_of for move in self.changed if move.server.brokers]
        clusters = {name.rpartition("/")[0] for name in brokers}
        return admin.RecordChangeRequest(
            what=f"offsets of group {self.group} in topic {self.topic}"[:256],
            cluster=clusters.pop() if len(clusters) == 1 else "",
            broker_names=sorted({name.rpartition("/")[2] for name in brokers})[:1_000],
            topic=self.topic,
            group=self.group,
            before=self._value({move.name: move.position.committed for move in self.changed}),
            after=self._value({move.name: move.new for move in self.changed}),
            undo=self._undo(),
        )

    def _value(self, offsets: Mapping[str, int | None]) -> Value:
        value = Value()
        # As texts: JSON's numbers are exact up to 2**53 only.
        fields = {name: offset if offset is None or offset < 2**53 else str(offset) for name, offset in offsets.items()}
        json_format.ParseDict(fields, value)
        if len(json_format.MessageToJson(value, indent=None).encode()) <= MAX_VALUE_BYTES:
            return value
        known = [offset for offset in offsets.values() if offset is not None]
        return Value(string_value=f"{len(offsets)} queues, offsets {min(known, default=0)} to {max(known, default=0)}")

    def _undo(self) -> str:
        committed = {move.name: move.position.committed for move in self.changed if move.server.brokers}
        if len(committed) < len(self.changed) or None in committed.values():
            return ""
        words = ["pointsmanctl", "offsets", "reset", self.group, self.topic]
        for name, offset in committed.items():
            words += ["--to", f"{name}={offset}"]
        undo = shlex.join(words)
        return undo if len(undo) <= MAX_UNDO else ""


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)
