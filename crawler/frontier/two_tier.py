"""The two-tier frontier: first which host may be visited, then its best URL.

Rule: no clock, no disk, no Scrapy here. Each call is one atomic write to the store, so after a
crash all of it has happened, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.admit import Admitter
from crawler.frontier.hosts import ActiveHost, HostScheduler
from crawler.frontier.port import FrontierRules, LeaseRules, OrderedStore
from crawler.frontier.queues import TimedQueue, UrlQueues
from crawler.frontier.records import (
    DeadLetter,
    OpenRecord,
    UrlEvent,
    UrlState,
    decode_candidate,
    decode_claim,
    decode_open,
    encode,
)
from crawler.frontier.refusals import Refusals
from crawler.frontier.staging import WriteBatch
from crawler.model.types import (
    STANDINGS,
    Added,
    Candidate,
    Claim,
    Counts,
    Dead,
    Done,
    HostKey,
    Lease,
    Moved,
    Pace,
    PutBack,
    Rest,
    RetryAt,
    Standing,
    Verdict,
)


@dataclass(slots=True)
class OpenLease:
    lease: Lease
    released: bool = False


class TwoTierFrontier:
    """Implements port.Frontier. Front tier: hosts by level. Back tier: the active hosts by the end
    of their rest. docs/architecture.md describes both."""

    def __init__(
        self,
        store: OrderedStore,
        rules: FrontierRules,
        now: float,
        lease_rules: LeaseRules | None = None,
    ) -> None:
        """Open the frontier in *store*, and put back leases that a dead process left open.
        *lease_rules* judge waiting URLs before they are leased; None: all are admitted."""
        self._rules = rules
        self._batch = WriteBatch(store, len(rules.level_shares))
        self._queues = UrlQueues(self._batch)
        self._admitter = Admitter(self._batch, rules)
        self._refusals = Refusals(self._batch, self._queues, self._admitter, rules, lease_rules)
        self._scheduler = HostScheduler(self._batch, self._queues, rules, self._refusals)
        self._later = TimedQueue(self._batch, keys.LATER)
        self._open: dict[int, OpenLease] = {}
        self.put_back_at_open = self._recover(max(now, self.clock))

    @property
    def clock(self) -> float:
        """The latest time of any call, in this run or an earlier one. The crawl's clock must start
        at or after it: else a machine's clock that was set back leaves hosts at rest for years."""
        return self._batch.totals.clock

    def add(self, found: Iterable[Candidate], now: float) -> Added:
        admitted, added = self._admitter.admit(list(found))
        queues: dict[tuple[HostKey, int], list[Candidate]] = {}
        for candidate in admitted:
            if candidate.not_before > now:
                self._batch.totals.count(UrlState.UNKNOWN, UrlEvent.ADD_FOR_LATER)
                self._postpone(candidate)
            else:
                queues.setdefault((candidate.host, candidate.level), []).append(candidate)
        for (host, level), arrived in queues.items():
            self._batch.totals.count(UrlState.UNKNOWN, UrlEvent.ADD, len(arrived))
            self._append(host, level, arrived)
        self._batch.commit(now)
        return added

    def lease(
        self, now: float, limit: int = 1, standings: Sequence[Standing] = STANDINGS
    ) -> list[Lease]:
        self._refusals.begin_call()
        self._move_due(now)
        leases: list[Lease] = []
        while len(leases) < limit:
            active = self._scheduler.next_due(now, standings)
            if active is None:
                break
            leases.append(self._take(active, now))
        self._batch.commit(now)
        self._refusals.end_call()
        return leases

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        held = self._open.get(lease.id)
        if held is None or held.released:
            return False
        self._release(held, rest, now)
        self._batch.commit(now)
        return True

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        held = self._open.pop(lease.id, None)
        if held is None:
            return False
        if not held.released:
            gap_s = max(lease.pace.gap_s, self._rules.min_gap_s)
            self._release(held, Rest(gap_s, lease.pace), now)
        self._batch.delete(keys.numbered(keys.OPEN, lease.id))
        self._apply_verdict(lease, verdict, now)
        self._batch.commit(now)
        return True

    def retry_dead(self, letters: Iterable[tuple[int, DeadLetter]], now: float) -> None:
        """Put dead *letters*, by their numbers, back as if they had never failed. One write."""
        for number, letter in letters:
            self._batch.delete(keys.numbered(keys.DEAD, number))
            self._batch.totals.count(UrlState.DEAD, UrlEvent.RETRY_DEAD)
            candidate = replace(letter.candidate, attempts=0, not_before=0.0)
            self._append(candidate.host, candidate.level, [candidate])
        self._batch.commit(now)

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        if self._refusals.is_pending:
            return 0.0
        times = (self._scheduler.wake_at(standings), self._later.next_at)
        return min((time for time in times if time is not None), default=None)

    def counts(self) -> Counts:
        totals = self._batch.totals
        return Counts(
            waiting=totals.waiting,
            later=totals.later,
            leased=totals.leased,
            hosts_active=len(self._scheduler.active),
            seen=totals.seen,
            done=totals.done,
            dead=totals.dead,
            refused=totals.refused,
        )

    def may_begin(self, lease: Lease) -> bool:
        return lease.id in self._open

    def is_over(self) -> bool:
        """Return as port.Frontier.is_over. This reads the queues, not the counters, because with a
        wrong counter a crawl would end early or never."""
        is_pending = self._refusals.is_pending or self._open
        return not (is_pending or self._scheduler.has_hosts() or self._later.next_at is not None)

    def is_congested(self) -> bool:
        """Return False: URLs are written as they are added, so there is no backlog."""
        return False

    async def wait_until_durable(self) -> None:
        """Return at once: each call has written what it did when it returns."""

    def _take(self, active: ActiveHost, now: float) -> Lease:
        packed = active.head.popleft()
        self._queues.drop_head(active.host, self._batch.host(active.host), active.level)
        active.leased = True
        lease = Lease(self._batch.next_number(), decode_candidate(packed), active.record.pace, now)
        self._batch.put(
            keys.numbered(keys.OPEN, lease.id), encode(OpenRecord(lease.candidate, now))
        )
        self._batch.totals.count(UrlState.WAITING, UrlEvent.LEASE)
        self._open[lease.id] = OpenLease(lease)
        return lease

    def _release(self, held: OpenLease, rest: Rest, now: float) -> None:
        held.released = True
        host = held.lease.candidate.host
        record = self._batch.host(host)
        record.rest_until = now + min(max(rest.seconds, 0.0), self._rules.max_rest_s)
        record.pace = rest.pace
        active = self._scheduler.active.get(host)
        assert active is not None, f"{host} is leased, but not in memory"
        self._scheduler.on_fetch_ended(active, now)

    def _apply_verdict(self, lease: Lease, verdict: Verdict, now: float) -> None:
        candidate = lease.candidate
        count = self._batch.totals.count
        match verdict:
            case Done(next_visit, claim):
                count(UrlState.LEASED, UrlEvent.FINISH)
                self._write_claim(claim, lease.id)
                if next_visit is not None:
                    count(UrlState.DONE, UrlEvent.REVISIT)
                    again = replace(
                        candidate,
                        not_before=next_visit,
                        attempts=0,
                        chain=(),
                        may_be_archived=False,
                    )
                    self._enqueue(again, now)
            case RetryAt(when):
                count(UrlState.LEASED, UrlEvent.POSTPONE)
                attempts = candidate.attempts + 1
                self._enqueue(replace(candidate, not_before=when, attempts=attempts), now)
            case Moved(target, claim):
                count(UrlState.LEASED, UrlEvent.FINISH)
                self._write_claim(claim, lease.id)
                # A key of the same redirect chain (after a cookie, or without tracking parameters)
                # is not a new URL.
                own = target.key in {candidate.key, *candidate.chain}
                if own or self._admitter.admit_one(target):
                    count(UrlState.UNKNOWN, UrlEvent.ADD)
                    self._scheduler.put_back(target)
            case Dead(reason):
                count(UrlState.LEASED, UrlEvent.GIVE_UP)
                letter = DeadLetter(candidate, reason, now)
                key = keys.numbered(keys.DEAD, self._batch.next_number())
                self._batch.put(key, encode(letter))
            case PutBack():
                count(UrlState.LEASED, UrlEvent.PUT_BACK)
                self._scheduler.put_back(candidate)

    def _write_claim(self, claim: Claim | None, lease_id: int) -> None:
        if claim is None:
            return
        if claim.simhash is not None:
            before = self._batch.get(keys.DIGEST + claim.digest)
            if before is None or decode_claim(before).simhash is None:
                log = keys.print_log(lease_id)
                logged = self._batch.get(log) or b""
                self._batch.put(log, logged + keys.packed_print(claim.simhash))
                self._batch.put(keys.page_of_print(claim.simhash, lease_id), claim.digest)
        self._batch.put(keys.DIGEST + claim.digest, encode(claim))

    def _enqueue(self, candidate: Candidate, now: float) -> None:
        """Queue *candidate*, which is counted as LATER, unless its date is in the future."""
        if candidate.not_before > now:
            self._postpone(candidate)
        else:
            self._batch.totals.count(UrlState.LATER, UrlEvent.COME_DUE)
            self._append(candidate.host, candidate.level, [candidate])

    def _append(self, host: HostKey, level: int, arrived: Sequence[Candidate]) -> None:
        self._queues.append(host, level, arrived)
        self._scheduler.on_url_added(host, level)

    def _postpone(self, candidate: Candidate) -> None:
        number = keys.numbered(b"", self._batch.next_number())
        self._later.put(candidate.not_before, number, encode(candidate))

    def _move_due(self, now: float) -> None:
        self._scheduler.move_due(now)
        for _, packed in self._later.take_due(now, self._rules.due_slice):
            self._enqueue(replace(decode_candidate(packed), not_before=0.0), now)
        self._refusals.readmit_some(self._append)
        # A commit of its own, because heads of queues are read from the store.
        self._batch.commit(now)

    def _recover(self, now: float) -> int:
        """File the active hosts of a dead process again and put its leases back; return how many.
        Each slice is one write, so a crash in here loses nothing."""
        while markers := self._batch.scan(
            keys.ACTIVE, keys.prefix_end(keys.ACTIVE), self._rules.due_slice
        ):
            for key, _ in markers:
                self._scheduler.refile(HostKey(keys.name_of(key)), now)
            self._batch.commit(now)
        put_back = 0
        newest = self._newest_leases()
        while leases := self._batch.scan(
            keys.OPEN, keys.prefix_end(keys.OPEN), self._rules.due_slice
        ):
            for key, packed in leases:
                lost = decode_open(packed)
                is_newest = lost.taken_at == newest[lost.candidate.host]
                self._put_back_lost(key, lost, now, may_be_fetching=is_newest)
            self._batch.commit(now)
            put_back += len(leases)
        return put_back

    def _newest_leases(self) -> dict[HostKey, float]:
        """Return when each host was leased last. All its earlier open leases were released, or the
        last one could not have been taken."""
        newest: dict[HostKey, float] = {}
        start = keys.OPEN
        while leases := self._batch.scan(start, keys.prefix_end(keys.OPEN), self._rules.due_slice):
            for _, packed in leases:
                lost = decode_open(packed)
                newest[lost.candidate.host] = lost.taken_at
            start = leases[-1][0] + b"\0"
        return newest

    def _put_back_lost(
        self, key: bytes, lost: OpenRecord, now: float, *, may_be_fetching: bool
    ) -> None:
        record = self._batch.host(lost.candidate.host)
        # A rest that ends after the lease began was set by its release, and is kept.
        if may_be_fetching and record.rest_until <= lost.taken_at:
            record.rest_until = self._rest_after(lost.taken_at, record.pace, now)
        self._batch.delete(key)
        self._batch.totals.count(UrlState.LEASED, UrlEvent.LOSE)
        self._scheduler.put_back(lost.candidate)

    def _rest_after(self, taken_at: float, pace: Pace, now: float) -> float:
        """Return until when a host rests after a fetch that the death of its process cut off. The
        fetch counts as the longest possible one, so that the gap after it is kept in any case."""
        rules = self._rules
        longest_s = min(now - taken_at, rules.longest_fetch_s)
        worst = taken_at + longest_s + min(rules.gap_factor * longest_s, rules.max_gap_s)
        gap_s = max(pace.gap_s, pace.crawl_delay_s, rules.min_gap_s)
        return max(worst, now + min(gap_s, rules.max_rest_s))
