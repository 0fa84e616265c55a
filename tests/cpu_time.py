"""How much CPU something takes, whatever else the machine and this process have to do."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import process_time


def cpu_seconds(act: Callable[[], object], times: int = 3) -> float:
    """The least of several runs: what disturbs one, such as a compilation, seldom disturbs all. The
    garbage collector is off: a full collection goes through all that other tests have left."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return min(_once(act) for _ in range(times))
    finally:
        if was_on:
            gc.enable()


def _once(act: Callable[[], object]) -> float:
    begun = process_time()
    act()
    return process_time() - begun
