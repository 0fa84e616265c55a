"""Statistics of patterns of URLs, of all workers together.

Rule: a worker sends its counts in the background after some pages, and reads those of all before a
lease is used; patterns with few pages are neither sent nor read. So workers may fetch some pages
more than a single one. While Redis does not answer, a worker uses what it knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Final

import xxhash

from crawler.config.settings import PatternSettings
from crawler.data.local_stores import RecentCache
from crawler.model.types import (
    Candidate,
    HostKey,
    Lease,
)
from crawler.policy.patterns import (
    NO_STATS,
    OTHER_PATTERNS,
    FetchAllowed,
    PatternStats,
    PatternStopped,
    can_stop,
    counted_pattern,
    decide,
    deciding_pattern,
    is_stopped,
    merge_stats,
    refusal_of,
    stats_after,
    with_try,
)
from crawler.policy.scope import Refusal
from crawler.shared.client import Call
from crawler.shared.faults import FAULTS
from crawler.shared.shard import shard_of
from crawler.shared.worker.batcher import ShardClient, replies_in_time

MAX_PATTERNS: Final = 1_000
"""The most patterns of a host in Redis, which is memory: a tenth of those in the embedded frontier.
37 bytes each, and 89 if it has more than 500."""
RECENT: Final = 20_000  # patterns in memory, 500 bytes each
PAGES_PER_CALL: Final = 8
"""Pages of a pattern that are sent together. A pattern is read only after as many leases, because
most never have so many."""
FRESH_S: Final = 10.0  # for so long a pattern is not read again
READ_PAUSE_S: Final = 5.0  # for so long none is read after a call that failed
UNANSWERED: Final = "patterns/unheard"
_REPLY: Final = Struct("<IIIdB")
_LONG_AGO: Final = float("-inf")


@dataclass(slots=True)
class _PatternEntry:
    """One pattern of a host."""

    shard: int
    name: str  # that it is counted as
    stats: PatternStats = NO_STATS  # as last read, and the pages of this worker since then
    unsent: PatternStats = NO_STATS  # not sent yet
    leases: int = 0
    asked_at: float = _LONG_AGO


_Key = tuple[HostKey, str]


class SharedPatternStats:
    """Implements policy.patterns.PatternStatsStore. Bound: the recent patterns and hosts."""

    def __init__(
        self,
        settings: PatternSettings,
        link: ShardClient,
        now: Callable[[], float],
        max_patterns: int = MAX_PATTERNS,
        recent: int = RECENT,
    ) -> None:
        self._settings = settings
        self._can_stop = can_stop(settings)
        self._pages_at_once = _pages_at_once(settings)
        self._shards = link.ops.shards
        self._run = link.run
        self._send_later = link.send_later
        self._is_full = link.is_full
        self._count = link.count
        self._now = now
        self._most_patterns = max_patterns
        self._patterns: RecentCache[_Key, _PatternEntry] = RecentCache(recent, self._flush)
        self._stopped: RecentCache[HostKey, set[str]] = RecentCache(recent)
        self._ask_at = _LONG_AGO

    def decide(self, candidate: Candidate, now: float) -> FetchAllowed | PatternStopped:
        known = self._patterns.get((candidate.host, self._deciding_pattern(candidate)))
        return decide(known.name, known.stats, self._settings, now) if known else FetchAllowed.OPEN

    def record_try(self, candidate: Candidate, now: float) -> None:
        key = candidate.host, self._deciding_pattern(candidate)
        known = self._entry(candidate, key)
        known.stats = with_try(known.stats, now)
        self._send(key, known, NO_STATS)

    def have_stopped(self, hosts: Collection[HostKey]) -> bool:
        return any(map(self._stopped.get, hosts))

    def refusal(self, candidate: Candidate, now: float) -> Refusal | None:
        patterns = self._stopped.get(candidate.host)
        if not patterns or self._deciding_pattern(candidate) not in patterns:
            return None
        decision = self.decide(candidate, now)
        return refusal_of(decision) if isinstance(decision, PatternStopped) else None

    def record_page(self, candidate: Candidate, is_new: bool, now: float) -> None:
        pattern = counted_pattern(candidate) if self._can_stop else ""
        if not pattern:
            return
        key = candidate.host, pattern
        known = self._entry(candidate, key)
        known.stats = stats_after(known.name, known.stats, is_new, now)
        known.unsent = stats_after("", known.unsent, is_new, now)
        if known.unsent.pages >= self._pages_at_once:
            self._flush(key, known)
        self._mark_if_stopped(key, known)

    async def prefetch(self, leases: Iterable[Lease]) -> None:
        """Read the patterns of *leases* from Redis, before they are used."""
        asked: dict[int, dict[_Key, _PatternEntry]] = defaultdict(dict)
        now = self._now()
        for lease in leases:
            if pattern := self._deciding_pattern(lease.candidate):
                key = lease.candidate.host, pattern
                known = self._entry(lease.candidate, key)
                known.leases += 1
                if self._must_read(known, now):
                    asked[known.shard][key] = known
        calls = [self._read_call(shard, keys) for shard, keys in asked.items()]
        replies = zip(
            asked.values(), await replies_in_time(self._run, calls, "patterns"), strict=True
        )
        for entries, reply in replies:
            if isinstance(reply, FAULTS):
                self._count(UNANSWERED)
                self._ask_at = now + READ_PAUSE_S
                continue
            for (key, known), packed in zip(entries.items(), reply[1:], strict=True):
                known.asked_at = now
                self._update(known, packed, now)
                self._mark_if_stopped(key, known)

    def _deciding_pattern(self, candidate: Candidate) -> str:
        return deciding_pattern(candidate) if self._can_stop else ""

    def _entry(self, candidate: Candidate, key: _Key) -> _PatternEntry:
        known = self._patterns.get(key)
        if known is None:
            shard = shard_of(candidate.domain, self._shards)
            known = self._patterns.put(key, _PatternEntry(shard, key[1]))
        return known

    def _must_read(self, known: _PatternEntry, now: float) -> bool:
        if now < max(self._ask_at, known.asked_at + FRESH_S):
            return False
        # If the cache is full, patterns are evicted before they have so many leases.
        return known.leases >= self._pages_at_once or self._patterns.is_full

    def _read_call(self, shard: int, keys: Iterable[_Key]) -> Call:
        args: list[str | bytes | int] = [self._most_patterns]
        for host, pattern in keys:
            args += (host, field_of(pattern))
        return Call(shard, "get_stats", tuple(args))

    def _update(self, known: _PatternEntry, packed: bytes, now: float) -> None:
        found = read_stats(known.name, packed, now)
        if found is not None:
            known.name, stats = found
            known.stats = (
                merge_stats(known.name, stats, known.unsent) if known.unsent.pages else stats
            )

    def _flush(self, key: _Key, known: _PatternEntry) -> None:
        if known.unsent.pages and not self._is_full(known.shard):
            self._send(key, known, known.unsent)
        known.unsent = NO_STATS

    def _send(self, key: _Key, known: _PatternEntry, unsent: PatternStats) -> None:
        host, pattern = key
        args = (
            self._most_patterns,
            host,
            field_of(pattern),
            unsent.pages,
            unsent.new,
            unsent.barren,
        )
        self._send_later(Call(known.shard, "add_stats", args))

    def _mark_if_stopped(self, key: _Key, known: _PatternEntry) -> None:
        """Remember whether links of this pattern need not be kept."""
        host, pattern = key
        patterns = self._stopped.get(host)
        if known.name != OTHER_PATTERNS and is_stopped(known.stats, self._settings):
            (patterns if patterns is not None else self._stopped.put(host, set())).add(pattern)
        elif patterns:
            patterns.discard(pattern)


def field_of(pattern: str) -> bytes:
    """Return the hash of *pattern*. If two patterns of a host collide, they are counted as one."""
    return xxhash.xxh3_64_digest(pattern.encode())


def read_stats(pattern: str, packed: bytes, now: float) -> tuple[str, PatternStats] | None:
    """Read one pattern in the reply to the script `get_stats`. Returns None if it is unknown, or
    not valid."""
    try:
        pages, new, barren, age_s, is_other = _REPLY.unpack(packed)
    except struct_error:
        return None
    return OTHER_PATTERNS if is_other else pattern, PatternStats(pages, new, barren, now - age_s)


def _pages_at_once(settings: PatternSettings) -> int:
    figures = (settings.pattern_max_pages, settings.pattern_barren_pages)
    return max(1, min([PAGES_PER_CALL, *(figure // 4 for figure in figures if figure is not None)]))
