"""The two-tier frontier: first which host may be visited, then its best URL.

Rule: no clock, no Scrapy here. Calls change memory and are written together, so after a crash the
first of them have happened, and the others not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.admit import Admitted, Admitter, ArrivedUrls, Search
from crawler.frontier.borrowing import BorrowedTurns
from crawler.frontier.budgets import NO_VOTES, DomainBudgets, Votes
from crawler.frontier.gone import GonePages
from crawler.frontier.groups import AddressGroups, AddressUse
from crawler.frontier.hosts import ActiveHost, HostCounts, HostScheduler, LongestHosts
from crawler.frontier.later import LaterUrls, VisitPlan
from crawler.frontier.lending import ENDLESS, Lender, Lending, LendingRoom, LentUrl
from crawler.frontier.order import UrlOrder
from crawler.frontier.port import (
    AddressLeases,
    DurableStore,
    FrontierLimits,
    HostAddresses,
    LeaseRules,
    OrderedStore,
    PerHost,
    one,
)
from crawler.frontier.queues import QueueName, UrlQueues
from crawler.frontier.records import (
    BY_WORTH,
    GIVEN_UP,
    IN_QUEUE,
    LAST_DATE,
    NEVER,
    DeadLetter,
    HostRecord,
    ListedUrl,
    OpenRecord,
    UrlEvent,
    UrlState,
    claim_changes,
    decode_candidate,
    encode,
    encode_open,
)
from crawler.frontier.recovery import Recovery
from crawler.frontier.refusals import Refusals
from crawler.frontier.rounds import Rounds
from crawler.frontier.run_files import Keys, RunFolder
from crawler.frontier.seen import SeenSet
from crawler.frontier.shards import Shards
from crawler.frontier.staging import WriteBatch, all_records
from crawler.frontier.sweep import Fate, Sweep
from crawler.frontier.url_table import ListedCounts, UrlTable
from crawler.model.counts import Counts
from crawler.model.types import (
    STANDINGS,
    Added,
    Again,
    BorrowedTurn,
    Candidate,
    Claim,
    Dead,
    Done,
    HostKey,
    HostWork,
    Lease,
    LinkSource,
    Moved,
    NotItsTurn,
    NoTurn,
    Pace,
    PageHistory,
    Purpose,
    PutBack,
    Rest,
    RetryAt,
    Standing,
    StoreFull,
    StoreUnavailable,
    Verdict,
)
from crawler.policy.politeness import as_new
from crawler.policy.priority import NO_CASH
from crawler.policy.rounds import RoundProgress
from crawler.policy.validators import noted

_PAGE: Final = Purpose.PAGE
_ROBOTS: Final = Purpose.ROBOTS
# URLs admitted in one call that are written at once: else each read of a queue in this turn of the
# event loop would look for its chunks among all that is staged.
_LARGE: Final = 256
# Hosts in one call of which nothing was taken: what they had was stale, or in no round; 5 ms.
_MOST_WITHOUT: Final = 64
_DECIDED: Final = 2_048  # undecided URLs that one step of a call searches for
_MOST_IDLE: Final = 8  # releases of spilled URLs in one call, each of up to 64 URLs: 5 ms
# Bound once, because each look-up of a member of an enumeration takes 0.1 us.
_WAITING, _LEASED = UrlState.WAITING, UrlState.LEASED
_LEASE, _FINISH = UrlEvent.LEASE, UrlEvent.FINISH
# Hosts of this standing have most slots. A lease without it is for the slots of new and of failing
# hosts, and does not admit or search for URLs before their time: else, when all other slots are
# taken, that was done every 40 pages.
_ANSWERS: Final = Standing.ANSWERS
_Taken = TypeVar("_Taken", Lease, LentUrl, Candidate)


@dataclass(slots=True)
class OpenLease:
    lease: Lease
    active: ActiveHost  # its host; until the release, it is in memory
    is_bundled: bool  # it was taken with others of its host
    released: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """Background work of the frontier, beside its calls."""

    run: Callable[[], None]
    """Reads and writes files, and may be called in a thread. Raises StoreUnavailable."""
    apply: Callable[[float], Iterator[None]]
    """Applies what was read. To be called when `run` has ended, with the time; after each step the
    changes are to be committed."""


class Background(Protocol):
    """What commits the calls of one turn of the event loop together, and does the work of the
    frontier in a thread."""

    def commit_soon(self) -> None:
        """Call `commit` before the event loop waits. It is asked for once until `commit` comes."""

    def work_soon(self) -> None:
        """Call `next_work`, and do that."""


def _is_to_come_again(found: Candidate) -> bool:
    """Return whether *found* is a page that is fetched though it was seen: a seed of a run that
    looks for new pages, or what an operator adds again. Requests of a spider's code are not marked
    as seen if it says so."""
    is_seed = not (found.depth or found.request) and found.purpose is _PAGE
    return is_seed and not found.needs_seen_test


class TwoTierFrontier:
    """Implements port.Frontier. Front tier: hosts by level. Back tier: the active hosts by the end
    of their rest. docs/architecture.md describes both."""

    def __init__(
        self,
        store: DurableStore,
        runs: RunFolder,
        limits: FrontierLimits,
        now: float,
        lease_rules: LeaseRules | None = None,
        *,
        on_decided: Callable[[Added], None] | None = None,
        background: Background | None = None,
        shards: Shards | None = None,
        addresses: HostAddresses | None = None,
        address_leases: AddressLeases | None = None,
    ) -> None:
        """Open the frontier in *store* with the seen set in *runs*, and put back leases that a dead
        process left open. *lease_rules* judge waiting URLs before they are leased; None: all are
        admitted. *on_decided* is called with the result of URLs that `add` left undecided.
        *background*: None if each call commits, and does the work that is due, itself. *shards*: of
        the crawl, some of which this frontier has (`take_in`); None: it has all hosts. *addresses*:
        by which hosts are grouped; None: they are not. *address_leases*: None if no other
        process fetches from the same addresses."""
        self._store, self._limits = store, limits
        self._batch = WriteBatch(store, len(limits.shares), limits.known_hosts, shards)
        self._queues = UrlQueues(self._batch, limits.chunk_urls)
        self._seen = SeenSet(self._batch, runs, limits.recent_keys)
        self._order = UrlOrder(self._queues, limits)
        self.budgets = DomainBudgets(self._batch, limits)
        self._admitter = Admitter(self._batch, limits, self._seen, self._order, self.budgets)
        self._refusals = Refusals(self._batch, self._queues, self._admitter, limits, lease_rules)
        self.groups = AddressGroups(self._batch, addresses, limits.address_wait_s, address_leases)
        self._later = LaterUrls(self._batch, limits, max(now, self.clock), lease_rules)
        self._rounds = Rounds(self._batch, self.budgets, limits.rounds, max(now, self.clock))
        self._scheduler = HostScheduler(
            *(self._batch, self._queues, self._order, limits),
            *(self._refusals, self.groups, self._rounds),
        )
        self._longest = LongestHosts(limits.min_gap_s)
        self._borrowed = BorrowedTurns(
            *(self._batch, self._scheduler, self.groups, self._longest, limits)
        )
        self._gone = GonePages(self._batch)
        self.table = UrlTable(self._batch, lists_all=limits.lists_urls)
        self._lender = Lender(self._batch, self._queues, self._scheduler, self._later, self.table)
        self._sweep = Sweep(
            *(self._batch, self._queues, self._scheduler, self._refusals, self._later),
            *(self.budgets, self.table, limits.judged_slice),
        )
        self._on_decided = on_decided
        self._background = background
        self._is_commit_due = False  # the background was asked for a commit
        self._is_starved = False  # nothing but undecided URLs may be left to lease
        self._open: dict[int, OpenLease] = {}
        self._taken_in: set[bytes] = set()  # of several shards
        self._arrived = ArrivedUrls(self._batch, limits, self._seen, self._order)
        self._batch.totals.clock = max(now, self.clock)
        self._recovery = Recovery(self._batch, self._scheduler, self._longest, limits, self.groups)
        self.put_back_at_open = self._recovery.recover(self.clock)
        """Leases of other processes that were put back, at the opening or with a shard."""
        if background is None:
            self._do_work(now)

    @property
    def clock(self) -> float:
        """The latest time of any call, in this run or an earlier one. The crawl's clock must start
        at or after it: else a machine's clock that was set back leaves hosts at rest for years."""
        return self._batch.totals.clock

    @property
    def records(self) -> OrderedStore:
        """The store as it will be after the next commit, which also makes its writes."""
        return self._batch

    def add(
        self,
        found: Iterable[Candidate],
        now: float,
        *,
        at_once: bool = False,
        source: LinkSource | None = None,
    ) -> Added:
        urls = list(found)
        if source is not None:
            self.budgets.count(self.votes(source, [each.domain for each in urls]))
        # Of the 40 links of a page mostly none: one look at each is enough.
        special = [
            each
            for each in urls
            if not each.depth
            or each.modified
            or each.purpose is _ROBOTS
            or not each.needs_seen_test
        ]
        if special:
            urls = self._as_new_if_new(urls)
            self._later.note_dates([each for each in urls if each.modified], now)
        for page in self._gone.named(urls, now):
            level = len(self._batch.peek(page.host).queue_ends) - 1
            shard = self._batch.shards.of(page.host)
            self._batch.count(shard, UrlState.UNKNOWN, UrlEvent.ADD)
            self.table.put_in_queue([page])
            self._append((page.host, level), [replace(page, level=level)])
        # A robots.txt, for which its host waits, and seeds, which are counted for users.
        urgent = [
            each
            for each in special
            if not each.depth or each.purpose is _ROBOTS or not each.needs_seen_test
        ]
        if at_once or urgent or self._background is None:
            admitted, added = self._admitter.admit(urls, now)
            self._queue(admitted, now)
        else:
            arrived = self._arrived.add(urls, now)
            added = Added(seen=len(urls) - arrived, undecided=arrived)
            if self._are_arrived_due(now):
                self._admit_some(now)
        self._end_call(now)
        return added

    def add_unknown(self, found: Mapping[int, Candidate], now: float) -> None:
        """Add URLs by their keys, all of which need the seen test, and of which `known_of` has said
        just now that none is known: `add` would find that out again."""
        self._arrived.put(found, now)
        if self._are_arrived_due(now):
            self._admit_some(now)
        self._end_call(now)

    def votes(self, source: LinkSource, domains: Iterable[str]) -> Votes:
        """Return the votes of a page for the *domains* that it links to, as far as they may be
        new."""
        return self.budgets.votes(source, domains) if self._limits.budgets is not None else NO_VOTES

    def count_votes(self, votes: Votes, now: float) -> None:
        """Count *votes* for domains that are here."""
        self.budgets.count(votes)
        self._end_call(now)

    def _as_new_if_new(self, found: list[Candidate]) -> list[Candidate]:
        """Return *found*, those as new that are to be fetched again and never were: else they would
        be fetched once more when they are found again. It may read the disk for these."""
        again = [each.key for each in found if _is_to_come_again(each)]
        if not again:
            return found
        seen = self.seen_of(again)
        return [
            replace(each, needs_seen_test=True)
            if _is_to_come_again(each) and each.key not in seen
            else each
            for each in found
        ]

    def add_first(self, found: Iterable[Candidate], now: float) -> None:
        """Add *found* before all other URLs of their hosts, whether they were seen or not, and
        without a budget."""
        for shard, urls in self._batch.shards.divide(found).items():
            self._admitter.note_seen(urls, shard)
            self._batch.count(shard, UrlState.UNKNOWN, UrlEvent.ADD, len(urls))
            self.table.put_in_queue(urls)
            for each in reversed(urls):
                self._scheduler.put_back(replace(each, level=0))
        self._end_call(now)

    def lease(
        self,
        now: float,
        limit: int = 1,
        standings: Sequence[Standing] = STANDINGS,
        per_host: PerHost = one,
        host: HostKey | None = None,
    ) -> list[Lease]:
        take = partial(self._take, now=now, per_host=per_host)
        return self._take_turns(now, limit, standings, host, take)

    def lend(
        self,
        now: float,
        limit: int,
        lending: Lending,
        standings: Sequence[Standing] = STANDINGS,
        host: HostKey | None = None,
    ) -> list[LentUrl]:
        """Take URLs as `lease` does, and put them off until a time, as whoever has them may never
        come back: an update ends that. They are on the disk as long as they are away, and wherever
        their shard is. Of what is set aside, a check of a link and a request of a spider's own code
        become dead letters, and a robots.txt is forgotten."""
        room = LendingRoom(lending.most_bytes)
        leased = self._leased_keys()
        take = partial(self._lender.lend, leased=leased, lending=lending, room=room, now=now)
        return self._take_turns(now, limit, standings, host, take, room)

    def rehearse(
        self, now: float, limit: int, rest_s: Callable[[Pace], float]
    ) -> list[tuple[float, Candidate]]:
        """Take up to *limit* URLs from *now* on, each with its time, as calls of `lease` for one
        URL would if each was fetched at once, was done, and its host rested as *rest_s* says by its
        pace. There are no leases: it is for a plan, which is never fetched."""
        take = partial(self._rehearse, rest_s=rest_s)
        # What is moved by parts goes before what is leased next, with each call.
        moves = self._is_moving(now)
        urls = self._take_turns(now, 1 if moves else limit, STANDINGS, None, partial(take, now=now))
        found = [(now, each) for each in urls]
        if not moves:
            found += self._rehearse_later(now, limit - len(found), take)
            self._refusals.end_call()
        for shard, some in self._batch.shards.divide(url for _, url in found).items():
            self._batch.count(shard, _WAITING, _LEASE, len(some))
            self._batch.count(shard, _LEASED, _FINISH, len(some))
        return found

    def _rehearse_later(
        self, now: float, limit: int, take: Callable[..., list[Candidate]]
    ) -> list[tuple[float, Candidate]]:
        """Take up to *limit* URLs of hosts whose rests end after *now*, as long as nothing else is
        to be done in the frontier than to wait for these."""
        found: list[tuple[float, Candidate]] = []
        others_at = (self._later.next_at, self.budgets.next_at, self._rounds.look_at)
        until = min(at for at in others_at if at is not None)
        while len(found) < limit and self._rounds.left > 0 and not self.budgets.may_be_idle:
            at = self._scheduler.next_in_memory()
            if at is None or at >= until:
                break
            now = max(now, at)
            self._scheduler.active.move_due(now)
            while len(found) < limit and self._rounds.left > 0:
                active = self._scheduler.next_due(now, STANDINGS)
                if active is None:
                    break
                found += [(now, each) for each in take(active, now=now)]
        return found

    def _is_moving(self, now: float) -> bool:
        """Return whether the next call moves only a part of what is due."""
        if self._refusals.is_pending or self._rounds.is_looking or self.budgets.may_be_idle:
            return True
        times = (self._scheduler.next_on_disk, self._later.next_at, self.budgets.next_at)
        return any(at is not None and at <= now for at in times)

    def _take_turns(
        self,
        now: float,
        limit: int,
        standings: Sequence[Standing],
        host: HostKey | None,
        take: Callable[[ActiveHost], list[_Taken]],
        room: LendingRoom = ENDLESS,
    ) -> list[_Taken]:
        """Call *take* for up to *limit* hosts whose turn it is, or for *host* alone, and return all
        that it takes."""
        if host is not None:
            found = self._take_of(host, now, take)
        else:
            found = []
            if not self.is_congested():
                found = self._take_of_next(now, limit, standings, take, room)
        if (
            not found
            and host is None
            and _ANSWERS in standings
            and self._admitter.undecided
            and not self._refusals.is_exhausted
        ):
            self._is_starved = True
            if self._background is not None:
                self._background.work_soon()
            else:
                self._do_work(now)
                found = self._take_of_next(now, limit, standings, take, room)
        self._end_call(now)
        self._refusals.end_call()
        return found

    def _take_of(
        self, host: HostKey, now: float, take: Callable[[ActiveHost], list[_Taken]]
    ) -> list[_Taken]:
        self._refusals.begin_call()
        self._move_due(now)
        active = self._scheduler.begin_turn(host, now)
        return take(active) if active is not None else []

    def update(self, found: Iterable[Candidate], now: float) -> int:
        leased = self._leased_keys()
        refused = 0
        for page in found:
            if page.key in leased:
                refused += 1
            else:
                self._update(page, now)
        self._end_call(now)
        return refused

    def _update(self, page: Candidate, now: float) -> None:
        if self._arrived.of((page.key,)):
            self.admit_arrived(now)  # so that it is known since when there is this URL
        shard = self._batch.shards.of(page.host)
        before = self.table.get(page.host, page.key)
        if before is None:
            self._admitter.mark_seen(page.key, shard)
        elif len(before.place) > 1:
            self._later.drop_dated(keys.LATER + before.place)
            self._batch.count(shard, UrlState.LATER, UrlEvent.FORGET)
        place = IN_QUEUE
        if page.not_before == NEVER:
            self._batch.count(shard, UrlState.UNKNOWN, UrlEvent.FINISH)
        else:
            self._batch.count(shard, UrlState.UNKNOWN, UrlEvent.ADD_FOR_LATER)
            is_late = page.not_before > LAST_DATE
            place = self._later.put(replace(page, not_before=LAST_DATE) if is_late else page)
        created_at = int(now) if before is None else before.created_at
        listed = ListedUrl(page.url, created_at, page.not_before, place, page.request)
        self.table.put(page, listed, before)

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        held = self._open.get(lease.id)
        if held is None or held.released:
            return False
        self._release(held, rest, now)
        self._end_call(now)
        return True

    async def borrow(self, host: HostKey, now: float, until: float) -> BorrowedTurn | NotItsTurn:
        return self.borrow_here(host, now, until)

    def borrow_here(self, host: HostKey, now: float, until: float) -> BorrowedTurn | NotItsTurn:
        """Borrow as port.Frontier.borrow. It is written when this returns."""
        turn = self._borrowed.borrow(host, now, until)
        if isinstance(turn, BorrowedTurn):
            try:
                self.commit()
            except StoreUnavailable:
                self._borrowed.give_back(turn, Rest(0.0, turn.pace), now)
                turn = NotItsTurn(host, NoTurn.STORE)
        self._end_call(now)
        return turn

    def give_back(self, turn: BorrowedTurn, rest: Rest, now: float) -> bool:
        is_held = self._borrowed.give_back(turn, rest, now)
        self._end_call(now)
        return is_held

    def note_trouble(self, lease: Lease | BorrowedTurn, rest: Rest, now: float) -> None:
        if isinstance(lease, BorrowedTurn):
            self._borrowed.note_trouble(lease, rest, now)
            with suppress(StoreUnavailable):  # the next commit raises it again
                self.commit()
            self._end_call(now)
            return
        held = self._open.get(lease.id)
        if held is None or held.released:
            return
        until = now + min(max(rest.seconds, 0.0), self._limits.max_rest_s)
        noted = OpenRecord(
            *(lease.candidate, held.lease.taken_at, until, rest.pace, rest.asked_s or 0.0),
            is_bundled=held.is_bundled,
        )
        self._batch.put_at_once(keys.numbered(keys.OPEN, lease.id), encode(noted))
        self._end_call(now)

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        held = self._open.pop(lease.id, None)
        if held is None:
            return False
        if not held.released:
            pace = held.active.record.pace
            self._release(held, Rest(max(pace.gap_s, self._limits.min_gap_s), pace), now)
        self._batch.delete(keys.numbered(keys.OPEN, lease.id))
        if self._rounds.has_floor and isinstance(verdict, Done | Moved):
            self._rounds.note_page(now)
        self._apply_verdict(lease, verdict, now)
        self._end_call(now)
        return True

    def seen_of(self, wanted: Sequence[int]) -> set[int]:
        """Return which of the keys *wanted* were ever admitted. It reads the disk."""
        found = zip(wanted, self._seen.search(wanted), strict=True)
        return {key for key, is_seen in found if is_seen}

    def known_of(self, wanted: Collection[int]) -> tuple[set[int], list[int]]:
        """Return which of the keys *wanted* were found before, and which perhaps were: that could
        be said after a read of the disk."""
        known, perhaps = self._seen.look_up(wanted)
        known |= self._arrived.of(wanted)
        if self._admitter.undecided:
            known |= self._admitter.undecided.keys() & set(wanted)
        return known, [key for key in perhaps if key not in known]

    def undecided_of(self, wanted: Collection[int]) -> set[int]:
        """Return of which of the keys *wanted* it is not known yet whether they are new."""
        return self._admitter.undecided.keys() & set(wanted)

    def mark_seen(self, found: Sequence[int], now: float) -> int:
        """Count the keys *found* as admitted, though their URLs do not wait. Returns how many are
        new. It reads the disk, and writes all at once."""
        wanted = list(dict.fromkeys(found))
        are_seen = self._seen.search(wanted)
        new = [key for key, is_seen in zip(wanted, are_seen, strict=True) if not is_seen]
        self._seen.mark(new, keys.ONE_SHARD)
        self.commit()  # before a merge removes their record: a mirror of the store has them from it
        work = self._begin_merge()
        work.run()
        for _ in work.apply(now):
            self._commit_step()
        return len(new)

    def import_seen(self, admitted: Sequence[Keys], on_merged: Callable[[], None]) -> None:
        """Take keys of URLs that the last owner of a shard has admitted. *on_merged* is called when
        they are on disk."""
        self._seen.import_keys(admitted, on_merged)
        if self._background is not None:
            self._background.work_soon()
        else:
            self._do_work(self.clock)

    def take_in(self, shard: bytes, now: float) -> Iterator[None]:
        """Begin to lease the URLs of *shard*, which its last owner has left in the store, all of
        its hosts as empty. The keys of its seen URLs were imported, and are merged. Yields after
        each step, of some milliseconds; when the last one is over, all of the shard is here."""
        self._taken_in.add(shard)
        self._batch.take_in_totals(shard)
        self.table.forget(shard)
        self.put_back_at_open += self.leased_of(shard)
        self._admitter.drop(shard)  # what was known of its domains before
        for _ in self._recovery.take_in(shard, max(now, self.clock)):
            self._end_call(now)
            yield
        self._arrived.load(keys.ARRIVED + shard)
        self._admitter.load(keys.UNDECIDED + shard)
        self._show(shard)
        for _ in self.budgets.take_in(shard):
            self._end_call(now)
            yield
        self._later.take_in(shard)  # it passes over what is not here
        self._gone.load(keys.GONE + shard)
        self._refusals.judge_shard(shard)
        self._end_call(now)

    def _show(self, shard: bytes) -> None:
        assert self._batch.here is not None, "this frontier has all hosts"
        self._batch.here.add(shard)

    def stop(self, shard: bytes, now: float) -> None:
        """Lease no more URLs of *shard*. What is leased stays so."""
        self._scheduler.stop(shard, now)
        self._end_call(now)

    def holds(self, lease: Lease) -> bool:
        """Return whether *lease* is held."""
        return lease.id in self._open

    def leased_of(self, shard: bytes) -> int:
        """Return how many URLs of *shard* are leased."""
        return self._batch.totals_of(shard).leased

    def close_shard(self, shard: bytes, now: float) -> list[Lease]:
        """Change nothing of *shard* any more: all calls so far are written, unless the disk is
        full, and none of its URLs is admitted. Returns its leases, which are held no more. Raises
        StoreUnavailable as `commit`, and then it is not closed."""
        self._scheduler.stop(shard, now)
        with suppress(StoreFull):  # what is not written is for the next owner as after a crash
            self.commit()
        if self._batch.here is not None:
            self._batch.here.discard(shard)
        number_of_shard = int.from_bytes(shard)
        ended = [number for number in self._open if keys.shard_of_number(number) == number_of_shard]
        held = [self._open.pop(number) for number in ended]
        for each in held:
            if not each.released:
                self._release_address(each.lease, self._limits.longest_address_rest_s, now)
        self._borrowed.close_shard(shard, now)
        leases = [each.lease for each in held]
        self._arrived.drop(shard)
        self._admitter.drop(shard)
        self._gone.drop(shard)
        return leases

    def drop(self, shard: bytes, unknown: Iterable[int], now: float) -> Iterator[None]:
        """Delete the records of *shard*, which is closed or was never taken in. *unknown*: keys of
        URLs that were admitted here, and that the next owner may not know. Yields after each step,
        of some milliseconds."""
        self._seen.forget(unknown)
        is_counted = shard in self._taken_in
        self._taken_in.discard(shard)
        self.table.forget(shard)
        for _ in self.budgets.drop_filed(shard):
            self._end_call(now)
            yield
        for _ in self._recovery.drop(shard, is_counted=is_counted):
            self._end_call(now)
            yield
        self._batch.drop_totals(shard, is_counted=is_counted)
        self._later.read_again()
        self._end_call(now)

    def retry_dead(self, letters: Iterable[tuple[int, DeadLetter]], now: float) -> None:
        """Put dead *letters*, by their numbers, back as if they and their hosts had never failed.
        One write."""
        for number, letter in letters:
            self._batch.delete(keys.numbered(keys.DEAD, number))
            shard = self._batch.shards.of(letter.candidate.host)
            self._batch.count(shard, UrlState.DEAD, UrlEvent.RETRY_DEAD)
            candidate = replace(letter.candidate, attempts=0, not_before=0.0, chosen=True)
            self.table.put_in_queue([candidate])
            record = self._batch.host(candidate.host)
            record.pace = as_new(record.pace)
            self._append((candidate.host, candidate.level), [candidate])
        self._end_call(now)

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        if self.is_congested():
            return None
        if self._refusals.is_pending:
            return 0.0
        round_at = None
        if self._rounds.are_any:
            round_at = self._rounds.wake_at(is_idle=not self._open)
            if not self._rounds.left:
                return round_at
        if _ANSWERS in standings and (self._arrived.due_at is not None or self.budgets.may_be_idle):
            return 0.0
        times = (
            *(self._scheduler.wake_at(standings), self._later.next_at),
            *(self._arrived.due_at, self.budgets.next_at, round_at, self._borrowed.next_end),
        )
        return min([time for time in times if time is not None], default=None)

    def counts(self) -> Counts:
        return self._batch.totals.counts(len(self._scheduler.active), self.undecided())

    def listed_counts(self) -> ListedCounts:
        """Return the counts of the table of URLs. O(1)."""
        totals = self._batch.totals
        return ListedCounts(totals.listed, totals.listed_done, totals.queues, totals.active_queues)

    def undecided(self) -> int:
        """Return of how many URLs it is not known yet whether they are new."""
        return len(self._admitter.undecided) + len(self._arrived)

    def undecided_s(self, now: float) -> float:
        """Return for how long found URLs have waited for a search whether they are new, in
        seconds; 0 for those that an earlier run left, until they are searched for."""
        since = self._admitter.undecided_since if self._admitter.undecided else 0.0
        return now - since if since else 0.0

    def visit_plan(self) -> VisitPlan:
        """Return what decides when pages without a date are visited again."""
        return self._later.plan()

    def host_counts(self) -> HostCounts:
        """Return how many hosts are where. O(1)."""
        return self._scheduler.host_counts()

    def upcoming_hosts(self, until: float, limit: int) -> list[HostKey]:
        """Return up to *limit* hosts that are leased next, as far as that can be seen: those that
        are due, those whose rest ends by *until*, and the first of those that wait for their turn,
        which are returned once. Nothing is changed. It takes 1 to 2 us a host."""
        return self._scheduler.upcoming(until, limit)

    def next_url(self, host: HostKey) -> str | None:
        """Return the URL of *host* that is leased next, or None if none waits. If the host is not
        active, that is a read of 20 us."""
        active = self._scheduler.active.get(host)
        if active is not None:
            return decode_candidate(active.head[0]).url if active.head else None
        record = self._batch.peek(host)
        level = record.best_level()
        if level is None:
            return None
        first = record.queue_ends[level].head
        found = self._queues.read(host, level, first, first + 1)
        return decode_candidate(found[0]).url if found else None

    def record_of(self, host: HostKey) -> HostRecord:
        """Return what is known of *host*, not to be changed."""
        return self._batch.peek(host)

    def known_hosts(self) -> Iterator[HostKey]:
        """Yield the hosts of all earlier commits. It reads the disk; other calls may be made before
        it ends."""
        for key, _ in all_records(self._batch, keys.HOST):
            yield HostKey(keys.name_in_shard(key))

    def waiting_of(self, host: HostKey) -> Iterator[Candidate]:
        """Yield the URLs in the queues of *host*, stale ones too, the best level first. It reads
        the disk; other calls may be made before it ends."""
        for level, ends in enumerate(self._batch.peek(host).queue_ends):
            first, size = ends.head, self._limits.chunk_urls
            while first < ends.tail:
                found = self._queues.read(host, level, first, min(first + size, ends.tail))
                yield from map(decode_candidate, found)
                first += size

    def longest_hosts(self, limit: int) -> list[HostWork]:
        active = self._scheduler.active
        return self._longest.longest(
            limit,
            self._batch.peek,
            lambda host: (held := active.get(host)) is not None and held.leased,
        )

    def sampled_paces(self) -> list[Pace]:
        return self._longest.sampled_paces()

    def judge_again(self) -> None:
        self._refusals.judge_again()

    def sweep(
        self,
        hosts: Iterable[HostKey] | None,
        may_concern: Callable[[HostKey], bool],
        fate: Callable[[Candidate], Fate],
        now: Callable[[], float],
    ) -> Iterator[int]:
        """Decide about all URLs that wait, as `Sweep.run`. Raises as `commit`."""
        self.admit_arrived(now())
        self.commit()  # the records of new hosts, which are found by a scan
        for touched in self._sweep.run(hosts, may_concern, fate, now):
            self._refusals.end_call()
            self._end_call(now())
            yield touched
        self.budgets.look_again()

    def forget_kept(
        self, is_meant: Callable[[str], bool], now: Callable[[], float]
    ) -> Iterator[int]:
        """Forget what is kept of URLs that do not wait, as `Sweep.forget_kept`."""
        for touched in self._sweep.forget_kept(is_meant):
            self._end_call(now())
            yield touched

    def end_rests(self, rests: Mapping[HostKey, float], now: float) -> None:
        for host, until in rests.items():
            if not self._borrowed.is_lent(host):
                self._scheduler.end_rest(host, until, now)
        self._end_call(now)

    def note_known(self, host: HostKey, now: float) -> None:
        """Note that the addresses of *host* were looked up."""
        if self.groups.note_known(host):
            self._scheduler.call(host, now, now)
            self._end_call(now)

    def use_of(self, address: str) -> AddressUse:
        """Return what is done with *address* now."""
        return self.groups.use_of(address, self.clock)

    def note_usable(self, address: str, now: float) -> None:
        """Note that hosts of *address* may be leased now, as far as other processes are
        concerned."""
        group = self.groups.get(address)
        if group is not None:
            self._scheduler.call_next(group, now)
            self._end_call(now)

    def may_begin(self, lease: Lease) -> bool:
        """Return as port.Frontier.may_begin. Then the lease is on disk: if the process dies during
        the fetch, the next one must not contact the host too early."""
        try:
            self.commit()
        except StoreUnavailable:
            return False
        return lease.id in self._open

    def is_over(self) -> bool:
        """Return as port.Frontier.is_over. This reads the queues, not the counters, because with a
        wrong counter a crawl would end early or never."""
        is_pending = self._refusals.is_pending or self._open or self.undecided()
        is_pending = is_pending or self.budgets.next_at is not None or self._rounds.are_held()
        return not (is_pending or self._scheduler.has_hosts() or self._later.next_at is not None)

    def is_dry(self, now: float) -> bool:
        """Return whether nothing may be leased, and nothing will be before a date comes."""
        return not (self._open or self.waits(now))

    def waits(self, now: float) -> bool:
        """Return whether anything may be leased, or will be though no date comes."""
        if self._refusals.is_pending or self.undecided() or self._rounds.is_looking:
            return True
        times = (self._later.next_at, self.budgets.next_at)
        is_due = any(at is not None and at <= now for at in times)
        return is_due or self.budgets.may_be_idle or self._scheduler.has_hosts()

    def end_dry_round(self, now: float) -> bool:
        if not self._rounds.are_any or not self.is_dry(now):
            return False
        has_ended = self._rounds.end_dry(now, waits=self.has_dates)
        self._end_call(now)
        return has_ended

    @property
    def rounds(self) -> Rounds:
        """Its rounds, for what leads them where several workers are in one."""
        return self._rounds

    @property
    def has_dates(self) -> bool:
        """Whether anything that is left may be leased at a date, in whichever round."""
        return self._later.next_at is not None or self.budgets.next_at is not None

    @property
    def has_leases(self) -> bool:
        """Whether any lease is open."""
        return bool(self._open)

    @property
    def round_number(self) -> int:
        """Which round it is; 0: this run has none."""
        return self._rounds.number

    def round_progress(self) -> RoundProgress | None:
        return self._rounds.progress()

    def hosts_left(self) -> Iterator[tuple[HostKey, float] | None]:
        """Yield the hosts that have waiting URLs, each with the end of its rest, and None for
        anything else that is left, but for what is leased. It reads the disk, some 5 us a host."""
        later = self._later.next_at is not None
        spilled = self.budgets.next_at is not None or self._rounds.are_held()
        if self._refusals.is_pending or self.undecided() or later or spilled:
            yield None
        yield from self._scheduler.hosts_left()

    def is_congested(self) -> bool:
        """Return whether so many URLs wait for a merge or a search that these have to catch up
        first."""
        return (
            len(self._seen.new_keys) >= 2 * self._limits.max_new_keys
            or len(self._admitter.undecided) >= 2 * self._limits.max_undecided
        )

    async def wait_until_durable(self) -> None:
        self.commit()

    def _take_of_next(
        self,
        now: float,
        limit: int,
        standings: Sequence[Standing],
        take: Callable[[ActiveHost], list[_Taken]],
        room: LendingRoom,
    ) -> list[_Taken]:
        self._refusals.begin_call()
        self._move_due(now)
        if self._are_arrived_due(now):
            self._admit_some(now)
        found: list[_Taken] = []
        hosts, without, idle = 0, 0, _MOST_IDLE
        if self._rounds.look_at <= now:
            self._rounds.look(now, is_idle=not self._open)
        while hosts < limit and self._rounds.left > 0 and room.left_bytes > 0:
            active = self._scheduler.next_due(now, standings)
            if active is not None:
                taken = take(active)
                found += taken
                hosts += bool(taken)
                without += not taken
                if without == _MOST_WITHOUT:
                    break
            elif _ANSWERS not in standings:
                break
            elif not self._admit_some(now):
                idle -= 1
                if idle < 0 or not self._release_idle(limit - hosts, standings, now):
                    break
        return found

    def _release_idle(self, hosts: int, standings: Sequence[Standing], now: float) -> bool:
        """Admit spilled URLs for up to *hosts* of which nothing waits, if nothing else may be
        leased. Returns whether there were any."""
        if self._refusals.is_exhausted or not self.budgets.may_be_idle:
            return False
        others_at = self._scheduler.wake_at(standings)
        if others_at is not None and others_at <= now:
            return False  # this call has looked at as many hosts as it may
        taken = self.budgets.take_idle(hosts, lambda host: not self._batch.peek(host).waiting())
        self._admit_spilled(taken, now, binds=False)
        return bool(taken)

    def _admit_spilled(
        self, taken: list[tuple[str, list[Candidate]]], now: float, *, binds: bool
    ) -> None:
        for domain, urls in taken:
            admitted, added = self._admitter.admit_spilled(urls, now, binds=binds)
            self._queue(admitted, now)
            over = Counter[str]()
            for each in added.kept_out:
                over[each.unit] += each.links
            lent = None if binds else len({host for host, _ in admitted})
            settled = added.new + added.seen
            self.budgets.note_released(domain, settled, over, now, lent=lent)
            if self._on_decided is not None and settled:
                self._on_decided(Added(new=added.new, released=added.new))

    def _are_arrived_due(self, now: float) -> bool:
        due_at = self._arrived.due_at
        return due_at is not None and due_at <= now

    def _take(self, active: ActiveHost, now: float, per_host: PerHost) -> list[Lease]:
        record = self._batch.host(active.host)
        urls = min(max(per_host(active.host, record.pace), 1), len(active.head))
        if self._rounds.are_any:
            urls = self._rounds.take(active.host, record, urls, now, active.head[0])
            if not urls:
                self._scheduler.end_turn(active.host, now)
                return []
        shard = self._batch.shards.of(active.host)
        leases: list[Lease] = []
        under_lease = self._leased_keys() if self.table.is_used else None
        while active.head and len(leases) < urls:
            packed = active.head.popleft()
            self._queues.drop_head(active.host, record, active.level)
            candidate = decode_candidate(packed)
            if under_lease is not None:
                listed = self.table.take_from_queue(candidate, under_lease)
                if listed is None:
                    self._batch.count(shard, _WAITING, UrlEvent.FORGET)
                    continue
                candidate = listed
                under_lease.add(candidate.key)
            number = self._batch.next_number(shard)
            address = self.groups.take(active.host, record, now) if self.groups.are_any else None
            conditional = record.visits.conditional
            lease = Lease(
                *(number, candidate, record.pace, now, address, conditional),
                round=self._rounds.number,
            )
            opened = encode_open(packed, now, is_bundled=urls > 1)
            self._batch.put(keys.numbered(keys.OPEN, lease.id), opened)
            self._batch.count(shard, _WAITING, _LEASE)
            self._open[lease.id] = OpenLease(lease, active, urls > 1)
            leases.append(lease)
        active.unreleased = len(leases)
        if self._rounds.are_any and len(leases) < urls:
            self._rounds.give_back(active.host, urls - len(leases))
        if not leases:  # all were stale
            self._scheduler.on_fetch_ended(active, now)
        return leases

    def _rehearse(
        self, active: ActiveHost, now: float, rest_s: Callable[[Pace], float]
    ) -> list[Candidate]:
        host = active.host
        record = self._batch.host(host)
        if self._rounds.are_any and not self._rounds.take(host, record, 1, now, active.head[0]):
            self._scheduler.end_turn(host, now)
            return []
        found = decode_candidate(active.head.popleft())
        self._queues.drop_head(host, record, active.level)
        if self.table.is_used and self.table.take_from_queue(found, set()) is None:
            self._batch.count(self._batch.shards.of(host), _WAITING, UrlEvent.FORGET)
            if self._rounds.are_any:
                self._rounds.give_back(host, 1)
            self._scheduler.on_fetch_ended(active, now)
            return []
        record.rest_until = now + min(rest_s(record.pace), self._limits.max_rest_s)
        self._scheduler.on_fetch_ended(active, now)
        if self._batch.totals.spilled:
            self._note_returned(found.domain, record)
        self._refusals.begin_call()
        return [found]

    def _leased_keys(self) -> set[int]:
        return {held.lease.candidate.key for held in self._open.values()}

    def _release(self, held: OpenLease, rest: Rest, now: float) -> None:
        held.released = True
        record = self._batch.host(held.active.host)
        until = now + min(max(rest.seconds, 0.0), self._limits.max_rest_s)
        until = max(until, held.active.rest_until)
        record.rest_until = max(until, record.rest_until) if held.is_bundled else until
        record.pace = rest.pace
        if rest.asked_s is not None:
            record.note_trouble(rest.asked_s, now)
        for fetch in rest.fetches:
            record.tally = record.tally.with_fetch(fetch, now)
        if held.is_bundled:
            lease = held.lease
            released = OpenRecord(lease.candidate, lease.taken_at)
            self._batch.put(keys.numbered(keys.OPEN, lease.id), encode(released))
        if rest.address:
            record.address = rest.address
        if held.lease.address:
            if rest.pace.standing is Standing.FAILS:
                self.groups.turn_to_next(held.active.host, record)
            seconds = rest.seconds if rest.address_s is None else rest.address_s
            self._release_address(held.lease, seconds, now)
        held.active.unreleased -= 1
        if not held.active.leased:
            self._longest.note(held.active.host, record)
            self._scheduler.on_fetch_ended(held.active, now)
            if self._batch.totals.spilled:
                self._note_returned(held.lease.candidate.domain, record)

    def _note_returned(self, domain: str, record: HostRecord) -> None:
        """Note that a fetch of *domain* has ended, from the host with *record*."""
        self.budgets.note_returned(domain)
        if not record.waiting():
            self.budgets.note_dry(domain)

    def _release_address(self, lease: Lease, rest_s: float, now: float) -> None:
        if lease.address:
            rest_s = min(max(rest_s, 0.0), self._limits.max_rest_s)
            group = self.groups.release(lease.address, lease.candidate.host, rest_s, now)
            self._scheduler.call_next(group, now)

    def _apply_verdict(self, lease: Lease, verdict: Verdict, now: float) -> None:
        candidate = lease.candidate
        shard = self._batch.shards.of(candidate.host)
        count = partial(self._batch.count, shard)
        match verdict:
            case Done(claim, again, gone):
                count(_LEASED, _FINISH)
                self._write_claim(claim, lease.id)
                if again is None and self.table.is_used:
                    self.table.set_place(candidate, IN_QUEUE, NEVER)
                if again is not None:
                    count(UrlState.DONE, UrlEvent.REVISIT)
                    self._visit_again(candidate, again, now)
                elif gone is not None:
                    self._keep_gone(candidate, gone, now)
            case RetryAt(when, is_counted, history):
                count(UrlState.LEASED, UrlEvent.POSTPONE)
                attempts, history = candidate.attempts + is_counted, history or candidate.history
                later = replace(candidate, not_before=when, attempts=attempts, history=history)
                self._enqueue(later, now)
            case Moved(target, claim, gone):
                count(_LEASED, _FINISH)
                self._write_claim(claim, lease.id)
                if self.table.is_used:
                    self.table.set_place(candidate, IN_QUEUE, NEVER)
                if gone is not None:
                    self._keep_gone(candidate, gone, now)
                # A key of the same redirect chain (after a cookie, or without tracking parameters)
                # is not a new URL.
                own = target.key in {candidate.key, *candidate.chain}
                if own or self._admitter.admit_one(target, now):
                    if own:
                        self.table.put_in_queue([target])
                    else:
                        self.table.add([target], now)
                    to = self._batch.shards.of(target.host)
                    self._batch.count(to, UrlState.UNKNOWN, UrlEvent.ADD)
                    self._scheduler.put_back(target)
            case Dead(reason):
                count(UrlState.LEASED, UrlEvent.GIVE_UP)
                if self.table.is_used:
                    self.table.set_place(candidate, GIVEN_UP)
                self._batch.keep_letter(DeadLetter(candidate, reason, now))
            case PutBack(is_first, was_asked):
                count(UrlState.LEASED, UrlEvent.PUT_BACK)
                if not was_asked:
                    self._rounds.note_put_back(lease)
                if is_first:
                    self._scheduler.put_back(candidate)
                else:
                    self._append((candidate.host, candidate.level), [candidate])

    def _visit_again(self, candidate: Candidate, again: Again, now: float) -> None:
        record = self._batch.host(candidate.host)
        if again.check:
            said = noted(record.visits.conditional, again.check)
            record.visits = replace(record.visits, conditional=said)
        page = replace(
            candidate,
            level=len(record.queue_ends) - 1,
            not_before=again.at or 0,
            attempts=0,
            chain=(),
            may_be_archived=False,
            chosen=False,
            history=self._later.learned(candidate, again, record),
        )
        if again.at is None:
            self._later.put_again(page)
            if self.table.is_used:
                self.table.set_place(page, BY_WORTH)
        else:
            self._enqueue(page, now)

    def _keep_gone(self, candidate: Candidate, history: PageHistory, now: float) -> None:
        page = replace(candidate, history=history, not_before=0, attempts=0, chain=())
        self._gone.put(page, now)

    def _write_claim(self, claim: Claim | None, lease_id: int) -> None:
        if claim is not None:
            for key, value in claim_changes(self._batch.get, claim, lease_id).items():
                self._batch.put(key, value)

    def _enqueue(self, candidate: Candidate, now: float) -> None:
        """Queue *candidate*, which is counted as LATER, unless its date is in the future."""
        if candidate.not_before > now:
            place = self._later.put(candidate)
            if self.table.is_used:
                self.table.set_place(candidate, place)
        else:
            self.table.put_in_queue([candidate])
            shard = self._batch.shards.of(candidate.host)
            self._batch.count(shard, UrlState.LATER, UrlEvent.COME_DUE)
            self._append((candidate.host, candidate.level), [candidate])

    def _admit_some(self, now: float) -> bool:
        """Admit those that are new of some URLs added before. Returns whether there were any."""
        if self._arrived.due_at is None:
            return False
        arrived = self._arrived.take()
        admitted, added = self._admitter.admit_by_key(arrived, now)
        self._queue(admitted, now)
        if self._on_decided is not None:
            self._on_decided(replace(added, undecided=0))
        if len(arrived) > _LARGE:
            with suppress(StoreUnavailable):  # the next commit raises it again
                self.commit()
        return True

    def _queue(self, admitted: Admitted, now: float) -> None:
        """Put the *admitted* URLs where they wait."""
        count = self._batch.count
        queued: dict[bytes, int] = {}
        for queue, urls in admitted.items():
            shard = self._batch.shards.of(queue[0])
            if self.table.is_used:
                self.table.add(urls, now)
            pages = [
                each for each in urls if each.purpose is not _ROBOTS and each.not_before <= now
            ]
            if pages:
                self._append(queue, pages)
            due = len(pages)
            if due < len(urls):
                for each in urls:
                    if each.not_before > now:
                        self._later.put(each)
                        count(shard, UrlState.UNKNOWN, UrlEvent.ADD_FOR_LATER)
                    elif each.purpose is _ROBOTS:  # a robots.txt: another host waits for it
                        self._rounds.ask_for_robots(each.host)
                        self._scheduler.put_back(each)
                        due += 1
            if due:
                queued[shard] = queued.get(shard, 0) + due
        for shard, number in queued.items():
            count(shard, UrlState.UNKNOWN, UrlEvent.ADD, number)

    def _append(self, queue: QueueName, urls: Sequence[Candidate]) -> None:
        record = self._batch.host(queue[0])
        cash = urls[0].cash if len(urls) == 1 else max([each.cash for each in urls])
        if better := self._scheduler.put_better(queue, urls, cash):
            urls = [each for each in urls if each not in better]
            cash = max([each.cash for each in urls], default=NO_CASH)
        if urls:
            self._queues.append(record, queue, urls)
            self._scheduler.on_url_added(*queue, record, cash=cash)
        self._longest.note(queue[0], record)

    def _end_call(self, now: float) -> None:
        totals = self._batch.totals
        totals.clock = max(totals.clock, now)
        if self._background is None:
            self.commit()
            self._do_work(now)
        elif not self._is_commit_due and (
            self._arrived.unwritten
            or self.budgets.are_changed
            or self.table.is_changed
            or not self._batch.is_empty
        ):
            self._is_commit_due = True
            self._background.commit_soon()

    def set_rest(self, host: HostKey, until: float, now: float) -> None:
        """Let *host* rest until that time, also if it rests longer now, if it is not leased. A
        borrowed turn is not cut short."""
        self._scheduler.set_rest(host, max(until, self._borrowed.rests_until(host)), now)
        self._end_call(now)

    def commit(self) -> None:
        """Write the changes of all calls before it. Raises StoreFull, after which the next commit
        writes them; raises StoreUnavailable, from then on always: memory may be ahead of the
        disk."""
        self._is_commit_due = False
        self._arrived.stage()
        self.table.stage()
        self._commit_step()
        if self._background is not None and (
            self._is_merge_due() or self._is_search_due(self.clock)
        ):
            self._background.work_soon()

    def admit_arrived(self, now: float) -> None:
        """Admit the URLs added before that are new: at the latest before the frontier is closed, so
        that its counters are right."""
        while self._admit_some(now):
            pass

    def decide_arrived(self, now: float) -> Iterator[None]:
        """Admit, in steps between which other calls may be made, the URLs added before that are
        new, those too that would be undecided. It reads the disk."""
        while self._admit_some(now):
            yield
        left = len(self._admitter.undecided)
        while left > 0 and self._admitter.undecided:
            search = self._admitter.begin_search(min(left, _DECIDED), now)
            search.run()
            left -= len(search.keys)
            for _ in self._admit_searched(search, now):
                yield

    def close(self) -> None:
        """Close the store. What was not committed is lost, as if the process had died."""
        self._store.close()

    def next_work(self, now: float) -> Work | None:
        """Return the next background work, or None. Call it again when that is done."""
        if self._is_merge_due():
            return self._begin_merge()
        if self._is_search_due(now):
            self._is_starved = False
            return self._begin_search(now)
        return self._begin_gate_piece()

    def _is_merge_due(self) -> bool:
        return len(self._seen.new_keys) >= self._limits.max_new_keys or self._seen.is_import_due

    def _is_search_due(self, now: float) -> bool:
        undecided, limits = len(self._admitter.undecided), self._limits
        return bool(undecided) and (
            self._is_starved
            or undecided >= limits.max_undecided
            or now - self._admitter.undecided_since >= limits.max_undecided_s
        )

    def _do_work(self, now: float) -> None:
        while (work := self.next_work(now)) is not None:
            work.run()
            for _ in work.apply(now):
                self._commit_step()

    def _commit_step(self) -> None:
        """Write the changes of a step of the background work."""
        self.budgets.stage()
        self.table.stage()
        self._rounds.stage()
        self._batch.commit()

    def _begin_merge(self) -> Work:
        """Write the keys of new URLs into a run of the seen set."""
        merge = self._seen.begin_merge()

        def apply(_: float) -> Iterator[None]:
            yield from merge.apply()

        return Work(merge.run, apply)

    def _begin_search(self, now: float) -> Work:
        """Search the runs of the seen set for the undecided URLs, and admit those that are new."""
        search = self._admitter.begin_search(self._limits.max_undecided, now)

        return Work(search.run, partial(self._admit_searched, search))

    def _admit_searched(self, search: Search, now: float) -> Iterator[None]:
        for admitted, added in self._admitter.decide(search, now):
            self._queue(admitted, now)
            if self._on_decided is not None:
                self._on_decided(added)
            yield

    def _begin_gate_piece(self) -> Work | None:
        piece = self._seen.begin_gate_piece()
        if piece is None:
            return None

        def apply(_: float) -> Iterator[None]:
            piece.apply()
            yield

        return Work(piece.run, apply)

    def _move_due(self, now: float) -> None:
        self._borrowed.end_overdue(now)
        self._scheduler.move_due(now)
        self._admit_spilled(self.budgets.take_due(now), now, binds=True)
        for key, candidate in self._later.take_due(now, self._limits.due_slice):
            shard = keys.shard_in(key)
            if self.table.is_used and not self.table.take_from_later(key, candidate):
                self._batch.count(shard, UrlState.LATER, UrlEvent.FORGET)
                continue
            self._batch.count(shard, UrlState.LATER, UrlEvent.COME_DUE)
            level = candidate.level
            if candidate.history is not None:
                level = len(self._batch.peek(candidate.host).queue_ends) - 1
            due = replace(candidate, not_before=0.0, level=level)
            self._append((due.host, level), [due])
        self._refusals.readmit_some(self._append)
