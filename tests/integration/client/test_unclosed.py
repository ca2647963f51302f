"""An object that is started and collected without a close gives a ResourceWarning."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import pointsman_client
from pointsman_client import sync
from pointsman_client.aio import LoopBinding
from pointsman_client.memory import MemoryTransport

NO_ONE = "127.0.0.1:1"
"""Nothing listens there."""


async def listener(_: object) -> None: ...


def plain(_: object) -> None: ...


ASYNC: dict[str, Callable[[str], Any]] = {
    "NameServerClient": pointsman_client.NameServerClient,
    "Producer": lambda addr: pointsman_client.Producer(addr, transport=MemoryTransport),
    "PushConsumer": lambda addr: pointsman_client.PushConsumer(
        addr, group="g", subscriptions="orders", listener=listener, transport=MemoryTransport
    ),
    "PullConsumer": lambda addr: pointsman_client.PullConsumer(
        addr, group="g", subscriptions="orders", transport=MemoryTransport
    ),
}
BLOCKING: dict[str, Callable[[str], Any]] = {
    "NameServerClient": sync.NameServerClient,
    "Producer": lambda addr: sync.Producer(addr, transport=MemoryTransport),
    "PushConsumer": lambda addr: sync.PushConsumer(
        addr, group="g", subscriptions="orders", listener=plain, transport=MemoryTransport
    ),
    "PullConsumer": lambda addr: sync.PullConsumer(addr, group="g", subscriptions="orders", transport=MemoryTransport),
}


def warned(work: Callable[[], object]) -> set[str]:
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
        gc.collect()
    return {
        str(each.message) for each in caught if each.category is ResourceWarning and "unclosed" in str(each.message)
    }


@pytest.mark.parametrize("name", ASYNC)
async def test_one_that_is_closed_or_never_started_gives_no_warning(name: str) -> None:
    made = [ASYNC[name](NO_ONE) for _ in range(2)]
    async with made[0]:
        pass
    assert warned(made.clear) == set()


@pytest.mark.parametrize("name", ["NameServerClient", "Producer", "PushConsumer", "PullConsumer"])
def test_a_program_that_does_not_close_gets_a_warning_with_the_class_name(name: str) -> None:
    async def forget() -> None:
        await ASYNC[name](NO_ONE).start()

    expected = f"unclosed {name}: use it in an `async with` block, or call close()"
    assert expected in warned(lambda: asyncio.run(forget()))


@pytest.mark.parametrize("name", BLOCKING)
def test_a_blocking_one_gives_the_warning_until_it_is_closed(name: str) -> None:
    # Called explicitly: an object that is collected without a close would leak its threads.
    made = BLOCKING[name](NO_ONE)
    assert warned(made.__del__) == set()
    made.start()
    try:
        assert warned(made.__del__) == {f"unclosed {name}: use it in a `with` block, or call close()"}
    finally:
        made.close()
    assert warned(made.__del__) == set()


async def test_a_forked_child_gets_no_warning_for_what_its_parent_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    binding = [LoopBinding("Producer")]
    binding[0].bind()
    monkeypatch.setattr("pointsman_client.aio.os.getpid", lambda: -1)
    assert warned(binding.clear) == set()
