"""Turns of hosts that are borrowed: for requests that no URL of the frontier is for.

Rule: the host rests, on disk, for as long as the turn may take, and after that as after a fetch
that a crash has cut off; then the turn begins. What is in memory of it lets that rest end earlier.
So a crash, or a turn that is never given back, leaves a rest and nothing else.
"""

from __future__ import annotations

from math import inf

from crawler.frontier.groups import AddressGroups
from crawler.frontier.hosts import HostScheduler, LongestHosts
from crawler.frontier.port import FrontierLimits
from crawler.frontier.records import HostRecord
from crawler.frontier.staging import WriteBatch
from crawler.model.types import BorrowedTurn, HostKey, NotItsTurn, NoTurn, Pace, Rest, Standing
from crawler.policy.politeness import is_left


class BorrowedTurns:
    """The turns of a frontier that are borrowed now. Bound: what is borrowed and not over yet."""

    def __init__(
        self,
        batch: WriteBatch,
        scheduler: HostScheduler,
        groups: AddressGroups,
        longest: LongestHosts,
        limits: FrontierLimits,
    ) -> None:
        self._batch = batch
        self._scheduler = scheduler
        self._groups = groups
        self._longest = longest
        self._limits = limits
        self._turns: dict[HostKey, BorrowedTurn] = {}
        self._next_end = inf  # of these, at the earliest

    def borrow(self, host: HostKey, now: float, until: float) -> BorrowedTurn | NotItsTurn:
        """Take the turn of *host*. It may be used when the batch is committed."""
        self.end_overdue(now)
        record = self._batch.peek(host)
        refusal = self._refusal(host, record, now)
        if refusal is not None:
            return refusal
        address = None
        if self._groups.are_any:
            address = self._groups.free_address(host, record, now)
            if address is None:
                return NotItsTurn(host, NoTurn.ADDRESS, self._groups.free_at(host, record, now))
        record = self._batch.host(host)
        rests_until = min(until + self._rest_s(record, now, until), now + self._limits.max_rest_s)
        number = self._batch.next_number(self._batch.shards.of(host))
        turn = BorrowedTurn(number, host, record.pace, now, until, rests_until, address)
        if address is not None:
            called = self._groups.leave(host, record)
            record.address = address
            self._groups.take(host, record, now)
            self._groups.write_rest(address, host, rests_until)
            if called is not None:
                self._scheduler.call_next(called, now)  # if that is another address
        self._scheduler.set_rest(host, rests_until, now)
        self._turns[host] = turn
        self._next_end = min(self._next_end, rests_until)
        return turn

    def _refusal(self, host: HostKey, record: HostRecord, now: float) -> NotItsTurn | None:
        if not self._scheduler.lends_turns(host):
            return NotItsTurn(host, NoTurn.ELSEWHERE)
        if is_left(record.pace):
            return NotItsTurn(host, NoTurn.LEFT)
        if host in self._turns:
            return NotItsTurn(host, NoTurn.BORROWED)
        active = self._scheduler.active.get(host)
        if active is not None and active.leased:
            return NotItsTurn(host, NoTurn.LEASED)
        if record.rest_until > now:
            if record.waits_for_address:  # its place in the queue says nothing of a turn
                return NotItsTurn(host, NoTurn.ADDRESS)
            return NotItsTurn(host, NoTurn.RESTS, record.rest_until)
        return None

    def _rest_s(self, record: HostRecord, now: float, until: float) -> float:
        """Return how long a host rests after a turn that is never given back."""
        limits, pace = self._limits, record.pace
        gap_s = max(pace.gap_s, pace.crawl_delay_s, limits.min_gap_s)
        asked_s = record.remembered_s(now, limits.max_retry_after_s)
        return max(limits.rest_after_s(until - now, gap_s), asked_s)

    def give_back(self, turn: BorrowedTurn, rest: Rest, now: float) -> bool:
        is_held = self._is_held(turn)
        if is_held:
            self._forget(turn.host)
        elif not self._scheduler.lends_turns(turn.host):
            return False
        host, record = turn.host, self._batch.host(turn.host)
        if rest.asked_s is not None:
            record.note_trouble(rest.asked_s, now)
        for fetch in rest.fetches:
            record.tally = record.tally.with_fetch(fetch, now)
        until = now + self._clamped(rest.seconds)
        address_s = rest.seconds if rest.address_s is None else rest.address_s
        if is_held:
            self._note_pace(host, record, rest.pace)
            if rest.address:
                record.address = rest.address
            is_as_it_was = record.rest_until == turn.rests_until
            until = until if is_as_it_was else max(until, record.rest_until)
            if turn.address and rest.pace.standing is Standing.FAILS:
                self._groups.turn_to_next(host, record)
            self._scheduler.set_rest(host, until, now)
            self._release_address(turn, address_s, now)
            if record.waiting():
                self._longest.note(host, record)
        else:
            self._scheduler.rest_longer(host, until, now)
            if turn.address:
                self._groups.note_rest(turn.address, host, now + self._clamped(address_s), now)
        return is_held

    def note_trouble(self, turn: BorrowedTurn, rest: Rest, now: float) -> None:
        """Let the host of *turn* rest at least *rest*. It is true after a crash when the batch is
        committed."""
        if not self._scheduler.lends_turns(turn.host):
            return
        host, record = turn.host, self._batch.host(turn.host)
        record.note_trouble(rest.asked_s or 0.0, now)
        if self._is_held(turn):
            self._note_pace(host, record, rest.pace)
        self._scheduler.rest_longer(host, now + self._clamped(rest.seconds), now)

    def _is_held(self, turn: BorrowedTurn) -> bool:
        held = self._turns.get(turn.host)
        return held is not None and held.id == turn.id

    def is_lent(self, host: HostKey) -> bool:
        return host in self._turns

    def rests_until(self, host: HostKey) -> float:
        """Return until when *host* rests as it is borrowed, or 0."""
        turn = self._turns.get(host)
        return 0.0 if turn is None else turn.rests_until

    @property
    def next_end(self) -> float | None:
        """When an address that others may wait for is free, though no turn is given back."""
        return self._next_end if self._turns and self._groups.are_any else None

    def end_overdue(self, now: float) -> None:
        """Forget the turns that were not given back by the end of their rests."""
        if now < self._next_end:
            return
        for turn in [each for each in self._turns.values() if each.rests_until <= now]:
            self._forget(turn.host)
            self._release_address(turn, 0.0, now)

    def close_shard(self, shard: bytes, now: float) -> None:
        """Forget the turns of hosts of *shard*, which this process does not have any more."""
        for turn in list(self._turns.values()):
            if self._batch.shards.of(turn.host) == shard:
                self._forget(turn.host)
                self._release_address(turn, turn.rests_until - now, now)

    def _forget(self, host: HostKey) -> None:
        del self._turns[host]
        self._next_end = min((each.rests_until for each in self._turns.values()), default=inf)

    def _note_pace(self, host: HostKey, record: HostRecord, pace: Pace) -> None:
        standing, record.pace = record.pace.standing, pace
        if standing is not pace.standing:
            self._scheduler.on_standing_changed(host)

    def _release_address(self, turn: BorrowedTurn, rest_s: float, now: float) -> None:
        if turn.address:
            group = self._groups.release(turn.address, turn.host, self._clamped(rest_s), now)
            self._scheduler.call_next(group, now)

    def _clamped(self, seconds: float) -> float:
        return min(max(seconds, 0.0), self._limits.max_rest_s)
