"""The rounds of a frontier: what they have leased, and which hosts wait for the next one.

Rule: nothing is done for a URL that is over a cap. Its host gets no turn, which is one write, until
the next round looks at it again. What a round has leased is written with the leases, so it holds
after a crash: a lease that a dead process left open stays counted.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.budgets import DomainBudgets
from crawler.frontier.records import HostRecord, decode_candidate, encode
from crawler.frontier.staging import WriteBatch
from crawler.model.choices import RoundKind
from crawler.model.types import HostKey, Lease, Purpose
from crawler.model.url import registered_domain
from crawler.policy.rounds import (
    PageRate,
    RoundCaps,
    RoundEnd,
    RoundProgress,
    next_look,
    progress_of,
    round_end,
)

_DOMAINS: Final = 100_000  # of hosts, 200 bytes each
_NO_CAPS: Final = RoundCaps()
_UNLIMITED: Final = 1 << 60


class Rounds:
    """Counts the leases of the round, and keeps the hosts that it may lease no more. A lease calls
    it twice: a crawl without rounds must not notice it, and one with them hardly (`python -m
    bench.lease_rounds`)."""

    def __init__(
        self, batch: WriteBatch, budgets: DomainBudgets, caps: RoundCaps | None, now: float
    ) -> None:
        self.are_any = caps is not None
        self.is_over = False  # all rounds of this run are
        self._batch, self._budgets = batch, budgets
        self._caps = caps or _NO_CAPS
        self._per_host = _UNLIMITED if self._caps.per_host is None else self._caps.per_host
        self._per_domain = _UNLIMITED if self._caps.per_domain is None else self._caps.per_domain
        self.has_domains = self._caps.per_domain is not None
        self.has_floor = self._caps.floor is not None
        self._state = batch.totals.round
        self._again = len(batch.totals.levels) - 1  # the level of pages that are visited again
        self._rate = PageRate(now)
        self._ended: list[RoundEnd] = []
        self._end: RoundEnd | None = None  # why the round is over; leases of it may be open
        self.look_at = inf
        """When to call `look`."""
        self._domain_of = lru_cache(_DOMAINS)(registered_domain)
        # Hosts with the robots.txt that another one waits for, which is in no round.
        self._asked_for_robots: set[HostKey] = set()
        self.is_looking = self.are_held()
        """Whether hosts are looked at that the last round held, or the caps of another start."""
        self._held_from = keys.HELD  # the next of these
        self._leased = 0  # URLs, in the round
        self._are_any_full = False  # hosts or domains
        self._of_all = (0, 0, 0.0)  # as of `note_all`
        self._is_special = self.has_domains  # or a robots.txt is asked for
        self._look_below = _UNLIMITED
        """When so few are left, `take` says so: any number before the first, none after that."""
        self._base = 0  # as of `records.round_base`
        self.number = 0
        """Which round it is; 0: this run has none."""
        self.left = _UNLIMITED
        """How many URLs the round may lease yet."""
        if not self.are_any:
            self._state.first = 0
            return
        if self._caps.are_led:
            self.left, self._look_below = 0, -1
            return
        if not self._state.first:
            self._state.first = self._state.number + 1
            self._begin(self._state.first)
        self._leased = self._state.leased
        self._set_number(self._state.number)
        self.look_at = 0.0

    def _set_number(self, number: int) -> None:
        self.number, self._base = number, keys.round_base(number)
        self._look_below = 0 if self._state.began_at else _UNLIMITED
        self._set_left()

    def stage(self) -> None:
        """Stage what was counted since the last commit."""
        self._state.leased = self._leased

    def progress(self) -> RoundProgress | None:
        """Return as port.Frontier.round_progress."""
        if not self.are_any:
            return None
        of_all, first, began_at = self._of_all
        if not self._caps.are_led:
            first = self._state.first or self.number - self._caps.rounds + 1
            of_all, began_at = self._leased, self._state.began_at
        return progress_of(
            self._caps,
            self.number,
            first,
            began_at,
            of_all,
            leased=self._leased,
            is_over=self.is_over,
            ended=tuple(self._ended),
        )

    # What may be leased

    def _set_left(self) -> None:
        urls, is_closed = self._caps.urls, self._end is not None or self.is_over
        self.left = 0 if is_closed else _UNLIMITED if urls is None else urls - self._leased

    def allows(self, host: HostKey, level: int) -> bool:
        """Return whether rounds may lease URLs of *level* of *host*."""
        if self._caps.kind is RoundKind.BOTH or host in self._asked_for_robots:
            return True
        return (level == self._again) is (self._caps.kind is RoundKind.REVISIT)

    def room(self, host: HostKey, record: HostRecord) -> int:
        """Return how many URLs of *host* the round may lease yet, but for the cap of all."""
        return min(self._per_host - self._used(record.round), self._room_of_domain(host))

    def _used(self, counted: int) -> int:
        return max(counted - self._base, 0)

    def holds(self, host: HostKey, record: HostRecord) -> bool:
        """Return whether *host*, which has waiting URLs, gets no turn in this round."""
        if host in self._asked_for_robots:
            return False
        if self._caps.kind is not RoundKind.BOTH:
            waits = (level for level, ends in enumerate(record.queue_ends) if len(ends))
            if not any(self.allows(host, level) for level in waits):
                return True
        is_full = self.room(host, record) <= 0
        self._are_any_full |= is_full
        return is_full

    # What is leased

    def take(self, host: HostKey, record: HostRecord, urls: int, now: float, first: bytes) -> int:
        """Count up to *urls* of *host*, which has *record*, to be changed, and return how many the
        round may lease. *first*: the next of them, packed. A robots.txt counts as none."""
        used = record.round - self._base
        used = max(used, 0)
        room = self._per_host - used
        if self._is_special:
            room = min(room, self._room_of_domain(host))
            if self._is_for_robots(host, first):
                return 1
        if urls > room:
            urls = max(room, 0)
        urls = min(urls, self.left)
        record.round = self._base + used + urls
        self._leased += urls
        self.left -= urls
        if self.left <= self._look_below:
            self._note_bound(now)
        if self.has_domains:
            self._count_domain(host, urls)
        return urls

    def _note_bound(self, now: float) -> None:
        """Note that the first URL of the round was taken, or the last."""
        if self._look_below:
            self._look_below, self._state.began_at = 0, now
            self._set_look(now)
        if not self.left:
            self._end, self.look_at = RoundEnd.COUNT, 0.0

    def _room_of_domain(self, host: HostKey) -> int:
        if not self.has_domains:
            return _UNLIMITED
        return self._per_domain - self._used(self._budgets.peek(self._domain_of(host)).round)

    def _count_domain(self, host: HostKey, urls: int) -> None:
        of_domain = self._budgets.record(self._domain_of(host))
        of_domain.round = self._base + self._used(of_domain.round) + urls

    def _is_for_robots(self, host: HostKey, first: bytes) -> bool:
        """Return whether *host* has its turn for a robots.txt, which is *first*."""
        if host not in self._asked_for_robots:
            return False
        self._asked_for_robots.discard(host)
        self._set_special()
        return decode_candidate(first).purpose is Purpose.ROBOTS

    def _set_special(self) -> None:
        self._is_special = self.has_domains or bool(self._asked_for_robots)

    def note_put_back(self, lease: Lease) -> None:
        """Count the URL of *lease* no more: it was not asked for."""
        if lease.candidate.purpose is Purpose.ROBOTS or lease.round != self.number:
            return
        self.give_back(lease.candidate.host, 1)

    def give_back(self, host: HostKey, urls: int) -> None:
        """Count *urls* of *host* no more."""
        self._batch.host(host).round -= urls
        if self.has_domains:
            self._count_domain(host, -urls)
        self._leased -= urls
        if self._caps.are_led:
            self.left += urls
            return
        if self._end is RoundEnd.COUNT:
            self._end, self.look_at = None, 0.0
        self._set_left()

    def note_page(self, now: float) -> None:
        """Count a page that has come."""
        self._rate.note_page(now)

    def ask_for_robots(self, host: HostKey) -> None:
        """Let *host* have a turn for a robots.txt, whatever its number is."""
        if self.are_any:
            self._asked_for_robots.add(host)
            self._set_special()

    # Rounds that are led elsewhere

    def follow(self, number: int, why: str, *, is_over: bool) -> None:
        """Be in round *number*, as the one before was over for *why*; *is_over*: all are."""
        if why and self.number and (number != self.number or is_over > self.is_over):
            self._ended.append(RoundEnd(why))
        self.is_over = is_over
        if number != self.number:
            self.number, self._base = number, keys.round_base(number)
            self._held_from, self.is_looking = keys.HELD, True
            self._are_any_full = False
        self._leased = self.left = 0

    def note_all(self, leased: int, first: int, began_at: float) -> None:
        """Note how many URLs all workers have *leased* in the round, which is the *first* one of
        the run, and when it began; 0: it did not yet."""
        self._of_all = (leased, first, began_at)

    def grant(self, urls: int) -> None:
        """Let *urls* more be leased in the round."""
        self.left += urls

    def give_up(self) -> int:
        """Lease no more in the round, and return how many URLs were left."""
        left, self.left = self.left, 0
        return left

    @property
    def leased(self) -> int:
        """How many URLs of the round this process has leased."""
        return self._leased

    def has_leased(self) -> bool:
        """Return whether a URL of the round was leased, be it by a process that has died."""
        return self._leased > 0 or self._are_any_full

    def pages(self, now: float) -> int:
        """Return how many pages have come lately."""
        return self._rate.pages(now)

    # Where it ends

    def look(self, now: float, *, is_idle: bool) -> None:
        """End the round if its time has come, and begin the next one if it is over and the frontier
        *is_idle*: no lease is open. To be called from `look_at` on."""
        if self._end is None:
            self._end = round_end(self._caps, self._leased, self._state.began_at, self._rate, now)
            self._set_look(now)
            self._set_left()
        if self._end is not None and is_idle:
            self._turn(self._end, now)

    def _set_look(self, now: float) -> None:
        look_at = next_look(self._caps, self._state.began_at, self._rate, now)
        self.look_at = 0.0 if self._end is not None else inf if look_at is None else look_at

    def end_dry(self, now: float, *, waits: bool) -> bool:
        """End the round, as nothing is left that it may lease. If it has leased nothing, it is the
        last one, unless something else *waits*."""
        if self.is_over or self.is_looking:
            return False
        if self._leased:
            self._turn(self._end or RoundEnd.DRY, now)
            return True
        if self.are_held() and not waits:
            self._close()
            return True
        return False

    def wake_at(self, *, is_idle: bool) -> float | None:
        """Return when to call `look`, or `take_held`; None: when a lease ends, or never."""
        if self.is_looking or (self._end is not None and is_idle):
            return 0.0
        return None if self._end is not None or self.look_at == inf else self.look_at

    def _turn(self, why: RoundEnd, now: float) -> None:
        self._ended.append(why)
        state = self._state
        if state.number >= state.first + self._caps.rounds - 1:
            self._close()
            return
        self._begin(state.number + 1)
        self._rate = PageRate(now)
        self._held_from, self.is_looking = keys.HELD, True

    def _begin(self, number: int) -> None:
        self._state.number, self._state.began_at = number, 0.0
        self._leased, self._end, self.look_at = 0, None, inf
        self._set_number(number)
        self._write()

    def _close(self) -> None:
        self.is_over, self._end, self.look_at = True, None, inf
        self._state.first = 0
        self._set_left()
        self._write()

    def _write(self) -> None:
        """Have the next commit write the totals, whatever else it does."""
        self.stage()
        self._batch.put(keys.TOTALS, encode(self._batch.totals))

    # Hosts that wait for the next round

    def hold(self, host: HostKey) -> None:
        """Let *host* wait for the next round."""
        self._batch.put(keys.named(keys.HELD, host), b"")

    def forget(self, host: HostKey) -> None:
        """Forget that *host* waits for the next round."""
        self._batch.delete(keys.named(keys.HELD, host))

    def take_held(self, limit: int) -> list[HostKey]:
        """Remove and return up to *limit* hosts that the last round held."""
        found = self._batch.scan(self._held_from, keys.prefix_end(keys.HELD), limit)
        for key, _ in found:
            self._batch.delete(key)
        self.is_looking = len(found) == limit
        if self.is_looking:
            self._held_from = found[-1][0] + b"\0"
        return [HostKey(keys.name_of(key)) for key, _ in found]

    def are_held(self) -> bool:
        """Return whether hosts wait for the next round. It reads the disk."""
        return bool(self._batch.scan(keys.HELD, keys.prefix_end(keys.HELD), 1))
