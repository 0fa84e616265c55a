"""What was acknowledged lately, and may not yet be on the disk of the server that acknowledged it.

Rule: with `everysec` a server loses what it acknowledged in its last second, two when its disk is
slow (Redis waits so long for it). When another run of it answers, however long it was away, these
calls are sent again. Sent twice they do no harm: what was seen is seen, and a lease ends once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crawler.storage.redis.calls import Call
from crawler.storage.redis.worker.runs import Runs

KEPT_S: Final = 6.0


@dataclass(frozen=True, slots=True)
class _Acknowledged:
    at: float  # monotonic
    calls: Sequence[Call]


class Journal:
    """Bound: what is acknowledged in KEPT_S; 150 bytes a link, so 9 MB at 12,000 links a second."""

    def __init__(self, runs: Runs, is_needed: bool = True) -> None:
        """*is_needed*: False where all that is acknowledged is on a disk (appendfsync always)."""
        self._runs = runs
        self._is_needed = is_needed
        self._by_shard: dict[int, deque[_Acknowledged]] = {}

    def acknowledged(
        self, calls: Sequence[Call], run: bytes, asked_at: float, steady: float
    ) -> None:
        """*run* of the server answered at *steady* what it was asked at *asked_at*: the first of
        *calls*, all of one shard, which together bring about the same again.

        The run comes first: if it is another one, `recent` takes what the last may have forgotten.
        And the server was alive when it was asked; by the clock alone an outage would empty this.
        """
        shard = calls[0].shard
        self._runs.heard(shard, run, asked_at)
        if not self._is_needed:
            return
        kept = self._by_shard.setdefault(shard, deque())
        kept.append(_Acknowledged(steady, calls))
        while kept[0].at < asked_at - KEPT_S:
            kept.popleft()

    def recent(self, shard: int, alive_at: float) -> list[Call]:
        """Take out what *shard* may have forgotten, whose server was alive at *alive_at* and then
        died; oldest first."""
        kept = self._by_shard.pop(shard, ())
        return [call for each in kept if each.at >= alive_at - KEPT_S for call in each.calls]
