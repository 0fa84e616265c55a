"""How many examples a property test tries that does not leave it to its profile."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

HYPOTHESIS_EXAMPLES: Final = 100
FUZZ_TIMES: Final = 5  # a round of `make fuzz` then takes three minutes on two cores


def examples(usual: int) -> int:
    """*usual*, and `make fuzz` has more here too. At import: the profile is chosen by then."""
    return usual * settings.default.max_examples // HYPOTHESIS_EXAMPLES
