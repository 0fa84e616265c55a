"""Slots: a limit on the fetches under way, in which hosts that hang do not count.

Rule: pure; *passed_s* is an argument. A fetch takes a slot while it makes progress. One that waits
for its host, and has received less than `slow_bytes` in `slow_after_s`, is slow: it keeps its
connection, its host and its time-out, but another fetch gets its slot. Hosts that answer, hosts
that were never fetched from and hosts whose last fetch failed have separate slots.

A page whose fetch is over takes no slot. Until its record is written it counts against the
scheduler's limit of pages under way, in which slow fetches do not count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from crawler.model.types import (
    STANDINGS,
    Answer,
    Standing,
)

CHECKS: Final = 6
"""Checks of a fetch before it is slow, each at least one turn of the event loop apart, so that a
late loop makes no fetch slow: a fetch over TLS takes six turns."""

HUNG_TIMES: Final = 10
"""A host hangs if its answer took so many `slow_after_s`, with less than `slow_bytes` in each."""

FAILING_SHARE: Final = 4
"""Hosts whose last fetch failed get a quarter of the slots of the others (guess), as most fetches
from them take a whole time-out."""


_SHARES: Final = 2 + 1 / FAILING_SHARE  # of all standings together
NO_LIMIT: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimits:
    """The limits of slots."""

    concurrency: int = 64  # 0: no limit
    max_waiting: int = 1024
    slow_after_s: float = 0.3
    slow_bytes: int = 300  # a fetch is slow if it receives less in `slow_after_s`

    @property
    def check_interval_s(self) -> float:
        return self.slow_after_s / CHECKS

    def most(self, standing: Standing) -> tuple[int, int]:
        """Return how many fetches of *standing* may take a slot, and how many may be slow."""
        slots, waiting = self.concurrency or NO_LIMIT, self.max_waiting
        if standing is Standing.FAILS:
            return -(-slots // FAILING_SHARE), waiting // FAILING_SHARE
        return slots, waiting

    @property
    def most_connections(self) -> int:
        """The most connections at once, if all that can be slow is: 2,448 by default."""
        slots = self.concurrency or 64
        return int((slots + self.max_waiting) * _SHARES)

    def with_connections(self, most: int) -> SlotLimits:
        """Return limits with *most* connections at most, by fewer fetches that may be slow."""
        surplus = max(0, self.most_connections - most)
        return replace(self, max_waiting=max(0, int(self.max_waiting - surplus / _SHARES)))

    def is_hung(self, answer: Answer, body_bytes: int) -> bool:
        """Return whether *answer* came so slowly that its host may hang again."""
        times = answer.duration_s / self.slow_after_s
        return times >= HUNG_TIMES and body_bytes < times * self.slow_bytes


@dataclass(slots=True, eq=False)
class FetchProgress:
    """The progress of one fetch."""

    standing: Standing
    waits_for_host: bool = False  # False: it waits for memory, or in a middleware
    received_bytes: int = 0
    is_slow: bool = False
    _seen_bytes: int = field(default=0, init=False)
    _ended: bool = field(default=False, init=False)


class Slots:
    """The slots of one crawl. Bound: one progress for each request that is fetched. O(1) for each
    fetch and each check of it."""

    def __init__(self, limits: SlotLimits, on_freed: Callable[[], None]) -> None:
        """*on_freed* is called when fetches have become slow, which frees their slots."""
        self.limits = self._first_limits = limits
        self._most_connections = limits.most_connections
        self._on_freed = on_freed
        self._by_request: dict[object, FetchProgress] = {}
        # By standing: fetches that take a slot, slow ones, and the most of both.
        self._taken = [0, 0, 0]
        self._slow = [0, 0, 0]
        self._most = [limits.most(standing) for standing in Standing]
        self._free: tuple[Standing, ...] | None = None  # None: to be computed
        # The sum of the times between checks, each counted as `check_interval_s` at most.
        self._checked_s = 0.0
        self._checks: deque[tuple[float, FetchProgress]] = deque()  # by time of the next check

    def set_concurrency(self, concurrency: int | None) -> None:
        """Let so many fetches take slots from now on; None: as many as at first. No more
        connections are made than before: if needed, fewer may be slow, and then fewer may take
        slots."""
        limits = self._first_limits
        if concurrency is not None:
            most = int(self._most_connections / _SHARES)
            limits = replace(limits, concurrency=min(concurrency, most))
        self.limits = limits.with_connections(self._most_connections)
        self._most = [self.limits.most(standing) for standing in Standing]
        self._free = None

    def __len__(self) -> int:
        """Return the number of fetches under way."""
        return len(self._by_request)

    @property
    def slow_count(self) -> int:
        """The number of slow fetches, which only wait for their hosts."""
        return sum(self._slow)

    def begin(self, request: object, standing: Standing) -> None:
        """Begin the fetch of *request*, which goes to the downloader."""
        progress = self._by_request[request] = FetchProgress(standing)
        self._taken[standing] += 1
        self._free = None
        self._checks.append((self._checked_s + self.limits.slow_after_s, progress))

    def end(self, request: object) -> None:
        """End the fetch of *request*, successful or not."""
        progress = self._by_request.pop(request)
        self._set_slow(progress, is_slow=False)
        self._taken[progress.standing] -= 1
        self._free = None
        progress._ended = True

    def progress_of(self, request: object) -> FetchProgress:
        """Return its progress, or an uncounted one if it did not come through our downloader."""
        return self._by_request.get(request) or FetchProgress(Standing.ANSWERS)

    def received_bytes(self, request: object) -> int:
        """Return what has come of the body for *request*, if that is under way."""
        progress = self._by_request.get(request)
        return 0 if progress is None else progress.received_bytes

    def set_waiting(self, progress: FetchProgress, *, for_host: bool) -> None:
        """Note that the fetch waits for its host from now on, or, if not *for_host*, for us."""
        progress.waits_for_host = for_host
        if not for_host:
            self._set_slow(progress, is_slow=False)

    def free_slots(self, standing: Standing) -> int:
        """Return how many fetches of *standing* may begin."""
        # Each slow fetch beyond the limit takes a slot, so that all connections are bounded.
        most, most_slow = self._most[standing]
        excess = max(0, self._slow[standing] - most_slow)
        return max(0, most - self._taken[standing] - excess)

    def free_standings(self) -> tuple[Standing, ...]:
        """Return the standings of which a fetch may begin, the best first."""
        if self._free is None:  # it is asked for some times between two changes
            self._free = tuple(filter(self.free_slots, STANDINGS))
        return self._free

    def check(self, passed_s: float) -> None:
        """Check, *passed_s* after the last check, which fetches have become slow and which are no
        longer."""
        self._checked_s += min(passed_s, self.limits.check_interval_s)
        was_freed = False
        while self._checks and self._checks[0][0] <= self._checked_s:
            _, progress = self._checks.popleft()
            if progress._ended:
                continue
            new_bytes = progress.received_bytes - progress._seen_bytes
            progress._seen_bytes = progress.received_bytes
            is_slow = progress.waits_for_host and new_bytes < self.limits.slow_bytes
            was_freed |= is_slow and not progress.is_slow
            self._set_slow(progress, is_slow=is_slow)
            self._checks.append((self._checked_s + self.limits.slow_after_s, progress))
        if was_freed:
            self._on_freed()

    def _set_slow(self, progress: FetchProgress, *, is_slow: bool) -> None:
        if is_slow is progress.is_slow or progress._ended:
            return
        progress.is_slow = is_slow
        change = 1 if is_slow else -1
        self._slow[progress.standing] += change
        self._taken[progress.standing] -= change
        self._free = None
