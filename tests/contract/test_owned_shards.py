"""Random lives of owned shards: two shards, workers that are killed or stand still for longer than
their leases, replies that are lost, and a server that loses its last second or all it has. Judged
from outside: by polite web servers (when each host is contacted) and by an accountant (a tree of
pages, each linked once, all of which must be fetched). Each deliberate fault must be found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import redis

from crawler.frontier import records as keys
from crawler.frontier.open import FrontierTurns
from crawler.model.types import Candidate, Done, Lease, PutBack
from crawler.shared.client import BlockingNodes
from crawler.shared.faults import ForeignData, Unreachable
from crawler.shared.keys import root
from crawler.shared.owned.mirror import Changes, Mirror
from crawler.shared.owned.owner import OwnedShard, in_order
from crawler.shared.owned.scripts import (
    ClaimedShard,
    Command,
    ShardCommands,
    read_claim_reply,
)
from crawler.shared.owned.takeover import ShardLoader
from tests.harness.frontiers import TIGHT, candidate, rest
from tests.harness.owned_world import LEASE_S as LEASE_OF_WORLD_S
from tests.harness.owned_world import OWNED_LIVES, SCRIPTS, LoadedShard, OwnedWorld, open_nodes
from tests.harness.redis_model import RedisModel
from tests.servers.redis import RedisServer

MUTANT_LIVES: Final = 60  # the most until a deliberate fault is found
NAME: Final = "owned"
SHARDS: Final = 2
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
    return candidate(str(number), host=f"h{number * 7 % HOSTS}")


def shard_of(found: Candidate) -> int:
    return int(found.host[1:]) % SHARDS


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


@dataclass
class FetchedPage:
    shard: LoadedShard
    lease: Lease
    links: list[tuple[LoadedShard, int]] | None = None  # where they are noted, once they are


class Worker:
    """A process that owns shards, in any state of them."""

    def __init__(self, life: Life, number: int) -> None:
        self.life = life
        self.number = number
        self.shards: dict[int, LoadedShard] = {}
        self.turns: dict[int, FrontierTurns] = {}
        self.leased: list[tuple[LoadedShard, Lease]] = []
        self.fetching: list[tuple[float, LoadedShard, Lease]] = []
        self.pages: list[FetchedPage] = []
        self.round = 0

    def claim(self) -> None:
        life = self.life
        for number in set(range(SHARDS)) - self.shards.keys():
            token = f"{self.number}.{next(life.claims)}"
            commands = ShardCommands(SCRIPTS, NAME, number, token, LEASE_S)
            asked = commands.claim(begins=number not in life.begun)
            claimed = read_claim_reply(life.ask(asked))
            if isinstance(claimed, ClaimedShard):
                if number not in life.begun:
                    life.begun.add(number)
                    life.redis.keep()  # a shard that is lost at its begin is the crawl's affair
                self.turns[number] = FrontierTurns()
                folder = life.folder / f"{self.number}.{next(life.claims)}"
                self.shards[number] = LoadedShard(
                    *(life.ask, commands, claimed, folder, LIMITS, life.now),
                    background=self.turns[number],
                )
                if number == shard_of(page(0)):
                    self.shards[number].frontier.add([page(0)], life.now)

    def owns_all(self) -> bool:
        """Return whether its shards are its own, and no other one has claimed one since."""
        return len(self.shards) == SHARDS and all(
            self.life.redis.owner_of(root(NAME, number)) == shard.owned.commands._token
            and self.life.now < shard.owned._leased_until_s
            for number, shard in self.shards.items()
        )

    def lease(self) -> None:
        owned = [each for each in self.shards.values() if each.owned.may_lease(self.life.now)]
        for shard in owned:
            self.leased += ((shard, each) for each in shard.frontier.lease(self.life.now, 2))

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
            if fetched.links is not None:
                continue
            found = links_of(fetched.lease.candidate)
            targets = [self.shards.get(shard_of(each)) for each in found]
            fetched.links = []
            for each, target in zip(found, targets, strict=True):
                if target is not None:
                    target.frontier.add([each], self.life.now)
                    target.frontier.commit()
                    fetched.links.append((target, target.mirror.position))
            if len(fetched.links) < len(found):
                # What another owner's shard needs an inbox for; here the page is fetched again.
                fetched.shard.frontier.finish(fetched.lease, PutBack(), self.life.now)

    def finish(self) -> None:
        pages, self.pages = self.pages, []
        for fetched in pages:
            noted = fetched.links
            if noted is None or not all(map(self.life.is_acked, noted)):
                if fetched.shard.owned.is_owned and all(t.owned.is_owned for t, _ in noted or ()):
                    self.pages.append(fetched)
                else:
                    fetched.shard.frontier.finish(fetched.lease, PutBack(), self.life.now)
                continue
            fetched.shard.frontier.finish(fetched.lease, Done(), self.life.now)

    def turn(self) -> None:
        for number, shard in self.shards.items():
            self.turns[number].end(shard.frontier, self.life.now)

    def send(self) -> None:
        """Send what is due; sometimes the connection breaks meanwhile."""
        random, life = self.life.random, self.life
        self.round += 1
        shards = [shard.owned for shard in self.shards.values()]
        random.shuffle(shards)
        asks = in_order((shard, shard.next_commands(life.now, self.round)) for shard in shards)
        heard = len(asks) if life.is_calm or random.random() < 0.8 else random.randint(0, len(asks))
        sent = random.randint(heard, len(asks))
        replies: dict[OwnedShard, list[Any]] = defaultdict(list)
        for at, (shard, command) in enumerate(asks):
            reply = life.ask(command) if at < sent else None
            replies[shard].append(reply if at < heard else Unreachable("lost"))
        for shard, of_shard in replies.items():
            shard.on_replies(of_shard, life.now, life.now)
        self.shards = {n: shard for n, shard in self.shards.items() if shard.owned.is_owned}


class Life:
    """One life of a crawl, from its seed."""

    def __init__(self, seed: int, folder: Path, mutant: Mutant) -> None:
        self.random = Random(seed)
        self.folder = folder / str(seed)
        self.redis = mutant.redis or RedisModel(SCRIPTS)
        self.servers = WebServers()
        self.is_acked = mutant.is_acked
        self.claims = count()
        self.begun: set[int] = set()
        self.now = 1000.0
        self.is_calm = False
        self._numbers = count()
        self.workers = [self.hired()]

    def ask(self, command: Command) -> Any:
        self.redis.now_ms = round(self.now * 1000)
        return self.redis.ask(command)

    def hired(self) -> Worker:
        return Worker(self, next(self._numbers))

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
        self.is_calm = True
        self.workers = [self.random.choice(self.workers)]
        for _ in range(400):
            for step in self.steps(self.workers[0]):
                step()
            if len(self.servers.fetched) == PAGES:
                return
        missing = {page(number).url for number in range(PAGES)} - self.servers.fetched
        raise AssertionError(f"lost: {sorted(missing)}")

    def steps(self, worker: Worker) -> list[Callable[[], None]]:
        return [
            *(worker.claim, worker.turn, worker.send, worker.lease, worker.begin, worker.send),
            *(worker.begin, worker.end, worker.link, worker.finish, worker.send, worker.finish),
            *(worker.turn, self.pass_time),
        ]

    def pass_time(self) -> None:
        self.now += self.random.choice((0.05, 0.3, 1.0))

    def faults(self) -> list[Callable[[], None]]:
        return [self.kill, self.stop, self.restart, self.kill_all, self.kill_all, self.empty]

    def kill(self) -> None:
        self.workers.remove(self.random.choice(self.workers))
        self.workers += [] if self.workers else [self.hired()]

    def stop(self) -> None:
        """All stand still for longer than a lease; another one begins beside them."""
        self.now += self.random.choice((1.0, LEASE_S + 0.1))
        self.workers = [*self.workers[-1:], self.hired()]

    def restart(self) -> None:
        self.redis.restart(self.random)

    def kill_all(self) -> None:
        self.workers = [self.hired()]
        self.redis.restart(self.random)

    def empty(self) -> None:
        """The server loses all, and the owner of the shards lives long enough to fill it again."""
        owners = [each for each in self.workers if each.owns_all()]
        if not owners:
            return
        self.redis.lose_all()
        self.is_calm = True
        for _ in range(60):
            for worker in self.random.sample(self.workers, len(self.workers)):
                worker.send()
            self.now += LEASE_S / 20
        self.is_calm = False
        assert any(each.owns_all() for each in owners), "the owner has lost its shards"
        self.redis.keep()  # losing this, too, with the owner, is losing the crawl


def acked(noted: tuple[LoadedShard, int]) -> bool:
    shard, position = noted
    return shard.owned.is_owned and shard.owned.acked >= position


@dataclass(frozen=True)
class Mutant:
    """What of a life a test may put a fault into."""

    redis: RedisModel | None = None
    is_acked: Callable[[tuple[LoadedShard, int]], bool] = acked


def request_before_the_ack(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    patch.setattr(OwnedShard, "may_begin", lambda shard, *_: shard.is_owned)
    return Mutant


def verdict_beside_the_links(patch: pytest.MonkeyPatch) -> Callable[[], Mutant]:
    return lambda: Mutant(is_acked=lambda noted: noted[0].owned.is_owned)


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


def test_nothing_is_lost_and_no_host_is_contacted_early(tmp_path: Path) -> None:
    for seed in range(OWNED_LIVES):
        try:
            Life(seed, tmp_path, Mutant()).run()
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
    ],
)
def test_each_deliberate_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], Callable[[], Mutant]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = fault(monkeypatch)
    for seed in range(MUTANT_LIVES):
        try:
            Life(seed, tmp_path, make()).run()
        except Exception as error:  # an invariant of the frontier may find it first
            print(f"seed {seed}: {error!r}")
            return
    pytest.fail("it was not found")


class ComparedRedis(RedisModel):
    """A model that is asked beside a real server, and gives the same answers."""

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

    def restart(self, _: Random | None = None) -> None:
        super().restart(None)
        self._open_all()

    def lose_all(self) -> None:
        super().lose_all()
        self._client.flushdb()
        self._open_all()

    def _open_all(self) -> None:
        for shard in range(SHARDS):
            sha = SCRIPTS.sha("open")
            self._client.evalsha(sha, 1, root(NAME, shard), f"run{self.run}")


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
    shard = owned.shards[lease.id >> 48]
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
