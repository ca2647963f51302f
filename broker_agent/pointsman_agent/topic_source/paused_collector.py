"""Keep Python's garbage collector away from work that makes very many objects and no cycles.

A round of it walks all that lives and holds every thread meanwhile: 100 ms and more, several times in the second in
which 100,000 topics are parsed.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

LARGE = 20_000
"""New objects that stay. So many are not left for the next round to find, for it would take as long as what was
avoided: they are set aside for good (``gc.freeze``). Being freed in the ordinary way is still open to them."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Have no rounds inside the block, which must not hang: that would keep the collector out for ever."""
    was_enabled = gc.isenabled()
    gc.collect(1)  # what is set aside as garbage would stay for ever
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] >= LARGE:
            gc.freeze()
        if was_enabled:
            gc.enable()
