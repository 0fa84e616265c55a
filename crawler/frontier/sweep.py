"""One pass over all that waits, for an act of the operator: URLs are refused, given up, or moved to
another level.

Rule: a queue is passed by taking its URLs from its head and putting those that stay at its end, so
each step is one write, and the order is the same when all have had their turn. Steps take some
milliseconds; between two of them URLs are leased and added as ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from enum import Enum
from typing import Final

from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.budgets import DomainBudgets
from crawler.frontier.hosts import HostScheduler
from crawler.frontier.later import LaterUrls
from crawler.frontier.port import OrderedStore
from crawler.frontier.queues import QueueName, UrlQueues
from crawler.frontier.records import (
    DeadLetter,
    UrlEvent,
    UrlState,
    decode_candidate,
    decode_claim,
    decode_gone,
    decode_letter,
    decode_refused,
    encode,
)
from crawler.frontier.refusals import Refusals
from crawler.frontier.staging import WriteBatch, slices
from crawler.frontier.url_table import UrlTable
from crawler.model.types import Candidate, Dead, HostKey
from crawler.policy.refusal import Refusal


class Forget(Enum):
    """No record of the URL is kept but the key that says that it was admitted."""

    FORGET = "forget"


Fate = Refusal | Dead | Forget | int | None
"""What becomes of a waiting URL: it is refused, given up, forgotten, moved to that level, or
stays."""

_HOSTS: Final = 2000  # whose names are read in one step: 4 ms


class Sweep:
    """Passes over the waiting URLs of a frontier."""

    def __init__(
        self,
        batch: WriteBatch,
        queues: UrlQueues,
        scheduler: HostScheduler,
        refusals: Refusals,
        later: LaterUrls,
        budgets: DomainBudgets,
        table: UrlTable,
        slice_: int,
    ) -> None:
        """*slice_*: URLs of one step."""
        self._batch = batch
        self._queues = queues
        self._scheduler = scheduler
        self._refusals = refusals
        self._later = later
        self._budgets = budgets
        self._table = table
        self._slice = slice_

    def run(
        self,
        hosts: Iterable[HostKey] | None,
        may_concern: Callable[[HostKey], bool],
        fate: Callable[[Candidate], Fate],
        now: Callable[[], float],
    ) -> Iterator[int]:
        """Decide about each URL that waits, or waits for a date, of *hosts* (None: of all hosts)
        that *may_concern* is true for. It is asked before each step: a shard may leave meanwhile,
        and then nothing of it may be changed. *fate* is asked for all URLs with a date. Yields
        after each step, the changes of which are to be committed, how many URLs it has touched."""

        def may_pass(host: HostKey) -> bool:
            return self._batch.has(self._batch.shards.of(host)) and may_concern(host)

        for found in [hosts] if hosts is not None else self._slices_of_hosts():
            for host in found:
                yield from self._pass_host(host, may_pass, fate, now)
            yield 0
        yield from self._pass_later(fate, now)
        # Spilled ones are judged by rules when they are admitted.
        yield from self._budgets.forget(lambda each: isinstance(fate(each), Dead | Forget))

    def _slices_of_hosts(self) -> Iterator[list[HostKey]]:
        begin, stop = keys.HOST, keys.prefix_end(keys.HOST)
        while found := self._batch.scan(begin, stop, _HOSTS):
            begin = found[-1][0] + b"\0"
            known = (key for key, _ in found if self._batch.has(keys.shard_in(key)))
            yield [HostKey(keys.name_in_shard(key)) for key in known]

    def _pass_host(
        self,
        host: HostKey,
        may_pass: Callable[[HostKey], bool],
        fate: Callable[[Candidate], Fate],
        now: Callable[[], float],
    ) -> Iterator[int]:
        if not may_pass(host):
            return
        # Levels grow while they are passed: those that were moved are not passed again.
        tails = [ends.tail for ends in self._batch.peek(host).queue_ends]
        for level, tail in enumerate(tails):
            if (yield from self._touches_any((host, level), tail, may_pass, fate)):
                while may_pass(host) and self._head((host, level)) < tail:
                    yield self._pass_some((host, level), tail, fate, now())

    def _touches_any(
        self,
        queue: QueueName,
        tail: int,
        may_pass: Callable[[HostKey], bool],
        fate: Callable[[Candidate], Fate],
    ) -> Generator[int, None, bool]:
        """Return whether any URL of *queue* up to number *tail* would be touched. It is only read:
        of most queues none is, and all would be written again."""
        host, level = queue
        at = self._head(queue)
        # What was fetched stays in its chunk until the others there are.
        if at < tail and any(
            fate(decode_candidate(packed)) is Forget.FORGET
            for packed in self._queues.taken(host, level)
        ):
            return True
        while may_pass(host) and at < tail:
            stop = min(tail, at + self._slice)
            for packed in self._queues.read(host, level, at, stop):
                found = fate(decode_candidate(packed))
                if found is not None and found != level:
                    return True
            yield 0
            at = max(stop, self._head(queue))
        return False

    def _head(self, queue: QueueName) -> int:
        return self._batch.peek(queue[0]).queue_ends[queue[1]].head

    def _pass_some(
        self, queue: QueueName, tail: int, fate: Callable[[Candidate], Fate], now: float
    ) -> int:
        """Pass the next URLs of *queue*, up to number *tail*, and return how many were touched."""
        host, level = queue
        self._scheduler.end_turn(host, now)
        record = self._batch.host(host)
        head = record.queue_ends[level].head
        stop = min(tail, head + self._slice)
        stay: list[bytes] = []
        moved: defaultdict[int, list[Candidate]] = defaultdict(list)
        refused: list[tuple[Candidate, Refusal]] = []
        packed_refused: list[bytes] = []
        dead: list[tuple[Candidate, Dead]] = []
        forgotten = 0
        for packed in self._queues.read(host, level, head, stop):
            candidate = decode_candidate(packed)
            match fate(candidate):
                case Refusal() as refusal:
                    refused.append((candidate, refusal))
                    packed_refused.append(packed)
                case Dead() as verdict:
                    dead.append((candidate, verdict))
                case Forget():
                    forgotten += 1
                case int() as wanted if wanted != level:
                    moved[wanted].append(replace(candidate, level=wanted))
                case _:
                    stay.append(packed)
        self._queues.rotate(record, queue, stop, stay)
        for wanted, urls in moved.items():
            self._queues.append(record, (host, wanted), urls)
            self._scheduler.on_url_added(host, wanted, record)
        self._scheduler.on_urls_removed(host)
        if refused:
            self._refusals.keep(refused, packed_refused, now)
        for candidate, verdict in dead:
            self._give_up(candidate, verdict, UrlState.WAITING, now)
        shard = self._batch.shards.of(host)
        self._batch.count(shard, UrlState.WAITING, UrlEvent.FORGET, forgotten)
        return len(refused) + len(dead) + forgotten + sum(map(len, moved.values()))

    def _pass_later(
        self, fate: Callable[[Candidate], Fate], now: Callable[[], float]
    ) -> Iterator[int]:
        """Pass the URLs with a date. A refused one stays: it is judged when its date has come."""
        begin, stop = keys.LATER, keys.prefix_end(keys.LATER)
        while found := self._batch.scan(begin, stop, self._slice):
            begin = found[-1][0] + b"\0"
            touched = 0
            for key, packed in found:
                if not self._batch.has(keys.shard_in(key)):
                    continue
                candidate = decode_candidate(packed)
                match fate(candidate):
                    case Dead() as verdict:
                        self._later.remove(key, candidate)
                        self._give_up(candidate, verdict, UrlState.LATER, now())
                        touched += 1
                    case Forget():
                        self._later.remove(key, candidate)
                        self._batch.count(keys.shard_in(key), UrlState.LATER, UrlEvent.FORGET)
                        touched += 1
                    case int() as wanted if wanted != candidate.level:
                        self._batch.put(key, encode(replace(candidate, level=wanted)))
                        touched += 1
            yield touched

    def forget_kept(self, is_meant: Callable[[str], bool]) -> Iterator[int]:
        """Forget dead letters, refused URLs, listed URLs, which page had a content first, and
        statistics of patterns, of the URLs that *is_meant* is true for. Yields as `run`."""
        yield from self._forget_listed(is_meant)
        for prefix, state, urls_of in _KEPT:
            begin, stop = prefix, keys.prefix_end(prefix)
            while found := self._batch.scan(begin, stop, self._slice):
                begin = found[-1][0] + b"\0"
                meant = [
                    key
                    for key, packed in found
                    if (prefix == keys.DIGEST or self._batch.has(keys.shard_in(key)))
                    and any(map(is_meant, urls_of(key, packed)))
                ]
                self._batch.delete_all(meant)
                if state is not None:
                    for key in meant:
                        self._batch.count(keys.shard_in(key), state, UrlEvent.FORGET)
                yield len(meant) if state is not None else 0

    def _forget_listed(self, is_meant: Callable[[str], bool]) -> Iterator[int]:
        """Remove the URLs that *is_meant* is true for from the table of URLs."""
        for number, (key, host, listed) in enumerate(self._table.urls(), start=1):
            if is_meant(listed.url) and self._batch.has(keys.shard_in(key)):
                self._table.remove(host, keys.number_of(key), listed)
            if number % self._slice == 0:
                yield 0
        yield 0

    def _give_up(self, candidate: Candidate, verdict: Dead, state: UrlState, now: float) -> None:
        shard = self._batch.shards.of(candidate.host)
        self._batch.count(shard, state, UrlEvent.DROP)
        name = keys.numbered(keys.DEAD, self._batch.next_number(shard))
        self._batch.put(name, encode(DeadLetter(candidate, verdict.reason, now)))


def _urls_of_letter(_: bytes, packed: bytes) -> tuple[str, ...]:
    return (decode_letter(packed).candidate.url,)


def _urls_of_refused(_: bytes, packed: bytes) -> tuple[str, ...]:
    return (decode_refused(packed).candidate.url,)


def _urls_of_gone(_: bytes, packed: bytes) -> tuple[str, ...]:
    return (decode_gone(packed).candidate.url,)


def _urls_of_claim(_: bytes, packed: bytes) -> tuple[str, ...]:
    return (decode_claim(packed).url,)


def _urls_of_pattern(key: bytes, packed: bytes) -> tuple[str, ...]:
    """Return a URL of each scheme that has a pattern as its path; none for what is counted of a
    host as a whole, or under no pattern of its own."""
    host, _, pattern = keys.name_in_shard(key).partition("\0")
    is_path = pattern.startswith("/")
    return (f"http://{host}{pattern}", f"https://{host}{pattern}") if is_path else ()


_KEPT: Final = (
    (keys.DEAD, UrlState.DEAD, _urls_of_letter),
    (keys.REFUSED, UrlState.REFUSED, _urls_of_refused),
    (keys.GONE, None, _urls_of_gone),
    (keys.DIGEST, None, _urls_of_claim),
    (keys.PATTERN, None, _urls_of_pattern),
)


def forget_kept_here(store: OrderedStore, is_meant: Callable[[str], bool]) -> Iterator[int]:
    """Delete which page had a content first, and statistics of patterns, of the URLs that
    *is_meant* is true for, in a *store* whose URLs wait elsewhere. Yields 0 after each step."""
    for prefix, urls_of in ((keys.DIGEST, _urls_of_claim), (keys.PATTERN, _urls_of_pattern)):
        for found in slices(store, prefix, _HOSTS):
            meant = [key for key, packed in found if any(map(is_meant, urls_of(key, packed)))]
            store.write(dict.fromkeys(meant))
            yield 0
