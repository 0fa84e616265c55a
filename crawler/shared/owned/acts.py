"""Acts of operators in a crawl whose shards have owners: each owner carries them out in its shards,
and one worker writes into the audit what all have done.

Rule: the audit is the list of acts, in their order. Each shard says in the field `acts` of its root
which was the last one that was carried out there; it is written by the owner, behind all that the
act has changed. So a server that loses its last second loses both, the next owner knows what is
left to be done, and a shard that comes later is done when it is taken in. What an owner was doing
when it died is done again.

    an act is in the audit -> 2 s later all workers follow its rules -> the entries that are in the
    inbox of a shard then are added -> the owner carries it out -> `acts` of the shard
    all shards have it -> the worker that has the lock writes the result, the sum of all

URLs are added by the worker that has the lock, when all earlier acts have their results; and later
acts wait for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from crawler.data.operator_files import Act, ActResult
from crawler.frontier import dead_letters
from crawler.frontier.records import DeadLetter
from crawler.frontier.sweep import Fate
from crawler.model.types import Candidate, HostKey
from crawler.model.url import split
from crawler.policy.robots_cache import RobotsCache
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.codec import buckets_of, read_filed
from crawler.shared.faults import FAULTS
from crawler.shared.operator_store import SharedStore
from crawler.shared.owned.frontier import OwnedFrontier
from crawler.shared.owned.owner import OwnedShard
from crawler.shared.owned.scripts import ACTS, INBOX, Command
from crawler.shared.worker.outbox import Outbox

RULES_S: Final = 2.0
"""Until all workers follow new rules."""
_LOOK_S: Final = 0.1  # between two looks into an inbox
_MOST_UNSENT: Final = 2  # batches of a shard, of 1 to 5 MB
_BUCKETS: Final = 50  # of claims, read at once: some 200 kB


class ShardActs(msgspec.Struct, array_like=True, frozen=True):
    """What was carried out in one shard."""

    last: int = 0  # the number of the last act
    touched: dict[int, int] = {}
    """How many URLs acts have touched, until the audit has that. Of several shards of one owner one
    has the number of all."""


_decode: Final = msgspec.msgpack.Decoder(ShardActs).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def read_acts(packed: bytes | None) -> ShardActs:
    """Return what the field `acts` of a shard says; one that cannot be read says nothing, so acts
    are carried out again."""
    try:
        return _decode(packed) if packed else ShardActs()
    except msgspec.MsgspecError:
        return ShardActs()


class OwnedQueues:
    """Implement `Queues` of `crawler/operate/acts.py` for one worker. What is asked for while an
    act is carried out is done in the shards that are behind, as long as they are here."""

    def __init__(
        self,
        frontier: OwnedFrontier,
        nodes: Nodes,
        store: SharedStore,
        worker: str,
        outbox: Outbox,
        robots: RobotsCache,
        note_left: Callable[[bool], None],
        rules_s: float = RULES_S,
    ) -> None:
        """*worker*: its name. *note_left* is called with whether acts are left to be carried out:
        the crawl does not end before that."""
        self._frontier = frontier
        self._nodes = nodes
        self._store = store
        self._worker = worker
        self._outbox = outbox
        self._robots = robots
        self._note_left = note_left
        self._rules_s = rules_s
        note_left(True)  # as far as is known before the first look
        self._seen_at_s: dict[int, float] = {}  # when this worker has read of an act
        self._part: set[OwnedShard] = set()  # that the act is carried out in

    async def carry_out(
        self,
        acts: Sequence[Act],
        do: Callable[[Act], Awaitable[int]],
        note: Callable[[Act, int], Awaitable[None]],
    ) -> bool:
        if acts:
            await self._do_parts(acts, do, note)
        is_done = await self._note_finished(acts, note)
        self._note_left(not is_done)
        return is_done

    async def _do_parts(
        self,
        acts: Sequence[Act],
        do: Callable[[Act], Awaitable[int]],
        note: Callable[[Act, int], Awaitable[None]],
    ) -> None:
        here = self._frontier.taken_in()
        now_s = time.monotonic()
        self._seen_at_s = {act.number: self._seen_at_s.get(act.number, now_s) for act in acts}
        for at, act in enumerate(acts):
            if act.verb != "add":
                await self._do_part(act, here, do)
            elif not (
                await self._note_finished(acts[:at], note) and await self._add_alone(act, do, note)
            ):
                return

    async def _add_alone(
        self,
        act: Act,
        do: Callable[[Act], Awaitable[int]],
        note: Callable[[Act, int], Awaitable[None]],
    ) -> bool:
        """Add the URLs of *act*, if no other worker does. Return whether they are added."""
        if not await self._store.take_lock(self._worker):
            return False
        try:
            if act.number not in await self._finished():
                await note(act, await do(act))
        finally:
            await self._store.free_lock()
        return True

    async def _do_part(
        self, act: Act, here: Iterable[OwnedShard], do: Callable[[Act], Awaitable[int]]
    ) -> None:
        """Carry *act* out in those shards *here* that are behind. Earlier acts were carried out in
        all of them."""
        self._part = {shard for shard in here if _acts_of(shard).last < act.number}
        if not self._kept_part():
            return
        if act.verb != "retry":  # it sets no rules, and a person waits for it
            due_at_s = self._seen_at_s[act.number] + self._rules_s
            await asyncio.sleep(max(0.0, due_at_s - time.monotonic()))
        await self._read_inboxes()
        touched = {act.number: await do(act)}
        kept = self._kept_part()
        self._part = set()
        done = {}
        for shard in kept:
            before = _acts_of(shard).touched.items()
            left = {number: urls for number, urls in before if number in self._seen_at_s}
            done[shard] = _encode(ShardActs(act.number, left | touched))
            touched = {}
        await self._frontier.note_root_field(ACTS, done)
        await self._frontier.wait_until_acknowledged()

    def _kept_part(self) -> set[OwnedShard]:
        """Return the shards of the part that are still here."""
        return self._part.intersection(self._frontier.taken_in())

    async def _read_inboxes(self) -> None:
        """Return when what is in the inboxes of the part now has been added."""
        unread = await self._entries()
        while any(unread.values()):
            await asyncio.sleep(_LOOK_S)
            there = await self._entries()
            unread = {shard: unread[shard] & names for shard, names in there.items()}

    async def _entries(self) -> dict[OwnedShard, set[bytes]]:
        shards = list(self._kept_part())
        names = await self._ask_each(
            [(each.commands.shard, ("HKEYS", each.commands.key(INBOX))) for each in shards]
        )
        return {shard: set(found) for shard, found in zip(shards, names, strict=True)}

    async def _note_finished(
        self, acts: Sequence[Act], note: Callable[[Act, int], Awaitable[None]]
    ) -> bool:
        """Write the results of those *acts* that all shards have, if no other worker does. Return
        whether the audit has the results of all."""
        if not acts:
            return True
        if not await self._store.take_lock(self._worker):
            return False
        try:
            finished = await self._finished()
            left = [act for act in acts if act.number not in finished]
            if _done_in(await self._read_acts(), left):
                # The audit may be on another server than a shard, which must not lose what is said
                # there to be carried out.
                await self._frontier.wait_until_durable()
                shards = await self._read_acts()
                for act in _done_in(shards, left):
                    await note(act, sum(each.touched.get(act.number, 0) for each in shards))
                    finished.add(act.number)
            return all(act.number in finished for act in acts)
        finally:
            await self._store.free_lock()

    async def _finished(self) -> set[int]:
        """Return the numbers of the acts that have a result."""
        lines = await self._store.acts()
        return {line.of for line in lines if isinstance(line, ActResult)}

    async def _read_acts(self) -> list[ShardActs]:
        """Return what was carried out in each shard of the crawl."""
        name, shards = self._nodes.name, range(self._nodes.shards)
        asks = [(shard, ("HGET", keys.root(name, shard), ACTS)) for shard in shards]
        return [read_acts(packed) for packed in await self._ask_each(asks)]

    async def sweep(
        self,
        hosts: Iterable[HostKey] | None,
        may_concern: Callable[[HostKey], bool],
        fate: Callable[[Candidate], Fate],
        now: Callable[[], float],
    ) -> AsyncIterator[int]:
        steps = self._frontier.frontier.sweep(
            hosts,
            lambda host: self._is_here(host) and may_concern(host),
            lambda found: fate(found) if self._is_here(found.host) else None,
            now,
        )
        async for touched in self._taken(steps):
            yield touched

    async def put_back(
        self,
        is_chosen: Callable[[DeadLetter], bool],
        now: Callable[[], float],
        domains: Collection[str] | None = None,
    ) -> AsyncIterator[int]:
        frontier = self._frontier.frontier
        steps = dead_letters.retry_dead(
            *(frontier.records, frontier, self._robots),
            lambda letter: self._is_here(letter.candidate.host) and is_chosen(letter),
            now,
        )
        async for some in self._taken(steps):
            yield some

    async def forget_kept(
        self, is_meant: Callable[[str], bool], now: Callable[[], float]
    ) -> AsyncIterator[int]:
        steps = self._frontier.frontier.forget_kept(
            lambda url: is_meant(url) and self._is_here(split(url).hostname), now
        )
        async for touched in self._taken(steps):
            yield touched
        for shard in self._kept_part():
            await self._forget_claims(shard.commands.shard, is_meant)
            await self._forget_names(shard.commands.shard)

    async def forget_unsent(self, is_meant: Callable[[str], bool]) -> None:
        for _ in self._outbox.forget(lambda link: is_meant(link.url)):
            await asyncio.sleep(0)

    async def _taken(self, steps: Iterable[int]) -> AsyncIterator[int]:
        """Take *steps*, at most as fast as Redis takes what they change."""
        for touched in steps:
            yield touched
            await asyncio.sleep(0)
            while any(map(_is_behind, self._part)):
                await asyncio.sleep(_LOOK_S)

    def _is_here(self, host: str) -> bool:
        return self._frontier.owner_of(host) in self._part

    async def _forget_claims(self, shard: int, is_meant: Callable[[str], bool]) -> None:
        """Forget which page had a content first, of the pages that are meant: by their contents
        they are in any shard. (The counter of claims says how many were ever made.)"""
        name, begin = self._nodes.name, 0
        while True:
            made = await self._ask_each([(shard, ("HGET", keys.root(name, shard), "claims"))])
            buckets = range(begin, min(buckets_of(int(made[0] or 0)), begin + _BUCKETS))
            if not buckets:
                return
            names = [keys.claims(name, shard, bucket) for bucket in buckets]
            found = await self._ask_each([(shard, ("LRANGE", each, 0, -1)) for each in names])
            await self._ask_each(
                [
                    (shard, ("LREM", bucket, 1, filed))
                    for bucket, claims in zip(names, found, strict=True)
                    for filed in claims
                    if is_meant(read_filed(filed, {}).url)
                ]
            )
            begin = buckets.stop

    async def _forget_names(self, shard: int) -> None:
        """Forget the addresses of all names: those that fetches still need are looked up again."""
        await self._ask_each([(shard, ("DEL", keys.names(self._nodes.name, shard)))])

    async def _ask_each(self, asks: Sequence[tuple[int, Command]]) -> list[Any]:
        """Return the replies to commands, each with its shard. Raises the first Fault."""
        replies = await self._nodes.commands(asks) if asks else []
        for reply in replies:
            if isinstance(reply, FAULTS):
                raise reply
        return replies


def _acts_of(shard: OwnedShard) -> ShardActs:
    return read_acts(shard.mirror.root_fields.get(ACTS))


def _done_in(shards: Sequence[ShardActs], acts: Iterable[Act]) -> list[Act]:
    """Return those of *acts* that were carried out in all *shards*."""
    last = min(shard.last for shard in shards)
    return [act for act in acts if act.verb != "add" and act.number <= last]


def _is_behind(shard: OwnedShard) -> bool:
    """Return whether batches of *shard* wait to be sent, each of some MB."""
    return shard.is_owned and shard.mirror.position - shard.acked > _MOST_UNSENT
