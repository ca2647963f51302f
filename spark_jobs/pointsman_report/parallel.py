"""Independent Spark queries in parallel threads.

For a small query, planning and compiling dominate and use one thread, so that another query can be planned or run.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

MAX_PARALLEL = 4
"""More would need more memory without being faster: a large query already uses all cores."""

_Result = TypeVar("_Result")


def run_parallel(*parts: Callable[[], _Result]) -> list[_Result]:
    """Run all parts, each in a thread, and return their results in order.

    After an error or an interrupt, waiting parts are not started; running parts are completed first.
    """
    with ThreadPoolExecutor(MAX_PARALLEL, thread_name_prefix="parallel") as threads:
        try:
            begun: list[Future[_Result]] = [threads.submit(part) for part in parts]
            done, _ = wait(begun, return_when=FIRST_EXCEPTION)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
    for future in done:
        future.result()
    return [future.result() for future in begun]
