"""Set up a run of the tests: property tests try the same examples each time, or others, and more,
with `make fuzz`; and the files that take longest begin first.
"""

from __future__ import annotations

import gc
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.budget import FUZZ_TIMES, HYPOTHESIS_EXAMPLES, LONGEST

COMMON: Final[dict[str, Any]] = {
    "deadline": None,  # the machine may have much else to do
    "suppress_health_check": [HealthCheck.too_slow],
    "print_blob": True,
}

settings.register_profile("same", derandomize=True, **COMMON)
settings.register_profile("fuzz", max_examples=FUZZ_TIMES * HYPOTHESIS_EXAMPLES, **COMMON)
settings.load_profile("same")

_ORDER: Final = {name: place for place, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _ORDER.get(item.path.stem, len(LONGEST)))


def pytest_collection_finish() -> None:
    """Keep the collected tests out of garbage collection, which took 8 of 134 s of unit tests."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()
