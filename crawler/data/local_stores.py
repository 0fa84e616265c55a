"""Small records in the store of the frontier: claims on digests, robots.txt, soft 404s, patterns,
limits of seeds.

Rule: a record that cannot be read is treated as missing; it is fetched, claimed or counted again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_digest

from crawler.config.arguments import SeedTerms
from crawler.config.settings import PatternSettings
from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore, ReadableStore
from crawler.frontier.shards import Shards
from crawler.model.types import Candidate, Claim, HostKey, Purpose
from crawler.page.soft404 import Soft404Record
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
    refusal_of,
    stats_after,
    with_try,
)
from crawler.policy.refusal import Refusal
from crawler.policy.robots_cache import RobotsRecord
from crawler.policy.scope import SeedPlace
from crawler.policy.seed_terms import NO_TALLY, SeedTally, limit_refusal

_encode = msgspec.msgpack.Encoder().encode
_decode_claim = msgspec.msgpack.Decoder(Claim).decode
_decode_soft_404 = msgspec.msgpack.Decoder(Soft404Record).decode
_decode_robots = msgspec.msgpack.Decoder(RobotsRecord).decode


class LocalClaims:
    """Implements exact.ClaimStore. The frontier's `finish` writes the claims."""

    def __init__(self, store: ReadableStore) -> None:
        self._store = store

    def claim(self, digest: bytes) -> Claim | None:
        packed = self._store.get(keys.DIGEST + digest)
        if packed is None:
            return None
        try:
            return _decode_claim(packed)
        except msgspec.MsgspecError:
            return None


class Soft404Records:
    """Implements precheck.Soft404Store."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def get(self, kind: str) -> Soft404Record | None:
        packed = self._store.get(keys.named(keys.SOFT_404, kind))
        if packed is None:
            return None
        try:
            return _decode_soft_404(packed)
        except msgspec.MsgspecError:
            return None

    def put(self, kind: str, record: Soft404Record) -> None:
        self._store.write({keys.named(keys.SOFT_404, kind): _encode(record)})


class RobotsRecords:
    """Implements policy.robots_cache.RobotsStore."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def get(self, authority: str) -> RobotsRecord | None:
        packed = self._store.get(keys.named(keys.ROBOTS, authority))
        if packed is None:
            return None
        try:
            return _decode_robots(packed)
        except msgspec.MsgspecError:
            return None

    def put(self, record: RobotsRecord) -> None:
        self._store.write({keys.named(keys.ROBOTS, record.authority): _encode(record)})


K = TypeVar("K")
V = TypeVar("V")


class RecentCache(Generic[K, V]):
    """The *most* entries used last."""

    def __init__(self, most: int, on_evicted: Callable[[K, V], None] | None = None) -> None:
        """*on_evicted*, if any, is called with each evicted entry."""
        self._most = most
        self._on_evicted = on_evicted
        self._entries: OrderedDict[K, V] = OrderedDict()  # the least recently used first

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> V:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            oldest = self._entries.popitem(last=False)
            if self._on_evicted is not None:
                self._on_evicted(*oldest)
        return value

    def clear(self) -> None:
        self._entries.clear()

    @property
    def is_full(self) -> bool:
        return len(self._entries) >= self._most


class LocalSeedLimits:
    """What is fetched of the seeds that have limits, counted in the store of the frontier, with the
    verdicts of pages. Nothing is counted of pages that are visited again or that a person chose, of
    sitemaps, and of what pages need to be shown."""

    def __init__(self, place_of: Callable[[str], SeedPlace | None], key_seed: int) -> None:
        """*place_of* returns the seeds that a URL belongs to, if they have limits."""
        self._place_of = place_of
        self._key_seed = key_seed
        self._store: OrderedStore | None = None
        self._shards = Shards()
        self._tallies: RecentCache[bytes, SeedTally] = RecentCache(RECENT)
        self._by_lease: dict[int, tuple[bytes, int]] = {}  # with the bytes of those that came
        self._under_way: dict[bytes, SeedTally] = {}

    def open(self, store: OrderedStore, shards: Shards | None = None) -> None:
        """Count in *store* from now on; before that nothing is refused."""
        self._store, self._shards = store, shards or self._shards

    def forget(self) -> None:
        """Forget what is in memory of the store, of which another process has changed a shard."""
        self._tallies.clear()

    def refusal(self, candidate: Candidate, now: float) -> Refusal | None:
        """Return why *candidate* is not fetched: enough of its seed was."""
        found = self._find(candidate)
        return limit_refusal(found[0], self._tally(found[1]), NO_TALLY, now) if found else None

    def is_awaited(self, candidate: Candidate, now: float) -> bool:
        """Return whether *candidate* waits for pages of its seed that are under way, with which
        there may be enough."""
        found = self._find(candidate)
        if not found:
            return False
        tally, under_way = self._tally(found[1]), self._under_way.get(found[1], NO_TALLY)
        return limit_refusal(found[0], tally, under_way, now) is not None

    def begin(self, lease_id: int, candidate: Candidate) -> None:
        """Note that *candidate* is fetched under this lease."""
        found = self._find(candidate)
        if found and not candidate.is_sitemap:
            self._by_lease[lease_id] = found[1], 0
            self._add_under_way(found[1], 1, 0)

    def came(self, lease_id: int, body_bytes: int) -> None:
        """Note that the page under this lease has come, which is not counted yet."""
        if lease_id in self._by_lease:
            key, before = self._by_lease[lease_id]
            self._by_lease[lease_id] = key, body_bytes
            self._add_under_way(key, 0, body_bytes - before)

    def count(self, lease_id: int, body_bytes: int, now: float) -> None:
        """Count the page that was fetched under this lease. Raises StoreUnavailable."""
        if lease_id not in self._by_lease or self._store is None:
            return
        key, _ = self._by_lease[lease_id]
        before = self._tally(key)
        after = SeedTally(before.pages + 1, before.bytes + body_bytes, before.since or now)
        self._store.write({key: _encode(after)})
        self._tallies.put(key, after)

    def end(self, lease_id: int) -> None:
        """Note that this lease is over."""
        key, body_bytes = self._by_lease.pop(lease_id, (b"", 0))
        if key:
            self._add_under_way(key, -1, -body_bytes)

    def _add_under_way(self, key: bytes, pages: int, body_bytes: int) -> None:
        before = self._under_way.get(key, NO_TALLY)
        after = SeedTally(before.pages + pages, before.bytes + body_bytes)
        if after.pages:
            self._under_way[key] = after
        else:
            del self._under_way[key]

    def _find(self, candidate: Candidate) -> tuple[SeedTerms, bytes] | None:
        """Return the terms of the seeds of *candidate* and the key of their tally, if they have
        limits that hold for it."""
        is_counted = candidate.purpose is Purpose.PAGE and candidate.history is None
        if not is_counted or candidate.requisite or candidate.beyond or candidate.chosen:
            return None
        place = self._place_of(candidate.url)
        if place is None:
            return None
        name = xxh3_64_digest(place.unit.encode(), self._key_seed & _SEED_MASK)
        return place.terms, keys.seed_tally(self._shards.of(candidate.host), name)

    def _tally(self, key: bytes) -> SeedTally:
        found = self._tallies.get(key)
        if found is not None:
            return found
        packed = self._store.get(key) if self._store is not None else None
        try:
            found = NO_TALLY if packed is None else _decode_tally(packed)
        except msgspec.MsgspecError:
            found = NO_TALLY
        return self._tallies.put(key, found)


_SEED_MASK: Final = (1 << 64) - 1
_decode_tally = msgspec.msgpack.Decoder(SeedTally).decode

MAX_PATTERNS: Final = 10_000
"""Patterns of a host, 80 bytes each. Further ones count as one pattern: most such hosts make new
patterns without end, and in the others that one pattern keeps bringing new pages."""
RECENT: Final = 20_000
"""Patterns in memory, 400 bytes each, and as many hosts, 150 bytes each: those active at once; and
the names of twice as many hosts, 100 bytes each."""


class HostPatternStats(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How many patterns one host has."""

    patterns: int = 0
    stopped: int = 0  # by the rules of the run that counted them


_decode_pattern_stats = msgspec.msgpack.Decoder(PatternStats).decode
_decode_host_stats = msgspec.msgpack.Decoder(HostPatternStats).decode
_NO_HOST: Final = HostPatternStats()


class LocalPatternStats:
    """Implements patterns.PatternStatsStore, in the store, with *recent* records in memory. In a
    crawl the store is the write batch of the frontier: a page is counted with its verdict."""

    def __init__(
        self,
        store: OrderedStore,
        settings: PatternSettings,
        most_patterns: int = MAX_PATTERNS,
        recent: int = RECENT,
        shards: Shards | None = None,
    ) -> None:
        self._store = store
        self._shards = shards or Shards()
        self._settings = settings
        self._are_patterns_judged = can_stop(settings)
        self._most_patterns = most_patterns
        self._patterns: RecentCache[tuple[HostKey, str], PatternStats] = RecentCache(recent)
        self._hosts: RecentCache[HostKey, HostPatternStats] = RecentCache(recent)
        # Hosts without a stopped pattern, 2 * RECENT at most.
        self._without_stopped: set[HostKey] = set()

    def forget(self) -> None:
        """Forget what is in memory: the store has a shard that another process has changed."""
        self._patterns.clear()
        self._hosts.clear()
        self._without_stopped.clear()

    def decide(self, candidate: Candidate, now: float) -> FetchAllowed | PatternStopped:
        text = deciding_pattern(candidate) if self._are_patterns_judged else ""
        if not text:
            return FetchAllowed.OPEN
        return decide(*self.pattern_and_stats(candidate.host, text), self._settings, now)

    def record_try(self, candidate: Candidate, now: float) -> None:
        pattern, stats = self.pattern_and_stats(candidate.host, deciding_pattern(candidate))
        self._write(candidate.host, pattern, stats, with_try(stats, now))

    def have_stopped(self, hosts: Collection[HostKey]) -> bool:
        if self._without_stopped.issuperset(hosts):
            return False  # as of nearly all pages
        if len(self._without_stopped) > 2 * RECENT:
            self._without_stopped.clear()
        self._without_stopped.update(host for host in hosts if not self._host_stats(host).stopped)
        return not self._without_stopped.issuperset(hosts)

    def refusal(self, candidate: Candidate, now: float) -> Refusal | None:
        if not self._host_stats(candidate.host).stopped:
            return None
        decision = self.decide(candidate, now)
        return refusal_of(decision) if isinstance(decision, PatternStopped) else None

    def record_page(self, candidate: Candidate, is_new: bool, now: float) -> None:
        text = counted_pattern(candidate) if self._are_patterns_judged else ""
        if not text:
            return
        host = candidate.host
        pattern, before = self.pattern_and_stats(host, text)
        self._write(host, pattern, before, stats_after(pattern, before, is_new, now))

    def record_visit(self, candidate: Candidate, is_changed: bool, interval_s: int) -> None:
        if not (text := counted_pattern(candidate)):
            return
        host = candidate.host
        pattern, before = self.pattern_and_stats(host, text)
        after = replace(
            before,
            changes=before.changes + is_changed,
            watched_s=before.watched_s + interval_s,
        )
        self._write(host, pattern, before, after)

    def changes_of(self, candidate: Candidate) -> tuple[int, int]:
        if not (text := counted_pattern(candidate)):
            return 0, 0
        _, stats = self.pattern_and_stats(candidate.host, text)
        return stats.changes, stats.watched_s

    def pattern_and_stats(self, host: HostKey, pattern: str) -> tuple[str, PatternStats]:
        """Return the pattern under which a URL of *pattern* counts, and its statistics."""
        stats = self._get(host, pattern)
        if stats is NO_STATS and self._host_stats(host).patterns >= self._most_patterns:
            return OTHER_PATTERNS, self._get(host, OTHER_PATTERNS)
        return pattern, stats

    def _get(self, host: HostKey, pattern: str) -> PatternStats:
        """Return the statistics of a pattern, and the object NO_STATS if it is not known."""
        found = self._patterns.get((host, pattern))
        if found is not None:
            return found
        packed = self._store.get(keys.pattern_of_host(self._shards.of(host), host, pattern))
        try:
            found = NO_STATS if packed is None else _decode_pattern_stats(packed)
        except msgspec.MsgspecError:
            found = NO_STATS
        return self._patterns.put((host, pattern), found)

    def _host_stats(self, host: HostKey) -> HostPatternStats:
        found = self._hosts.get(host)
        if found is not None:
            return found
        packed = self._store.get(keys.in_shard(keys.PATTERN, self._shards.of(host), host))
        try:
            found = _NO_HOST if packed is None else _decode_host_stats(packed)
        except msgspec.MsgspecError:
            found = _NO_HOST
        return self._hosts.put(host, found)

    def _write(
        self, host: HostKey, pattern: str, before: PatternStats, after: PatternStats
    ) -> None:
        """Write the statistics, and the host's counts if they change. Raises StoreUnavailable."""
        shard = self._shards.of(host)
        key = keys.pattern_of_host(shard, host, pattern)
        stopped = is_stopped(after, self._settings) - is_stopped(before, self._settings)
        if before is not NO_STATS and not stopped:
            self._store.write({key: _encode(after)})
        else:
            known = self._host_stats(host)
            counted = HostPatternStats(
                known.patterns + (before is NO_STATS), max(0, known.stopped + stopped)
            )
            self._store.write(
                {key: _encode(after), keys.in_shard(keys.PATTERN, shard, host): _encode(counted)}
            )
            self._hosts.put(host, counted)
            if counted.stopped:
                self._without_stopped.discard(host)
        self._patterns.put((host, pattern), after)
