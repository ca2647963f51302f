"""The table of states, row by row."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from pointsman_namesrv.core.model import Evidence, Reason
from pointsman_namesrv.core.replica_state import RULES, UP, Facts, Phase, ReplicaState, replica_state, rule_of
from pointsman_report.report.meanings import STATES

README = Path(__file__).parents[4] / "namesrv" / "README.md"
WEAK, STRONG = Evidence.WEAK, Evidence.STRONG
WORST = Facts(
    expired=Reason.SILENCE,
    failing=STRONG,
    is_provisional=True,
    suspect=Reason.SILENCE,
    in_window=True,
    is_kept=False,
)


@pytest.mark.parametrize(
    ("row", "facts", "state"),
    [
        (1, WORST._replace(unregistered=Reason.SHUTDOWN), ReplicaState(Phase.GONE, Reason.SHUTDOWN, planned=True)),
        (1, Facts(unregistered=Reason.ADMIN), ReplicaState(Phase.GONE, Reason.ADMIN, planned=True)),
        (2, WORST, ReplicaState(Phase.GONE, Reason.SILENCE, planned=True)),
        (3, Facts(expired=Reason.STREAM_BROKEN, is_kept=True), ReplicaState(Phase.PROTECTED, Reason.STREAM_BROKEN)),
        (3, Facts(expired=Reason.SILENCE, failing=WEAK, is_kept=True), ReplicaState(Phase.PROTECTED, Reason.SILENCE)),
        (4, Facts(expired=Reason.SILENCE, failing=STRONG), ReplicaState(Phase.GONE, Reason.SILENCE)),
        (5, WORST._replace(expired=None), ReplicaState(Phase.OUT, Reason.REFUSED, planned=True)),
        (6, WORST._replace(expired=None, in_window=False), ReplicaState(Phase.OUT, Reason.REFUSED)),
        (7, Facts(failing=WEAK, in_window=True), ReplicaState(Phase.OUT, Reason.PROBE, planned=True)),
        (8, Facts(failing=WEAK, is_kept=True), ReplicaState(Phase.PROTECTED, Reason.PROBE)),
        (9, Facts(failing=WEAK, is_provisional=True), ReplicaState(Phase.OUT, Reason.PROBE)),
        (10, Facts(is_provisional=True, suspect=Reason.SILENCE), ReplicaState(Phase.PROVISIONAL, Reason.SNAPSHOT)),
        (11, Facts(suspect=Reason.STREAM_BROKEN), ReplicaState(Phase.SUSPECT, Reason.STREAM_BROKEN)),
        (12, Facts(suspect=Reason.SILENCE, is_kept=True), ReplicaState(Phase.SUSPECT, Reason.SILENCE)),
        (13, Facts(in_window=True, is_kept=True), UP),
    ],
)
def test_a_row(row: int, facts: Facts, state: ReplicaState) -> None:
    assert replica_state(facts) == state
    assert rule_of(state) is RULES[row - 1]


def test_every_combination_of_facts_has_a_state_that_names_its_row() -> None:
    reasons = (None, Reason.SILENCE, Reason.STREAM_BROKEN)
    combinations = itertools.product(
        (None, Reason.DRAIN), reasons, (None, WEAK, STRONG), (False, True), reasons, (False, True), (False, True)
    )
    for values in combinations:
        facts = Facts(*values)
        first = next(rule for rule in RULES if rule.applies(facts))
        assert rule_of(replica_state(facts)) is first


def test_each_state_comes_from_one_row_alone() -> None:
    states = [(rule.phase, reason, rule.planned) for rule in RULES for reason in rule.reasons]
    assert len(states) == len(set(states))


def test_the_readme_quotes_the_table() -> None:
    quoted = [
        f"| {number} | {rule.when} | {rule.phase} | {', '.join(reason or '-' for reason in rule.reasons)} | "
        f"{'yes' if rule.planned else 'no'} |"
        for number, rule in enumerate(RULES, 1)
    ]
    assert "\n".join(quoted) in README.read_text(encoding="utf-8")


def test_the_glossary_of_the_report_quotes_the_table() -> None:
    quoted = [(rule.when, f"{rule.phase.value}{', planned' if rule.planned else ''}") for rule in RULES]
    assert list(STATES) == quoted
