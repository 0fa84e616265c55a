"""Which of the URLs that wait for a host come first: those with the most cash.

Rule: a queue stays a FIFO. Where a turn of a host begins, the best URLs of a window are brought to
the front of its queue, in a run that serves for some turns, so a page costs a look at 16 URLs at
most, however many wait. A URL that comes with much more cash than the next one goes before it.

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
from crawler.frontier.records import HostRecord, cash_of_all, keys_of_all, with_cash
from crawler.model.types import Candidate, HostKey
from crawler.policy.priority import DOUBLING, MOST_CASH, NO_CASH

_WINDOW: Final = 8192
"""URLs. Of 4,096, the 100,000 pages of uk-2007-05 came with 1 point less of the PageRank at 30 %
of the pages (`python -m bench.order`)."""
_RUN_PART: Final = 16  # of 8, 10 % of the pages of uk-2007-05 bring .2 points less
_LEAST_RUN: Final = 24  # of 32, 5 % of the pages bring .1 points less
_FEW: Final = 8  # URLs come as they were found: with 32, 1 % of the pages bring 1.4 points less
_MOST_NOTES: Final = 4_000_000  # 8 bytes each
_OF_HOST: Final = 25  # as many bytes as so many notes has what keeps those of a host
_CASH_MASK: Final = (1 << 16) - 1
_KEY_MASK: Final = (1 << 64) - 1 - _CASH_MASK  # in a note the end of a key is replaced by the cash


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
        self._notes: dict[HostKey, array[int]] = {}  # by host: a key and its cash
        self._noted = 0
        self._runs: dict[QueueName, _Run] = {}

    def note(self, known: Iterable[Candidate]) -> None:
        """Note the cash of links to *known* URLs, which may wait. If there are too many notes,
        those of the hosts that were noted first are dropped."""
        last, count, mask = None, 0, _KEY_MASK
        for each in known:  # 0.1 us each: a page has 40 links
            cash = each.cash
            if cash == NO_CASH:
                continue
            host = each.host
            if host != last:
                notes = self._notes.get(host)
                if notes is None:
                    self._notes[host] = notes = array("Q")
                last, append = host, notes.append
            append(each.key & mask | cash)
            count += 1
        self._noted += count
        while self._noted + _OF_HOST * len(self._notes) > _MOST_NOTES:
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
        """Look again at what waits there when the next turn begins."""
        self._runs.pop((host, level), None)

    def _arranged(self, host: HostKey, record: HostRecord, level: int) -> _Run:
        ends = record.queue_ends[level]
        stop = min(ends.tail, ends.head + _WINDOW)
        packed, chunks = self._queues.read_window(host, level, ends.head, stop)
        before = cash_of_all(packed)
        cash = self._with_notes(host, packed, before, keeps_others=stop < ends.tail)
        order = np.argsort(-cash, kind="stable")
        length = min(max(_LEAST_RUN, len(packed) // _RUN_PART), len(packed))
        changed = np.flatnonzero(cash != before).tolist()
        if changed or not (order[:length] == np.arange(length)).all():
            for at in changed:
                packed[at] = with_cash(packed[at], int(cash[at]))
            in_order = [packed[at] for at in order.tolist()]
            self._queues.rewrite(host, level, ends.head, in_order, chunks)
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
        noted = notes & np.uint64(_KEY_MASK)
        waiting = keys_of_all(packed) & np.uint64(_KEY_MASK)
        by_key = np.argsort(waiting)
        places = by_key[np.searchsorted(waiting, noted, sorter=by_key) % len(waiting)]
        is_here = waiting[places] == noted
        if keeps_others and not is_here.all():
            others = array("Q", notes[~is_here][-_WINDOW:].tobytes())
            self._notes[host] = others
            self._noted += len(others)
        found = places[is_here]
        more = np.exp2((notes[is_here] & np.uint64(_CASH_MASK)).astype(float) / DOUBLING)
        amounts = np.exp2(cash / DOUBLING) + np.bincount(found, more, len(cash))
        added = np.minimum(np.rint(DOUBLING * np.log2(amounts)), MOST_CASH).astype(np.int64)
        return np.where(np.bincount(found, minlength=len(cash)) > 0, added, cash)
