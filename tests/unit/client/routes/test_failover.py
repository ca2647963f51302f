"""Which name server is queried, in what order, and how the time is divided."""

from __future__ import annotations

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.wire.error_details import ErrorDetails
from pointsman_client import (
    NameServerFailedError,
    NameServersUnavailableError,
    PointsmanError,
    RequestRejectedError,
    TopicNotFoundError,
)
from pointsman_client.core.name_server_choice import NameServerChoice
from pointsman_client.routes.failover import MIN_ATTEMPT_SECONDS, Failover

REJECTED = RequestRejectedError("b", grpc.StatusCode.INVALID_ARGUMENT, "no", ErrorDetails())


class Script:
    """Scripted name servers: a response, or a failure after some seconds."""

    def __init__(self, clock: ManualClock, answers: dict[str, str], fails_after: dict[str, float]) -> None:
        self._clock = clock
        self.answers = answers
        self.fails_after = fails_after
        self.at_first_responds_after: dict[str, float] = {}
        self.shares: list[tuple[str, float]] = []

    async def attempt(self, addr: str, seconds: float) -> str:
        self.shares.append((addr, round(seconds, 6)))
        needed = self.fails_after.get(addr, self.at_first_responds_after.pop(addr, 0.0))
        self._clock.now += min(seconds, needed)
        if needed > seconds:
            raise NameServerFailedError(addr, grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        if addr in self.fails_after:
            raise NameServerFailedError(addr, grpc.StatusCode.UNAVAILABLE, "down")
        return self.answers[addr]


async def test_hanging_servers_get_equal_shares_of_the_time_and_the_last_one_keeps_its_own(clock: ManualClock) -> None:
    script = Script(clock, {"c": "route"}, {"a": 99.0, "b": 99.0})

    answer = await Failover(NameServerChoice("abc"), clock).call(script.attempt, timeout_seconds=3.0)

    assert answer == "route"
    assert script.shares == [("a", 1.0), ("b", 1.0), ("c", 1.0)]


async def test_the_share_of_a_server_that_fails_immediately_goes_to_the_others(clock: ManualClock) -> None:
    script = Script(clock, {"c": "route"}, {"a": 0.0, "b": 0.0})

    await Failover(NameServerChoice("abc"), clock).call(script.attempt, timeout_seconds=3.0)

    assert script.shares == [("a", 1.0), ("b", 1.5), ("c", 3.0)]


async def test_the_server_that_responded_is_queried_first_from_then_on(clock: ManualClock) -> None:
    script = Script(clock, {"a": "a", "b": "b", "c": "c"}, {"a": 0.0})
    failover = Failover(NameServerChoice("abc"), clock)

    assert await failover.call(script.attempt, timeout_seconds=3.0) == "b"
    script.fails_after.clear()
    assert await failover.call(script.attempt, timeout_seconds=3.0) == "b"


async def test_when_all_fail_the_error_names_each_and_the_list_stays_in_use(clock: ManualClock) -> None:
    script = Script(clock, {"a": "a", "b": "b"}, {"a": 0.0, "b": 0.0})
    failover = Failover(NameServerChoice("ab"), clock)

    for _ in range(3):
        with pytest.raises(NameServersUnavailableError) as caught:
            await failover.call(script.attempt, timeout_seconds=3.0)
        assert {failure.addr for failure in caught.value.failures} == {"a", "b"}
    assert caught.value.retriable
    assert str(caught.value) == "no name server responded: a: down (UNAVAILABLE); b: down (UNAVAILABLE)"

    script.fails_after.clear()
    assert await failover.call(script.attempt, timeout_seconds=3.0) in {"a", "b"}


async def test_a_server_whose_share_was_too_short_gets_what_a_refused_connection_left(clock: ManualClock) -> None:
    script = Script(clock, {"a": "a"}, {"b": 0.0})
    script.at_first_responds_after["a"] = 1.4

    assert await Failover(NameServerChoice("ab"), clock).call(script.attempt, timeout_seconds=2.0) == "a"
    assert script.shares == [("a", 1.0), ("b", 1.0), ("a", 1.0)]


async def test_servers_that_are_too_slow_are_called_once_more_and_not_beyond_the_deadline(clock: ManualClock) -> None:
    script, started_at = Script(clock, {}, {"a": 99.0, "b": 0.0, "c": 99.0}), clock.now

    with pytest.raises(NameServersUnavailableError) as caught:
        await Failover(NameServerChoice("abc"), clock).call(script.attempt, timeout_seconds=3.0)

    assert clock.now - started_at == pytest.approx(3.0)
    assert [failure.addr for failure in caught.value.failures] == ["a", "b", "c"]


async def test_the_server_in_use_is_left_only_for_one_that_responds(clock: ManualClock) -> None:
    script = Script(clock, {"b": "b"}, {"a": 99.0, "b": 99.0})
    choice, moves = NameServerChoice("ab"), list[str]()
    choice.on_move(lambda: moves.append(choice.in_use))
    failover = Failover(choice, clock)

    with pytest.raises(NameServersUnavailableError):
        await failover.call(script.attempt, timeout_seconds=3.0)
    assert moves == []

    del script.fails_after["b"]
    await failover.call(script.attempt, timeout_seconds=3.0)
    assert moves == ["b"]


@pytest.mark.parametrize("error", [TopicNotFoundError("orders"), REJECTED])
async def test_a_negative_response_is_a_response_of_the_server_that_is_used_next(
    clock: ManualClock, error: PointsmanError
) -> None:
    async def attempt(addr: str, _seconds: float) -> str:
        raise NameServerFailedError(addr, grpc.StatusCode.UNAVAILABLE, "down") if addr == "a" else error

    choice = NameServerChoice("ab")
    with pytest.raises(type(error)):
        await Failover(choice, clock).call(attempt, timeout_seconds=3.0)

    assert choice.in_use == "b"


async def test_a_negative_response_is_final_and_no_other_server_is_queried(clock: ManualClock) -> None:
    asked: list[str] = []

    async def not_found(addr: str, seconds: float) -> str:
        asked.append(f"{addr} {seconds}")
        raise TopicNotFoundError("orders")

    choice = NameServerChoice("ab")
    with pytest.raises(TopicNotFoundError):
        await Failover(choice, clock).call(not_found, timeout_seconds=3.0)

    assert asked == ["a 1.5"]
    assert choice.in_use == "a"


async def test_after_an_overslept_deadline_each_server_still_gets_a_short_try(clock: ManualClock) -> None:
    script = Script(clock, {"b": "b"}, {"a": 99.0})

    async def overslept(addr: str, seconds: float) -> str:
        try:
            return await script.attempt(addr, seconds)
        finally:
            clock.now += 60.0

    assert await Failover(NameServerChoice("ab"), clock).call(overslept, timeout_seconds=3.0) == "b"
    assert script.shares[1] == ("b", MIN_ATTEMPT_SECONDS)


def test_listeners_are_notified_of_each_real_change_of_the_server() -> None:
    moves: list[str] = []
    choice = NameServerChoice("abc")
    choice.on_move(lambda: moves.append(choice.in_use))

    choice.use("b", instead_of="c")
    choice.use("a", instead_of="a")
    choice.use("b", instead_of="a")
    choice.use("b", instead_of="a")

    assert moves == ["b"]
    assert choice.order() == ("b", "c", "a")


async def test_servers_are_queried_until_their_responses_suffice(clock: ManualClock) -> None:
    script = Script(clock, {"a": "a", "c": "c", "d": "d"}, {"b": 0.0})
    failed: list[str] = []
    failover = Failover(NameServerChoice("abcd"), clock, on_failure=failed.append)

    answers = await failover.call_until(lambda said: len(said) == 2, script.attempt, timeout_seconds=4.0)

    assert answers == ["a", "c"]
    assert failed == ["b"]
    assert [addr for addr, _ in script.shares] == ["a", "b", "c"]


async def test_a_refusal_counts_as_no_response_once_another_server_responded(clock: ManualClock) -> None:
    async def attempt(addr: str, _seconds: float) -> str:
        if addr == "b":
            raise REJECTED
        return addr

    answers = await Failover(NameServerChoice("abc"), clock).call_until(
        lambda said: len(said) == 3, attempt, timeout_seconds=3.0
    )
    assert answers == ["a", "c"]
    with pytest.raises(RequestRejectedError):
        await Failover(NameServerChoice("ba"), clock).call(attempt, timeout_seconds=3.0)
