"""Independent Spark queries in parallel threads.

For a small query, planning and compiling dominate and use one thread, so that another query can be planned or run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import TypeVar

MAX_PARALLEL = 4
"""More would need more memory without being faster: a large query already uses all cores."""

_Name = TypeVar("_Name", bound=Hashable)
_Result = TypeVar("_Result")


def run_parallel(*parts: Callable[[], _Result]) -> list[_Result]:
    """Run all parts, each in a thread, and return their results in order; errors as in `run_ordered`."""
    results = run_ordered(dict(enumerate(parts)), {})
    return [results[number] for number in range(len(parts))]


def run_ordered(
    parts: Mapping[_Name, Callable[[], _Result]],
    after: Mapping[_Name, Collection[_Name]],
    *,
    most: int = MAX_PARALLEL,
    done: Callable[[_Name], None] = lambda _: None,
) -> dict[_Name, _Result]:
    """Run each part in a thread as soon as the parts in ``after`` are done; of those that are ready, the first.

    At ``most`` this number runs in parallel. After an error or an interrupt, waiting parts are not started; running
    parts are completed first. ``done`` is called in the caller's thread.
    """
    order = TopologicalSorter({name: after.get(name, ()) for name in parts})
    order.prepare()
    places = {name: place for place, name in enumerate(parts)}
    ready: list[_Name] = []
    running: dict[Future[_Result], _Name] = {}
    results: dict[_Name, _Result] = {}
    with ThreadPoolExecutor(most, thread_name_prefix="parallel") as threads:
        while order.is_active():
            ready = sorted([*ready, *order.get_ready()], key=places.__getitem__)
            while ready and len(running) < most:
                name = ready.pop(0)
                running[threads.submit(parts[name])] = name
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                name = running.pop(future)
                results[name] = future.result()
                order.done(name)
                done(name)
    return results
