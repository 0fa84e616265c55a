"""Slots: how many fetches may be under way, counted so that hosts that hang take none of them.

Rule: pure; *passed_s* comes in. A fetch takes a slot as long as something comes of it. One that
waits for its host, and has brought nothing or hardly anything for `slow_after_s`, only waits: it
keeps its connection, its host and its time-out, but another fetch gets its slot. Hosts that have
answered, hosts that were never asked and hosts whose last fetch failed have slots of their own, so
that none of these holds up another.

A page whose fetch is over takes no slot. Until its record is written it counts against another
bound, of pages under way, which is the scheduler's; there no fetch counts that still hangs.
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

LOOKS: Final = 6
"""Looks at a fetch before it is slow, each at least one turn of the event loop apart. Where the
loop itself is late, no host is to blame: a fetch over TLS takes six turns of it."""

HUNG_TIMES: Final = 10
"""An answer that took so many times `slow_after_s` and brought hardly anything: its host hangs."""

FAILING_SHARE: Final = 4
"""Hosts whose last fetch failed get a quarter of what the others get (guess): most fetches of them
cost a whole time-out."""


_SHARES: Final = 2 + 1 / FAILING_SHARE  # of all standings together
NO_LIMIT: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRules:
    concurrency: int = 64  # 0: no limit
    max_waiting: int = 1024
    slow_after_s: float = 0.3
    slow_bytes: int = 300  # in that time

    @property
    def look_s(self) -> float:
        return self.slow_after_s / LOOKS

    def most(self, standing: Standing) -> tuple[int, int]:
        """Fetches of such hosts that take a slot, and those that only wait."""
        slots, waiting = self.concurrency or NO_LIMIT, self.max_waiting
        if standing is Standing.FAILS:
            return -(-slots // FAILING_SHARE), waiting // FAILING_SHARE
        return slots, waiting

    @property
    def most_connections(self) -> int:
        """2,448 by default, where everything that can hang does."""
        slots = self.concurrency or 64
        return int((slots + self.max_waiting) * _SHARES)

    def with_connections(self, most: int) -> SlotRules:
        """With so many connections at most: fewer can wait."""
        surplus = max(0, self.most_connections - most)
        return replace(self, max_waiting=max(0, int(self.max_waiting - surplus / _SHARES)))

    def is_hung(self, answer: Answer, body_bytes: int) -> bool:
        """Whether *answer* dripped: its host is one that may hang again."""
        times = answer.duration_s / self.slow_after_s
        return times >= HUNG_TIMES and body_bytes < times * self.slow_bytes


@dataclass(slots=True, eq=False)
class FetchProgress:
    """Of one fetch."""

    standing: Standing
    waits_for_host: bool = False  # else it waits for us: for memory, or in a middleware
    received_bytes: int = 0
    is_slow: bool = False
    _seen_bytes: int = field(default=0, init=False)
    _ended: bool = field(default=False, init=False)


class Slots:
    """Bound: one progress for each request that is fetched. O(1) a fetch and a look at it."""

    def __init__(self, rules: SlotRules, freed: Callable[[], None]) -> None:
        """*freed* is called when fetches gave up their slots, and go on."""
        self.rules = rules
        self._freed = freed
        self._by_request: dict[object, FetchProgress] = {}
        # By standing: fetches that take a slot, those that only wait, and how many may do so.
        self._taken = [0, 0, 0]
        self._slow = [0, 0, 0]
        self._most = [rules.most(standing) for standing in Standing]
        # The time as looks count it: none adds more than `look_s`, however late it is.
        self._looked_s = 0.0
        self._looks: deque[tuple[float, FetchProgress]] = deque()  # the next at each fetch

    def __len__(self) -> int:
        """Fetches under way."""
        return len(self._by_request)

    @property
    def waiting(self) -> int:
        """Fetches that only wait for their hosts."""
        return sum(self._slow)

    def begin(self, request: object, standing: Standing) -> None:
        """*request* is handed to the downloader."""
        progress = self._by_request[request] = FetchProgress(standing)
        self._taken[standing] += 1
        self._looks.append((self._looked_s + self.rules.slow_after_s, progress))

    def end(self, request: object) -> None:
        """Its fetch is over, whatever became of it."""
        progress = self._by_request.pop(request)
        self._note(progress, is_slow=False)
        self._taken[progress.standing] -= 1
        progress._ended = True

    def of(self, request: object) -> FetchProgress:
        """Of one that did not come through our downloader it is written down nowhere."""
        return self._by_request.get(request) or FetchProgress(Standing.ANSWERS)

    def waits(self, progress: FetchProgress, *, for_host: bool) -> None:
        """From now on the fetch waits for its host, or for us."""
        progress.waits_for_host = for_host
        if not for_host:
            self._note(progress, is_slow=False)

    def room(self, standing: Standing) -> int:
        """How many fetches of such hosts may begin."""
        # Of those that wait in excess each takes a slot: so all connections are bounded.
        most, most_slow = self._most[standing]
        excess = max(0, self._slow[standing] - most_slow)
        return max(0, most - self._taken[standing] - excess)

    def free(self) -> tuple[Standing, ...]:
        """The hosts of which a fetch may begin, the best first."""
        return tuple(standing for standing in STANDINGS if self.room(standing) > 0)

    def look(self, passed_s: float) -> None:
        """*passed_s* after the last look: find the fetches that have become slow, and those that
        are no longer."""
        self._looked_s += min(passed_s, self.rules.look_s)
        was_freed = False
        while self._looks and self._looks[0][0] <= self._looked_s:
            _, progress = self._looks.popleft()
            if progress._ended:
                continue
            came_bytes = progress.received_bytes - progress._seen_bytes
            progress._seen_bytes = progress.received_bytes
            is_slow = progress.waits_for_host and came_bytes < self.rules.slow_bytes
            was_freed |= is_slow and not progress.is_slow
            self._note(progress, is_slow=is_slow)
            self._looks.append((self._looked_s + self.rules.slow_after_s, progress))
        if was_freed:
            self._freed()

    def _note(self, progress: FetchProgress, *, is_slow: bool) -> None:
        if is_slow is progress.is_slow or progress._ended:
            return
        progress.is_slow = is_slow
        change = 1 if is_slow else -1
        self._slow[progress.standing] += change
        self._taken[progress.standing] -= change
