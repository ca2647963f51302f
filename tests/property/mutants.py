"""Break ten rules of the core one at a time and see that the model notices each: ``make mutants``.

A mutant is one replaced line in a copy of ``namesrv``; the state machine of ``test_name_server.py`` runs against the
copy. Exit 0: every mutant was noticed, and the unbroken copy passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
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
        "if now - self.last_seen > self.expiry:",
        "if now - self.last_seen >= self.expiry:",
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
        "route_table.py",
        "if topic not in after.topics:",
        "if topic not in after.topics and not after.topics:",
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
        "return self.health.verdict is not ProbeVerdict.FAILING",
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
)


def notices(tree: Path) -> bool:
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
    pytest = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile=mutants",
    ]
    run = subprocess.run(
        [*pytest, "tests/property/test_name_server.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode not in {0, 1}:
        raise RuntimeError(run.stdout + run.stderr)
    return run.returncode == 1


def main() -> int:
    """Try each mutant and print what became of it."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(ROOT / "namesrv", tree / "namesrv")
        if notices(tree):
            print("the state machine fails without any mutant")
            return 1
        for number, mutant in enumerate(MUTANTS, 1):
            file = tree / CORE / mutant.file
            source = file.read_text(encoding="utf-8")
            assert source.count(mutant.line) == 1, f"{mutant.file} does not hold once: {mutant.line}"
            file.write_text(source.replace(mutant.line, mutant.broken), encoding="utf-8")
            noticed = notices(tree)
            file.write_text(source, encoding="utf-8")
            missed += not noticed
            print(f"{number:2}/{len(MUTANTS)} {'noticed' if noticed else 'MISSED '}  {mutant.rule}", flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} mutants noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
