"""Break rules of the core one at a time, each of which the model must notice: ``make mutants``.

A mutant is one replaced line in a copy of ``namesrv``; the state machine of ``test_name_server.py`` runs against the
copy. Exit 0: every mutant was noticed, and the unbroken copy passed.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

import tests.conftest  # noqa: F401  # the profiles

ROOT = Path(__file__).parents[2]
CORE = Path("namesrv/pointsman_namesrv/core")


@dataclass(frozen=True)
class Mutant:
    """One rule, and a line that breaks it."""

    rule: str
    file: str
    line: str
    broken: str


ROW = re.compile(r'Rule\("(.*)",\n +(lambda f: .*?, )Phase')


def rows_that_never_apply() -> list[Mutant]:
    """Return a mutant for each row of the table of states that has a condition."""
    rows = ROW.findall((ROOT / CORE / "replica_state.py").read_text(encoding="utf-8"))
    return [
        Mutant(f"row {n}: {when}", "replica_state.py", line, "lambda _: False, ")
        for n, (when, line) in enumerate(rows, 1)
    ]


BROKEN = {
    "replica_state.py": [
        (
            "a replica that is OUT is not routed",
            "ROUTED = frozenset({Phase.PROVISIONAL, Phase.UP, Phase.SUSPECT, Phase.PROTECTED})",
            "ROUTED = frozenset(Phase)",
        ),
        ("otherwise it is UP", "lambda _: True, Phase.UP, (None,)", "lambda _: True, Phase.SUSPECT, (None,)"),
    ],
    "liveness.py": [
        (
            "silence of exactly the expiry keeps a broker",
            "return Reason.SILENCE if self.silence(now=now) > self.expiry else None",
            "return Reason.SILENCE if self.silence(now=now) >= self.expiry else None",
        ),
        (
            "the end of an old stream is not evidence against a later one",
            "if self.stream != stream:",
            "if self.stream is None:",
        ),
        (
            "after a pause a broken stream is given the full expiry",
            " and broken_at - lenient_since > self.expiry:",
            ":",
        ),
        (
            "a handed-over registration stays for its minute",
            "return Reason.SILENCE if now - self.handed_over_at > rules.hand_over else None",
            "return Reason.SILENCE if now - self.handed_over_at > self.expiry else None",
        ),
        (
            "a pause of this process does not count as silence",
            "self.excused += min(seconds, now - self.last_seen)",
            "self.excused += 0.0",
        ),
    ],
    "guard.py": [
        (
            "the guard is on at more than the share, not at exactly the share",
            "lost > rules.share * watch.baseline",
            "lost >= rules.share * watch.baseline",
        ),
        ("fewer lost brokers than at_least never turn the guard on", "lost >= rules.at_least", "lost >= 1"),
        (
            "a guard that is disabled stays off",
            "if not (rules.enabled and watch.present) or",
            "if not watch.present or",
        ),
        (
            "a guard with no replica to keep is off",
            "if not (rules.enabled and watch.present) or",
            "if not rules.enabled or",
        ),
        ("enough brokers that are up end the guard", ", max(0, watch.up - more)\n", ", -1\n"),
        (
            "brokers whose loss grows old do not end the guard",
            "is_on = watch.active_since is not None and not is_new_mode",
            "is_on = False",
        ),
        (
            "a new mode decides by the rule that turns the guard on",
            "is_on = watch.active_since is not None and not is_new_mode",
            "is_on = watch.active_since is not None",
        ),
        (
            "the window is frozen while the guard is on",
            "return now if self.active_since is None else self.active_since",
            "return now",
        ),
        (
            "a broker that was not alive when the window began is not in the baseline",
            "watch.baseline += replica.alive_since is not None and replica.alive_since <= window_begin",
            "watch.baseline += 1",
        ),
        (
            "a departed broker that was alive when the window began is in the baseline",
            "watch.baseline += each.lost and",
            "watch.baseline += False and",
        ),
        (
            "a departed broker counts for its expiry",
            "if edge - each.at <= each.expiry}",
            "if edge - each.at <= each.expiry / 2}",
        ),
        (
            "a provisional replica is not up",
            "elif not replica.is_provisional:",
            "else:",
        ),
        (
            "a lost replica in a maintenance window is set aside",
            "        if is_lost and is_covered:\n",
            "        if False:\n",
        ),
        (
            "one that outlives its window is set aside after it too",
            "        if is_lost and replica.left_in_window:\n",
            "        if is_lost and is_covered:\n",
        ),
        (
            "one that outlives its window is not kept",
            " or watch.began_at is None or replica.left_in_window:",
            " or watch.began_at is None:",
        ),
        (
            "each cluster is counted separately",
            "watch = self._watch(replica.identity.cluster)",
            'watch = self._watch("c1")',
        ),
        ("an overdue hand-over is lost", "return now - pulse.handed_over_at > self._hand_over", "return False"),
        (
            "a probe that fails on strong evidence is never kept nor lost",
            "replica.health.failing is Evidence.WEAK",
            "replica.health.failing is not None",
        ),
        ("a broker that was never alive is never kept nor lost", "        and replica.alive_since is not None\n", ""),
        (
            "a probe that began to fail before the window is not lost",
            "        and replica.failing_since >= window_begin\n",
            "",
        ),
        (
            "the end of a guard gives silent brokers two and a half intervals",
            "patience = SUSPECT_AFTER_INTERVALS * pulse.heartbeat_interval",
            "patience = 0.0",
        ),
        (
            "the end of a guard gives failing probes one interval",
            "lost_since, patience = replica.failing_since, pulse.heartbeat_interval",
            "lost_since, patience = replica.failing_since, 0.0",
        ),
        (
            "the end of a guard helps no broker that is lost afterwards",
            "return lost_since is not None and lost_since <= released_at and",
            "return lost_since is not None and",
        ),
        (
            "the time after a guard is extended by a pause",
            "now - released_at - watch.paused <= patience",
            "now - released_at <= patience",
        ),
        (
            "an operator who turns a guard off ends the time after it",
            "watch.paused = None if watch.mode is GuardMode.OFF else now, 0.0",
            "watch.paused = now, 0.0",
        ),
        ("each probe that began to fail since the last count counts", "more=watch.new_failures)", "more=1)"),
        (
            "a position that returns continues to be alive",
            "return None if departed is None else departed.alive_since",
            "return None",
        ),
    ],
    "departed.py": [
        (
            "the absence of a lost broker counts from the end of its window",
            "_replace(planned=False, unplanned_at=now)",
            "_replace(unplanned_at=now)",
        ),
        (
            "a lost broker that another window covers stays planned",
            "if not is_covered(GroupKey(who.cluster, who.broker_name)))",
            "if not is_covered(GroupKey(who.cluster, '')))",
        ),
    ],
    "group.py": [
        (
            "a planned departure is not lost",
            "        self.left_in_window = self.left_in_window or state.planned\n",
            "",
        ),
        (
            "a replica that is back counts for the guard again",
            "self.failing_since, self.left_in_window = None, False",
            "self.failing_since = None",
        ),
        (
            "another reason is not another phase",
            "if state.phase is not self.state.phase:",
            "if state != self.state:",
        ),
        (
            "a stale generation changes nothing",
            "return self.generation == generation and self.identity.addr == identity.addr",
            "return self.identity.addr == identity.addr",
        ),
        (
            "strong evidence stays strong until the probe passes",
            "if before is Evidence.STRONG and health.failing is not None:",
            "if False:",
        ),
        (
            "a broker is alive from its first passing verdict",
            "self.alive_since = now if self.alive_since is None else self.alive_since",
            "self.alive_since = now",
        ),
        (
            "only a slave with the acting-master flag brings topics",
            "if lowest is None or lowest.identity.broker_id == MASTER_ID or lowest.registration.acting_master:",
            "if lowest is None or lowest.identity.broker_id >= MASTER_ID:",
        ),
        (
            "a slave gets its master's HA address",
            "return MemberView(lowest_id, addr, addr, lowest.registration.ha_addr, lowest.registration.agent_addr)",
            'return MemberView(lowest_id, addr, addr, "", lowest.registration.agent_addr)',
        ),
    ],
    "name_server.py": [
        (
            "the guard is judged when a probe begins to fail",
            "if not is_counted or not self.guard.might_turn_on(key.cluster):",
            "if not is_counted or self.guard.might_turn_on(key.cluster):",
        ),
        (
            "the phase of a replica continues when it registers again",
            "state_since=now if holder is None else holder.state_since,",
            "state_since=now,",
        ),
        (
            "a replica that registers again was alive before",
            "alive_since, punctuality = holder.alive_since, holder.punctuality",
            "alive_since, punctuality = None, holder.punctuality",
        ),
        (
            "a probe that fails at a registration still fails",
            "failing_since=None if holder is None else holder.failing_since,",
            "failing_since=None,",
        ),
        (
            "strong evidence stays strong when a replica registers again",
            "health=Health() if holder is None else holder.health,",
            "health=Health(),",
        ),
        (
            "what registers first while WARMING was alive before",
            "alive_since = now - registration.expiry if is_known_of_old else now",
            "alive_since = now",
        ),
        (
            "a broker whose probe has never passed was never alive",
            " and not (registration.health.failing and registration.health.ever_passed is False):",
            ":",
        ),
        (
            "a replica of the snapshot was alive before the restart",
            "replica.alive_since = None if registration.health.ever_passed is False else now - registration.expiry",
            "replica.alive_since = None if registration.health.ever_passed is False else now",
        ),
        (
            "a replica of the snapshot that was never alive still is not",
            "replica.alive_since = None if registration.health.ever_passed is False else now - registration.expiry",
            "replica.alive_since = now - registration.expiry",
        ),
        (
            "a probe of the snapshot began to fail before the window",
            "replica.failing_since = -inf",
            "replica.failing_since = now",
        ),
        (
            "a replica of the snapshot is provisional until its first heartbeat",
            "        replica.is_provisional = True\n",
            "",
        ),
        (
            "the first heartbeat of a replica of the snapshot confirms it",
            "        replica.is_provisional = False\n",
            "",
        ),
        (
            "a broker whose probe passes again recovers from that",
            "reason = Reason.PROBE if was_failing else Reason.HEARTBEAT",
            "reason = Reason.HEARTBEAT",
        ),
        (
            "after a start or pause, the end of a stream is not evidence",
            "if by_us or now - self._lenient_since <= replica.pulse.expiry:",
            "if by_us:",
        ),
        ("a pause begins the lenient time again", "        self._lenient_since = now\n", ""),
        (
            "a version under which a topic was deleted hides it again on the next broker with that version",
            "if visibly or reappears or disappears or",
            "if visibly or reappears or",
        ),
        (
            "a registration that changes nothing makes no event",
            "if holder is None or not replica.renews(holder):",
            "if True:",
        ),
        (
            "an address has one position in a group",
            "self._leave(group, vacated, Reason.SUPERSEDED, now=now, detail=superseded_by(identity))",
            "[]",
        ),
        (
            "a version that a master brought while it failed ends a deletion",
            "if was_failing and health.failing is None and replica.identity.broker_id == MASTER_ID:",
            "if was_failing and health.failing is None and replica.identity.broker_id < MASTER_ID:",
        ),
    ],
    "addresses.py": [
        (
            "a lower state version does not displace a holder that is UP",
            "if claimed.state_version < held.state_version:",
            "if claimed < DataVersion():",
        ),
        (
            "a registration that is not heard ends when another identity registers its address",
            "        others = (each for each in at.values() if each.identity.group_key != key)\n",
            "        others = (each for each in at.values() if each.identity.group_key == key)\n",
        ),
        (
            "two brokers that were heard beside each other are judged each by itself",
            "        return not _is_known_apart(replica, other)\n",
            "        return True\n",
        ),
        (
            "a registration of the snapshot alone at its address ends when another identity registers it",
            "(replica.shares_addr_since is None or is_same_process)",
            "is_same_process",
        ),
        (
            "of two that shared an address in the snapshot, one process keeps the name that is heard",
            "(replica.shares_addr_since is None or is_same_process)",
            "replica.shares_addr_since is None",
        ),
        (
            "a conflict that began is one row for each",
            "            replica.shares_addr_since = holder.shares_addr_since\n",
            "            pass\n",
        ),
    ],
    "route_table.py": [
        (
            "a slave that acts as master brings its topics read-only",
            "return queues.read_only() if self.read_only else queues",
            "return queues",
        ),
        (
            "an order topic's configuration moves the revision",
            "        self.change += 1\n        self._floor = self.change\n",
            "        self.change += 1\n",
        ),
        (
            "a topic that the index has not reached yet is there",
            "keys = {*keys, *(lag.key for lag in self._lags if lag.concerns(topic))}",
            "keys = set(keys)",
        ),
        (
            "a topic that the index has not dropped yet is gone",
            "if self._lags or self._hiding:\n            keys",
            "if self._hiding:\n            keys",
        ),
        ("what the index has not reached yet moves the revision", "version = max(version, lag.change)", "pass"),
    ],
    "staging.py": [
        (
            "a topic that a registration does not name is gone",
            "removed = tuple(topic for topic in self._held if topic not in self.topics)",
            "removed = tuple(topic for topic in self._held if not self.topics)",
        ),
    ],
    "model.py": [
        ("a wipe takes the write bit alone", "self._replace(perm=self.perm & ~PERM_WRITE)", "self._replace(perm=0)"),
    ],
    "overrides.py": [
        (
            "a wipe ends with the next process, not with the same one",
            "if wiped and registration.incarnation and wiped != registration.incarnation:",
            "if wiped and registration.incarnation:",
        ),
        (
            "a wipe ends with the next process at all",
            "if wiped and registration.incarnation and wiped != registration.incarnation:",
            "if False:",
        ),
        (
            "without an incarnation a wipe ends when the probe passes again",
            "return Reason.PROBE if recovered and not wiped else None",
            "return None",
        ),
        (
            "with an incarnation a failed probe ends no wipe",
            "return Reason.PROBE if recovered and not wiped else None",
            "return Reason.PROBE if recovered else None",
        ),
        (
            "a drain ends a wipe",
            "if reason in _ENDS_WIPE or (not wiped and reason is Reason.SHUTDOWN):",
            "if not wiped and reason is Reason.SHUTDOWN:",
        ),
        (
            "a stop ends a wipe only where the incarnation is unknown",
            "if reason in _ENDS_WIPE or (not wiped and reason is Reason.SHUTDOWN):",
            "if reason in _ENDS_WIPE or reason is Reason.SHUTDOWN:",
        ),
        (
            "a wipe has the incarnation that its master registers later",
            "if key in self.wipes and registration.identity.broker_id == MASTER_ID and not is_failing:",
            "if False:",
        ),
        (
            "a deleted topic is back with another version of its broker's topics",
            "return frozenset(topic for topic, under in tombstones.items() if under == version)",
            "return frozenset(tombstones)",
        ),
        (
            "a deletion that is over does not come back with the old version",
            "remaining = {topic: under for topic, under in before.items() if under == version}",
            "remaining = dict(before)",
        ),
    ],
    "broker_events.py": [
        (
            "a delta names what was removed",
            "payload = TopicsPayload(changed, removed, base=base)",
            "payload = TopicsPayload(changed, (), base=base)",
        ),
    ],
}
"""By file: a rule, its line, and the line that breaks it."""

MUTANTS = [Mutant(rule, file, *lines) for file, broken in BROKEN.items() for rule, *lines in broken]
MUTANTS += rows_that_never_apply()


def notices(tree: Path, profile: str) -> bool:
    """Whether the state machine fails against the copy of ``namesrv`` in ``tree``: in a separate process."""
    settings.load_profile(profile)  # before a state machine takes its settings
    sys.path.insert(0, str(tree / "namesrv"))
    import pointsman_namesrv  # noqa: PLC0415

    assert pointsman_namesrv.__file__.startswith(str(tree)), "the copy is not what would be tested"
    from tests.property.test_name_server import NameServerMachine  # noqa: PLC0415

    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            run_state_machine_as_test(NameServerMachine)
    except Exception:  # noqa: BLE001  # a broken rule may break anything
        return True
    return False


def is_noticed(mutant: Mutant | None, profile: str) -> tuple[bool, float]:
    """Try one mutant in a separate copy; return also its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(ROOT / "namesrv", tree / "namesrv")
        if mutant is not None:
            file = tree / CORE / mutant.file
            source = file.read_text(encoding="utf-8")
            assert source.count(mutant.line) == 1, f"{mutant.file} does not hold once: {mutant.line}"
            file.write_text(source.replace(mutant.line, mutant.broken), encoding="utf-8")
        return notices(tree, profile), time.process_time()


def main() -> int:
    """Try each mutant and print its result and time: one that is noticed late may be missed tomorrow."""
    missed, began = 0, time.monotonic()
    with multiprocessing.get_context("fork").Pool(maxtasksperchild=1) as pool:
        unbroken = pool.apply_async(is_noticed, (None, "ci"))
        tries = [pool.apply_async(is_noticed, (mutant, "mutants")) for mutant in MUTANTS]
        for number, (mutant, outcome) in enumerate(zip(MUTANTS, tries, strict=True), 1):
            noticed, seconds = outcome.get()
            missed += not noticed
            result = f"{'noticed' if noticed else 'MISSED '} {seconds:5.1f} s"
            print(f"{number:2}/{len(MUTANTS)} {result}  {mutant.rule}", flush=True)
        if unbroken.get()[0]:
            print("the state machine fails without any mutant: make fuzz shows where")
            return 1
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} mutants noticed, {time.monotonic() - began:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
