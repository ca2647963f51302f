"""Pause Python's garbage collector during work that creates very many objects and no cycles.

A collection scans all objects and blocks every thread for 100 ms and more, several times in the second in which 100,000
topics are parsed.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

LARGE = 20_000
"""Number of new objects from which they are excluded from later collections (``gc.freeze``): the next one would
otherwise take as long as those avoided. Reference counting still frees them."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable collections inside the block. The block must not hang: the collector would stay disabled."""
    was_enabled = gc.isenabled()
    gc.collect(1)  # frozen garbage would never be freed
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] >= LARGE:
            gc.freeze()
        if was_enabled:
            gc.enable()
