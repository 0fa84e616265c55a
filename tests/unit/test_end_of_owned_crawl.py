"""The end of a crawl over owned shards, by two readings that look at one shard after the other
while pages, links, inboxes, outboxes, hand-overs and deaths go on. It must never be found too
early, and each deliberate fault must be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import pytest

from crawler.shared.owned.readings import ShardRest, is_over

LIVES: Final = 300
MUTANT_LIVES: Final = 200
STEPS: Final = 700
CALM_STEPS: Final = 20_000
SHARDS: Final = 3
WORKERS: Final = 2
PAGES: Final = 9
RUN: Final = b"run"


def shard_of(page: int) -> int:
    return page % SHARDS


def links_of(page: int) -> list[int]:
    return [child for child in (2 * page + 1, 2 * page + 2) if child < PAGES]


@dataclass
class Urls:
    """The URLs of a shard, in Redis or in the store of its owner."""

    waiting: set[int] = field(default_factory=set)
    leased: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)


@dataclass
class InRedis:
    urls: Urls = field(default_factory=Urls)
    seq: int = 0
    inbox: dict[int, int] = field(default_factory=dict)  # entries: a page by a number


@dataclass
class Sent:
    """A batch, a push, or a link in an outbox."""

    is_acked: bool = False


@dataclass
class Batch(Sent):
    change: Callable[[Urls], None] = lambda urls: None
    taken: tuple[int, ...] = ()  # entries of the inbox


@dataclass
class Push(Sent):
    number: int = 0
    page: int = 0


@dataclass
class Page:
    """A lease, and what its verdict waits for."""

    number: int
    waits: list[Sent]
    is_fetched: bool = False


class OwnedUrls:
    """A shard at its owner: ahead of Redis by batches that are not acknowledged."""

    def __init__(self, redis: InRedis) -> None:
        stored = redis.urls
        self.redis = redis
        self.urls = Urls(*map(set, (stored.waiting, stored.leased, stored.seen, stored.done)))
        self.batches: deque[Batch] = deque()
        self.pages: list[Page] = []
        self.taken: set[int] = set()
        if self.urls.leased:
            self.write(put_back)

    def write(self, change: Callable[[Urls], None], taken: tuple[int, ...] = ()) -> Batch:
        change(self.urls)
        batch = Batch(change=change, taken=taken)
        self.batches.append(batch)
        return batch

    def add(self, page: int, taken: tuple[int, ...] = ()) -> Batch:
        def change(urls: Urls) -> None:
            if page not in urls.seen:
                urls.seen.add(page)
                urls.waiting.add(page)

        return self.write(change, taken)

    def send(self) -> None:
        if self.batches:
            batch = self.batches.popleft()
            batch.change(self.redis.urls)
            for number in batch.taken:
                self.redis.inbox.pop(number, None)
            self.redis.seq += 1
            batch.is_acked = True


def put_back(urls: Urls) -> None:
    urls.waiting |= urls.leased
    urls.leased.clear()


@dataclass
class Worker:
    shards: dict[int, OwnedUrls] = field(default_factory=dict)
    pushes: list[Push] = field(default_factory=list)
    outbox: list[Push] = field(default_factory=list)  # on its disk: it survives a kill


@dataclass(frozen=True)
class Rules:
    """What of a life a test may put a fault into."""

    is_over: Callable[[Sequence[ShardRest], Sequence[ShardRest]], bool] = is_over
    waits_for_acks: bool = True
    notes_outboxes: bool = True


class Life:
    def __init__(self, seed: int, rules: Rules) -> None:
        self.random = Random(seed)
        self.rules = rules
        self.redis = [InRedis() for _ in range(SHARDS)]
        self.outboxes: set[int] = set()  # noted in shard 0
        self.workers = [Worker() for _ in range(WORKERS)]
        self.numbers = 0
        for shard in range(SHARDS):
            self.workers[0].shards[shard] = OwnedUrls(self.redis[shard])
        self.redis[0].urls = Urls(waiting={0}, seen={0})
        self.workers[0].shards[0] = OwnedUrls(self.redis[0])
        self.last: list[ShardRest] | None = None
        self.reading = self.read()

    def run(self) -> None:
        for number in range(STEPS + CALM_STEPS):
            step = self.random.choice(self.steps(with_faults=number < STEPS))
            step(self.random.randrange(WORKERS))
            if self.random.random() < 0.3 and self.look():
                assert self.done() == set(range(PAGES)), "it ended too early"
                return
        raise AssertionError("it never ends")

    def done(self) -> set[int]:
        return set().union(*(shard.urls.done for shard in self.redis))

    def look(self) -> bool:
        """Read a part of one shard more; return whether the crawl is found to be over."""
        found = next(self.reading)
        if found is None:
            return False
        last, self.last = self.last, found
        return last is not None and self.rules.is_over(last, found)

    def read(self) -> Iterator[list[ShardRest] | None]:
        """Read the numbers of a shard, then how much it has, then the next one; again and again."""
        while True:
            found = []
            for shard, kept in enumerate(self.redis):
                writes = (RUN, str(kept.seq).encode())
                yield None
                lengths = kept.urls.waiting or kept.urls.leased
                yield None
                is_left = bool(lengths or kept.inbox)
                noted = self.outboxes if shard == 0 else ()
                found.append(ShardRest(is_left, writes, frozenset(map(str, noted))))
                yield None
            yield found

    def steps(self, *, with_faults: bool) -> list[Callable[[int], None]]:
        usual = [self.send, self.send, self.push, self.work, self.work, self.take, self.drain]
        return [*usual, *usual, self.unnote, self.hand_over, *([self.kill] if with_faults else [])]

    def shard_of_worker(self, worker: int) -> OwnedUrls | None:
        shards = sorted(self.workers[worker].shards)
        return self.workers[worker].shards[self.random.choice(shards)] if shards else None

    def send(self, worker: int) -> None:
        if (shard := self.shard_of_worker(worker)) is not None:
            shard.send()

    def work(self, worker: int) -> None:
        """Lease a URL, fetch one, note links, or give a verdict."""
        shard = self.shard_of_worker(worker)
        if shard is None:
            return
        if shard.urls.waiting and self.random.random() < 0.5:
            number = self.random.choice(sorted(shard.urls.waiting))

            def lease(urls: Urls) -> None:
                urls.waiting.discard(number)
                urls.leased.add(number)

            shard.pages.append(Page(number, [shard.write(lease)]))
            return
        ready = [page for page in shard.pages if all(each.is_acked for each in page.waits)]
        if not ready:
            return
        page = self.random.choice(ready)
        if not page.is_fetched:
            page.is_fetched = True
            page.waits = [self.link(worker, each) for each in links_of(page.number)]
            if self.rules.waits_for_acks:
                return

        def finish(urls: Urls) -> None:
            urls.leased.discard(page.number)
            urls.done.add(page.number)

        shard.pages.remove(page)
        shard.write(finish)

    def link(self, worker: int, page: int) -> Sent:
        me = self.workers[worker]
        if (own := me.shards.get(shard_of(page))) is not None:
            return own.add(page)
        self.numbers += 1
        push = Push(number=self.numbers, page=page)
        if self.random.random() < 0.3:
            me.outbox.append(push)
            if self.rules.notes_outboxes:
                self.outboxes.add(worker)
            return Sent(is_acked=True)
        me.pushes.append(push)
        return push

    def push(self, worker: int) -> None:
        pushes = self.workers[worker].pushes
        if pushes:
            self.arrive(pushes.pop(self.random.randrange(len(pushes))))

    def arrive(self, push: Push) -> None:
        to = self.redis[shard_of(push.page)]
        to.inbox[push.number] = push.page
        push.is_acked = True

    def drain(self, worker: int) -> None:
        outbox = self.workers[worker].outbox
        if outbox and self.random.random() < 0.3:
            self.arrive(outbox[0])
            del outbox[0]

    def unnote(self, worker: int) -> None:
        if not self.workers[worker].outbox:
            self.outboxes.discard(worker)

    def take(self, worker: int) -> None:
        """Read an entry of an inbox."""
        shard = self.shard_of_worker(worker)
        if shard is None:
            return
        fresh = sorted(shard.redis.inbox.keys() - shard.taken)
        if fresh:
            shard.taken.add(fresh[0])
            shard.add(shard.redis.inbox[fresh[0]], (fresh[0],))

    def hand_over(self, worker: int) -> None:
        """One shard goes to the other worker, sometimes with open leases."""
        shards = self.workers[worker].shards
        number = self.random.randrange(SHARDS)
        if number not in shards or self.random.random() < 0.7:
            return
        shard = shards[number]
        while shard.batches:
            shard.send()
        del shards[number]
        self.workers[1 - worker].shards[number] = OwnedUrls(self.redis[number])

    def kill(self, worker: int) -> None:
        if self.random.random() < 0.8:
            return
        dead = self.workers[worker]
        self.workers[worker] = Worker(outbox=dead.outbox)
        for number in dead.shards:
            self.workers[1 - worker].shards[number] = OwnedUrls(self.redis[number])


def without_writes(rests: Sequence[ShardRest]) -> list[ShardRest]:
    return [replace(each, writes=()) for each in rests]


def without_outboxes(rests: Sequence[ShardRest]) -> list[ShardRest]:
    return [replace(each, outboxes=frozenset()) for each in rests]


def lives(count: int, rules: Rules) -> None:
    for seed in range(count):
        try:
            Life(seed, rules).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_crawl_ends_when_nothing_is_left() -> None:
    lives(LIVES, Rules())


@pytest.mark.parametrize(
    "rules",
    [
        Rules(is_over=lambda _, second: is_over(second, second)),
        Rules(is_over=lambda a, b: is_over(without_writes(a), without_writes(b))),
        Rules(is_over=lambda a, b: is_over(without_outboxes(a), without_outboxes(b))),
        Rules(waits_for_acks=False),
        Rules(notes_outboxes=False),
    ],
    ids=[
        "one round",
        "numbers of batches",
        "outboxes",
        "verdict beside the links",
        "outbox not noted",
    ],
)
def test_each_deliberate_fault_is_found(rules: Rules) -> None:
    with pytest.raises(AssertionError, match="too early"):
        lives(MUTANT_LIVES, rules)


def test_a_shard_that_is_not_whole_is_not_the_end() -> None:
    whole = [ShardRest(False, (RUN, b"5"), frozenset())] * 2
    assert is_over(whole, whole)
    doubtful = [replace(whole[0], is_left=True), whole[1]]
    assert not is_over(whole, doubtful)
    assert not is_over(doubtful, whole)
    restarted = [replace(whole[0], writes=(b"other run", b"5")), whole[1]]
    assert not is_over(whole, restarted)
