"""Functions of the application that are called on updates."""

from __future__ import annotations

import asyncio

from pointsman_client.aio import Callbacks


async def test_each_is_called_soon_and_not_within_the_callers_frame() -> None:
    callbacks: Callbacks[str] = Callbacks()
    heard: list[str] = []
    callbacks.add(heard.append)
    callbacks.add(heard.append)
    callbacks.notify("news")
    assert heard == []
    await asyncio.sleep(0)
    assert heard == ["news", "news"]


async def test_a_removed_callback_is_not_called_and_removing_twice_is_allowed() -> None:
    callbacks: Callbacks[str] = Callbacks()
    heard: list[str] = []
    remove, _ = callbacks.add(heard.append), callbacks.add(heard.append)
    remove()
    remove()
    callbacks.notify("news")
    await asyncio.sleep(0)
    assert heard == ["news"]


async def test_a_callback_that_raises_does_not_affect_the_others() -> None:
    callbacks: Callbacks[str] = Callbacks()
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
    heard: list[str] = []

    def broken(_news: str) -> None:
        raise ValueError("mine")

    callbacks.add(broken)
    callbacks.add(heard.append)
    callbacks.notify("news")
    await asyncio.sleep(0)
    assert heard == ["news"]
    assert [str(fault) for fault in faults] == ["mine"]
