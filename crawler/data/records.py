"""Small records beside the frontier, in the same store: claims on digests, and robots.txt.

Rule: a record that cannot be read counts as none; it is fetched or claimed again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from crawler.config.settings import PatternSettings
from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.model.types import Candidate, Claim, HostKey
from crawler.policy.patterns import (
    NOTHING,
    OTHER,
    FetchIt,
    PatternStats,
    PatternStopped,
    is_judge,
    is_stopped,
    judged_pattern,
    noted_pattern,
    refused,
    stats_after,
    tried,
    verdict,
)
from crawler.policy.robots_cache import RobotsRecord
from crawler.policy.scope import Refusal
from crawler.policy.soft404 import Soft404Record

_encode = msgspec.msgpack.Encoder().encode
_claim = msgspec.msgpack.Decoder(Claim).decode
_soft_404 = msgspec.msgpack.Decoder(Soft404Record).decode
_robots = msgspec.msgpack.Decoder(RobotsRecord).decode


class LocalClaims:
    """Implements storage.digests.ClaimStore. Claims are written by the frontier's finish."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def claim(self, digest: bytes) -> Claim | None:
        packed = self._store.get(keys.DIGEST + digest)
        if packed is None:
            return None
        try:
            return _claim(packed)
        except msgspec.MsgspecError:
            return None


class Soft404Records:
    """Implements scheduler.probes.Soft404Store."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def get(self, kind: str) -> Soft404Record | None:
        packed = self._store.get(keys.named(keys.SOFT_404, kind))
        if packed is None:
            return None
        try:
            return _soft_404(packed)
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
            return _robots(packed)
        except msgspec.MsgspecError:
            return None

    def put(self, record: RobotsRecord) -> None:
        self._store.write({keys.named(keys.ROBOTS, record.authority): _encode(record)})


# What was used lately, and no more of it than fits.

K = TypeVar("K")
V = TypeVar("V")


class RecentCache(Generic[K, V]):
    def __init__(self, most: int, forgotten: Callable[[K, V], None] | None = None) -> None:
        """*forgotten*, if any, is called with what goes to make room."""
        self._most = most
        self._forgotten = forgotten
        self._known: OrderedDict[K, V] = OrderedDict()  # the least recently used first

    def get(self, key: K) -> V | None:
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> V:
        self._known[key] = value
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            oldest = self._known.popitem(last=False)
            if self._forgotten is not None:
                self._forgotten(*oldest)
        return value

    @property
    def is_full(self) -> bool:
        return len(self._known) >= self._most


# What patterns of URLs have brought, in the frontier's own store, with the latest in memory.
#
# Rule: written as it is learned; a count that a crash takes is one page. A record that cannot be
# read
# counts as none.

MOST_PATTERNS: Final = 10_000
"""Of a host, 80 bytes each. All further ones count as one, which is what a host deserves that
makes new patterns for ever; one with so many by nature brings something new all the time."""
RECENT: Final = 20_000
"""Patterns in memory, 400 bytes each, and as many hosts, 150: those that are active at once."""


class HostPatternStats(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The patterns of one host."""

    patterns: int = 0
    stopped: int = 0  # by the rules of the run that counted them


_yield = msgspec.msgpack.Decoder(PatternStats).decode
_host = msgspec.msgpack.Decoder(HostPatternStats).decode
_NO_HOST: Final = HostPatternStats()


class LocalPatternStats:
    """Implements policy.yields.Yields. Bound: what is recent."""

    def __init__(
        self,
        store: OrderedStore,
        rules: PatternSettings,
        most_patterns: int = MOST_PATTERNS,
        recent: int = RECENT,
    ) -> None:
        self._store = store
        self._rules = rules
        self._is_judge = is_judge(rules)
        self._most_patterns = most_patterns
        self._patterns: RecentCache[tuple[HostKey, str], PatternStats] = RecentCache(recent)
        self._hosts: RecentCache[HostKey, HostPatternStats] = RecentCache(recent)

    def of(self, candidate: Candidate, now: float) -> FetchIt | PatternStopped:
        text = judged_pattern(candidate) if self._is_judge else ""
        if not text:
            return FetchIt.OPEN
        return verdict(*self.brought(candidate.host, text), self._rules, now)

    def trying(self, candidate: Candidate, now: float) -> None:
        pattern, brought = self.brought(candidate.host, judged_pattern(candidate))
        self._keep(candidate.host, pattern, brought, tried(brought, now))

    def has_stopped(self, host: HostKey) -> bool:
        return bool(self._host(host).stopped)

    def refusal(self, candidate: Candidate, now: float) -> Refusal | None:
        if not self.has_stopped(candidate.host):
            return None
        decision = self.of(candidate, now)
        return refused(decision) if isinstance(decision, PatternStopped) else None

    def note(self, candidate: Candidate, is_new: bool, now: float) -> None:
        text = noted_pattern(candidate) if self._is_judge else ""
        if not text:
            return
        host = candidate.host
        pattern, before = self.brought(host, text)
        self._keep(host, pattern, before, stats_after(pattern, before, is_new, now))

    def brought(self, host: HostKey, pattern: str) -> tuple[str, PatternStats]:
        """Under which pattern a URL of *pattern* counts, and what that has brought."""
        brought = self._get(host, pattern)
        if brought is NOTHING and self._host(host).patterns >= self._most_patterns:
            return OTHER, self._get(host, OTHER)
        return pattern, brought

    def _get(self, host: HostKey, pattern: str) -> PatternStats:
        """NOTHING itself where it is not known."""
        found = self._patterns.get((host, pattern))
        if found is not None:
            return found
        packed = self._store.get(keys.pattern_of_host(host, pattern))
        try:
            found = NOTHING if packed is None else _yield(packed)
        except msgspec.MsgspecError:
            found = NOTHING
        return self._patterns.put((host, pattern), found)

    def _host(self, host: HostKey) -> HostPatternStats:
        found = self._hosts.get(host)
        if found is not None:
            return found
        packed = self._store.get(keys.named(keys.YIELD, host))
        try:
            found = _NO_HOST if packed is None else _host(packed)
        except msgspec.MsgspecError:
            found = _NO_HOST
        return self._hosts.put(host, found)

    def _keep(self, host: HostKey, pattern: str, before: PatternStats, after: PatternStats) -> None:
        """Raises StoreUnavailable."""
        key = keys.pattern_of_host(host, pattern)
        stopped = is_stopped(after, self._rules) - is_stopped(before, self._rules)
        if before is not NOTHING and not stopped:
            self._store.write({key: _encode(after)})
        else:
            known = self._host(host)
            counted = HostPatternStats(
                known.patterns + (before is NOTHING), max(0, known.stopped + stopped)
            )
            self._store.write({key: _encode(after), keys.named(keys.YIELD, host): _encode(counted)})
            self._hosts.put(host, counted)
        self._patterns.put((host, pattern), after)
