"""Rise and fall: when a sequence of probe results changes the verdict, and the strength of its evidence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_agent.core.probe_verdict import (
    Evidence,
    ProbeFailure,
    ProbeResult,
    ProbeStatus,
    Role,
    Verdict,
    VerdictKeeper,
    role_conflict,
)


def verdicts(results: str, *, rise: int = 1, fall: int = 2) -> str:
    """Feed a sequence of ``+`` and ``-`` and return the sequence of verdicts."""
    keeper = VerdictKeeper(rise=rise, fall=fall)
    assert keeper.verdict.status is ProbeStatus.UNSPECIFIED
    found = [keeper.record(ProbeResult(each == "+", each)).status for each in results]
    return "".join("+" if status is ProbeStatus.PASSING else "-" for status in found)


@pytest.mark.parametrize(
    ("rise", "fall", "results", "expected"),
    [
        pytest.param(3, 3, "+", "+", id="first-pass-decides-alone"),
        pytest.param(3, 3, "-", "-", id="first-failure-decides-alone"),
        pytest.param(1, 2, "+-+-+-", "++++++", id="single-failures-change-nothing"),
        pytest.param(1, 2, "+--", "++-", id="second-failure-in-a-row-turns"),
        pytest.param(1, 2, "--+", "--+", id="first-pass-turns-back"),
        pytest.param(3, 1, "-++-+++", "------+", id="a-failure-starts-the-rise-over"),
        pytest.param(2, 2, "+--++--", "++--++-", id="both-ways"),
    ],
)
def test_a_verdict_turns_only_after_enough_results_in_a_row(rise: int, fall: int, results: str, expected: str) -> None:
    assert verdicts(results, rise=rise, fall=fall) == expected


@given(results=st.text("+-", min_size=1, max_size=40), rise=st.integers(1, 4), fall=st.integers(1, 4))
def test_a_verdict_always_agrees_with_a_model_over_all_results(results: str, rise: int, fall: int) -> None:
    found = verdicts(results, rise=rise, fall=fall)

    current = results[0]
    since = 0
    for end in range(1, len(results) + 1):
        other = "-" if current == "+" else "+"
        needed = rise if other == "+" else fall
        if results[since:end].endswith(other * needed):
            current, since = other, end
        assert found[end - 1] == current


def test_incarnation_and_role_are_those_of_the_last_pass() -> None:
    keeper = VerdictKeeper(rise=1, fall=1)
    keeper.record(ProbeResult(True, "answers", incarnation="run-1", role=Role.MASTER))

    failing = keeper.record(ProbeResult(False, "refused"))

    assert (failing.status, failing.incarnation, failing.role) == (ProbeStatus.FAILING, "run-1", Role.MASTER)


def test_a_restart_between_two_probes_is_seen_though_the_verdict_stays() -> None:
    keeper = VerdictKeeper(rise=1, fall=2)
    keeper.record(ProbeResult(True, "answers", incarnation="run-1"))
    keeper.record(ProbeResult(False, "refused"))

    back = keeper.record(ProbeResult(True, "answers", incarnation="run-2"))

    assert (back.status, back.incarnation) == (ProbeStatus.PASSING, "run-2")


def test_the_detail_explains_the_verdict_and_not_the_odd_result() -> None:
    keeper = VerdictKeeper(rise=1, fall=2)
    keeper.record(ProbeResult(True, "answers"))

    assert keeper.record(ProbeResult(False, "refused")).detail == "answers"
    assert keeper.record(ProbeResult(False, "refused")).detail == "refused"


def test_a_certain_result_alone_changes_the_verdict_in_both_directions() -> None:
    keeper = VerdictKeeper(rise=3, fall=3)
    keeper.record(ProbeResult(True, "answers"))

    assert keeper.record(ProbeResult(False, "empty", is_certain=True)).status is ProbeStatus.FAILING
    assert keeper.record(ProbeResult(True, "answers")).status is ProbeStatus.FAILING
    assert keeper.record(ProbeResult(True, "answers", is_certain=True)).status is ProbeStatus.PASSING


def test_the_epoch_belongs_to_the_role_reported_with_it() -> None:
    keeper = VerdictKeeper(rise=1, fall=1)
    keeper.record(ProbeResult(True, "answers", role=Role.MASTER, master_epoch=4))

    assert keeper.record(ProbeResult(True, "answers, but not INFO")).master_epoch == 4
    assert keeper.record(ProbeResult(False, "refused", role=Role.MASTER, master_epoch=9)).master_epoch == 4
    assert keeper.record(ProbeResult(True, "answers", role=Role.SLAVE)).master_epoch == 0


def test_warnings_belong_to_the_current_verdict() -> None:
    keeper = VerdictKeeper(rise=1, fall=2)
    keeper.record(ProbeResult(True, "answers", warnings=("does not\npersist",)))

    assert keeper.record(ProbeResult(False, "refused")).warnings == ("does not persist",)
    assert keeper.record(ProbeResult(False, "refused")).warnings == ()


def test_a_detail_is_shortened_and_cleaned_for_the_wire() -> None:
    verdict = VerdictKeeper(rise=1, fall=1).record(ProbeResult(False, "no\nway\x00" + "x" * 2_000))

    assert verdict.detail.startswith("no way xxx")
    assert len(verdict.detail) == 1_024


RESULTS = {
    "+": ProbeResult(True, "answers"),
    "x": ProbeResult(False, "loading", failure=ProbeFailure.REFUSED_TO_SERVE),
    "r": ProbeResult(False, "connection refused", failure=ProbeFailure.CONNECTION_REFUSED_LOCALLY),
    "t": ProbeResult(False, "no response within 2 s"),
}
EVIDENCE = {Evidence.UNSPECIFIED: "-", Evidence.WEAK: "w", Evidence.STRONG: "S"}


def evidence(results: str, *, rise: int = 1, fall: int = 2) -> str:
    """Feed a sequence of results, named as in RESULTS, and return that of their evidence."""
    keeper = VerdictKeeper(rise=rise, fall=fall)
    verdicts = [keeper.record(RESULTS[each]) for each in results]
    for verdict in verdicts:
        assert (verdict.evidence is Evidence.UNSPECIFIED) is (verdict.status is not ProbeStatus.FAILING)
    return "".join(EVIDENCE[verdict.evidence] for verdict in verdicts)


@pytest.mark.parametrize(
    ("rise", "fall", "results", "expected"),
    [
        pytest.param(1, 2, "++", "--", id="a-passing-probe-has-none"),
        pytest.param(1, 2, "+tt", "--w", id="a-timeout-is-weak"),
        pytest.param(1, 2, "x", "S", id="a-broker-that-refuses-to-serve-is-strong-without-any-pass"),
        pytest.param(1, 2, "+xx", "--S", id="a-broker-that-refuses-to-serve-is-strong-after-a-pass"),
        pytest.param(1, 2, "rrr", "www", id="refused-before-any-pass-is-weak-however-often"),
        pytest.param(1, 2, "+rr", "--S", id="refused-fall-times-after-a-pass-is-strong"),
        pytest.param(1, 1, "+r", "-S", id="refused-once-where-fall-is-1"),
        pytest.param(1, 3, "+ttrrr", "---wwS", id="refused-fewer-times-than-fall-is-weak"),
        pytest.param(1, 2, "+rtrtrr", "--wwwwS", id="refused-only-counts-in-a-row"),
        pytest.param(1, 2, "rt+rr", "ww--S", id="a-pass-after-the-first-failures-counts"),
        pytest.param(3, 2, "rr+rr", "wwwwS", id="a-pass-counts-though-the-verdict-does-not-turn"),
        pytest.param(3, 2, "+ttr+r", "--wwww", id="a-pass-ends-the-row-of-refusals"),
        pytest.param(1, 2, "+ttx", "--wS", id="weak-becomes-strong-while-it-fails"),
        pytest.param(1, 2, "+xxtt", "--SSS", id="strong-stays-strong-whatever-follows"),
        pytest.param(3, 2, "+xx++tt", "--SSSSS", id="strong-stays-strong-over-a-pass-that-does-not-turn-the-verdict"),
        pytest.param(1, 2, "+xt", "--S", id="a-refusal-before-the-verdict-turned-counts"),
        pytest.param(1, 2, "+x+tt", "----w", id="a-refusal-before-a-pass-does-not-count"),
        pytest.param(1, 2, "+xx+tt", "--S--w", id="strong-ends-when-the-verdict-passes"),
    ],
)
def test_evidence_is_strong_where_the_broker_refuses_or_its_machine_does_after_a_pass(
    rise: int, fall: int, results: str, expected: str
) -> None:
    assert evidence(results, rise=rise, fall=fall) == expected


@given(results=st.text("rt", min_size=1, max_size=40), rise=st.integers(1, 4), fall=st.integers(1, 4))
def test_a_probe_that_never_passed_proves_nothing_by_refused_connections(results: str, rise: int, fall: int) -> None:
    assert "S" not in evidence(results, rise=rise, fall=fall)


@given(results=st.text("+xrt", min_size=1, max_size=40), rise=st.integers(1, 4), fall=st.integers(1, 4))
def test_strong_evidence_becomes_weak_only_through_a_passing_verdict(results: str, rise: int, fall: int) -> None:
    assert "Sw" not in evidence(results, rise=rise, fall=fall)


@pytest.mark.parametrize(
    ("rise", "results", "expected"),
    [
        (1, "t", [False]),
        (1, "tr+", [False, False, True]),
        (1, "+tttt", [True] * 5),
        (3, "t+", [False, True]),
    ],
)
def test_a_probe_has_ever_passed_from_its_first_pass_on(rise: int, results: str, expected: list[bool]) -> None:
    keeper = VerdictKeeper(rise=rise, fall=2)

    assert [keeper.record(RESULTS[each]).ever_passed for each in results] == expected


def test_without_a_result_neither_evidence_nor_a_pass_is_known() -> None:
    assert (Verdict().evidence, Verdict().ever_passed) == (Evidence.UNSPECIFIED, None)


@pytest.mark.parametrize("results", ["+", "+rr", "t", "+tt", "+xx"])
def test_a_repeated_result_does_not_change_a_settled_verdict(results: str) -> None:
    keeper = VerdictKeeper(rise=1, fall=2)
    settled = [keeper.record(RESULTS[each]) for each in results][-1]

    assert [keeper.record(RESULTS[results[-1]]) for _ in range(3)] == [settled] * 3


@pytest.mark.parametrize(
    ("broker_id", "role", "conflicts"),
    [
        (0, Role.MASTER, False),
        (0, Role.SLAVE, True),
        (0, Role.UNKNOWN, False),
        (1, Role.SLAVE, False),
        (1, Role.MASTER, True),
        (1, Role.UNKNOWN, False),
    ],
)
def test_a_role_that_contradicts_the_configured_id_is_named(broker_id: int, role: Role, conflicts: bool) -> None:
    assert (role_conflict(broker_id, role) is not None) is conflicts
