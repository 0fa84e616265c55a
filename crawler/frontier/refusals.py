"""Waiting URLs that the rules of this start refuse: stored apart, and put back by a start whose
rules admit them.

Rule: URLs are judged in batches where the head of a queue is read, so a refused URL costs its host
neither a turn nor a rest. A call judges a bounded number of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.admit import Admitter
from crawler.frontier.port import FrontierLimits, LeaseRules
from crawler.frontier.queues import QueueName, UrlQueues
from crawler.frontier.records import (
    HostRecord,
    UrlEvent,
    UrlState,
    decode_candidate,
    decode_refused,
    encode_refused,
)
from crawler.frontier.staging import WriteBatch
from crawler.model.types import (
    Candidate,
    HostKey,
    Purpose,
)
from crawler.policy.refusal import Reason, Refusal

_MAX_FREE: Final = 8  # URLs read in excess: some may have no budget, as a robots.txt has none
_CHUNK: Final = 256  # URLs of a read after the first, when part of a head was refused


class Refusals:
    """Applies the rules of this start to waiting URLs, and stores those that are refused."""

    def __init__(
        self,
        batch: WriteBatch,
        queues: UrlQueues,
        admitter: Admitter,
        frontier_limits: FrontierLimits,
        rules: LeaseRules | None,
    ) -> None:
        """*rules*: None if nothing is refused."""
        self._batch = batch
        self._queues = queues
        self._admitter = admitter
        self._rules = rules
        self._levels = len(frontier_limits.shares)
        self._max_judged = self._judgements_left = frontier_limits.judged_slice
        self._unreported: list[tuple[Candidate, Refusal]] = []
        self.generation = 0  # of the rules
        # Where the next read of URLs that earlier starts refused begins; None: all were judged.
        self._next_key = keys.REFUSED if rules is not None and batch.totals.refused else None

    @property
    def is_pending(self) -> bool:
        """Whether URLs that earlier starts refused have not been judged by the new rules yet."""
        return self._next_key is not None

    def judge_again(self) -> None:
        """Judge waiting and refused URLs by the rules, which have changed."""
        self.generation += 1
        if self._rules is not None and self._batch.totals.refused:
            self._next_key = keys.REFUSED

    def judge_shard(self, shard: bytes) -> None:
        """Judge the refused URLs of *shard*, which is taken in, by the rules."""
        if self._rules is not None and self._batch.totals_of(shard).refused:
            first = keys.REFUSED + shard
            self._next_key = first if self._next_key is None else min(first, self._next_key)

    @property
    def is_exhausted(self) -> bool:
        """Whether this call has judged as many URLs as it may."""
        return self._judgements_left <= 0

    def begin_call(self) -> None:
        self._judgements_left = self._max_judged

    def end_call(self) -> None:
        """Report the URLs refused in this call, which are written now."""
        if self._unreported and self._rules is not None:
            refused, self._unreported = self._unreported, []
            self._rules.on_refused(refused)

    def head(
        self, host: HostKey, record: HostRecord, level: int, limit: int, now: float
    ) -> deque[bytes]:
        """Return as `UrlQueues.head`, but only admitted URLs; refused ones are taken off the queue.
        Returns an empty head, though URLs wait there, if this call may judge no more."""
        ends = record.queue_ends[level]
        if self._rules is None:
            stop = min(ends.tail, ends.head + limit)
            return deque(self._queues.read_head(host, record, level, ends.head, stop))
        head: deque[bytes] = deque()
        begin = at = ends.head
        refused: list[tuple[Candidate, Refusal]] = []
        packed_urls: list[bytes] = []  # the refused URLs, packed
        while (
            at < ends.tail
            and len(head) < limit
            and (at == begin or len(refused) < self._judgements_left)
        ):
            stop = min(ends.tail, at + (limit if at == begin else _CHUNK))
            for packed in self._queues.read_head(host, record, level, at, stop):
                candidate = decode_candidate(packed)
                if at == begin and self._trim(host, record, candidate, now):
                    return deque()
                refusal = self._rules.refusal(candidate)
                if refusal is not None:
                    refused.append((candidate, refusal))
                    packed_urls.append(packed)
                else:
                    head.append(packed)
                at += 1
                if len(head) == limit:
                    break
        if refused:
            self._queues.replace_front(host, record, level, at, head)
            self.keep(refused, packed_urls, now)
        return head

    def admits(self, candidate: Candidate) -> bool:
        """Return whether the rules admit *candidate* now."""
        return self._rules is None or self._rules.refusal(candidate) is None

    def readmit_some(self, append: Callable[[QueueName, list[Candidate]], None]) -> None:
        """Judge a bounded number of the URLs that earlier starts refused, and pass those that are
        admitted now to *append*."""
        if self._next_key is None or self._rules is None:
            return
        found = self._batch.scan(self._next_key, keys.prefix_end(keys.REFUSED), self._max_judged)
        admitted: list[tuple[bytes, Candidate]] = []
        for key, packed in found:
            if not self._batch.has(keys.shard_in(key)):
                continue
            candidate = decode_refused(packed).candidate
            if self._rules.refusal(candidate) is None:
                admitted.append((key, candidate))
        # They are marked seen already, so only the budgets in all are applied.
        back, added = self._admitter.readmit(
            [replace(each, needs_seen_test=False) for _, each in admitted]
        )
        counted = Counter(each.url for urls in back.values() for each in urls)
        queues: dict[QueueName, list[Candidate]] = {}
        for key, candidate in admitted:
            if counted[candidate.url]:
                counted[candidate.url] -= 1
                self._batch.delete(key)
                shard = self._batch.shards.of(candidate.host)
                self._batch.count(shard, UrlState.REFUSED, UrlEvent.READMIT)
                queues.setdefault((candidate.host, candidate.level), []).append(candidate)
        for queue, arrived in queues.items():
            append(queue, arrived)
        self._next_key = found[-1][0] + b"\0" if len(found) == self._max_judged else None
        self._rules.on_readmitted(added.new)

    def _trim(self, host: HostKey, record: HostRecord, first: Candidate, now: float) -> bool:
        """Take URLs off the ends of the queues, the worst level first, if more were admitted than
        the budgets allow now. Returns False if there are none to take."""
        excess, reason = self._admitter.over_budget(record, first)
        if not excess:
            return False
        refusal = Refusal(reason, f"{excess} URLs too many")
        taken: list[tuple[Candidate, Refusal]] = []
        packed_urls: list[bytes] = []
        for level in reversed(range(self._levels)):
            wanted = min(excess, self._max_judged) - len(taken)
            ends = record.queue_ends[level]
            begin = max(ends.head, ends.tail - wanted - _MAX_FREE)
            if not wanted or begin == ends.tail:
                continue
            stays: deque[bytes] = deque()
            for packed in reversed(self._queues.read(host, level, begin, ends.tail)):
                candidate = decode_candidate(packed)
                if candidate.purpose is not Purpose.ROBOTS and not candidate.request and wanted:
                    taken.append((candidate, refusal))
                    packed_urls.append(packed)
                    wanted -= 1
                else:
                    stays.appendleft(packed)
            self._queues.replace_end(host, record, level, begin, stays)
        if taken:
            self._judgements_left = 0
            self.keep(taken, packed_urls, now)
        return bool(taken)

    def keep(
        self, refused: list[tuple[Candidate, Refusal]], packed_urls: list[bytes], now: float
    ) -> None:
        """Keep *refused*, of one host, which have left their queue, also as they were packed in
        it."""
        self._judgements_left -= len(refused)
        shard = self._batch.shards.of(refused[0][0].host)
        pairs = zip(refused, packed_urls, strict=True)
        once = [each for each in pairs if each[0][1].reason is not Reason.CHOSEN_TWICE]
        if len(once) < len(refused):
            # What the list names was added before, and is in the log before this.
            twice = len(refused) - len(once)
            self._batch.count(shard, UrlState.WAITING, UrlEvent.FORGET, twice)
            refused, packed_urls = [each for each, _ in once], [packed for _, packed in once]
        self._batch.count(shard, UrlState.WAITING, UrlEvent.REFUSE, len(refused))
        names = keys.all_numbered(keys.REFUSED, self._batch.next_numbers(shard, len(refused)))
        records = (
            encode_refused(packed, why.reason, now)
            for packed, (_, why) in zip(packed_urls, refused, strict=True)
        )
        self._batch.put_all(zip(names, records, strict=True))
        self._admitter.release([candidate for candidate, _ in refused])
        self._unreported += refused
