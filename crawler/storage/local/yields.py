"""What patterns of URLs have brought, in the frontier's own store, with the latest in memory.

Rule: written as it is learned; a count that a crash takes is one page. A record that cannot be read
counts as none.
"""

from __future__ import annotations

from typing import Final

import msgspec

from crawler.core.content_settings import Budgets
from crawler.core.types import Candidate, HostKey
from crawler.policy.refusal import Refusal
from crawler.policy.yields import (
    NOTHING,
    OTHER,
    Go,
    Stopped,
    Yield,
    is_judge,
    is_stopped,
    judged_pattern,
    landed,
    noted_pattern,
    refused,
    tried,
    verdict,
)
from crawler.scheduler import keys
from crawler.scheduler.ports import OrderedStore
from crawler.storage.recent import Recent

MOST_PATTERNS: Final = 10_000
"""Of a host, 80 bytes each. All further ones count as one, which is what a host deserves that
makes new patterns for ever; one with so many by nature brings something new all the time."""
RECENT: Final = 20_000
"""Patterns in memory, 400 bytes each, and as many hosts, 150: those that are active at once."""


class HostYields(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The patterns of one host."""

    patterns: int = 0
    stopped: int = 0  # by the rules of the run that counted them


_encode = msgspec.msgpack.Encoder().encode
_yield = msgspec.msgpack.Decoder(Yield).decode
_host = msgspec.msgpack.Decoder(HostYields).decode
_NO_HOST: Final = HostYields()


class LocalYields:
    """Implements policy.yields.Yields. Bound: what is recent."""

    def __init__(
        self,
        store: OrderedStore,
        rules: Budgets,
        most_patterns: int = MOST_PATTERNS,
        recent: int = RECENT,
    ) -> None:
        self._store = store
        self._rules = rules
        self._is_judge = is_judge(rules)
        self._most_patterns = most_patterns
        self._patterns: Recent[tuple[HostKey, str], Yield] = Recent(recent)
        self._hosts: Recent[HostKey, HostYields] = Recent(recent)

    def of(self, candidate: Candidate, now: float) -> Go | Stopped:
        text = judged_pattern(candidate) if self._is_judge else ""
        if not text:
            return Go.OPEN
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
        return refused(decision) if isinstance(decision, Stopped) else None

    def note(self, candidate: Candidate, is_new: bool, now: float) -> None:
        text = noted_pattern(candidate) if self._is_judge else ""
        if not text:
            return
        host = candidate.host
        pattern, before = self.brought(host, text)
        self._keep(host, pattern, before, landed(pattern, before, is_new, now))

    def brought(self, host: HostKey, pattern: str) -> tuple[str, Yield]:
        """Under which pattern a URL of *pattern* counts, and what that has brought."""
        brought = self._get(host, pattern)
        if brought is NOTHING and self._host(host).patterns >= self._most_patterns:
            return OTHER, self._get(host, OTHER)
        return pattern, brought

    def _get(self, host: HostKey, pattern: str) -> Yield:
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

    def _host(self, host: HostKey) -> HostYields:
        found = self._hosts.get(host)
        if found is not None:
            return found
        packed = self._store.get(keys.named(keys.YIELD, host))
        try:
            found = _NO_HOST if packed is None else _host(packed)
        except msgspec.MsgspecError:
            found = _NO_HOST
        return self._hosts.put(host, found)

    def _keep(self, host: HostKey, pattern: str, before: Yield, after: Yield) -> None:
        """Raises StoreUnavailable."""
        key = keys.pattern_of_host(host, pattern)
        stopped = is_stopped(after, self._rules) - is_stopped(before, self._rules)
        if before is not NOTHING and not stopped:
            self._store.write({key: _encode(after)})
        else:
            known = self._host(host)
            counted = HostYields(
                known.patterns + (before is NOTHING), max(0, known.stopped + stopped)
            )
            self._store.write({key: _encode(after), keys.named(keys.YIELD, host): _encode(counted)})
            self._hosts.put(host, counted)
        self._patterns.put((host, pattern), after)
