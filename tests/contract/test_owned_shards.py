"""Random lives of owned shards: four shards of two workers, which send each other links by inboxes;
workers that are killed or stand still for longer than their leases, replies that are lost, and a
server that is full, or loses its last second or all it has. Judged from outside: by polite web
servers (when each host is contacted) and by an accountant (a tree of pages, each linked once, all
of which must be fetched). Each deliberate fault must be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pytest
import redis
from msgspec import structs

from crawler.frontier import records as keys
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import FrontierTurns
from crawler.frontier.run_files import Keys
from crawler.frontier.shards import Shards, shard_of
from crawler.frontier.staging import WriteBatch
from crawler.model.types import Again, Candidate, Done, HostKey, Lease, PageHistory
from crawler.shared.client import BlockingNodes
from crawler.shared.faults import ForeignData, Unreachable
from crawler.shared.keys import root
from crawler.shared.owned import inbox
from crawler.shared.owned.inbox import KEPT_S, VERDICT_DELAY_S, LinkPushes, ShardPushes
from crawler.shared.owned.mirror import Changes, Mirror
from crawler.shared.owned.owner import Arrived, OwnedShard, SendingRounds
from crawler.shared.owned.scripts import (
    INBOX,
    ClaimedShard,
    Command,
    InboxCommands,
    PlainCommand,
    ShardCommands,
    read_claim_reply,
)
from crawler.shared.owned.takeover import ShardLoader
from crawler.shared.worker.outbox import Outbox, Overflow
from crawler.simulate.redis_model import LOST_MS, RedisModel
from tests.harness.frontiers import TIGHT, candidate, check_invariants, drain, rest
from tests.harness.owned_world import LEASE_S as LEASE_OF_WORLD_S
from tests.harness.owned_world import (
    OWNED_LIVES,
    SCRIPTS,
    LoadedShard,
    OneOfSeveral,
    OwnedWorld,
    Owner,
    do_work,
    open_nodes,
)
from tests.servers.redis import RedisServer

MUTANT_LIVES: Final = 200  # the most until a deliberate fault is found
# Are tried first, which saves 90 s.
FOUND_LAST: Final = {"request_before_the_ack": 131, "verdict_beside_the_links": 88}
NAME: Final = "owned"
SHARDS: Final = 4
HOSTS: Final = 5
PAGES: Final = 40
LEASE_S: Final = 2.0
FETCH_S: Final = 5.0
GAP_S: Final = 1.0
ROUNDS: Final = 150
LIMITS: Final = replace(
    TIGHT,
    max_active_hosts=4,
    min_gap_s=GAP_S,
    gap_factor=0.0,
    longest_fetch_s=FETCH_S,
    max_arrived_s=0.5,
    max_undecided_s=0.5,
)


def page(number: int) -> Candidate:
    return candidate(str(number), host=f"h{2 + number * 7 % HOSTS}")


def shard_of_link(found: Candidate) -> int:
    return shard_of(found.domain, SHARDS)


def links_of(found: Candidate) -> list[Candidate]:
    number = int(found.url.rpartition("/")[2])
    return [page(child) for child in (2 * number + 1, 2 * number + 2) if child < PAGES]


@dataclass
class WebServers:
    """When each host may be contacted next, if it is asked politely."""

    free_at: dict[str, float] = field(default_factory=dict)
    fetched: set[str] = field(default_factory=set)

    def contact(self, found: Candidate, now: float, took_s: float) -> None:
        assert now >= self.free_at.get(found.host, 0.0) - 1e-5, f"{found.host} contacted too early"
        self.free_at[found.host] = now + took_s + GAP_S
        self.fetched.add(found.url)


Noted = tuple[LoadedShard | ShardPushes, int, Candidate]
"""A link, where it is noted, and at which position there."""


@dataclass
class FetchedPage:
    shard: LoadedShard
    lease: Lease
    links: list[Noted] | None = None  # once they are noted


class Worker:
    """A process that owns shards, in any state of them."""

    def __init__(self, life: Life, number: int, disk: MemoryStore) -> None:
        self.life = life
        self.number = number
        self.disk = disk
        self.turns = FrontierTurns()
        self.owner = Owner(
            *(life.ask, life.folder / f"{number}.{next(life.claims)}", LIMITS, life.now),
            shards=Shards(SHARDS),
            background=self.turns,
        )
        self.shards: dict[int, LoadedShard] = {}
        self.leased: list[tuple[LoadedShard, Lease]] = []
        self.fetching: list[tuple[float, LoadedShard, Lease]] = []
        self.pages: list[FetchedPage] = []
        self.arrived: list[Arrived] = []
        self.added: list[Arrived] = []
        # Shards that others are to have: what is noted, and since when that is acknowledged.
        self.leaving: dict[int, tuple[int, float]] = {}
        self.closed: dict[int, LoadedShard] = {}  # until they are released
        self.outbox = Outbox(disk, lambda domain: shard_of(domain, SHARDS))
        overflow = Overflow(
            outbox=self.outbox, is_full=lambda _: False, ensure_noted=always, sync=None
        )
        self.pushes = LinkPushes(
            *(lambda each: InboxCommands(SCRIPTS, NAME, each), SHARDS, b"%d." % number),
            overflow,
            on_fault=life.faults_of_inboxes.append,
        )
        self.rounds = SendingRounds(self.pushes, lambda _: "the server")

    def claim(self) -> None:
        life = self.life
        for number in set(range(SHARDS)) - self.shards.keys() - self.closed.keys():
            if life.planned(number) is not self:
                continue
            token = f"{self.number}.{next(life.claims)}"
            commands = ShardCommands(SCRIPTS, NAME, number, token, LEASE_S)
            asked = commands.claim(begins=number not in life.begun)
            claimed = read_claim_reply(life.ask(asked))
            if isinstance(claimed, ClaimedShard):
                life.begun.add(number)
                self.shards[number] = loaded = self.owner.load(commands, claimed, life.now)
                self.rounds.shards[number] = loaded.owned

    def take_in(self) -> None:
        """Let the frontier have what may be leased, and stop what others are to have."""
        now = self.life.now
        for number, shard in self.shards.items():
            if not shard.is_taken_in and shard.owned.may_lease(now):
                shard.take_in(now, self.lease_some)
                if number == shard_of_link(page(0)):
                    shard.frontier.add([page(0)], now)
            if shard.is_taken_in and self.life.planned(number) is not self:
                shard.stop(now)

    def hand_over(self) -> None:
        """Release the shards that others are to have, once nothing of them is under way, and what
        it has added to them for pages of other shards is certainly in the server's file."""
        under_way = {shard for shard, _ in self.leased} | {each[1] for each in self.fetching}
        under_way |= {each.shard for each in self.pages}
        for number, shard in list(self.shards.items()):
            if not shard.is_stopped:
                continue
            position, acked_at = self.leaving.setdefault(number, (shard.mirror.position, inf))
            if shard.owned.acked >= position:
                acked_at = min(acked_at, self.life.now)
                self.leaving[number] = position, acked_at
            is_settled = self.life.now - acked_at >= self.life.mutant.settle_s
            if shard not in under_way and is_settled:
                del self.leaving[number]
                self.closed[number] = self.shards.pop(number)
                shard.close(self.life.now)
                shard.owned.release_soon()

    def owns(self, number: int, for_s: float = 0.0) -> bool:
        """Return whether a shard is its own for so long, and no other one has claimed it since."""
        shard = self.shards.get(number)
        return (
            shard is not None
            and self.life.redis.owner_of(root(NAME, number)) == shard.owned.commands._token
            and self.life.now + for_s < shard.owned._leased_until_s
        )

    def lease(self) -> None:
        self.take_in()
        self.lease_some()

    def lease_some(self) -> None:
        for lease in self.owner.frontier.lease(self.life.now, 2):
            self.leased.append((self.shards[keys.shard_of_number(lease.id)], lease))

    def begin(self) -> None:
        life = self.life
        waiting, self.leased = self.leased, []
        for shard, lease in waiting:
            is_durable = shard.frontier.may_begin(lease)
            if is_durable and shard.owned.may_begin(lease.id, life.now):
                took_s = life.random.choice((0.1, 0.4, FETCH_S))
                life.servers.contact(lease.candidate, life.now, took_s)
                self.fetching.append((life.now + took_s, shard, lease))
            elif shard.owned.is_owned:
                self.leased.append((shard, lease))

    def end(self) -> None:
        over = [each for each in self.fetching if each[0] <= self.life.now]
        self.fetching = [each for each in self.fetching if each not in over]
        for _, shard, lease in over:
            shard.frontier.release(lease, rest(GAP_S), self.life.now)
            self.pages.append(FetchedPage(shard, lease))

    def link(self) -> None:
        for fetched in self.pages:
            if fetched.links is None:
                fetched.links = [self.noted(each) for each in links_of(fetched.lease.candidate)]

    def noted(self, link: Candidate) -> Noted:
        number = shard_of_link(link)
        target = self.shards.get(number)
        is_to_have = target is not None and target.owned.takes_links and target.is_taken_in
        if target is None or not is_to_have or number in self.leaving:
            ((pushes, position),) = self.pushes.add([link])
            return pushes, position, link
        target.frontier.add([link], self.life.now)
        target.frontier.commit()
        return target, target.mirror.position, link

    def admit(self) -> None:
        """Add what inboxes had."""
        arrived, self.arrived = self.arrived, []
        for each in arrived:
            target = self.shards.get(each.shard.commands.shard)
            if target is None or target.owned is not each.shard:
                continue
            if not target.is_taken_in:
                self.arrived.append(each)
                continue
            for entry in each.entries:
                target.frontier.add(entry.links, self.life.now)
            self.added.append(each)
        if self.life.mutant.deletes_before_the_commit:
            self.delete()

    def delete(self) -> None:
        for each in self.added:
            each.shard.inbox.delete([entry.name for entry in each.entries])
        self.added = []

    def finish(self) -> None:
        pages = [each for each in self.pages if each.shard.owned.is_owned]
        self.pages = []
        for fetched in pages:
            if fetched.links is not None:
                fetched.links = [
                    self.noted(each[2]) if self.is_lost(each) else each for each in fetched.links
                ]
            if fetched.links is None or not all(map(self.life.mutant.is_acked, fetched.links)):
                self.pages.append(fetched)
            else:
                fetched.shard.frontier.finish(fetched.lease, Done(), self.life.now)

    def is_lost(self, noted: Noted) -> bool:
        return isinstance(noted[0], LoadedShard) and not noted[0].owned.is_owned

    def turn(self) -> None:
        self.turns.end(self.owner.frontier, self.life.now)
        self.delete()

    def send(self) -> None:
        """Send what is due; sometimes the connection breaks meanwhile."""
        random, life = self.life.random, self.life
        asks = self.rounds.next_commands(life.now)
        heard = len(asks) if life.is_calm or random.random() < 0.8 else random.randint(0, len(asks))
        sent = random.randint(heard, len(asks))
        replies = [life.ask(command) for _, command in asks[:sent]]
        lost = [Unreachable("lost")] * (len(asks) - heard)
        sent_of = list(self.rounds.shards.values())
        result = self.rounds.on_replies([*replies[:heard], *lost], life.now, life.now)
        self.arrived += result.arrived
        for shards in (self.shards, self.closed):
            for number, shard in list(shards.items()):
                if not shard.owned.is_owned:
                    del shards[number]
                    self.leaving.pop(number, None)
                    shard.drop(life.now)
        self.pushes.store_unsent()
        if any(each.is_released for each in sent_of):
            life.on_released()

    def secure(self) -> None:
        self.pushes.note_secured()


async def always() -> bool:
    return True


class Life:
    """One life of a crawl, from its seed."""

    def __init__(self, seed: int, folder: Path, mutant: Mutant) -> None:
        self.random = Random(seed)
        self.folder = folder / str(seed)
        self.redis = mutant.redis or RedisModel(SCRIPTS)
        self.servers = WebServers()
        self.mutant = mutant
        self.claims = count()
        self.begun: set[int] = set()
        self.faults_of_inboxes: list[Exception] = []
        self.now = 1000.0
        self.is_calm = False
        self._numbers = count()
        self._disks: list[MemoryStore] = []  # of dead workers, for those that come
        self.workers = [self.hired(), self.hired()]

    def ask(self, command: Command) -> Any:
        self.redis.now_ms = round(self.now * 1000)
        return self.redis.ask(command)

    def hired(self) -> Worker:
        disk = self._disks.pop() if self._disks else MemoryStore()
        return Worker(self, next(self._numbers), disk)

    def planned(self, shard: int) -> Worker:
        """Return the worker that is to have a shard."""
        return self.workers[shard % len(self.workers)]

    def keep_only(self, workers: list[Worker]) -> None:
        self._disks += (each.disk for each in self.workers if each not in workers)
        self.workers = workers

    def run(self) -> None:
        for _ in range(ROUNDS):
            worker = self.random.choice(self.workers)
            for step in self.steps(worker):
                if self.random.random() < 0.75:
                    step()
                if self.random.random() < 0.005:
                    self.random.choice(self.faults())()
                if worker not in self.workers:
                    break
        self.is_calm, self.redis.is_full = True, False
        last = self.random.choice(self.workers)
        self.keep_only([last])
        for disk in self._disks:
            while batch := (outbox := Outbox(disk, int)).head(PAGES):
                last.outbox.put(batch.links)
                outbox.drop(batch)
        for _ in range(400):
            for step in self.steps(self.workers[0]):
                step()
            if len(self.servers.fetched) == PAGES:
                return self.check_invariants(self.workers[0])
        missing = {page(number).url for number in range(PAGES)} - self.servers.fetched
        raise AssertionError(f"lost: {sorted(missing)}")

    def check_invariants(self, worker: Worker) -> None:
        worker.turn()
        if not worker.closed and all(shard.is_taken_in for shard in worker.shards.values()):
            check_invariants(worker.owner.frontier, worker.owner.local, worker.owner.runs)

    def steps(self, worker: Worker) -> list[Callable[[], None]]:
        return [
            *(worker.claim, worker.turn, worker.send, worker.lease, worker.begin, worker.send),
            *(worker.begin, worker.end, worker.link, worker.finish, worker.admit, worker.send),
            *(worker.secure, worker.finish, worker.turn, worker.hand_over, self.pass_time),
        ]

    def pass_time(self) -> None:
        self.now += self.random.choice((0.05, 0.3, 1.0))

    def faults(self) -> list[Callable[[], None]]:
        return [
            *(self.kill, self.stop, self.stop, self.restart, self.restart),
            *(self.kill_all, self.kill_all, self.empty, self.fill),
        ]

    def on_released(self) -> None:
        """A worker has released a shard in good order."""

    def kill(self) -> None:
        killed = self.random.choice(self.workers)
        self.keep_only([each for each in self.workers if each is not killed])
        if not self.workers or self.random.random() < 0.7:
            self.workers.append(self.hired())

    def stop(self) -> None:
        """All stand still for longer than a lease; another one begins beside them."""
        self.now += self.random.choice((1.0, LEASE_S + 0.1))
        self.keep_only(self.workers[-1:])
        self.workers.append(self.hired())

    def restart(self) -> None:
        self.redis.restart(self.random)

    def kill_all(self) -> None:
        self.keep_only([])
        self.workers = [self.hired(), self.hired()]
        self.redis.restart(self.random)

    def fill(self) -> None:
        """The server takes no links, until this happens again."""
        self.redis.fill()

    def empty(self) -> None:
        """The server loses all, and the owners of the shards live long enough to fill it again. No
        one but its senders has what is in an inbox: so they do, too."""
        sent = {
            push.name
            for worker in self.workers
            for pushes in worker.pushes
            for push in (*pushes._unsent, *pushes._kept)
        }
        for number in range(SHARDS):
            has_owner = any(each.owns(number, LEASE_S / 4) for each in self.workers)
            if not has_owner or self.redis.hash_of(f"{root(NAME, number)}:{INBOX}").keys() - sent:
                return
        self.redis.lose_all()
        self.is_calm = True
        for _ in range(60):
            for worker in self.random.sample(self.workers, len(self.workers)):
                worker.send()
                worker.secure()
            self.now += LEASE_S / 20
        self.is_calm = False
        for number in range(SHARDS):
            assert any(each.owns(number) for each in self.workers), "the owner has lost its shard"
        self.redis.keep()  # losing this, too, with the owner, is losing the crawl


class MovingLife(Life):
    """A life in which nobody dies, but shards move, alone or together, and the server restarts just
    then."""

    def __init__(self, seed: int, folder: Path, mutant: Mutant) -> None:
        super().__init__(seed, folder, replace(mutant, redis=RedisModel(SCRIPTS, kept_writes=12)))
        self.moves = 0

    def planned(self, shard: int) -> Worker:
        return self.workers[(self.moves + shard * (self.moves % 2)) % len(self.workers)]

    def faults(self) -> list[Callable[[], None]]:
        return [self.move]

    def move(self) -> None:
        self.moves += 1

    def on_released(self) -> None:
        if self.random.random() < 0.5:
            self.restart()


def acked(noted: Noted) -> bool:
    target, position, _ = noted
    if isinstance(target, ShardPushes):
        return target.acked >= position
    return target.owned.is_owned and target.owned.acked >= position


@dataclass(frozen=True)
class Mutant:
    """What of a life a test may put a fault into."""

    redis: RedisModel | None = None
    is_acked: Callable[[Noted], bool] = acked
    deletes_before_the_commit: bool = False
    settle_s: float = LOST_MS / 1000


def request_before_the_ack(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    patch.setattr(OwnedShard, "may_begin", lambda shard, *_: shard.is_owned)
    return Mutant


def verdict_beside_the_links(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    return lambda: Mutant(is_acked=lambda _: True)


def links_of_others_not_sent_again(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    on_run = ShardPushes._on_run

    def forget(pushes: ShardPushes, run: bytes | None, sent_at_s: float) -> None:
        if run != pushes.run:
            pushes._kept.clear()
        on_run(pushes, run, sent_at_s)

    patch.setattr(ShardPushes, "_on_run", forget)
    return Mutant


def inbox_trimmed_by_count(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    return lambda: Mutant(RedisModel(SCRIPTS, deletes_by_name=False))


def entries_deleted_before_the_commit(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    return lambda: Mutant(deletes_before_the_commit=True)


def open_leases_not_mirrored(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    note = Mirror.note

    def note_others(mirror: Mirror, changes: Changes) -> None:
        note(mirror, {key: value for key, value in changes.items() if key[:1] != keys.OPEN})

    patch.setattr(Mirror, "note", note_others)
    return Mutant


def token_not_checked(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    return lambda: Mutant(RedisModel(SCRIPTS, checks_token=False))


def no_rest_after_a_lost_second(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    return lambda: Mutant(RedisModel(SCRIPTS, notes_restarts=False))


def rest_from_the_lease_of_the_url(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    patch.setattr(ShardLoader, "_load_leases", ShardLoader._load_fields)
    return Mutant


@pytest.fixture(autouse=True)
def few_known_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of workers that live for some seconds, which else fill 1 MB each."""
    monkeypatch.setattr(inbox, "ACKNOWLEDGED_LINKS", 64)


def test_nothing_is_lost_and_no_host_is_contacted_early(tmp_path: Path) -> None:
    for seed in range(OWNED_LIVES):
        try:
            Life(seed, tmp_path, Mutant()).run()
            MovingLife(seed, tmp_path / "moving", Mutant()).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize(
    "fault",
    [
        request_before_the_ack,
        verdict_beside_the_links,
        open_leases_not_mirrored,
        token_not_checked,
        no_rest_after_a_lost_second,
        rest_from_the_lease_of_the_url,
        links_of_others_not_sent_again,
        inbox_trimmed_by_count,
        entries_deleted_before_the_commit,
    ],
)
def test_each_deliberate_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], Callable[[], Mutant]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = fault(monkeypatch)
    for seed in (FOUND_LAST.get(fault.__name__, 0), *range(MUTANT_LIVES)):
        try:
            Life(seed, tmp_path / str(seed), make()).run()
        except Exception as error:  # an invariant of the frontier may find it first
            print(f"seed {seed}: {error!r}")
            return
    pytest.fail("it was not found")


def test_a_shard_that_is_released_at_once_is_found(tmp_path: Path) -> None:
    """Its links may be lost after a verdict that its last owner sends again."""
    for seed in range(MUTANT_LIVES):
        try:
            MovingLife(seed, tmp_path, Mutant(settle_s=0.0)).run()
        except AssertionError as error:
            print(f"seed {seed}: {error!r}")
            return
    pytest.fail("it was not found")


def claimed_shard(
    redis: RedisModel, seen: Sequence[Keys] = (), number: int = 0, lease_s: float = LEASE_S
) -> OwnedShard:
    commands = ShardCommands(SCRIPTS, NAME, number, "token", lease_s)
    claimed = read_claim_reply(redis.ask(commands.claim(begins=True)))
    assert isinstance(claimed, ClaimedShard)
    records = {keys.OPEN + b"lease of 16 bytes": b"a URL"}
    mirror = Mirror(claimed.seq, lambda: None)
    shard = OwnedShard(commands, claimed, 0.0, mirror, lambda: iter([records]))
    shard.note_loaded(0.0, seen)
    return shard


def exchange(redis: RedisModel, shard: OwnedShard, now: float = 0.0) -> None:
    redis.now_ms = round(now * 1000)
    asked = shard.next_commands(now, 0)
    shard.on_replies([redis.ask(each.command) for each in asked], now, now)


def test_a_lost_shard_names_the_seen_keys_that_its_server_may_have_lost() -> None:
    """It was away for longer than batches are kept: that is no answer of this run of the server."""
    redis = RedisModel(SCRIPTS)
    shard = claimed_shard(redis)
    exchange(redis, shard)
    redis.keep()
    shard.mirror.note({keys.ADMITTED_KEYS + b"a record": (7).to_bytes(8, "little")})
    exchange(redis, shard, 1.0)
    assert shard.acked == shard.mirror.position
    redis.restart(loses_all=True)
    exchange(redis, shard, 1.0 + 2 * KEPT_S)
    assert not shard.is_owned
    assert shard.recent_keys() == [7]


def test_a_shard_that_was_loaded_just_now_names_all_seen_keys() -> None:
    """Its server may lose the claim, and with it what the last owner had written before."""
    redis = RedisModel(SCRIPTS)
    shard = claimed_shard(redis, [np.array([7], np.uint64)])
    exchange(redis, shard)
    assert shard.recent_keys() == [7]
    exchange(redis, shard, VERDICT_DELAY_S)
    assert shard.recent_keys() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_lost_shard_takes_those_along_whose_server_has_restarted(restarts: bool) -> None:
    """The links that it has lost cannot be sent again, and another shard has the verdict after
    them."""
    redis = RedisModel(SCRIPTS)
    outbox = Outbox(MemoryStore(), int)
    overflow = Overflow(outbox=outbox, is_full=bool, ensure_noted=always, sync=None)
    pushes = LinkPushes(lambda at: InboxCommands(SCRIPTS, NAME, at), 2, b"", overflow, print)
    rounds = SendingRounds(pushes, lambda _: "the server")
    of_links, of_page = claimed_shard(redis), claimed_shard(redis, number=1, lease_s=5 * LEASE_S)
    rounds.shards = {0: of_links, 1: of_page}

    def send(now: float) -> None:
        redis.now_ms = round(now * 1000)
        asked = rounds.next_commands(now)
        rounds.on_replies([redis.ask(command) for _, command in asked], now, now)

    of_page.mirror.note({keys.OPEN + b"lease of 16 bytes": b"a page"})
    send(0.0)
    redis.keep()
    of_links.mirror.note({keys.ARRIVED + b"link": b"links of a page"})
    send(0.0)
    of_page.mirror.note({keys.OPEN + b"lease of 16 bytes": None})
    if restarts:
        redis.restart(loses_all=True)
    else:
        redis.now_ms = round(2 * LEASE_S * 1000)
        other = ShardCommands(SCRIPTS, NAME, 0, "other", LEASE_S)
        assert isinstance(read_claim_reply(redis.ask(other.claim(begins=False))), ClaimedShard)
    for at in range(3):
        send(2 * LEASE_S + at / 10)
    assert not of_links.is_owned
    assert of_page.is_owned is not restarts
    assert bool(redis.hash_of(f"{root(NAME, 1)}:o")) is restarts


def test_what_is_noted_after_the_release_is_refused() -> None:
    redis = RedisModel(SCRIPTS)
    shard = claimed_shard(redis)
    shard.release_soon()
    shard.mirror.note_command(PlainCommand("HSET", "", ("late", 1)))
    exchange(redis, shard)
    assert shard.is_released
    meta = redis.hash_of(root(NAME, 0))
    assert meta[b"owner"] == b""
    assert b"late" not in meta


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_shard_is_released_when_its_server_has_all_again(is_empty: bool) -> None:
    redis = RedisModel(SCRIPTS)
    shard = claimed_shard(redis)
    shard.mirror.note({keys.OPEN + b"lease of 16 bytes": b"a URL"})
    exchange(redis, shard)
    redis.lose_all() if is_empty else redis.restart()
    shard.release_soon()
    for _ in range(5):
        assert not shard.is_released or redis.hash_of(root(NAME, 0))[b"owner"] == b""
        exchange(redis, shard)
    assert shard.is_released
    assert list(redis.hash_of(f"{root(NAME, 0)}:o").values()) == [b"a URL"]


def test_a_worker_that_stops_sends_nothing_again_after_a_restart() -> None:
    redis = RedisModel(SCRIPTS)
    shard = claimed_shard(redis)
    redis.restart()
    shard.release_soon(resends=False)
    exchange(redis, shard)
    assert not shard.is_owned
    assert not shard.is_released, "its lease ends by itself"
    assert redis.owner_of(root(NAME, 0)) == "token"


class ComparedRedis(RedisModel):
    """A model that is asked beside a real server, and gives the same answers."""

    page = None

    def __init__(self, client: redis.Redis, nodes: BlockingNodes) -> None:
        super().__init__(SCRIPTS)
        self._client, self._nodes = client, nodes
        nodes.commands([(0, ("LRANGE", "none", 0, 0))])  # it opens its shard at the first command
        client.flushdb()
        self._open_all()

    def ask(self, command: Sequence[Any]) -> Any:
        self._client.set("now", self.now_ms)
        real = self._nodes.commands([(0, tuple(command))])[0]
        modelled = super().ask(command)
        if command[0] == "HSCAN":
            assert sorted(real[1]) == sorted(modelled[1])
        else:
            assert real == modelled, command[:8]
        return modelled

    def restart(self, random: Random | None = None) -> None:
        super().restart()
        self._open_all()

    def lose_all(self) -> None:
        super().lose_all()
        self._client.flushdb()
        self._open_all()

    def fill(self) -> None:
        """A real one would be full for all keys."""

    def _open_all(self) -> None:
        for shard in range(SHARDS):
            name, run = root(NAME, shard), f"run{self.run}"
            self._client.evalsha(SCRIPTS.sha("open"), 1, name, run)
            self._open([name.encode()], [run.encode()])


@pytest.fixture
def real(redis_server: RedisServer) -> Iterator[tuple[redis.Redis, BlockingNodes]]:
    with redis_server.client() as client, open_nodes(redis_server.port) as nodes:
        for name in SCRIPTS.names():
            client.script_load(SCRIPTS.text(name))
        yield client, nodes


def test_the_model_answers_as_the_server(
    real: tuple[redis.Redis, BlockingNodes], tmp_path: Path
) -> None:
    for seed in range(2):
        Life(seed, tmp_path, Mutant(ComparedRedis(*real))).run()


def test_the_model_keeps_rounds_as_the_server(real: tuple[redis.Redis, BlockingNodes]) -> None:
    random, model = Random(5), ComparedRedis(*real)
    numbers, began = dict.fromkeys("abc", 0), {0}
    for _ in range(2_000):
        model.now_ms += random.choice((100, 100, 3_000))
        worker, most = random.choice("abc"), random.choice((-1, 9))
        used, is_done, back, wanted = (random.randint(0, most) for most in (1, 1, 2, 3))
        limits = (random.choice((-1, 9_000)), random.choice((-1, 2)), 5_000, 3, max(began))
        said = (worker, 4_000, numbers[worker], used, is_done, back, wanted, 1, most, *limits)
        left_over, leased = random.randint(0, 2), random.randint(0, 2)
        asked = ("EVAL", SCRIPTS.text("round"), 1, "rounds", *said, left_over, leased)
        number, _, _, is_over, *_ = model.ask(asked)
        numbers[worker] = number
        if is_over:
            began.add(model.now_ms + 1)
        if random.random() < 0.02:
            numbers[worker] = 0
            model.ask(("HDEL", "rounds", f"w:{worker}"))
    assert number > 20 and len(began) > 5


@pytest.fixture
def owned(real: tuple[redis.Redis, BlockingNodes], tmp_path: Path) -> OwnedWorld:
    world = OwnedWorld(*real, tmp_path)
    frontier = world.reopen(1.0)
    for host in "abc":
        frontier.add([candidate(str(number), host=host) for number in range(5)], 1.0)
    frontier.lease(1.0, 2)
    return world


def test_an_empty_server_is_filled_again(owned: OwnedWorld) -> None:
    owned.client.flushall()
    owned.client.script_flush()
    owned.now_s += LEASE_OF_WORLD_S / 2  # so that those with nothing new renew their leases
    assert owned.owner is not None
    frontier = owned.owner.frontier
    frontier.add([candidate("more")], 2.0)
    owned.check(frontier)
    assert all(each.acked == each.mirror.position for each in owned.shards)
    counts = frontier.counts()
    assert owned.reopen(3.0).counts().seen == counts.seen


def test_a_shard_that_was_filled_in_part_is_refused(owned: OwnedWorld) -> None:
    owned.client.flushall()
    shard = owned.shards[0]
    owned.now_s += LEASE_OF_WORLD_S / 2  # so that it renews its lease
    for _ in range(3):
        asked = shard.next_commands(owned.now_s, 0)
        shard.on_replies([owned.ask(each.command) for each in asked], owned.now_s, owned.now_s)
    assert shard.acked < shard.mirror.position
    with pytest.raises(ForeignData, match="came back without its data"):
        owned.reopen(3.0)


def test_no_request_begins_before_the_ack_or_near_the_end_of_the_lease(owned: OwnedWorld) -> None:
    assert owned.owner is not None
    owned.is_connected = False
    (lease,) = owned.owner.frontier.lease(5.0, 1)
    shard = owned.shards[keys.shard_of_number(lease.id)]
    assert not shard.may_begin(lease.id, owned.now_s)
    asked = shard.next_commands(owned.now_s, 0)
    assert not shard.may_begin(lease.id, owned.now_s), "it is under way"
    shard.on_replies([owned.ask(each.command) for each in asked], owned.now_s, owned.now_s)
    assert shard.may_begin(lease.id, owned.now_s)
    assert shard.may_begin(lease.id, owned.now_s + 0.8 * LEASE_OF_WORLD_S)
    assert not shard.may_begin(lease.id, owned.now_s + 0.9 * LEASE_OF_WORLD_S)


def test_keys_that_are_marked_as_seen_are_mirrored(owned: OwnedWorld) -> None:
    assert owned.owner is not None
    frontier = owned.owner.frontier
    assert frontier.mark_seen([7, 8, 9], 2.0) == 3
    owned.check(frontier)
    assert owned.reopen(3.0).mark_seen([8, 9, 10], 3.0) == 1


def test_what_a_lost_shard_had_in_memory_only_is_new_when_it_comes_back(
    tmp_path: Path,
) -> None:
    """Its other shards and what it has seen of them stay as they are."""
    server, now = RedisModel(SCRIPTS), 1000.0
    shards = Shards(2)
    owner = Owner(server.ask, tmp_path, LIMITS, now, shards=shards)

    def claimed(token: str) -> tuple[ShardCommands, ClaimedShard]:
        commands = ShardCommands(SCRIPTS, NAME, at, token, LEASE_S)
        reply = read_claim_reply(server.ask(commands.claim(begins=True)))
        assert isinstance(reply, ClaimedShard)
        return commands, reply

    loaded = {}
    for at in range(2):
        loaded[at] = owner.load(*claimed("first"), now)
        loaded[at].take_in(now)
    kept, lost = (
        [candidate(str(n), host=f"h{n}") for n in range(20) if shards.of(f"h{n}")[1] == at]
        for at in range(2)
    )
    owner.frontier.add([*kept, *lost], now)
    server.now_ms += round(2 * LEASE_S * 1000)
    other = ShardCommands(SCRIPTS, NAME, 1, "other", LEASE_S)
    assert isinstance(read_claim_reply(server.ask(other.claim(begins=True))), ClaimedShard)
    server.ask(other.release())
    loaded[1].drop(now)
    assert owner.frontier.counts().waiting == len(kept)
    loaded[1] = owner.load(*claimed("second"), now)
    loaded[1].take_in(now)
    assert owner.frontier.add([*kept, *lost], now).new == len(lost)
    do_work(owner.frontier, now + LIMITS.max_undecided_s)
    counts = owner.frontier.counts()
    assert (counts.waiting, counts.undecided) == (len(kept) + len(lost), 0)


def test_what_is_due_in_a_shard_that_is_loaded_waits_until_all_of_it_is_here(
    tmp_path: Path,
) -> None:
    server, now, shards = RedisModel(SCRIPTS), 1000.0, Shards(2)
    first = Owner(server.ask, tmp_path / "first", LIMITS, now, shards=shards)
    second = Owner(server.ask, tmp_path / "second", LIMITS, now, shards=shards)
    host_of = {shards.of(f"h{n}")[1]: f"h{n}" for n in range(20)}

    def loaded(owner: Owner, at: int, token: str) -> LoadedShard:
        commands = ShardCommands(SCRIPTS, NAME, at, token, LEASE_S)
        claimed = read_claim_reply(server.ask(commands.claim(begins=True)))
        assert isinstance(claimed, ClaimedShard)
        return owner.load(commands, claimed, now)

    held = loaded(first, 0, "first")
    held.take_in(now)
    loaded(second, 1, "second").take_in(now)
    for at, owner in enumerate((first, second)):
        later = structs.replace(candidate("1", host=host_of[at]), not_before=now + 1.0)
        owner.frontier.add([later], now)
        owner.frontier.commit()
    asked = held.owned.next_commands(0.0, 0)
    held.owned.on_replies([server.ask(each.command) for each in asked], 0.0, 0.0)
    server.now_ms += round(2 * LEASE_S * 1000)
    now += 2 * LEASE_S
    coming = loaded(second, 0, "second")
    leased = second.frontier.lease(now, 2)
    assert [lease.candidate.host for lease in leased] == [host_of[1]]
    coming.take_in(now)
    leased += second.frontier.lease(now, 2)
    assert {lease.candidate.host for lease in leased} == {host_of[0], host_of[1]}
    counts = second.frontier.counts()
    assert (counts.waiting, counts.later, counts.leased) == (0, 0, 2)


@pytest.mark.parametrize("silent_s", [LEASE_S, 1e5])
def test_what_was_leased_in_a_shard_that_comes_is_put_back_before_anything_is_leased(
    tmp_path: Path, silent_s: float
) -> None:
    """Or what is leased meanwhile is put back, too, and fetched twice; and a host of which an
    earlier page was not finished is asked while its last fetch may be under way."""
    server, now, shards = RedisModel(SCRIPTS), 1000.0, OneOfSeveral(0)

    def loaded(owner: str) -> LoadedShard:
        commands = ShardCommands(SCRIPTS, NAME, 0, owner, LEASE_S)
        claimed = read_claim_reply(server.ask(commands.claim(begins=True)))
        assert isinstance(claimed, ClaimedShard)
        made = Owner(server.ask, tmp_path / owner, LIMITS, now, shards=shards)
        return made.load(commands, claimed, now)

    held = loaded("first")
    held.take_in(now)
    hosts = [f"h{n}" for n in range(4)]
    held.frontier.add([candidate(page, host=host) for page in "12" for host in hosts], now)
    earlier = drain(held.frontier, now)
    for lease in earlier:
        held.frontier.release(lease, rest(GAP_S), now)
    now += GAP_S
    leased = {lease.candidate.url for lease in (*earlier, *drain(held.frontier, now))}
    assert len(leased) == 2 * len(hosts)
    held.frontier.commit()
    asked = held.owned.next_commands(0.0, 0)
    held.owned.on_replies([server.ask(each.command) for each in asked], 0.0, 0.0)
    now += LEASE_S + silent_s
    server.now_ms += round((LEASE_S + silent_s) * 1000)
    again: list[Lease] = []
    coming = loaded("second")
    coming.take_in(now, lambda: again.extend(drain(coming.frontier, now)))
    if silent_s < FETCH_S:
        assert not again, "a fetch may be under way"
        now += FETCH_S
    for _ in leased:
        again += drain(coming.frontier, now)
        for lease in again:
            coming.frontier.release(lease, rest(GAP_S), now)
        now += GAP_S
    assert sorted(lease.candidate.url for lease in again) == sorted(leased)
    counts = coming.frontier.counts()
    assert (counts.waiting, counts.leased) == (0, len(leased))


def test_pages_of_a_shard_that_is_taken_over_are_visited_again(tmp_path: Path) -> None:
    """Also those without a date, if no other shard comes or goes."""
    server, now, shards = RedisModel(SCRIPTS), 1000.0, Shards(2)
    limits = replace(LIMITS, visits_per_day=1e6)

    def taken_over(session: str) -> LoadedShard:
        commands = ShardCommands(SCRIPTS, NAME, 0, session, LEASE_S)
        claimed = read_claim_reply(server.ask(commands.claim(begins=True)))
        assert isinstance(claimed, ClaimedShard)
        shard = Owner(server.ask, tmp_path / session, limits, now, shards=shards).load(
            commands, claimed, now
        )
        shard.take_in(now)
        return shard

    held = taken_over("first")
    host = next(f"h{n}" for n in range(20) if shards.of(f"h{n}")[1] == 0)
    held.frontier.add([candidate("1", host=host)], now)
    do_work(held.frontier, now + LIMITS.max_undecided_s)
    (lease,) = held.frontier.lease(now, 1)
    history = PageHistory(int(now), int(now), int(now))
    held.frontier.finish(lease, Done(again=Again(history)), now)
    held.frontier.commit()
    asked = held.owned.next_commands(0.0, 0)
    held.owned.on_replies([server.ask(each.command) for each in asked], 0.0, 0.0)
    now += 1e5
    server.now_ms += round(1e5 * 1000)
    (lease,) = taken_over("second").frontier.lease(now, 1)
    assert lease.candidate.history is not None
    assert lease.candidate.history.visits == 1


def test_a_host_of_a_shard_that_goes_is_new_before_that_is_committed() -> None:
    """Its place in the queue of hosts is stale, and read then."""
    store, shards = MemoryStore(), Shards(2)
    batch = WriteBatch(store, 1, 10, shards)
    batch.host(HostKey("h0")).rest_until = 5.0
    batch.commit()
    batch.delete(batch.key(keys.HOST, "h0"))
    batch.forget_host(HostKey("h0"))
    assert batch.peek(HostKey("h0")).rest_until == 0.0
