"""The epoch of a master: which of two masters is later, and what a master may claim without an observed promotion."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_agent.core.mastership import ACCEPT_AFTER_SECONDS, Claim, Mastership, MastershipKeeper, NoMastership


def test_the_first_master_starts_with_epoch_one_once_it_is_accepted() -> None:
    keeper = MastershipKeeper("1")

    assert keeper.on_master("run-1", None, now=0.0) == Claim(0, None)
    assert keeper.on_master("run-1", None, now=ACCEPT_AFTER_SECONDS) == Claim(1, Mastership(1, "1"))


def test_a_replica_promoted_before_any_epoch_gets_the_first() -> None:
    keeper = MastershipKeeper("2")
    keeper.on_replica("run-1")

    assert keeper.on_master("run-1", None, now=0.0) == Claim(1, Mastership(1, "2"))


def test_a_master_that_restarts_over_its_own_data_keeps_its_epoch() -> None:
    keeper = MastershipKeeper("1")
    keeper.on_master("run-1", Mastership(3, "1"), now=0.0)

    assert keeper.on_master("run-2", Mastership(3, "1"), now=1.0) == Claim(3, None)


def test_a_promoted_replica_gets_the_next_epoch_immediately() -> None:
    keeper = MastershipKeeper("2")
    keeper.on_replica("run-1")

    assert keeper.on_master("run-1", Mastership(3, "1"), now=0.0) == Claim(4, Mastership(4, "2"))


def test_a_promoted_replica_gets_the_next_epoch_even_if_the_data_has_its_own_name() -> None:
    keeper = MastershipKeeper("1")
    keeper.on_replica("run-1")

    assert keeper.on_master("run-1", Mastership(3, "1"), now=0.0) == Claim(4, Mastership(4, "1"))


def test_an_epoch_that_could_not_be_written_is_claimed_anyway_and_its_write_retried() -> None:
    keeper = MastershipKeeper("2")
    keeper.on_replica("run-1")
    keeper.on_master("run-1", Mastership(3, "1"), now=0.0)

    assert keeper.on_master("run-1", Mastership(3, "1"), now=1.0) == Claim(4, Mastership(4, "2"))
    assert keeper.on_master("run-1", Mastership(4, "2"), now=2.0) == Claim(4, None)


def test_the_claim_is_kept_while_the_data_cannot_be_read() -> None:
    keeper = MastershipKeeper("1")
    keeper.on_master("run-1", Mastership(7, "1"), now=0.0)

    assert keeper.claimed("run-1") == 7
    assert keeper.claimed("run-2") == 0
    keeper.on_replica("run-1")
    assert keeper.claimed("run-1") == 0


def test_a_key_that_clients_delete_is_written_again() -> None:
    keeper = MastershipKeeper("1")
    keeper.on_master("run-1", Mastership(7, "1"), now=0.0)

    assert keeper.on_master("run-1", None, now=1.0) == Claim(7, Mastership(7, "1"))


def test_a_restarted_replica_that_reports_master_claims_less_than_the_current_master() -> None:
    keeper = MastershipKeeper("2")
    keeper.on_replica("run-1")

    assert keeper.on_master("run-2", Mastership(3, "1"), now=0.0) == Claim(2, None)


def test_a_master_without_an_observed_promotion_is_accepted_once_sentinel_had_time_to_correct_it() -> None:
    keeper = MastershipKeeper("2")
    held = Mastership(3, "1")

    assert keeper.on_master("run-1", held, now=0.0).epoch == 2
    assert keeper.on_master("run-1", held, now=ACCEPT_AFTER_SECONDS - 0.001).epoch == 2
    assert keeper.on_master("run-1", held, now=ACCEPT_AFTER_SECONDS) == Claim(4, Mastership(4, "2"))


def test_the_time_to_acceptance_starts_over_with_each_process_and_each_demotion() -> None:
    keeper = MastershipKeeper("2")
    held = Mastership(3, "1")
    keeper.on_master("run-1", held, now=0.0)
    assert keeper.on_master("run-2", held, now=ACCEPT_AFTER_SECONDS).epoch == 2
    keeper.on_replica("run-2")
    assert keeper.on_master("run-3", held, now=2 * ACCEPT_AFTER_SECONDS).epoch == 2


def test_a_server_without_a_run_id_never_counts_as_promoted() -> None:
    keeper = MastershipKeeper("2")
    keeper.on_replica("")

    assert keeper.on_master("", Mastership(3, "1"), now=0.0).epoch == 2


@pytest.mark.parametrize("text", ["", "1", "1 ", " 1", "x 1", "0 1", "-1 1", "1 a b", "1  a", "٣ a", "9" * 30 + " a"])
def test_text_that_no_agent_wrote_is_ignored(text: str) -> None:
    with pytest.raises(NoMastership, match="must be 'epoch member'"):
        Mastership.from_text(text)


@given(epoch=st.integers(1, 2**63 - 1), member=st.from_regex(r"[a-z0-9:.-]{1,20}", fullmatch=True))
def test_what_is_written_is_read(epoch: int, member: str) -> None:
    mastership = Mastership(epoch, member)

    assert Mastership.from_text(mastership.to_text()) == mastership


STEPS = st.lists(st.tuples(st.sampled_from("AB"), st.booleans()), max_size=30)


@given(steps=STEPS)
def test_of_two_members_that_replicate_each_other_the_last_promoted_one_claims_the_highest_epoch(
    steps: list[tuple[str, bool]],
) -> None:
    """``steps``: which one is promoted next, and whether the other one is a replica already when it is polled."""
    keepers = {name: MastershipKeeper(name) for name in "AB"}
    data: dict[str, Mastership | None] = {"A": None, "B": None}
    keepers["A"].on_master("run-A", None, now=0.0)
    now = ACCEPT_AFTER_SECONDS
    data["A"] = data["B"] = keepers["A"].on_master("run-A", None, now=now).to_keep
    master, claimed = "A", 1
    for name, is_demoted in steps:
        old = master
        if name != old:
            data[name] = data[old]
            keepers[name].on_replica(f"run-{name}")
        master = name
        claim = keepers[name].on_master(f"run-{name}", data[name], now=now)
        data[name] = claim.to_keep or data[name]
        assert claim.epoch > claimed if name != old else claim.epoch == claimed
        claimed = claim.epoch
        if name != old and not is_demoted:
            late = keepers[old].on_master(f"run-{old}", data[old], now=now)
            assert late.epoch < claimed
