"""Which name server is in use, over failures and changes of the list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pointsman_client.core.name_server_choice import NameServerChoice

LISTS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)
STEPS = st.lists(st.one_of(LISTS, st.sampled_from("abcdef")), max_size=20)


def test_before_the_first_list_no_server_is_in_use() -> None:
    choice, moves = NameServerChoice(()), list[str]()
    choice.on_move(lambda: moves.append(choice.in_use))
    assert (choice.in_use, choice.order()) == ("", ())
    choice.replace("ab")
    assert (choice.in_use, choice.order(), moves) == ("a", ("a", "b"), ["a"])


def test_the_server_in_use_stays_while_it_is_listed() -> None:
    choice = NameServerChoice("abc")
    choice.use("b", instead_of="a")
    choice.replace("cdb")
    assert (choice.in_use, choice.order()) == ("b", ("b", "c", "d"))
    choice.replace("dc")
    assert choice.in_use == "d"


def test_a_response_of_a_server_that_was_removed_during_the_call_puts_it_not_in_use() -> None:
    choice = NameServerChoice("ab")
    choice.replace("cd")
    choice.use("b", instead_of={"c"})
    assert choice.in_use == "c"


@given(LISTS, STEPS)
def test_one_of_the_list_is_in_use_and_only_a_failure_or_its_removal_changes_that(
    first: list[str], steps: list[list[str] | str]
) -> None:
    choice, listed, moves = NameServerChoice(first), first, 0

    def count() -> None:
        nonlocal moves
        moves += 1

    choice.on_move(count)
    for step in steps:
        before, moves = choice.in_use, 0
        if isinstance(step, str):
            choice.use(step, instead_of={before})
            assert choice.in_use == (step if step in listed else before)
            assert moves == (choice.in_use != before)
        else:
            choice.replace(listed := step)
            assert choice.in_use == (before if before in listed else listed[0])
            assert moves == 1
        assert sorted(choice.order()) == sorted(listed)
        assert choice.order()[0] == choice.in_use
