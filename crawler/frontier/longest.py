"""What a forecast of the end asks for: which hosts have most left to do, by a bounded table that is
brought up to date where a host changes, and how fast hosts are, by those that came first.

Rule: the cost of a change and of a look does not grow with the hosts. A host that the table has no
place for is looked at again at its next fetch, and each host has its turns.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest
from typing import Final

from crawler.frontier.records import HostRecord
from crawler.model.types import HostKey, HostWork, Pace

_SAMPLED: Final = 100
_KEPT: Final = 500  # several times what a forecast asks for, as most of these get less to do


class LongestHosts:
    """The hosts whose waiting URLs take longest, by their last rests."""

    def __init__(self, least_gap_s: float) -> None:
        self._least_gap_s = least_gap_s
        self._scores: dict[HostKey, float] = {}  # seconds, 2 * _KEPT at most
        self._least = 0.0  # no host with less is kept
        self._sample: dict[HostKey, Pace] = {}

    def note(self, host: HostKey, record: HostRecord) -> None:
        """Note that *record*, of *host*, has changed."""
        pace, waiting = record.pace, 0
        if host in self._sample or len(self._sample) < _SAMPLED:
            self._sample[host] = pace
        for ends in record.queue_ends:
            waiting += ends.tail - ends.head
        score = waiting * max(pace.gap_s, pace.crawl_delay_s, self._least_gap_s)
        if score > self._least:
            self._scores[host] = score
            if len(self._scores) > 2 * _KEPT:
                kept = nlargest(_KEPT, self._scores.items(), key=lambda item: item[1])
                self._scores, self._least = dict(kept), kept[-1][1]
        elif self._scores.pop(host, None) is not None and len(self._scores) < _KEPT:
            self._least = 0.0

    def longest(
        self,
        limit: int,
        record_of: Callable[[HostKey], HostRecord],
        is_leased: Callable[[HostKey], bool],
    ) -> list[HostWork]:
        """Return up to *limit* hosts, those with most left to do first."""
        found = []
        for host in nlargest(limit, self._scores, key=self._scores.__getitem__):
            record = record_of(host)
            waiting = record.waiting()
            if not waiting:
                del self._scores[host]  # dropped by a rule, or by the operator
                continue
            work = HostWork(host, waiting, record.rest_until, record.pace, is_leased(host))
            found.append(work)
        return found

    def sampled_paces(self) -> list[Pace]:
        """Return the paces of the hosts that were noted first, whatever is left there."""
        return list(self._sample.values())
