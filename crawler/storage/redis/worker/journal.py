"""What was acknowledged lately, and may not yet be on the disk of the server that said so.

Rule: with `everysec` a server loses what it acknowledged in its last second, two when its disk is
slow (Redis waits so long for it). It is told again when it comes back, however long it was away;
told twice, it does no harm: what was seen is seen, and a lease ends once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crawler.storage.redis.calls import Call

KEPT_S: Final = 6.0


@dataclass(frozen=True, slots=True)
class _Told:
    at: float  # monotonic
    calls: Sequence[Call]


class Journal:
    """Bound: what is told in KEPT_S; 150 bytes a link, so 9 MB at 12,000 links a second."""

    def __init__(self) -> None:
        self._by_shard: dict[int, deque[_Told]] = {}

    def note(self, calls: Sequence[Call], steady: float) -> None:
        """*calls*, all of one shard, were acknowledged, or say the same again."""
        told = self._by_shard.setdefault(calls[0].shard, deque())
        told.append(_Told(steady, calls))
        while told[0].at < steady - KEPT_S:
            told.popleft()

    def recent(self, shard: int, alive_at: float) -> list[Call]:
        """What *shard*, whose server was alive at *alive_at* and then died, may have forgotten;
        oldest first."""
        told = self._by_shard.pop(shard, ())
        return [call for each in told if each.at >= alive_at - KEPT_S for call in each.calls]
