"""Read and play scenario files: commands to the core, and under ``----`` its output.

A command is a word, then bare words and ``key=value`` pairs. Brokers are written ``name/id`` or ``cluster/name/id``
(default: cluster c1). Each address remembers its last generation, as its agent would.

``fleet 10`` registers the masters b1 to b10 of c1 at addresses of the same names. Their agents send a heartbeat every
30 s, evenly spread, while time advances; ``cut b1-b6`` silences some and ``heal b1-b6`` lets them send again.
``fail b1-b6`` makes their probes fail on weak evidence (``refused`` in place of ``failing``, and ``fail ...
on=refused``: on strong); ``repair b1-b6`` makes them pass.

An event is shown with ``state=`` where its name does not imply the state of the broker after it, and with ``planned``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pointsman.wire.refusals import Refusal
from pointsman_namesrv.core.administration import Administration
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.guard import GuardMode
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    Evidence,
    GroupKey,
    Health,
    ProbeVerdict,
    QueueConfig,
    Reason,
    Registration,
)
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.snapshot.keeper import health_to_keep

START = 1_000.0
PERMS = {"rw": 6, "r": 4, "w": 2, "rwx": 7}
STATE_AFTER = {
    EventKind.EXPIRED: Phase.GONE,
    EventKind.UNREGISTERED: Phase.GONE,
    EventKind.PROBE_FAILED: Phase.OUT,
    EventKind.PROTECTED: Phase.PROTECTED,
    EventKind.SUSPECTED: Phase.SUSPECT,
}
PERM_WORDS = {number: word for word, number in PERMS.items()}


@dataclass
class Step:
    """A few commands and their expected output."""

    commands: list[str]
    expected: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)


def parse(text: str) -> list[Step]:
    """Steps are separated by blank lines."""
    steps = []
    for block in text.strip().split("\n\n"):
        before, _, after = block.partition("\n----")
        lines = before.split("\n")
        steps.append(
            Step(
                [line for line in lines if line and not line.startswith("#")],
                [line for line in after.split("\n") if line],
                [line for line in lines if line.startswith("#")],
            )
        )
    return steps


def render(steps: Iterable[Step], outputs: Iterable[list[str]]) -> str:
    """Return the file with the actual output as expectation."""
    blocks = []
    for step, output in zip(steps, outputs, strict=True):
        answers = ["----", *output] if step.commands else []
        blocks.append("\n".join([*step.comments, *step.commands, *answers]))
    return "\n\n".join(blocks) + "\n"


def load(path: Path) -> list[Step]:
    return parse(path.read_text(encoding="utf-8"))


class Player:
    """One core and its agents."""

    def __init__(self) -> None:
        self.now = START
        self.core = NameServer(rules=LivenessRules(), first_generation=1, started_at=START)
        self._generations: dict[tuple[str, str], int] = {}
        self._identities: dict[tuple[str, str], Registration] = {}
        self._next_beats: dict[str, float] = {}
        self._silent: set[str] = set()
        self._failing: dict[str, str] = {}

    def play(self, step: Step) -> list[str]:
        """Run the commands of a step and return their output."""
        lines: list[str] = []
        for command in step.commands:
            word, *rest = command.split()
            words = [part for part in rest if "=" not in part]
            options = dict(part.split("=", 1) for part in rest if "=" in part)
            try:
                lines += getattr(self, f"do_{word}")(*words, **options)
            except Refusal as error:
                lines.append(f"refused {error.code}: {error}")
            self.core.check_invariants()
        return lines

    # --- commands ---------------------------------------------------------------------------------------------

    def do_register(self, broker: str, addr: str, **options: str) -> Iterator[str]:
        who = _identity(broker, addr)
        registration = Registration(
            identity=who,
            topics=dict(_topics(options.get("topics", ""))),
            data_version=_version(options.get("version", "0.1")),
            heartbeat_interval=float(options.get("interval", 30)),
            expiry=float(options.get("expiry", 120)),
            acting_master=options.get("acting", "on") == "on",
            incarnation=options.get("incarnation", ""),
            health=_health(**options),
            ha_addr=options.get("ha", ""),
            zone=options.get("zone", ""),
        )
        registered = self.core.register(registration, now=self.now)
        self._generations[who.cluster, addr] = registered.generation
        self._identities[who.cluster, addr] = registration
        yield from _shown(registered.events)
        if registered.view.master_addr:
            yield f"  response master={registered.view.master_addr} ha={registered.view.ha_addr}"

    def do_beat(self, addr: str, cluster: str = "c1", generation: str = "", **options: str) -> Iterator[str]:
        registration = self._identities[cluster, addr]
        answer = self.core.beat(
            registration.identity,
            int(generation) if generation else self._generations[cluster, addr],
            data_version=_version(options["version"]) if "version" in options else registration.data_version,
            health=_health(**options),
            now=self.now,
            stream=int(options["stream"]) if "stream" in options else None,
            hand_over=options.get("hand_over") == "yes",
        )
        yield from _shown(answer.events)
        if answer.status != "OK":
            yield f"  response {answer.status}" + (f" holder={answer.holder_addr}" if answer.holder_addr else "")

    def do_break(self, addr: str, stream: str, cluster: str = "c1") -> Iterator[str]:
        identity = self._identities[cluster, addr].identity
        generation = self._generations[cluster, addr]
        yield from _shown(self.core.end_stream(identity, generation, stream=int(stream), now=self.now))

    def do_unregister(
        self, addr: str, cluster: str = "c1", generation: str = "", reason: str = "SHUTDOWN"
    ) -> Iterator[str]:
        answer = self.core.unregister(
            self._identities[cluster, addr].identity,
            int(generation) if generation else self._generations[cluster, addr],
            reason=Reason(reason),
            now=self.now,
        )
        yield from _shown(answer.events)
        if answer.status != "UNREGISTERED":
            yield f"  response {answer.status}" + (f" holder={answer.holder_addr}" if answer.holder_addr else "")

    def do_update(self, addr: str, base: str, version: str, cluster: str = "c1", **options: str) -> Iterator[str]:
        updated = self.core.update_topics(
            self._identities[cluster, addr].identity,
            self._generations[cluster, addr],
            base=_version(base),
            data_version=_version(version),
            changed=dict(_topics(options.get("changed", ""))),
            removed=[name for name in options.get("removed", "").split(",") if name],
            max_topics=int(options.get("max", 1_000)),
            now=self.now,
        )
        yield f"  holds {updated.topic_count} topics"

    def do_advance(self, seconds: str) -> Iterator[str]:
        """Advance time; sweeps run whenever the server would run one."""
        target, swept_at = self.now + float(seconds), self.now
        while swept_at < target:
            sweep_at = min(target, swept_at + self.core.sweep_interval())
            due = min(((at, addr) for addr, at in self._next_beats.items() if at <= sweep_at), default=None)
            if due is not None:
                self.now = max(self.now, due[0])
                yield from self._at(self._beat(due[1]))
            else:
                self.now = swept_at = max(self.now, sweep_at)
                yield from self._at(_shown(self.core.sweep(now=self.now)))

    def _beat(self, addr: str) -> Iterator[str]:
        """Send the heartbeat of an agent of the fleet; an unknown one registers again, as a real agent would."""
        self._next_beats[addr] += 30.0
        if addr in self._silent:
            return
        health = _health(self._failing.get(addr, "passing"))
        registration = self._identities["c1", addr]
        answer = self.core.beat(
            registration.identity,
            self._generations["c1", addr],
            data_version=registration.data_version,
            health=health,
            now=self.now,
        )
        yield from _shown(answer.events)
        if answer.status == "UNKNOWN_BROKER":
            registered = self.core.register(replace(registration, health=health), now=self.now)
            self._generations["c1", addr] = registered.generation
            yield from _shown(registered.events)

    def _at(self, lines: Iterable[str]) -> Iterator[str]:
        return (f"{self.now - START:g}s {line}" for line in lines)

    # --- a fleet that sends its own heartbeats -----------------------------------------------------------------

    def do_fleet(self, count: str, topics: str = "orders:4") -> Iterator[str]:
        for number in range(1, int(count) + 1):
            addr = f"b{number}"
            for _ in self.do_register(f"b{number}/0", addr, topics=topics):
                pass
            self._next_beats[addr] = self.now + 30.0 * number / int(count)
        yield f"  {count} brokers"

    def do_cut(self, *addrs: str) -> Iterator[str]:
        self._silent.update(_each(addrs))
        yield from ()

    def do_heal(self, *addrs: str) -> Iterator[str]:
        self._silent.difference_update(_each(addrs))
        yield from ()

    def do_fail(self, *addrs: str, on: str = "failing") -> Iterator[str]:
        self._failing.update(dict.fromkeys(_each(addrs), on))
        yield from ()

    def do_repair(self, *addrs: str) -> Iterator[str]:
        for addr in _each(addrs):
            self._failing.pop(addr, None)
        yield from ()

    # --- operators and the server itself ------------------------------------------------------------------------

    def do_guard(self, cluster: str, mode: str = "", seconds: str = "") -> Iterator[str]:
        if mode:
            asked = float(seconds) if seconds else None
            change = self._operator.set_guard(cluster, GuardMode(mode), seconds=asked, by="ann", now=self.now)
            yield from _shown(change.events)
        else:
            status = self.core.guard.status(cluster)
            yield f"{status.mode} {'on' if status.active else 'off'}" + (f": {status.why}" if status.why else "")

    def do_maintenance(self, group: str, seconds: str = "", note: str = "") -> Iterator[str]:
        asked = float(seconds) if seconds else None
        yield from _shown(
            self._operator.set_maintenance(_key(group), seconds=asked, note=note, by="ann", now=self.now).events
        )

    def do_wipe(self, group: str) -> Iterator[str]:
        yield from _shown(self._operator.set_write_perm(_key(group), writable=False, by="ann").events)

    def do_allow(self, group: str) -> Iterator[str]:
        yield from _shown(self._operator.set_write_perm(_key(group), writable=True, by="ann").events)

    def do_delete(self, topic: str, force: str = "no", cluster: str = "") -> Iterator[str]:
        deletion = self._operator.delete_topic(topic, cluster=cluster, force=force == "yes", by="ann", now=self.now)
        yield from _shown(deletion.events)

    def do_evict(self, broker: str) -> Iterator[str]:
        who = _identity(broker, "")
        yield from _shown(
            self._operator.evict(who.cluster, who.broker_name, who.broker_id, by="ann", now=self.now).events
        )

    @property
    def _operator(self) -> Administration:
        return Administration(self.core)

    def do_pause(self, seconds: str) -> Iterator[str]:
        """The server is paused: it receives no heartbeats, and measures the pause when it continues."""
        self.now += float(seconds)
        for addr, due in self._next_beats.items():
            self._next_beats[addr] = due + 30.0 * max(0, 1 + (self.now - due) // 30.0)
        yield from _shown(self.core.credit_pause(float(seconds), now=self.now))

    def do_warm_restart(self, after: str = "0") -> Iterator[str]:
        """The server restarts from a snapshot of this moment, ``after`` some seconds."""
        before = self.core
        self.now += float(after)
        self.core = NameServer(rules=LivenessRules(), first_generation=1_000, started_at=self.now)
        for _, replica in before.replicas():
            held = replace(replica.registration, health=health_to_keep(replica))
            self.core.restore(held, replica.generation, now=self.now)
        for broker in before.departed.all():
            self.core.absences.restore(broker, now=self.now)
        self.core.maintenance.restore(before.maintenance.windows())
        self.core.routes.restore_overrides(before.overrides.wipes, before.overrides.tombstones)
        yield from _shown(self.core.absences.end_windows(now=self.now))
        yield f"  {self.core.provisional_count()} provisional"

    def do_register_in_snapshot(self, broker: str, addr: str, incarnation: str) -> Iterator[str]:
        """The server is killed after it saved a broker's new process, and before it saved the operators' settings."""
        who, wipes = _identity(broker, addr), dict(self.core.overrides.wipes)
        registration = replace(self._identities[who.cluster, addr], incarnation=incarnation)
        self._identities[who.cluster, addr] = registration
        self._generations[who.cluster, addr] = self.core.register(registration, now=self.now).generation
        self.core.overrides.wipes = wipes
        yield from self.do_warm_restart()

    def do_start(self) -> Iterator[str]:
        """The server starts without a snapshot: WARMING until ``ready``."""
        self._lifecycle = NodeLifecycle(started_at=self.now, warm_up_seconds=60.0)
        self.core = NameServer(
            rules=LivenessRules(), first_generation=1_000, started_at=self.now, lifecycle=self._lifecycle
        )
        yield from ()

    def do_ready(self) -> Iterator[str]:
        yield from _shown(self._lifecycle.end_warm_up(now=self.now + 60.0, still_provisional=0))

    def do_route(self, topic: str, cluster: str = "", zone: str = "") -> Iterator[str]:
        route = self.core.routes.route(topic, cluster=cluster, zone=zone)
        for (key, queues), group in zip(route.queues, route.groups, strict=True):
            replicas = ", ".join(
                f"{replica.identity.broker_id}: {replica.identity.addr}"
                + ("" if replica.state.phase is Phase.UP else f" {replica.state.phase}")
                for replica in group.routed()
            )
            perm = PERM_WORDS.get(queues.perm, str(queues.perm))
            counts = f"{queues.read_queue_nums}/{queues.write_queue_nums}"
            yield f"{key.cluster}/{key.broker_name} queues={counts} perm={perm} {{{replicas}}}"
        if not route.queues:
            yield "(empty)"

    def do_topics(self, cluster: str = "") -> Iterator[str]:
        yield " ".join(self.core.topic_names(cluster)) or "(none)"

    def do_clusters(self) -> Iterator[str]:
        for cluster, groups in self.core.clusters():
            yield f"{cluster}: {' '.join(group.key.broker_name for group in groups)}"
        if not self.core.clusters():
            yield "(none)"

    def do_brokers(self) -> Iterator[str]:
        for _, replica in self.core.replicas():
            yield f"{replica.identity} {replica.state.phase} generation={replica.generation}"
        if not self.core.replicas():
            yield "(none)"


def _shown(events: Iterable[Event]) -> Iterator[str]:
    for event in events:
        if event.kind in {EventKind.TOPICS, EventKind.HEARTBEATS}:
            continue
        line = event.kind.value
        if event.broker or event.group:
            line += f" {event.broker.identity if event.broker else event.group}"
        if event.reason is not None:
            line += f" {event.reason}"
        if event.broker is not None and event.broker.state.phase is not STATE_AFTER.get(event.kind, Phase.UP):
            line += f" state={event.broker.state.phase}"
        if event.broker is not None and event.broker.state.planned and event.kind is not EventKind.UNREGISTERED:
            line += " planned"
        if event.interval:
            line += f" after={event.interval:g}s"
        facts = {key: value for key, value in event.detail.items() if key not in {"topics", "evidence"} and value != ""}
        yield line + "".join(f" {key}={value}" for key, value in facts.items())


def _identity(broker: str, addr: str) -> BrokerIdentity:
    *cluster, name, broker_id = broker.split("/")
    return BrokerIdentity(cluster[0] if cluster else "c1", name, int(broker_id), addr)


def _key(text: str) -> GroupKey:
    """``cluster/name``, or a cluster alone."""
    cluster, _, name = text.partition("/")
    return GroupKey(cluster, name)


def _each(addrs: Iterable[str]) -> Iterator[str]:
    """``b2-b4`` is b2, b3, b4."""
    for part in addrs:
        first, _, last = part.partition("-")
        for number in range(int(first[1:]), int((last or first)[1:]) + 1):
            yield f"b{number}"


def _version(text: str) -> DataVersion:
    state, counter = text.split(".")
    return DataVersion(int(state), 0, int(counter))


def _health(probe: str = "unknown", ever_passed: str = "", **_others: str) -> Health:
    passed = {"": None, "yes": True, "no": False}[ever_passed]
    if probe == "refused":
        return Health(ProbeVerdict.FAILING, evidence=Evidence.STRONG, ever_passed=passed)
    return Health(ProbeVerdict(probe.upper()), ever_passed=passed)


def _topics(text: str) -> Iterator[tuple[str, QueueConfig]]:
    for part in text.split(","):
        if part:
            name, queues, *perm = part.split(":")
            yield name, QueueConfig(int(queues), int(queues), PERMS[perm[0]] if perm else 6)
