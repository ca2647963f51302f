"""Parts that run in parallel give the sequential result, and after an error none of them is running."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from pointsman_report.parallel import MAX_PARALLEL, run_ordered, run_parallel

LONG = 20.0


def test_parts_run_in_parallel_and_return_in_order() -> None:
    all_there = threading.Barrier(MAX_PARALLEL)

    def part(number: int) -> Callable[[], int]:
        def run() -> int:
            all_there.wait(LONG)
            time.sleep(0.01 * (MAX_PARALLEL - number))  # the last part is done first
            return number

        return run

    assert run_parallel(*map(part, range(MAX_PARALLEL))) == list(range(MAX_PARALLEL))
    assert run_parallel() == []


@pytest.mark.parametrize("is_interrupt", [False, True], ids=["a-fault", "an-interrupt"])
def test_after_an_error_or_an_interrupt_running_work_ends_and_waiting_work_does_not_start(
    is_interrupt: bool,
) -> None:
    begun: list[float] = []
    ended: list[float] = []

    def breaks() -> None:
        if not is_interrupt:
            raise ValueError("its own")
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    def lasts() -> None:
        begun.append(time.monotonic())
        time.sleep(0.02)  # so that many are still waiting at the error
        ended.append(time.monotonic())

    before, after = [lasts] * 5 * MAX_PARALLEL, [lasts] * 100
    with pytest.raises(KeyboardInterrupt if is_interrupt else ValueError):
        run_parallel(*before, breaks, *after)
    assert len(before) <= len(begun) < len(before) + len(after)
    assert len(ended) == len(begun)


def test_an_error_is_raised_whichever_part_fails() -> None:
    failed = threading.Event()

    def waits() -> None:
        assert failed.wait(LONG)

    def fails() -> None:
        failed.set()
        raise ValueError("later part")

    with pytest.raises(ValueError, match="later part"):
        run_parallel(waits, fails)


def test_a_part_starts_as_soon_as_those_before_it_are_done() -> None:
    is_late_running = threading.Event()
    ended: list[str] = []

    def slow() -> None:
        assert is_late_running.wait(LONG), "late waits for slow, which is not before it"

    parts: dict[str, Callable[[], None]] = {"slow": slow, "late": is_late_running.set, "early": lambda: None}
    run_ordered(parts, {"late": ["early"]}, done=ended.append)
    assert set(ended) == parts.keys()
    assert ended.index("early") < ended.index("late")


def test_of_the_parts_that_are_ready_the_first_ones_start() -> None:
    begun: list[int] = []
    parts = {number: partial(begun.append, number) for number in range(20)}
    after = {number: [number - 10] for number in range(10, 20)}
    run_ordered(parts, after)

    assert begun[:MAX_PARALLEL] == list(range(MAX_PARALLEL))
    assert sorted(begun) == list(range(20))
    assert all(begun.index(number - 10) < begun.index(number) for number in range(10, 20))
