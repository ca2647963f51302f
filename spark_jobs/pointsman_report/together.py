"""Questions to Spark that do not need each other, asked at the same time.

A query over little data is mostly planned and compiled, by one thread: beside it another can be planned, or run.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

MOST_AT_ONCE = 4
"""More would hold more memory and gain nothing: each has tasks for all cores where there is much to do."""

_Answer = TypeVar("_Answer")


def together(*parts: Callable[[], _Answer]) -> list[_Answer]:
    """Run all parts, each in a thread, and return what they gave, in the order of the parts.

    After a fault, and after an interrupt, parts that wait are not begun; those that run come to their end first.
    """
    with ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="together") as threads:
        try:
            begun: list[Future[_Answer]] = [threads.submit(part) for part in parts]
            done, _ = wait(begun, return_when=FIRST_EXCEPTION)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
    for future in done:
        future.result()
    return [future.result() for future in begun]
