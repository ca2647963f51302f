"""Every file that Pointsman stores, written and read by the Python of any version.

``stored_files.py write FOLDER`` writes the same content with each version; ``stored_files.py read FOLDER`` prints what
it finds, as JSON. A script that imports nothing of the tests, so that an earlier version's environment runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pointsman.history.row_format import good_row
from pointsman.manual_clock import ManualClock
from pointsman_agent.core.offsets import OffsetChange, OffsetKey
from pointsman_agent.offsets.file_store import FileStore
from pointsman_client import Message, MessageQueue
from pointsman_client.consumer.file_offset_store import FileOffsetStore
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.sharding import OrderKey
from pointsman_client.producer.outbox import Outbox
from pointsman_namesrv.core.administration import Administration
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.guard import GuardRules
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    Evidence,
    FromBroker,
    GroupKey,
    Health,
    ProbeVerdict,
    QueueConfig,
    Reason,
    Registration,
)
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.core.saved_settings import Setting, SettingKey, SettingKind
from pointsman_namesrv.core.static_topics import QueueMapping, static_topics
from pointsman_namesrv.history.row import Record, row_count, to_lines
from pointsman_namesrv.history.row_decoding import to_record
from pointsman_namesrv.settings.settings_store import SettingsStore, table_file
from pointsman_namesrv.snapshot.snapshot_codec import HistoryMark, Lost
from pointsman_namesrv.snapshot.snapshot_store import Snapshot, SnapshotStore

NODE = "ns1:9876"
BEGAN = datetime(2026, 1, 28, 9, tzinfo=UTC)
VERSION = DataVersion(3, 1_795_000_000_000, 7)
QUEUES = [MessageQueue("orders", "c1", "broker-a", number) for number in range(2)]
GREATEST = 2**64 - 1
"""The greatest offset."""


def write(folder: Path) -> None:
    """Write every file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_snapshot(folder)
    write_settings(folder)
    asyncio.run(write_offsets(folder))
    write_outbox(folder)
    write_history(folder)


def read(folder: Path) -> dict[str, object]:
    """Return the content of every file, as JSON has it."""
    return {
        "snapshot": read_snapshot(folder),
        "settings": read_settings(folder),
        **asyncio.run(read_offsets(folder)),
        "outbox": read_outbox(folder),
        "history": read_history(folder),
    }


# --- the name server's snapshot and settings ------------------------------------------------------------------


def of_an_agent() -> Registration:
    """A registration with a value in each field that an agent sends."""
    return Registration(
        identity=BrokerIdentity("c1", "broker-a", 0, "10.0.0.1:6379"),
        topics={"orders": QueueConfig(4, 4, 6, 0, 3), "audit": QueueConfig(1, 2, 4, 2)},
        data_version=VERSION,
        heartbeat_interval=1.5,
        expiry=10.25,
        acting_master=False,
        incarnation="run-1",
        ha_addr="10.0.0.1:10912",
        agent_addr="10.0.0.1:9880",
        zone="z1",
        host="host-1",
        broker_version="7.0.15",
        agent_version="0.1.0",
        labels={"rack": "r1"},
        filter_servers=("10.0.0.1:30000",),
    )


def of_a_broker() -> Registration:
    """A RocketMQ broker that registered itself, with a static topic."""
    mapping = QueueMapping("broker-b", "__global__", 8, 5, False, ((4, 0), (5, 1)))
    topics = {"payments": QueueConfig(2, 2, 6)}
    return Registration(
        identity=BrokerIdentity("c1", "broker-b", 1, "10.0.0.2:10911"),
        topics=topics,
        data_version=VERSION,
        from_broker=FromBroker(acting_master=True),
        static_topics=static_topics({"payments": mapping}, topics),
    )


def snapshot_store(folder: Path) -> SnapshotStore:
    return SnapshotStore(folder, bounds=IntervalBounds(), max_topics=1_000)


def write_snapshot(folder: Path) -> None:
    failing = Health(ProbeVerdict.FAILING, "connection refused", Evidence.STRONG, ever_passed=True)
    who = BrokerIdentity("c2", "broker-c", 0, "10.0.0.3:6379")
    departed = Registration(identity=who, topics={"orders": QueueConfig(1, 1, 6)})
    lost = Lost(departed, Reason.SILENCE.value, 1_795_000_000.5, planned=True, unplanned_at=1_795_000_100.5)
    brokers = [(of_an_agent(), GREATEST, Health(ever_passed=True)), (of_a_broker(), 12, failing)]
    store = snapshot_store(folder)
    store.load()
    done = store.write(Snapshot(brokers, [lost], HistoryMark(0x1234, 99)))
    assert done.whole
    store.close()


def read_snapshot(folder: Path) -> object:
    store = snapshot_store(folder)
    loaded = store.load()
    store.close()
    assert loaded.refused == 0, "a broker of the snapshot was rejected"
    return {
        "brokers": sorted(
            [registration_json(each), generation, list(loaded.marks[each.identity.position])]
            for each, generation in loaded.brokers
        ),
        "lost": [
            [registration_json(each.registration), each.reason, each.at, each.planned, each.unplanned_at]
            for each in loaded.lost
        ],
    }


def registration_json(held: Registration) -> list[object]:
    """Every field; a later version may have more."""
    static = {topic: list(each) for topic, each in held.static_topics.mappings.items()}
    return [
        list(held.identity),
        {topic: list(queues) for topic, queues in held.topics.items()},
        [list(held.data_version), held.heartbeat_interval, held.expiry, held.acting_master, held.incarnation],
        [held.health.verdict.value, held.health.detail, held.health.evidence.value, held.health.ever_passed],
        [held.ha_addr, held.agent_addr, held.zone, held.host, held.broker_version, held.agent_version],
        [dict(held.labels), list(held.filter_servers), None if held.from_broker is None else list(held.from_broker)],
        static,
    ]


def settings_store(folder: Path) -> SettingsStore:
    # Both clocks at the moment of writing: the remaining times are exactly those that were written.
    return SettingsStore(table_file(folder), clock=ManualClock())


SETTINGS = {
    SettingKey(SettingKind.KV, ("ORDER_TOPIC_CONFIG", "orders")): Setting(("broker-a:4;broker-b:4",)),
    SettingKey(SettingKind.WIPED_PERMISSION, ("c1", "broker-a")): Setting(("run-1",)),
    SettingKey(SettingKind.HIDDEN_TOPIC, ("c1", "broker-a", "audit")): Setting(("3", "1795000000000", "7")),
    SettingKey(SettingKind.GUARD, ("c1",)): Setting(("OFF",), 600.0),
    SettingKey(SettingKind.GUARD, ("c2",)): Setting(("OFF",)),
    SettingKey(SettingKind.MAINTENANCE, ("c1", "broker-b")): Setting(("new disks", "ann"), 1_800.0),
}


def write_settings(folder: Path) -> None:
    store = settings_store(folder)
    assert store.load() == ({}, "")
    store.write(SETTINGS)
    store.close()


def read_settings(folder: Path) -> object:
    store = settings_store(folder)
    settings, problem = store.load()
    store.close()
    assert problem == ""
    return sorted([key.kind.value, list(key.name), list(each.value), each.until] for key, each in settings.items())


# --- offsets of an agent and of a broadcasting consumer, messages that a producer parked -----------------------


async def write_offsets(folder: Path) -> None:
    agents = FileStore(folder / "offsets.db", clock=ManualClock())
    await agents.load()
    await agents.write(
        [OffsetChange(OffsetKey("billing", "orders", 0), 42), OffsetChange(OffsetKey("billing", "orders", 1), GREATEST)]
    )
    await agents.close()
    consumers = FileOffsetStore(folder / "broadcast.db", clock=ManualClock())
    assert not (await consumers.begin({"orders": BEGAN})).unknown
    assert not await consumers.commit({QUEUES[0]: 42, QUEUES[1]: GREATEST})
    await consumers.close()


async def read_offsets(folder: Path) -> dict[str, object]:
    agents = FileStore(folder / "offsets.db", clock=ManualClock())
    stored = await agents.load()
    await agents.close()
    consumers = FileOffsetStore(folder / "broadcast.db", clock=ManualClock())
    committed = await consumers.load(QUEUES)
    begun = await consumers.begin({"orders": BEGAN + timedelta(days=1)})
    await consumers.close()
    assert not committed.unknown
    return {
        "offsets": sorted([list(key), offset] for key, offset in stored.items()),
        "broadcast": [committed.offsets[queue] for queue in QUEUES],
        "broadcast_begins": {topic: at.isoformat() for topic, at in begun.moments.items()},
    }


def write_outbox(folder: Path) -> None:
    outbox = Outbox(folder / "outbox.db")
    outbox.open()
    message = Message("orders", b"\x00 paid \xff", "paid", ("4711", "4712"), {"tenant": "a b"})
    parked = [
        outbox.add(QUEUES[0], OutgoingMessage(message, "01", BEGAN)),
        outbox.add(
            QUEUES[1],
            OutgoingMessage(message, "02", BEGAN, due_at=BEGAN + timedelta(hours=1)),
            OrderKey("4711", "7"),
        ),
    ]
    outbox.write(parked, [])
    outbox.close()


def read_outbox(folder: Path) -> object:
    outbox = Outbox(folder / "outbox.db")
    waiting = outbox.open()
    outbox.close()
    return [
        [
            [each.number, str(each.queue), None if each.order_key is None else list(each.order_key)],
            [each.outgoing.message_id, each.outgoing.born_at.isoformat(), str(each.outgoing.due_at)],
            [each.outgoing.message.topic, each.outgoing.message.body.hex(), each.outgoing.message.tags],
            [list(each.outgoing.message.keys), dict(each.outgoing.message.properties)],
        ]
        for each in waiting
    ]


# --- history --------------------------------------------------------------------------------------------------


def write_history(folder: Path) -> None:
    """A morning: two brokers, a change of topics, an outage by a failed probe, one by silence, what operators did."""
    core = NameServer(rules=LivenessRules(), first_generation=7, started_at=0.0, guard_rules=GuardRules(enabled=False))
    admin, lines, seq = Administration(core), list[bytes](), 1

    def record(now: float, *events: Event) -> None:
        nonlocal seq
        for event in events:
            row = Record(event, BEGAN + timedelta(seconds=now), round(now * 1000), seq, row_count(event))
            lines.extend(to_lines(row, node=NODE, boot_id="0000000000000001"))
            seq += row.rows

    record(0.0, Event(kind=EventKind.NAMESRV_STARTED, detail={"version": "x"}), Event(kind=EventKind.NAMESRV_READY))
    agent, other = of_an_agent(), of_a_broker()
    registered = core.register(agent, now=1.0)
    record(1.0, *registered.events)
    record(2.0, *core.register(other, now=2.0).events)
    later = DataVersion(3, 1_795_000_000_000, 8)
    changed = core.update_topics(
        *(agent.identity, registered.generation),
        base=VERSION,
        data_version=later,
        changed={"invoices": QueueConfig(2, 2, 6)},
        removed=["audit"],
        max_topics=1_000,
        now=3.0,
    )
    record(3.0, *changed.events)
    key = GroupKey("c1", "broker-b")
    record(4.0, *admin.put_kv("ORDER_TOPIC_CONFIG", "orders", "broker-a:4", by="ann").events)
    record(4.5, *admin.set_write_perm(GroupKey("c1", "broker-a"), writable=False, by="ann").events)
    record(5.0, *admin.set_maintenance(key, seconds=3_600.0, note="new disks", by="ann", now=5.0).events)

    def beat(now: float, health: Health) -> None:
        answer = core.beat(agent.identity, registered.generation, data_version=later, health=health, now=now)
        record(now, *answer.events)

    beat(6.0, Health(ProbeVerdict.PASSING))
    beat(7.0, Health(ProbeVerdict.FAILING, "connection refused", Evidence.STRONG))
    beat(9.0, Health(ProbeVerdict.PASSING))
    for now in (12.0, 30.0, 130.0, 200.0):
        record(now, *core.sweep(now=now))
    record(210.0, Event(kind=EventKind.NAMESRV_STOPPED))
    day = folder / "history" / "raw" / f"dt={BEGAN:%Y-%m-%d}"
    day.mkdir(parents=True)
    # Without the time in its head the file is the same each time.
    (day / "ns1_9876-0000000000000001-1.jsonl.gz").write_bytes(gzip.compress(b"".join(lines), mtime=0))


def read_history(folder: Path) -> list[object]:
    """Each row as a reader of the public format has it, and as a name server at its start."""
    found: list[object] = []
    for file in sorted((folder / "history").rglob("*.jsonl.gz")):
        for line in gzip.decompress(file.read_bytes()).decode().splitlines():
            row = good_row(line)
            assert row is not None, f"{file.name} has a row that this version rejects: {line}"
            fields = [row[name] for name in ("at", "event", "reason", "cluster", "broker_name", "broker_id", "state")]
            event = None if row["event"] == EventKind.TOPICS else to_record(json.loads(line), run=0).event
            found.append([fields, None if event is None else [event.kind, event.reason, event.interval]])
    return found


ACTIONS: Mapping[str, Callable[[Path], Any]] = {
    "write": write,
    "read": lambda folder: print(json.dumps(read(folder), indent=1)),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    ACTIONS[arguments.action](arguments.folder)
