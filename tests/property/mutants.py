"""Break rules of the core one at a time and see that the model notices each: ``make mutants``.

A mutant is one replaced line in a copy of ``namesrv``; the state machine of ``test_name_server.py`` runs against the
copy. Exit 0: every mutant was noticed, and the unbroken copy passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = Path("namesrv/core")


@dataclass(frozen=True)
class Mutant:
    """One rule, and a line that breaks it."""

    rule: str
    file: str
    line: str
    broken: str


MUTANTS = (
    Mutant(
        "silence of exactly the expiry keeps a broker",
        "liveness.py",
        "if self.silence(now=now) > self.expiry:",
        "if self.silence(now=now) >= self.expiry:",
    ),
    Mutant(
        "a stale generation changes nothing",
        "name_server.py",
        "return replica.generation == generation and replica.identity.addr == identity.addr",
        "return replica.identity.addr == identity.addr",
    ),
    Mutant(
        "the end of an old stream does not speak against a later one",
        "liveness.py",
        "if self.stream != stream:",
        "if self.stream is None:",
    ),
    Mutant(
        "a lower state version does not displace a living holder",
        "name_server.py",
        "if claimed.state_version < held.state_version:",
        "if claimed < DataVersion():",
    ),
    Mutant(
        "an address stands once in a group",
        "name_server.py",
        "del group.replicas[vacated.identity.broker_id]",
        "pass",
    ),
    Mutant(
        "a slave that acts as master brings its topics read-only",
        "route_table.py",
        "return queues.read_only() if self.read_only else queues",
        "return queues",
    ),
    Mutant(
        "only a slave with the acting-master flag brings topics",
        "group.py",
        "if lowest is None or lowest.identity.broker_id == MASTER_ID or lowest.registration.acting_master:",
        "if lowest is None or lowest.identity.broker_id >= MASTER_ID:",
    ),
    Mutant(
        "a topic that a registration does not name is gone",
        "staging.py",
        "removed = tuple(topic for topic in self._held if topic not in self.topics)",
        "removed = tuple(topic for topic in self._held if not self.topics)",
    ),
    Mutant(
        "in the first expiry after the start a broken stream is given the whole expiry",
        "liveness.py",
        "if self.stream_broken_at - lenient_since <= self.expiry:",
        "if self.stream_broken_at - lenient_since < 0:",
    ),
    Mutant(
        "a broker whose probe fails is not routed",
        "group.py",
        "return self.health.verdict is not ProbeVerdict.FAILING or self.protected_from is not None",
        "return self.health is not None",
    ),
    Mutant(
        "a handed-over registration stays for its minute",
        "liveness.py",
        "return Reason.SILENCE if now - self.handed_over_at > rules.hand_over else None",
        "return Reason.SILENCE if now - self.handed_over_at > self.expiry else None",
    ),
    Mutant(
        "a slave is told its master's HA address",
        "group.py",
        "return MemberView(lowest_id, addr, addr, lowest.registration.ha_addr)",
        'return MemberView(lowest_id, addr, addr, "")',
    ),
    Mutant(
        "exactly the share does not turn the guard on",
        "guard.py",
        "watch.lost > rules.share * watch.lived",
        "watch.lost >= rules.share * watch.lived",
    ),
    Mutant(
        "fewer than so many lost brokers never turn the guard on",
        "guard.py",
        "watch.lost >= rules.at_least",
        "watch.lost >= 1",
    ),
    Mutant(
        "a broker that is gone counts for its own expiry",
        "guard.py",
        "if now - gone.at <= gone.expiry}",
        "if now - gone.at <= gone.expiry / 2}",
    ),
    Mutant(
        "a polite leave is not lost",
        "guard.py",
        "gone = _Gone(now, replica.pulse.expiry, replica.known_since, lost and not long_out, long_out)",
        "gone = _Gone(now, replica.pulse.expiry, replica.known_since, not long_out, long_out)",
    ),
    Mutant(
        "who came after the window began did not live when it began",
        "guard.py",
        "return replica.known_since <= now - replica.pulse.expiry",
        "return True",
    ),
    Mutant(
        "who has failed for longer than its expiry is not lost",
        "guard.py",
        "return not _is_long_out(replica, now=now)",
        "return True",
    ),
    Mutant(
        "each cluster is counted for itself",
        "guard.py",
        "            watch = self._watch(replica.identity.cluster)\n            if not is_covered",
        '            watch = self._watch("c1")\n            if not is_covered',
    ),
    Mutant(
        "an overdue hand-over is lost",
        "guard.py",
        "return now - pulse.handed_over_at > self._hand_over",
        "return False",
    ),
    Mutant(
        "after a release the rest is given two and a half intervals",
        "guard.py",
        "return now - watch.released_at <= SUSPECT_AFTER_INTERVALS * replica.pulse.heartbeat_interval",
        "return False",
    ),
    Mutant(
        "a failing probe that was kept has the time of one beat after a release",
        "guard.py",
        "now - watch.released_at > pulse.heartbeat_interval",
        "True",
    ),
    Mutant(
        "an operator who lets go lets go at once",
        "guard.py",
        "watch.released_at = None if watch.mode is GuardMode.OFF else now",
        "watch.released_at = now",
    ),
    Mutant(
        "who is in maintenance is not lost",
        "guard.py",
        "if not is_covered and self._is_lost(replica, now=now):",
        "if self._is_lost(replica, now=now):",
    ),
    Mutant(
        "leaving in a maintenance window is no loss",
        "name_server.py",
        "self._remove(group, replica, lost=False, now=now)\n            return (event,)\n        if self.guard",
        "self._remove(group, replica, lost=True, now=now)\n            return (event,)\n        if self.guard",
    ),
    Mutant(
        "who fails since a window and expires is told of once",
        "name_server.py",
        "        overdue.sort(key=lambda member: member[1].pulse.last_seen)\n",
        "        overdue.sort(key=lambda member: member[1].pulse.last_seen)\n"
        "        events += self._tell_unannounced(now=now)\n",
    ),
    Mutant(
        "a failing probe is judged at once",
        "name_server.py",
        "if not announced and self.guard.might_turn_on(key.cluster):",
        "if announced and self.guard.might_turn_on(key.cluster):",
    ),
    Mutant(
        "our own pause does not count as silence",
        "liveness.py",
        "self.excused += min(seconds, now - self.last_seen)",
        "self.excused += 0.0",
    ),
    Mutant(
        "after our own pause a broken stream is given the whole expiry",
        "name_server.py",
        "        self._lenient_since = now\n",
        "",
    ),
    Mutant(
        "a broker of the snapshot lived before the restart",
        "name_server.py",
        "replica.known_since = now - registration.expiry",
        "replica.known_since = now",
    ),
    Mutant(
        "a broker of the snapshot is provisional until it is heard",
        "name_server.py",
        "        replica.is_provisional = True\n",
        "",
    ),
    Mutant(
        "a wipe takes the write bit alone",
        "model.py",
        "self._replace(perm=self.perm & ~PERM_WRITE)",
        "self._replace(perm=0)",
    ),
    Mutant(
        "a wipe ends with the next process, not with the same one",
        "overrides.py",
        "return bool(wiped and incarnation and wiped != incarnation)",
        "return bool(wiped and incarnation)",
    ),
    Mutant(
        "a wipe ends with the next process at all",
        "overrides.py",
        "return bool(wiped and incarnation and wiped != incarnation)",
        "return False",
    ),
    Mutant(
        "a deleted topic is back with another version of its broker's topics",
        "overrides.py",
        "return frozenset(topic for topic, under in tombstones.items() if under == version)",
        "return frozenset(tombstones)",
    ),
    Mutant(
        "a deletion that is over does not come back with the old version",
        "overrides.py",
        "standing = {topic: under for topic, under in before.items() if under == version}",
        "standing = dict(before)",
    ),
    Mutant(
        "a version under which a topic was deleted hides it again on whoever brings it next",
        "name_server.py",
        "if visibly or reappears or disappears or",
        "if visibly or reappears or",
    ),
    Mutant(
        "a version that a master brought while it failed ends a deletion",
        "name_server.py",
        "if was_failing and replica.identity.broker_id == MASTER_ID:",
        "if was_failing and replica.identity.broker_id < MASTER_ID:",
    ),
    Mutant(
        "an order topic's configuration moves the revision",
        "route_table.py",
        "        self.change += 1\n        self._floor = self.change\n",
        "        self.change += 1\n",
    ),
    Mutant(
        "a topic that the index has not reached yet is there",
        "route_table.py",
        "keys = {*keys, *(lag.key for lag in self._lags if lag.concerns(topic))}",
        "keys = set(keys)",
    ),
    Mutant(
        "a topic that the index has not dropped yet is gone",
        "route_table.py",
        "if self._lags or self._hiding:\n            keys",
        "if self._hiding:\n            keys",
    ),
    Mutant(
        "what the index has not reached yet moves the revision",
        "route_table.py",
        "version = max(version, lag.change)",
        "pass",
    ),
    Mutant(
        "a renewal that says nothing new makes no event",
        "name_server.py",
        "if holder is None or not _is_renewal(replica, holder):",
        "if True:",
    ),
    Mutant(
        "a delta tells what was removed",
        "broker_events.py",
        "topics=TopicsPayload(changed, removed, base=base)",
        "topics=TopicsPayload(changed, (), base=base)",
    ),
)


def notices(tree: Path, *, profile: str) -> bool:
    """Whether the state machine fails against the copy of ``namesrv`` in ``tree``."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import namesrv; print(namesrv.__file__)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(tree)), "the copy is not what would be tested"
    pytest = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=0"]
    run = subprocess.run(
        [*pytest, f"--hypothesis-profile={profile}", "tests/property/test_name_server.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode not in {0, 1}:
        raise RuntimeError(run.stdout + run.stderr)
    return run.returncode == 1


def is_noticed(mutant: Mutant, original: Path) -> tuple[bool, float]:
    """Try one mutant in a copy of its own; tell how many seconds it took as well."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(original / "namesrv", tree / "namesrv")
        file = tree / CORE / mutant.file
        source = file.read_text(encoding="utf-8")
        assert source.count(mutant.line) == 1, f"{mutant.file} does not hold once: {mutant.line}"
        file.write_text(source.replace(mutant.line, mutant.broken), encoding="utf-8")
        began = time.monotonic()
        return notices(tree, profile="mutants"), time.monotonic() - began


def main() -> int:
    """Try each mutant and print what became of it, and when: one that is noticed late may be missed tomorrow."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        original = Path(folder)
        shutil.copytree(ROOT / "namesrv", original / "namesrv")
        if notices(original, profile="ci"):
            print("the state machine fails without any mutant")
            return 1
        outcomes = pool.map(lambda mutant: is_noticed(mutant, original), MUTANTS)
        for number, (mutant, (noticed, seconds)) in enumerate(zip(MUTANTS, outcomes, strict=True), 1):
            missed += not noticed
            outcome = f"{'noticed' if noticed else 'MISSED '} {seconds:5.0f} s"
            print(f"{number:2}/{len(MUTANTS)} {outcome}  {mutant.rule}", flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} mutants noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
