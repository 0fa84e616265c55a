"""The frontier of a worker that owns shards: one two-tier frontier over all of them, whose writes
are mirrored. Links for other shards go to their inboxes.

Rule: what the crawl calls uses only memory and this worker's disk. A lease is given away when Redis
has it, and a verdict is noted when Redis has the links of its page, in whatever shards they are, or
the outbox has them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count, groupby, islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from crawler.frontier.budgets import Votes
from crawler.frontier.lending import Lending, LentUrl
from crawler.frontier.open import open_frontier
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
from crawler.frontier.records import SHARD_BYTES
from crawler.frontier.shards import Shards
from crawler.frontier.two_tier import Background
from crawler.model.counts import Counts
from crawler.model.types import (
    STANDINGS,
    Added,
    BorrowedTurn,
    Candidate,
    CrawlerError,
    Done,
    HostKey,
    HostWork,
    Lease,
    LinkSource,
    Moved,
    NotItsTurn,
    NoTurn,
    Pace,
    Purpose,
    PutBack,
    Rest,
    Standing,
    StoreFull,
    StoreUnavailable,
    Verdict,
    WaitsForRoom,
)
from crawler.policy.robots_cache import RobotsFetchResult
from crawler.policy.rounds import RoundProgress
from crawler.shared.client import Nodes
from crawler.shared.codec import pack_vote, unpack_vote
from crawler.shared.keys import URGENT_LEVEL
from crawler.shared.owned.inbox import InboxEntry, NotedLinks
from crawler.shared.owned.mirror import Mirror, MirroredStore, all_changes
from crawler.shared.owned.owner import Arrived, OwnedShard, ShardSender
from crawler.shared.owned.robots_results import is_result, pack_result, unpack_result
from crawler.shared.owned.scripts import ClaimedShard, ShardCommands
from crawler.shared.owned.takeover import NotedRest, ShardLoader, load, take_in
from crawler.shared.owned.turns import (
    BORROW_S,
    TurnAnswer,
    TurnEnd,
    TurnQuestion,
    TurnsOfOthers,
    TurnTrouble,
    pack_message,
    unpack_message,
)

_QUIET_LOOK_S: Final = 0.1  # between two looks whether a shard may be leased
_LEASE_LOOK_S: Final = 0.5  # between two looks whether a lease may be given away
_ROOM_LOOK_S: Final = 0.5  # between two looks whether the disk has room
_FINISH_LOOK_S: Final = 0.01  # between two looks whether verdicts wait
_SILENT_REST_S: Final = 5.0  # until a host is tried again whose server did not answer
_LINKS_LOOK_S: Final = 1.0  # between two looks whether links have to wait in the outbox


@dataclass(slots=True)
class _OwnLinks:
    """Links that were added to a shard of this worker, until Redis has them."""

    shard: OwnedShard
    links: Sequence[Candidate]
    position: int | None = None  # of its mirror; None: not committed yet
    is_pushed: bool = False  # to its inbox, because Redis may not get them by its mirror

    def is_safe(self) -> bool:
        """Return whether Redis has them by the mirror, or they were pushed."""
        is_acked = self.position is not None and self.shard.acked >= self.position
        return self.is_pushed or is_acked


@dataclass(frozen=True, slots=True)
class _Finish:
    """A verdict that waits until Redis has the links of its page."""

    lease: Lease
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedHooks:
    """What an OwnedFrontier needs of its worker."""

    free_slots: Callable[[Standing], int]  # how many fetches of such hosts may begin
    wake: Callable[[], None]  # lets the engine ask for leases
    on_failed: Callable[[CrawlerError], None]
    """Called with an error of a background task that waiting does not repair."""
    waits_for_room: WaitsForRoom  # called with the error of a full disk
    is_full: Callable[[int], bool]
    """Whether the server of a shard takes no links now: then they wait in the outbox."""
    on_taken_in: Callable[[], None]  # called when a shard has come
    on_lost: Callable[[Sequence[Lease]], None]  # called with leases whose shard is held no more
    on_pushed: Callable[[Sequence[str], Added], None]
    """Called with URLs that were pushed from outside and seen before, and what became of others."""
    on_robots: Callable[[str, RobotsFetchResult], None]
    """Called with an authority, and what another worker has fetched for its robots.txt."""


class OwnedFrontier:
    """Implements handover.ShardFrontier, and frontier.port.Frontier but for `is_over`: that is for
    all workers to decide together (readings.is_over)."""

    def __init__(
        self,
        folder: Path,
        store: DurableStore,
        nodes: Nodes,
        limits: FrontierLimits,
        *,
        shards: int,
        now: Callable[[], float],
        steady: Callable[[], float],
        background: Background,
        hooks: OwnedHooks,
        rests: Mapping[HostKey, NotedRest],
        settle_s: float = 0.0,
        lease_rules: LeaseRules | None = None,
        addresses: HostAddresses | None = None,
        address_leases: AddressLeases | None = None,
        on_decided: Callable[[Added], None] | None = None,
    ) -> None:
        """*store*, in *folder*, is empty. *now*: epoch seconds. *rests*: of hosts, that a dead
        process of this worker had noted. *settle_s*: for how long servers
        may lose what they acknowledged, if there are several. *on_decided* is called with what
        became of links that were added here or found in an inbox."""
        self._nodes = nodes
        self._limits = limits
        self._local = store
        self._mirrored = MirroredStore(store)
        self._shards = Shards(shards)
        self._now, self._steady = now, steady
        self._hooks = hooks
        self._rests = rests
        self._on_decided = on_decided
        self._settle_s = settle_s
        self.frontier = open_frontier(
            *(folder, limits, now()),
            lease_rules=lease_rules,
            on_decided=on_decided,
            background=background,
            store=self._mirrored,
            shards=self._shards,
            addresses=addresses,
            address_leases=address_leases,
        )
        self._address_leases = address_leases
        self._in_turn: set[int] = set()
        """Leases whose address this worker had then; others had waited for as long as they may."""
        self._loaded: dict[bytes, OwnedShard] = {}
        self._taken_in: dict[bytes, OwnedShard] = {}  # of these, and not stopped or closed
        self._coming: dict[bytes, asyncio.Task[None]] = {}  # loaded, and not taken in
        self._stopped: set[bytes] = set()  # to be handed over: no links are added to them
        self._arrived: list[Arrived] = []  # for shards that are not taken in
        self._undeleted: list[Arrived] = []  # added, and not committed yet
        self._ahead: dict[Standing, list[Lease]] = {each: [] for each in STANDINGS}
        """Leases that were taken ahead of need, the oldest first."""
        self._own_links: deque[_OwnLinks] = deque()
        self._finishes: list[_Finish] = []
        self._is_finishing = False
        self._sender: ShardSender | None = None
        self._finish_soon = asyncio.Event()
        self._unacked: list[tuple[OwnedShard, int]] = []  # positions with leases taken ahead
        self._has_unacked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._turns = TurnsOfOthers(secrets.token_hex(8), lambda link: self._push([link]))
        self._answers: set[asyncio.Task[None]] = set()  # to other workers

    @property
    def records(self) -> OrderedStore:
        """The store as it will be after the next commit."""
        return self.frontier.records

    def begin(self, sender: ShardSender) -> None:
        """Begin to give leases away and to apply verdicts that wait. The event loop runs."""
        self._sender = sender
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(each) for each in (self._follow_leases(), self._finish())]

    async def close_all(self) -> None:
        """End the tasks. The store stays open."""
        tasks = {*self._coming.values(), *self._tasks, *self._answers}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # The port

    def add(
        self,
        found: Iterable[Candidate],
        now: float,
        *,
        at_once: bool = False,
        source: LinkSource | None = None,
    ) -> Added:
        found = list(found)
        own: list[Candidate] = []
        others: list[Candidate] = []
        for shard, links in self._shards.divide(found).items():
            owner = self._taken_in.get(shard)
            if owner is None or not owner.takes_links:
                others += links
            elif self._hooks.is_full(owner.commands.shard):
                others += [each for each in links if each.purpose is not Purpose.ROBOTS]
                own += [each for each in links if each.purpose is Purpose.ROBOTS]
            else:
                own += links
                self._own_links.append(_OwnLinks(owner, links))
        added = self.frontier.add(own, now, at_once=at_once) if own else Added()
        undecided = added.undecided + len(others)
        if source is not None:
            others += self._vote(source, found, now)
        if others:
            self._push(others)
        return replace(added, undecided=undecided)

    def _vote(
        self, source: LinkSource, found: Sequence[Candidate], now: float
    ) -> Iterator[Candidate]:
        """Count which domains the page *source* links to. Yields what is for other workers."""
        voter, domains = self.frontier.votes(source, [each.domain for each in found])
        own = [domain for domain in domains if self.owns(HostKey(domain))]
        self.frontier.count_votes(Votes(voter, own), now)
        yield from (pack_vote(voter, domain) for domain in domains if domain not in own)

    def owns(self, host: HostKey) -> bool:
        """Return whether the URLs of *host* are leased here."""
        return self._shards.of(host) in self._taken_in

    def send_robots(self, authority: str, result: RobotsFetchResult) -> None:
        """Send what was fetched for the robots.txt of *authority* to the owner of its shard."""
        self._push([pack_result(authority, result)])

    def lease(
        self,
        now: float,
        limit: int = 1,
        standings: Sequence[Standing] = STANDINGS,
        per_host: PerHost = one,
        host: HostKey | None = None,
    ) -> list[Lease]:
        self._take_ahead(now, standings, per_host, host)
        waiting = (lease for standing in standings for lease in self._ahead[standing])
        if host is not None:
            waiting = (lease for lease in waiting if lease.candidate.host == host)
        by_host = groupby(filter(self._is_acked, waiting), lambda lease: lease.candidate.host)
        ready = [lease for _, leases in islice(by_host, limit) for lease in leases]
        for lease in ready:
            self._ahead[lease.pace.standing].remove(lease)
        return ready

    async def lend(
        self,
        now: float,
        limit: int,
        lending: Lending,
        standings: Sequence[Standing] = STANDINGS,
        host: HostKey | None = None,
    ) -> list[LentUrl]:
        """Lend URLs of the shards that are here, and return those of which Redis has that: whoever
        owns their shards from then on keeps it. One that is not returned, as its shard was lost
        meanwhile or half of the time is over, comes back by itself. Raises StoreUnavailable."""
        lent = self.frontier.lend(now, limit, lending, standings, host)
        if not lent or not self.commit():
            return []
        owners = {each.host: self._loaded[self._shards.of(each.host)] for each in lent}
        noted = {owner: owner.mirror.position for owner in owners.values()}
        await self.wait_until_durable()
        if self._now() - now > (lending.until - now) / 2:
            return []
        return [each for each in lent if (owner := owners[each.host]).acked >= noted[owner]]

    def update(self, found: Iterable[Candidate], now: float) -> int:
        refused = 0
        others: list[Candidate] = []
        for shard, pages in self._shards.divide(found).items():
            if shard in self._taken_in:
                refused += self.frontier.update(pages, now)
            else:
                others += [replace(each, purpose=Purpose.UPDATE) for each in pages]
        if others:
            self._push(others)
        return refused

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        self._in_turn.discard(lease.id)
        self._note_address_rest(lease, rest)
        return self.frontier.release(lease, rest, now)

    async def borrow(self, host: HostKey, now: float, until: float) -> BorrowedTurn | NotItsTurn:
        owner = self.owner_of(host)
        if owner is not None:
            return await self._borrow_of(owner, host, now, until)
        reply_to = self._name_in_own_shard()
        if reply_to is None:
            return NotItsTurn(host, NoTurn.ELSEWHERE)
        return await self._turns.borrow(host, until, reply_to)

    def _name_in_own_shard(self) -> HostKey | None:
        if not self._taken_in:
            return None
        names = (HostKey(f"turns-{number}.invalid") for number in count())
        return next(name for name in names if self.owns(name))

    async def _answer(self, asked: TurnQuestion) -> None:
        """Answer another worker, unless nothing waits for that any more."""
        owner, now = self.owner_of(asked.host), self._now()
        if owner is None or now >= asked.until:
            return
        found = await self._borrow_of(owner, asked.host, now, asked.until)
        answer = TurnAnswer(asked.asker, asked.number)
        if isinstance(found, BorrowedTurn):
            answer = replace(answer, turn=found)
        else:
            answer = replace(answer, refusal=found)
        self._push([pack_message(asked.reply_to, answer)])

    def _on_turn_message(self, link: Candidate) -> None:
        match unpack_message(link):
            case TurnQuestion() as asked:
                task = asyncio.get_running_loop().create_task(self._answer(asked))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)
            case TurnAnswer() as answer:
                if (late := self._turns.on_answer(answer)) is not None:
                    self._end_turn_of_other(late, Rest(0.0, late.pace, address_s=0.0))
            case TurnTrouble(turn, rest):
                self.note_trouble(turn, rest, self._now())
            case TurnEnd(turn, rest):
                self.give_back(turn, rest, self._now())

    def _end_turn_of_other(self, turn: BorrowedTurn, rest: Rest) -> None:
        self._push([pack_message(turn.host, TurnEnd(turn, rest))])

    async def _borrow_of(
        self, owner: OwnedShard, host: HostKey, now: float, until: float
    ) -> BorrowedTurn | NotItsTurn:
        """Borrow of a shard that is here: the turn begins when Redis has its rest."""
        assert self._sender is not None
        turn = self.frontier.borrow_here(host, now, until)
        if isinstance(turn, NotItsTurn):
            return turn
        position = owner.mirror.position
        with suppress(TimeoutError):
            async with asyncio.timeout(BORROW_S):
                await self._sender.wait_until(lambda: owner.acked >= position or not owner.is_owned)
        if owner.acked >= position and owner.is_certain(self._steady()):
            return turn
        self.frontier.give_back(turn, Rest(0.0, turn.pace, address_s=0.0), self._now())
        return NotItsTurn(host, NoTurn.ELSEWHERE)

    def give_back(self, turn: BorrowedTurn, rest: Rest, now: float) -> bool:
        if not self.owns(turn.host):
            self._end_turn_of_other(turn, rest)
            return True
        self._note_address_rest(turn, rest)
        return self.frontier.give_back(turn, rest, now)

    def note_trouble(self, lease: Lease | BorrowedTurn, rest: Rest, now: float) -> None:
        if isinstance(lease, BorrowedTurn) and not self.owns(lease.host):
            noted = self._push([pack_message(lease.host, TurnTrouble(lease, rest))])
            if self._sender is not None:
                self._sender.post_pushes(noted)
            return
        self.frontier.note_trouble(lease, rest, now)
        self._note_address_rest(lease, rest)
        owner = self._loaded.get(self._shard_of(lease))
        if owner is not None and self._sender is not None:
            self._sender.post(owner)

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        if isinstance(verdict, Moved):
            target, shard = verdict.candidate, self._shard_of(lease)
            if self._shards.of(target.host) != shard:
                return self._finish_after(target, lease, verdict, now)
        if self._has_unsafe_links():
            return self._finish_later(lease, verdict)
        return self.frontier.finish(lease, verdict, now)

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        waits = any(self._ahead[standing] for standing in standings)
        return None if waits else self.frontier.wake_at(standings)

    def counts(self) -> Counts:
        """Return the counters of this worker's shards."""
        return self.frontier.counts()

    def longest_hosts(self, limit: int) -> Sequence[HostWork]:
        return self.frontier.longest_hosts(limit)

    def sampled_paces(self) -> Sequence[Pace]:
        return self.frontier.sampled_paces()

    def judge_again(self) -> None:
        self.frontier.judge_again()

    def end_rests(self, rests: Mapping[HostKey, float], now: float) -> None:
        own = {host: at for host, at in rests.items() if self._shards.of(host) in self._taken_in}
        self.frontier.end_rests(own, now)

    def may_begin(self, lease: Lease) -> bool:
        if not (self.frontier.may_begin(lease) and self._is_acked(lease)):
            return False
        return lease.id not in self._in_turn or self._may_use(lease)

    def _note_address_rest(self, lease: Lease | BorrowedTurn, rest: Rest) -> None:
        if self._address_leases is not None and lease.address:
            rest_s = rest.seconds if rest.address_s is None else rest.address_s
            self._address_leases.note_rest(lease.address, rest_s)

    def _may_use(self, lease: Lease) -> bool:
        leases = self._address_leases
        return leases is None or not lease.address or leases.may_use(lease.address)

    def end_dry_round(self, now: float) -> bool:
        """Leave that to all workers together."""
        del now
        return False

    def round_progress(self) -> RoundProgress | None:
        return self.frontier.round_progress()

    def is_congested(self) -> bool:
        return self.frontier.is_congested()

    async def wait_until_durable(self) -> None:
        """Return when Redis has all calls before it, and no server loses them any more."""
        await self.wait_until_acknowledged()
        if self._settle_s:
            await asyncio.sleep(self._settle_s)

    async def wait_until_acknowledged(self) -> None:
        """Return when Redis has all calls before it. What was added to a shard that is lost
        meanwhile is sent to its inbox."""
        assert self._sender is not None
        while True:
            await self._commit_all()
            with suppress(StoreUnavailable):
                await self._sender.wait_until_durable()
                break
            await asyncio.sleep(0)  # the shard that is lost is closed, and its links are sent

    # What acts of operators ask for

    @property
    def is_taking_in(self) -> bool:
        """Whether shards have come of which nothing is leased yet."""
        return bool(self._coming)

    def taken_in(self) -> list[OwnedShard]:
        """Return the shards that URLs are leased of."""
        return list(self._taken_in.values())

    def owner_of(self, host: str) -> OwnedShard | None:
        """Return the shard of *host*, a host or registered domain, if URLs are leased of it."""
        return self._taken_in.get(self._shards.of(host))

    async def note_root_field(self, field: str, values: Mapping[OwnedShard, bytes]) -> None:
        """Write *values* of a field of the roots of those shards that are still here, after all
        that was done in them. Raises StoreUnavailable."""
        await self._commit_all()
        for shard in self.taken_in():
            if shard in values:
                shard.mirror.note_root_field(field, values[shard])

    async def finish_all(self) -> None:
        """Return when no verdict waits for links, or the disk has no room for them."""
        while self._finishes or self._is_finishing:
            await asyncio.sleep(_FINISH_LOOK_S)

    # What a shard's holder asks for

    async def load(
        self,
        commands: ShardCommands,
        claimed: ClaimedShard,
        claimed_at_s: float,
        on_noted: Callable[[], None],
    ) -> OwnedShard:
        shard = commands.shard.to_bytes(SHARD_BYTES)
        owner = OwnedShard(
            *(commands, claimed, claimed_at_s, Mirror(claimed.seq, on_noted)),
            contents=lambda: all_changes(self._local, shard),
        )
        loader = ShardLoader(*(owner, claimed, self._local, self._limits, self._now(), self._rests))
        try:
            await load(self._nodes, owner, loader, self._steady)
        except CrawlerError:
            await self._drop_records(shard, ())  # the next claim may load an earlier state
            raise
        self._loaded[shard] = owner
        self._coming[shard] = asyncio.get_running_loop().create_task(self._take_in(owner, loader))
        return owner

    def stop_leasing(self, shard: int) -> None:
        key = shard.to_bytes(SHARD_BYTES)
        self._stopped.add(key)
        self._taken_in.pop(key, None)
        self.frontier.stop(key, self._now())
        self._give_back([lease for lease in self._all_ahead() if self._shard_of(lease) == key])

    def give_back_unused(self) -> None:
        """Put the leases back that were taken ahead of need."""
        self._give_back(self._all_ahead())

    def _all_ahead(self) -> list[Lease]:
        return list(chain.from_iterable(self._ahead.values()))

    def _give_back(self, unused: Iterable[Lease], rest_s: float = 0.0) -> None:
        for lease in unused:
            self._ahead[lease.pace.standing].remove(lease)
            self._in_turn.discard(lease.id)
            rest = Rest(rest_s, lease.pace, "unused", address_s=0.0)
            self.frontier.release(lease, rest, self._now())
            self.frontier.finish(lease, PutBack(), self._now())

    def is_idle(self, shard: int) -> bool:
        return not self.frontier.leased_of(shard.to_bytes(SHARD_BYTES))

    def close(self, shard: int) -> None:
        key = shard.to_bytes(SHARD_BYTES)
        if (coming := self._coming.pop(key, None)) is not None:
            coming.cancel()
        owner = self._loaded[key]
        self._taken_in.pop(key, None)
        unused = {lease.id for lease in self._all_ahead()}
        held = self.frontier.close_shard(key, self._now())
        self._in_turn.difference_update([lease.id for lease in held])
        self.commit()
        self._mirrored.mirrors.pop(key, None)
        for standing, leases in self._ahead.items():
            self._ahead[standing] = [each for each in leases if self._shard_of(each) != key]
        lost = [each for each in self._own_links if each.shard is owner]
        self._own_links = deque(each for each in self._own_links if each.shard is not owner)
        for each in lost:
            self._push_own(each)
        if held := [lease for lease in held if lease.id not in unused]:
            self._hooks.on_lost(held)

    async def drop(self, shard: int) -> None:
        key = shard.to_bytes(SHARD_BYTES)
        owner = self._loaded.pop(key)
        self._stopped.discard(key)
        await self._drop_records(key, owner.recent_keys())

    async def _drop_records(self, shard: bytes, unknown: Sequence[int]) -> None:
        for _ in self.frontier.drop(shard, unknown, self._now()):
            await asyncio.sleep(0)

    def on_arrived(self, arrived: Arrived) -> None:
        """Add what was read of an inbox, and delete it there."""
        key = arrived.shard.commands.shard.to_bytes(SHARD_BYTES)
        if self._taken_in.get(key) is arrived.shard:
            for entry in arrived.entries:
                self._add_arrived(entry)
            self._undeleted.append(arrived)
            self.commit()
            self._hooks.wake()
        elif key in self._coming:
            self._arrived.append(arrived)

    def _add_arrived(self, entry: InboxEntry) -> None:
        now = self._now()
        for link in entry.links:
            if link.purpose is Purpose.TURN:
                self._on_turn_message(link)
            elif link.purpose is Purpose.VOTE:
                self.frontier.count_votes(unpack_vote(link), now)
        for link in filter(is_result, entry.links):
            with suppress(StoreUnavailable):  # it is fetched again, as its record asks for it
                if (result := unpack_result(link)) is not None:
                    self._hooks.on_robots(link.authority, result)
        updates = [each for each in entry.links if each.purpose is Purpose.UPDATE]
        if updates:
            self.frontier.update([replace(each, purpose=Purpose.PAGE) for each in updates], now)
        urgent = [
            each
            for each in entry.links
            if each.level == URGENT_LEVEL and each.purpose is not Purpose.UPDATE
        ]
        if urgent:
            self.frontier.add_first(urgent, now)
        usual = [
            each
            for each in entry.links
            if each.level != URGENT_LEVEL
            and each.purpose not in (Purpose.VOTE, Purpose.UPDATE, Purpose.TURN)
            and not is_result(each)
        ]
        if entry.are_pushed:
            seen = self.frontier.seen_of([each.key for each in usual])
            known = [each.url for each in usual if each.key in seen]
            usual = [each for each in usual if each.key not in seen]
            added = self.frontier.add(usual, now)
            self._hooks.on_pushed(known, replace(added, new=added.new + len(urgent)))
        else:
            added = self.frontier.add(usual, now)
        if self._on_decided is not None:
            self._on_decided(replace(added, undecided=0))

    async def _take_in(self, owner: OwnedShard, loader: ShardLoader) -> None:
        while not owner.may_lease(self._steady()):
            if not owner.is_owned:
                return
            await asyncio.sleep(_QUIET_LOOK_S)
        self._mirrored.mirrors[loader.key] = owner.mirror
        try:
            await take_in(self.frontier, loader, self._now)
        except CrawlerError as error:
            self._hooks.on_failed(error)
            return
        del self._coming[loader.key]
        self._hooks.on_taken_in()
        if loader.key not in self._stopped:
            self._taken_in[loader.key] = owner
        waiting, self._arrived = self._arrived, []
        for arrived in waiting:
            self.on_arrived(arrived)
        self._hooks.wake()

    def _push(self, links: Sequence[Candidate]) -> list[NotedLinks]:
        assert self._sender is not None
        return self._sender.push(links)

    def _finish_after(self, target: Candidate, lease: Lease, verdict: Moved, now: float) -> bool:
        """Apply *verdict* when Redis has its *target*, which is in another shard. A key of the same
        redirect chain is not a new URL."""
        if not self.frontier.holds(lease):
            return False
        is_own = target.key in {lease.candidate.key, *lease.candidate.chain}
        self.add([replace(target, needs_seen_test=not is_own)], now)
        return self._finish_later(lease, Done(verdict.claim, gone=verdict.gone))

    def _finish_later(self, lease: Lease, verdict: Verdict) -> bool:
        if not self.frontier.holds(lease):
            return False
        self._finishes.append(_Finish(lease, verdict))
        self._finish_soon.set()
        return True

    def _has_unsafe_links(self) -> bool:
        """Return whether links that were added may be lost with this process, or with the last
        second of one of several servers. Of these it is not known which they are."""
        assert self._sender is not None
        self._drop_safe_links()
        return bool(self._settle_s or self._own_links) or not self._sender.has_pushed()

    def _take_ahead(
        self,
        now: float,
        standings: Sequence[Standing],
        per_host: PerHost,
        host: HostKey | None,
    ) -> None:
        """Take as many leases as slots are free: they are acknowledged one round trip later."""
        self._give_back_of_silent()
        for standing in standings:
            wanted = self._hooks.free_slots(standing) - len(self._ahead[standing])
            if wanted > 0 and (
                taken := self.frontier.lease(now, wanted, (standing,), per_host, host)
            ):
                self._ahead[taken[0].pace.standing] += taken
                if self._address_leases is not None:
                    self._in_turn.update([each.id for each in taken if self._may_use(each)])
                self.commit()  # until then no mirror knows that they are not acknowledged
                owners = {self._loaded[self._shard_of(lease)] for lease in taken}
                self._unacked += [(owner, owner.mirror.position) for owner in owners]
                self._has_unacked.set()

    def _give_back_of_silent(self) -> None:
        """Put leases back that are not acknowledged because a server does not answer, while others
        do: their slots are for hosts of the others."""
        silent = {each for each in self._loaded.values() if each.fault is not None}
        if silent and len(silent) < len(self._loaded):
            held = [
                each for each in self._all_ahead() if self._loaded[self._shard_of(each)] in silent
            ]
            self._give_back([each for each in held if not self._is_acked(each)], _SILENT_REST_S)

    async def _follow_leases(self) -> None:
        """Wake the engine when leases that were taken ahead are acknowledged."""
        assert self._sender is not None

        def is_acked(position: tuple[OwnedShard, int]) -> bool:
            return position[0].acked >= position[1] or not position[0].is_owned

        while True:
            await self._has_unacked.wait()
            if self._unacked:
                await self._sender.wait_until(lambda: any(map(is_acked, self._unacked)))
            self._unacked = [each for each in self._unacked if not is_acked(each)]
            if not self._unacked:
                self._has_unacked.clear()
            self._hooks.wake()
            if not self._unacked and not all(map(self._is_acked, self._all_ahead())):
                # A shard is owned for too short a time yet. Nothing is called when that is renewed.
                asyncio.get_running_loop().call_later(_LEASE_LOOK_S, self._has_unacked.set)

    async def _finish(self) -> None:
        """Apply verdicts that wait for links."""
        while True:
            await self._finish_soon.wait()
            self._finish_soon.clear()
            self._is_finishing, finishes, self._finishes = True, self._finishes, []
            try:
                await self._wait_for_links()
            except CrawlerError as error:
                self._hooks.on_failed(error)
                return
            for each in finishes:
                self.frontier.finish(each.lease, each.verdict, self._now())
            self._is_finishing = False
            self._hooks.wake()

    async def _wait_for_links(self) -> None:
        """Return when all links that were noted by now are in Redis or in the outbox. Raises
        StoreUnavailable as `commit`."""
        assert self._sender is not None
        await self._commit_all()
        own = list(self._own_links)
        while not all(each.is_safe() for each in own):
            for each in own:
                if not each.is_safe() and self._hooks.is_full(each.shard.commands.shard):
                    self._push_own(each)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LINKS_LOOK_S):
                    await self._sender.wait_until(lambda: all(each.is_safe() for each in own))
        await self._sender.wait_until_pushed()
        await asyncio.sleep(self._settle_s)

    def _push_own(self, noted: _OwnLinks) -> None:
        """Send links to the inbox of their shard, if Redis does not have them by its mirror."""
        if not noted.is_safe():
            noted.is_pushed = True
            self._push(noted.links)

    async def _commit_all(self) -> None:
        """Commit, again and again while the disk is full. Raises StoreUnavailable."""
        while not self.commit():
            await asyncio.sleep(_ROOM_LOOK_S)

    def commit(self) -> bool:
        """Write all calls before it. Return False if the disk is full; then a later call writes
        them. Raises StoreUnavailable, also at the end of a crawl whose disk is full."""
        try:
            self.frontier.commit()
        except StoreFull as full:
            if not self._hooks.waits_for_room(full):
                raise
            return False
        for arrived in self._undeleted:
            arrived.shard.inbox.delete([entry.name for entry in arrived.entries])
        self._undeleted.clear()
        for each in self._own_links:
            if each.position is None:
                each.position = each.shard.mirror.position
        self._drop_safe_links()
        return True

    def _drop_safe_links(self) -> None:
        while self._own_links and self._own_links[0].is_safe():
            self._own_links.popleft()

    def _is_acked(self, lease: Lease) -> bool:
        owner = self._loaded.get(self._shard_of(lease))
        return owner is not None and owner.may_begin(lease.id, self._steady())

    def _shard_of(self, lease: Lease | BorrowedTurn) -> bytes:
        host = lease.host if isinstance(lease, BorrowedTurn) else lease.candidate.host
        return self._shards.of(host)
