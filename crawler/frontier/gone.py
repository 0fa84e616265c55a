"""Pages that are gone, which may come back: one that is named again is asked for again.

Rule: their keys are in memory, so a link costs a look-up. The number is bounded; of more pages than
that, those that went first are only known as seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.records import GoneRecord, decode_gone, encode
from crawler.frontier.staging import WriteBatch, all_records
from crawler.model.types import Candidate

ASKED_S: Final = 30 * 86_400.0
"""Between two visits of a page that is gone, however often it is named."""
MOST: Final = 200_000
"""Pages: 25 MB of memory."""


class GonePages:
    """The pages of a frontier that are gone."""

    def __init__(self, batch: WriteBatch) -> None:
        self._batch = batch
        # By key, those that went first in front: when each was asked for last, and its record.
        self._pages: dict[int, tuple[float, bytes]] = {}
        self.load(keys.GONE)

    def load(self, prefix: bytes) -> None:
        """Add those of the records that begin with *prefix*."""
        found = [(decode_gone(packed), name) for name, packed in all_records(self._batch, prefix)]
        for record, name in sorted(found, key=lambda each: each[0].at):
            self._add(record.candidate.key, record.at, name)

    def drop(self, shard: bytes) -> None:
        """Forget those of *shard*, whose records were deleted."""
        kept = self._pages.items()
        self._pages = {key: page for key, page in kept if keys.shard_in(page[1]) != shard}

    def put(self, page: Candidate, now: float) -> None:
        """Keep *page*, which was asked for last *now*."""
        name = keys.numbered(keys.GONE, self._batch.next_number(self._batch.shards.of(page.host)))
        self._batch.put(name, encode(GoneRecord(page, now)))
        self._add(page.key, now, name)

    def named(self, found: Iterable[Candidate], now: float) -> list[Candidate]:
        """Remove and return the pages that are to be asked for again, as links to them were
        *found*."""
        if not self._pages:
            return []
        named = []
        for key in self._pages.keys() & {each.key for each in found}:
            asked_at, name = self._pages[key]
            if now - asked_at < ASKED_S:
                continue
            del self._pages[key]
            packed = self._batch.get(name)
            if packed is not None:  # else it was purged
                self._batch.delete(name)
                named.append(decode_gone(packed).candidate)
        return named

    def _add(self, key: int, asked_at: float, name: bytes) -> None:
        self._pages[key] = asked_at, name
        if len(self._pages) > MOST:
            _, oldest = self._pages.pop(next(iter(self._pages)))
            self._batch.delete(oldest)
