"""Which of the URLs that wait for a host come first: those with the most cash.

Rule: a queue stays a FIFO. Where a turn of a host begins, the best URLs of a window are brought to
the front of its queue, in a run that serves for some turns, so a page costs a look at 16 URLs at
most, however many wait. A turn ends early when a URL with much more cash comes.

The cash of a link to a known URL is noted in memory, and added where the window is read. What a
process that was killed had noted is lost: URLs come in another order then, and none is lost.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawler.frontier.port import FrontierLimits
from crawler.frontier.queues import QueueName, UrlQueues
from crawler.frontier.records import HostRecord, cash_of_packed, key_of_packed, with_cash
from crawler.model.types import Candidate, HostKey
from crawler.policy.priority import DOUBLING, MOST_CASH, NO_CASH

_WINDOW: Final = 8192
"""URLs. Of 4,096, the 100,000 pages of uk-2007-05 came with 1 point less of the PageRank at 30 %
of the pages (`python -m bench.order`)."""
_RUN_PART: Final = 16
_LEAST_RUN: Final = 32
_FEW: Final = 8  # URLs come as they were found: with 32, 1 % of the pages bring 1.4 points less
_MOST_NOTES: Final = 4_000_000  # 8 bytes each
_KEY_BITS: Final = 32  # of a key in a note: of URLs that have them in common, each gets the cash
_KEY_MASK: Final = (1 << _KEY_BITS) - 1


class _Run(NamedTuple):
    """The next URLs of a queue, which are in order and better than the others of their window."""

    stop: int  # the number of the first URL behind it
    first: int  # cash of the first URL
    behind: int  # the most cash of those of the window behind it


class UrlOrder:
    """Puts the waiting URLs of hosts in order."""

    def __init__(self, queues: UrlQueues, limits: FrontierLimits) -> None:
        self._queues = queues
        self._limits = limits
        self._notes: dict[HostKey, array[int]] = {}  # by host: cash, and the end of a key
        self._noted = 0
        self._runs: dict[QueueName, _Run] = {}

    def note(self, known: Iterable[Candidate]) -> None:
        """Note the cash of links to *known* URLs, which may wait. If there are too many notes,
        those of the hosts that were noted first are dropped."""
        host, notes = None, array("Q")
        before = 0
        for each in known:
            if each.cash == NO_CASH:
                continue
            if each.host != host:
                self._noted += len(notes) - before
                host = each.host
                notes = self._notes.setdefault(host, array("Q"))
                before = len(notes)
            notes.append(each.cash << _KEY_BITS | each.key & _KEY_MASK)
        self._noted += len(notes) - before
        while self._noted > _MOST_NOTES:
            self._noted -= len(self._notes.pop(next(iter(self._notes))))

    def arrange(self, host: HostKey, record: HostRecord, level: int) -> int:
        """Bring the best of the next URLs of a queue, no head of which is in memory, to its front,
        unless that is done. Returns how many of the next ones are in order, and notes in *record*
        the most cash of those behind the next head."""
        ends = record.queue_ends[level]
        if len(ends) <= _FEW or (record.cash == NO_CASH and host not in self._notes):
            record.cash = NO_CASH  # nothing is behind the next head, or what is has none
            return len(ends)
        run = self._runs.get((host, level))
        if run is None or run.stop <= ends.head:
            run = self._arranged(host, record, level)
        ordered = min(run.stop, ends.tail) - ends.head
        record.cash = run.behind if ordered <= self._limits.head_urls else run.first
        return ordered

    def forget_run(self, host: HostKey, level: int) -> None:
        """Look again at what waits there: a URL with more cash has come."""
        self._runs.pop((host, level), None)

    def _arranged(self, host: HostKey, record: HostRecord, level: int) -> _Run:
        ends = record.queue_ends[level]
        stop = min(ends.tail, ends.head + _WINDOW)
        packed = self._queues.read(host, level, ends.head, stop)
        before = np.array([cash_of_packed(each) for each in packed], np.int64)
        cash = self._with_notes(host, packed, before, keeps_others=stop < ends.tail)
        order = np.argsort(-cash, kind="stable")
        length = min(max(_LEAST_RUN, len(packed) // _RUN_PART), len(packed))
        changed = np.flatnonzero(cash != before).tolist()
        if changed or not (order[:length] == np.arange(length)).all():
            for at in changed:
                packed[at] = with_cash(packed[at], int(cash[at]))
            self._queues.rewrite(host, record, level, [packed[at] for at in order.tolist()])
        behind = cash[order[length]] if length < len(packed) else NO_CASH
        run = _Run(ends.head + length, int(cash[order[0]]) if length else NO_CASH, int(behind))
        if len(self._runs) >= self._limits.known_hosts:
            del self._runs[next(iter(self._runs))]
        self._runs[host, level] = run
        return run

    def _with_notes(
        self, host: HostKey, packed: list[bytes], cash: NDArray[np.int64], *, keeps_others: bool
    ) -> NDArray[np.int64]:
        """Return *cash* with that of the notes of *host*, which are removed: those of no URL here
        only unless *keeps_others*."""
        taken = self._notes.pop(host, None)
        if taken is None:
            return cash
        self._noted -= len(taken)
        notes = np.frombuffer(taken, np.uint64)
        ends = np.array([key_of_packed(each) & _KEY_MASK for each in packed], np.uint64)
        by_end = np.argsort(ends)
        places = by_end[np.searchsorted(ends, notes & _KEY_MASK, sorter=by_end) % len(ends)]
        is_here = ends[places] == notes & _KEY_MASK
        if keeps_others and not is_here.all():
            others = array("Q", notes[~is_here][-_WINDOW:].tobytes())
            self._notes[host] = others
            self._noted += len(others)
        found = places[is_here]
        more = np.exp2((notes[is_here] >> _KEY_BITS).astype(float) / DOUBLING)
        amounts = np.exp2(cash / DOUBLING) + np.bincount(found, more, len(ends))
        added = np.minimum(np.rint(DOUBLING * np.log2(amounts)), MOST_CASH).astype(np.int64)
        return np.where(np.bincount(found, minlength=len(ends)) > 0, added, cash)
