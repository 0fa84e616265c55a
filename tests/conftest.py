"""What property tests try: the same examples each time; with `make fuzz` others, and more.

A change is judged by what it changes, not by luck. Luck is for those who look for faults.

And in which order tests are begun: what takes long first.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import FUZZ_TIMES, HYPOTHESIS_EXAMPLES
from tests.longest import LONGEST

COMMON: Final[dict[str, Any]] = {
    "deadline": None,  # the machine may have much else to do
    "suppress_health_check": [HealthCheck.too_slow],
    "print_blob": True,
}

settings.register_profile("same", derandomize=True, **COMMON)
settings.register_profile("fuzz", max_examples=FUZZ_TIMES * HYPOTHESIS_EXAMPLES, **COMMON)
settings.load_profile("same")

_PLACES: Final = {name: place for place, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _PLACES.get(item.path.stem, len(LONGEST)))
