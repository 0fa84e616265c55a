"""What patterns of URLs have brought, all workers together.

Rule: counted here, told in the background a few pages at a time, and asked for before a lease is
used; patterns with few pages are neither told nor asked for. So workers may fetch some pages more
than one would. Where Redis does not answer, a worker knows what it learned before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Final

import xxhash

from crawler.config.settings import PatternSettings
from crawler.data.records import RecentCache
from crawler.model.types import (
    Candidate,
    HostKey,
    Lease,
)
from crawler.policy.patterns import (
    NOTHING,
    OTHER,
    FetchIt,
    PatternStats,
    PatternStopped,
    is_judge,
    is_stopped,
    judged_pattern,
    more,
    noted_pattern,
    refused,
    stats_after,
    tried,
    verdict,
)
from crawler.policy.scope import Refusal
from crawler.shared.client import Call
from crawler.shared.faults import FAULTS
from crawler.shared.shard import shard_of
from crawler.shared.worker.batcher import ShardLink, replies_in_time

MOST_PATTERNS: Final = 1_000
"""Of a host in Redis' memory, 37 bytes each, and 89 where it has more than 500. As the embedded."""
RECENT: Final = 20_000  # patterns in memory, 500 bytes each
SOME: Final = 8
"""Pages that are told together. A pattern is asked for from so many leases on, because most never
have as many."""
FRESH_S: Final = 10.0  # so long what was told is not asked for again
QUIET_S: Final = 5.0  # after an answer that did not come
UNHEARD: Final = "patterns/unheard"
_TOLD: Final = Struct("<IIIdB")
_LONG_AGO: Final = float("-inf")


@dataclass(slots=True)
class _KnownPattern:
    """One pattern of a host."""

    shard: int
    name: str  # under which it counts
    brought: PatternStats = NOTHING  # as was told, and what landed here since
    untold: PatternStats = NOTHING
    leases: int = 0
    asked_at: float = _LONG_AGO


_Key = tuple[HostKey, str]


class SharedPatternStats:
    """Implements policy.yields.Yields. Bound: what is recent."""

    def __init__(
        self,
        rules: PatternSettings,
        link: ShardLink,
        now: Callable[[], float],
        most_patterns: int = MOST_PATTERNS,
        recent: int = RECENT,
    ) -> None:
        self._rules = rules
        self._is_judge = is_judge(rules)
        self._some = _some(rules)
        self._shards = link.ops.shards
        self._run = link.run
        self._tell = link.tell
        self._is_full = link.is_full
        self._count = link.count
        self._now = now
        self._most_patterns = most_patterns
        self._known: RecentCache[_Key, _KnownPattern] = RecentCache(recent, self._flush)
        self._stopped: RecentCache[HostKey, set[str]] = RecentCache(recent)
        self._ask_at = _LONG_AGO

    def of(self, candidate: Candidate, now: float) -> FetchIt | PatternStopped:
        known = self._known.get((candidate.host, self._judged(candidate)))
        return verdict(known.name, known.brought, self._rules, now) if known else FetchIt.OPEN

    def trying(self, candidate: Candidate, now: float) -> None:
        key = candidate.host, self._judged(candidate)
        known = self._entry(candidate, key)
        known.brought = tried(known.brought, now)
        self._say(key, known, NOTHING)

    def has_stopped(self, host: HostKey) -> bool:
        return bool(self._stopped.get(host))

    def refusal(self, candidate: Candidate, now: float) -> Refusal | None:
        patterns = self._stopped.get(candidate.host)
        if not patterns or self._judged(candidate) not in patterns:
            return None
        decision = self.of(candidate, now)
        return refused(decision) if isinstance(decision, PatternStopped) else None

    def note(self, candidate: Candidate, is_new: bool, now: float) -> None:
        pattern = noted_pattern(candidate) if self._is_judge else ""
        if not pattern:
            return
        key = candidate.host, pattern
        known = self._entry(candidate, key)
        known.brought = stats_after(known.name, known.brought, is_new, now)
        known.untold = stats_after("", known.untold, is_new, now)
        if known.untold.pages >= self._some:
            self._flush(key, known)
        self._weigh(key, known)

    async def enrich(self, leases: Iterable[Lease]) -> None:
        """Learn what others know, before *leases* are used."""
        asked: dict[int, dict[_Key, _KnownPattern]] = defaultdict(dict)
        now = self._now()
        for lease in leases:
            if pattern := self._judged(lease.candidate):
                key = lease.candidate.host, pattern
                known = self._entry(lease.candidate, key)
                known.leases += 1
                if self._is_asked_for(known, now):
                    asked[known.shard][key] = known
        calls = [self._question(shard, keys) for shard, keys in asked.items()]
        replies = zip(
            asked.values(), await replies_in_time(self._run, calls, "patterns"), strict=True
        )
        for entries, reply in replies:
            if isinstance(reply, FAULTS):
                self._count(UNHEARD)
                self._ask_at = now + QUIET_S
                continue
            for (key, known), packed in zip(entries.items(), reply[1:], strict=True):
                known.asked_at = now
                self._hear(known, packed, now)
                self._weigh(key, known)

    def _judged(self, candidate: Candidate) -> str:
        return judged_pattern(candidate) if self._is_judge else ""

    def _entry(self, candidate: Candidate, key: _Key) -> _KnownPattern:
        known = self._known.get(key)
        if known is None:
            shard = shard_of(candidate.domain, self._shards)
            known = self._known.put(key, _KnownPattern(shard, key[1]))
        return known

    def _is_asked_for(self, known: _KnownPattern, now: float) -> bool:
        if now < max(self._ask_at, known.asked_at + FRESH_S):
            return False
        # With more patterns than are remembered here none comes to so many leases.
        return known.leases >= self._some or self._known.is_full

    def _question(self, shard: int, keys: Iterable[_Key]) -> Call:
        args: list[str | bytes | int] = [self._most_patterns]
        for host, pattern in keys:
            args += (host, field_of(pattern))
        return Call(shard, "yields", tuple(args))

    def _hear(self, known: _KnownPattern, packed: bytes, now: float) -> None:
        told = read_yield(known.name, packed, now)
        if told is not None:
            known.name, brought = told
            known.brought = (
                more(known.name, brought, known.untold) if known.untold.pages else brought
            )

    def _flush(self, key: _Key, known: _KnownPattern) -> None:
        if known.untold.pages and not self._is_full(known.shard):
            self._say(key, known, known.untold)
        known.untold = NOTHING

    def _say(self, key: _Key, known: _KnownPattern, came: PatternStats) -> None:
        host, pattern = key
        args = (self._most_patterns, host, field_of(pattern), came.pages, came.new, came.barren)
        self._tell(Call(known.shard, "note", args))

    def _weigh(self, key: _Key, known: _KnownPattern) -> None:
        """Remember whether links of this pattern need not be kept."""
        host, pattern = key
        patterns = self._stopped.get(host)
        if known.name != OTHER and is_stopped(known.brought, self._rules):
            (patterns if patterns is not None else self._stopped.put(host, set())).add(pattern)
        elif patterns:
            patterns.discard(pattern)


def field_of(pattern: str) -> bytes:
    """Whoever makes two patterns of a host equal has them counted as one."""
    return xxhash.xxh3_64_digest(pattern.encode())


def read_yield(pattern: str, packed: bytes, now: float) -> tuple[str, PatternStats] | None:
    """As `yields` tells it. None: nothing, or nothing that can be read."""
    try:
        pages, new, barren, age_s, is_other = _TOLD.unpack(packed)
    except struct_error:
        return None
    return OTHER if is_other else pattern, PatternStats(pages, new, barren, now - age_s)


def _some(rules: PatternSettings) -> int:
    figures = (rules.pattern_max_pages, rules.pattern_barren_pages)
    return max(1, min([SOME, *(figure // 4 for figure in figures if figure is not None)]))
