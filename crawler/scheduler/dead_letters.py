"""Dead letters, put back by a person: each URL waits again as if it had never failed.

Rule: a frontier that nobody has open, and that was recovered; each call is one write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.core.types import Candidate
from crawler.core.url import authority_of
from crawler.policy.robots_fetch import Known, RobotsRecord
from crawler.scheduler import keys
from crawler.scheduler.bodies import Bodies
from crawler.scheduler.books import Books
from crawler.scheduler.gate import Gate
from crawler.scheduler.ports import OrderedStore
from crawler.scheduler.records import DeadLetter, decode_letter
from crawler.scheduler.refused import Refusals
from crawler.scheduler.rules import FrontierRules
from crawler.scheduler.turns import Turns

BATCH: Final = 500  # letters of one write: 200 kB

Letter = tuple[int, DeadLetter]
"""A dead letter under its number."""

_robots = msgspec.msgpack.Decoder(RobotsRecord).decode


def dead_letters(store: OrderedStore) -> Iterator[Letter]:
    """Oldest first, in bounded memory."""
    begin = keys.DEAD
    while found := store.scan(begin, keys.after(keys.DEAD), BATCH):
        for key, packed in found:
            yield keys.number_of(key), decode_letter(packed)
        begin = found[-1][0] + b"\0"


class Reviver:
    """Over a store whose frontier was opened and left, so that no host is in memory."""

    def __init__(self, store: OrderedStore, rules: FrontierRules) -> None:
        self._books = Books(store, len(rules.level_shares))
        self._bodies = Bodies(self._books)
        gate = Gate(self._books, rules)
        refusals = Refusals(self._books, self._bodies, gate, rules, None)
        self._turns = Turns(self._books, self._bodies, rules, refusals)

    def put_back(self, letters: Sequence[Letter], now: float) -> None:
        """One atomic write. A host at rest is left at rest; its URLs wait."""
        for number, letter in letters:
            self._books.delete(keys.numbered(keys.DEAD, number))
            self._books.totals.dead -= 1
            self._wait_again(letter.candidate)
        self._books.commit(now)

    def _wait_again(self, dead: Candidate) -> None:
        candidate = replace(dead, attempts=0, not_before=0.0)
        self._bodies.append(candidate.host, candidate.level, [candidate])
        self._turns.notice(candidate.host, candidate.level)
        self._forget_unreachable(authority_of(candidate.url))

    def _forget_unreachable(self, authority: str) -> None:
        """Else the URL would be dead again unasked, as long as that verdict holds."""
        key = keys.named(keys.ROBOTS, authority)
        packed = self._books.get(key)
        if packed is not None and _forbids_all(packed):
            self._books.delete(key)


def _forbids_all(packed: bytes) -> bool:
    try:
        return _robots(packed).kind is Known.UNREACHABLE
    except msgspec.MsgspecError:
        return False  # it counts as none
