"""Dead letters of a shared crawl, put back by a person: each waits again as if it had never failed.

Rule: it may be done while workers crawl. What dies again meanwhile is left: only letters that were
there at the beginning are put back, so it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from crawler.core.types import Candidate
from crawler.core.url import authority_of
from crawler.policy.robots_fetch import Known, RobotsRecord
from crawler.scheduler.records import DeadLetter, decode_letter
from crawler.storage.redis import keys
from crawler.storage.redis.ops import BATCH, Ops
from crawler.storage.redis.visit.visit import Visit

Letter = tuple[int, DeadLetter]
"""A dead letter under its number, of its shard."""

_robots: Final = msgspec.msgpack.Decoder(RobotsRecord).decode


class Revival:
    def __init__(self, visit: Visit, ops: Ops) -> None:
        self._visit = visit
        self._ops = ops

    def put_back(self, shards: Iterable[int], chosen: Callable[[Candidate], bool]) -> int:
        """Those of the *chosen* URLs that wait again."""
        return sum(self._put_back(shard, chosen) for shard in shards)

    def _put_back(self, shard: int, chosen: Callable[[Candidate], bool]) -> int:
        totals = keys.totals(self._visit.name, shard)
        begun_at = int(self._visit.ask(totals, "HGET", "next") or 1)
        letters = (
            each
            for each in dead_letters(self._visit, shard)
            if each[0] < begun_at and chosen(each[1].candidate)
        )
        total = 0
        while batch := list(islice(letters, BATCH)):
            self._forget_unreachable(shard, batch)
            (reply,) = self._visit.link.run([self._ops.revive(shard, batch)])
            total += int(reply[1])
        return total

    def _forget_unreachable(self, shard: int, letters: Sequence[Letter]) -> None:
        """Else they would be dead again unasked, as long as that verdict holds."""
        name = self._visit.name
        for authority in {authority_of(letter.candidate.url) for _, letter in letters}:
            key = keys.robots(name, shard, authority)
            packed = self._visit.ask(key, "GET")
            if packed is not None and _forbids_all(packed):
                self._visit.ask(key, "DEL")


def dead_letters(visit: Visit, shard: int) -> Iterator[Letter]:
    """In no order, some perhaps twice."""
    key = keys.dead(visit.name, shard)
    with visit.reading(key):
        for found in visit.pairs(key):
            for number, letter in found:
                yield int(number), decode_letter(letter)


def _forbids_all(packed: bytes) -> bool:
    try:
        return _robots(packed).kind is Known.UNREACHABLE
    except msgspec.MsgspecError:
        return False  # it counts as none
