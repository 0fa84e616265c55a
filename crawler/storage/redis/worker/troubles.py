"""What is in the way, told in the log: once when it begins, and once when it is over.

Rule: a trouble is over when it was not met for a while. What is met every half second is one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

logger = logging.getLogger(__name__)

OVER_S: Final = 3.0
"""Each server is asked once a second, and each call tried again twice as often."""


class Troubles:
    def __init__(self, steady: Callable[[], float] = monotonic) -> None:
        self._steady = steady
        self._met_at: dict[str, float] = {}  # by their kind
        self._looked_at = steady()

    def meet(self, kind: str, text: str) -> None:
        """*kind*: what of it is told once, whatever its *text*."""
        if kind not in self._met_at:
            logger.warning("Waiting: %s", text)
        self._met_at[kind] = self._steady()

    def look(self) -> None:
        """To be called about once a second."""
        steady = self._steady()
        if steady - self._looked_at > OVER_S / 2:  # we stood still, and met nothing for that alone
            self._met_at = dict.fromkeys(self._met_at, steady)
        self._looked_at = steady
        for kind, met_at in list(self._met_at.items()):
            if steady - met_at > OVER_S:
                del self._met_at[kind]
                logger.info("Going on: %s", kind)
