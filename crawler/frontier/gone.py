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
        self._asked_at: dict[int, float] = {}  # by key, those that went first in front
        self._names: dict[int, bytes] = {}  # of their records
        self.load(keys.GONE)

    def load(self, prefix: bytes) -> None:
        """Add those of the records that begin with *prefix*."""
        found = [(decode_gone(packed), name) for name, packed in all_records(self._batch, prefix)]
        for record, name in sorted(found, key=lambda each: each[0].at):
            self._note(record.candidate.key, record.at, name)

    def drop(self, shard: bytes) -> None:
        """Forget those of *shard*, whose records were deleted."""
        for key in [key for key, name in self._names.items() if keys.shard_in(name) == shard]:
            del self._asked_at[key], self._names[key]

    def put(self, page: Candidate, now: float) -> None:
        """Keep *page*, which was asked for last *now*."""
        name = keys.numbered(keys.GONE, self._batch.next_number(self._batch.shards.of(page.host)))
        self._batch.put(name, encode(GoneRecord(page, now)))
        self._note(page.key, now, name)
        while len(self._names) > MOST:
            key = next(iter(self._names))
            self._batch.delete(self._names.pop(key))
            del self._asked_at[key]

    def named(self, found: Iterable[Candidate], now: float) -> list[Candidate]:
        """Remove and return the pages that are to be asked for again, as links to them were
        *found*."""
        if not self._asked_at:
            return []
        named = []
        for key in self._asked_at.keys() & {each.key for each in found}:
            if now - self._asked_at[key] < ASKED_S:
                continue
            name = self._names.pop(key)
            del self._asked_at[key]
            packed = self._batch.get(name)
            if packed is not None:  # else it was purged
                self._batch.delete(name)
                named.append(decode_gone(packed).candidate)
        return named

    def _note(self, key: int, at: float, name: bytes) -> None:
        self._asked_at[key], self._names[key] = at, name
