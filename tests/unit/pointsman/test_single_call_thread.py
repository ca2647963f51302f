"""Work beside the event loop: one call at a time, and a hanging call blocks nothing else."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pointsman.single_call_thread import SingleCallThread


class BusyError(Exception):
    """A call during another one."""


async def test_the_result_or_exception_of_the_work_is_returned() -> None:
    thread = SingleCallThread("test", busy=BusyError)

    def fail() -> int:
        raise KeyError("why")

    assert await thread.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(KeyError, match="why"):
        await thread.run(fail)
    assert await thread.run(lambda: 3) == 3


async def test_a_thread_ends_with_its_call_and_keeps_no_process_alive() -> None:
    thread = await SingleCallThread("test", busy=BusyError).run(threading.current_thread)
    await asyncio.to_thread(thread.join, 20)
    assert thread.daemon
    assert not thread.is_alive()


async def test_where_no_thread_can_be_started_a_later_call_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    thread = SingleCallThread("test", busy=BusyError)
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            await thread.run(lambda: 3)

    async with asyncio.timeout(20):
        assert await thread.run(lambda: 3) == 3


async def test_while_one_call_hangs_the_next_is_refused_immediately_and_later_ones_run() -> None:
    thread = SingleCallThread("test", busy=BusyError)
    may_end, has_ended = threading.Event(), threading.Event()

    def hang() -> None:
        may_end.wait(20)
        has_ended.set()

    hanging = asyncio.create_task(thread.run(hang))
    await asyncio.sleep(0)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    with pytest.raises(BusyError, match="still blocked"):
        await thread.run(lambda: 3)

    may_end.set()
    assert await asyncio.to_thread(has_ended.wait, 20)
    async with asyncio.timeout(20):
        while True:
            try:
                assert await thread.run(lambda: 3) == 3
                break
            except BusyError:
                await asyncio.sleep(0.001)


def test_a_closed_loop_is_not_an_error() -> None:
    may_end = threading.Event()
    threads: list[threading.Thread] = []

    def hang() -> None:
        threads.append(threading.current_thread())
        may_end.wait(20)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(SingleCallThread("test", busy=BusyError).run(hang), 0.05)

    asyncio.run(give_up())
    may_end.set()
    threads[0].join(20)

    assert threads[0].daemon
    assert not threads[0].is_alive()
