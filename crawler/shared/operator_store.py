"""The operator's rules and audit of a shared crawl, in Redis, and a pass over its waiting URLs.

Rule: the rules are replaced as a whole, only if they are as they were read, and together with the
act that replaces them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from crawler.data.operator_files import Act, ActResult, read_audit
from crawler.frontier.records import DeadLetter
from crawler.frontier.sweep import Fate, Forget
from crawler.model.types import Candidate, Dead, HostKey
from crawler.model.url import authority_of, registered_domain
from crawler.policy.scope import Refusal
from crawler.shared import keys
from crawler.shared.client import Call, Nodes
from crawler.shared.codec import buckets_of, encode_letter, forbids_all, read_filed
from crawler.shared.faults import FAULTS
from crawler.shared.shard import (
    BATCH,
    ShardOperations,
    read_host,
    read_later,
    read_refused,
    read_waiting,
    shard_of,
)

_HOSTS: Final = 500  # read at once: 0.5 ms of the server
_LOCK_S: Final = 30
_KEEP_LOCK_S: Final = 5.0
_decode_letter = msgspec.msgpack.Decoder(DeadLetter).decode
_WRITE: Final = """
local rules, audit = KEYS[1], KEYS[2]
local found = redis.call('HMGET', rules, 'text', 'acts')
if (found[1] or '') ~= ARGV[1] or tonumber(found[2] or 0) + 1 ~= tonumber(ARGV[4]) then return 0 end
redis.call('RPUSH', audit, ARGV[3])
redis.call('HSET', rules, 'text', ARGV[2], 'acts', ARGV[4])
redis.call('HINCRBY', rules, 'version', 1)
return 1
"""


class SharedStore:
    """Implements data.operator_files.OperatorStore."""

    def __init__(self, nodes: Nodes, name: str, version: int = 0) -> None:
        """*name*: of the crawl. *version*: of the rules that are in force already."""
        self.name = name
        self._nodes = nodes
        self._key, self._audit = keys.rules(name), keys.audit(name)
        self._lock = keys.audit_lock(name)
        self._version = version

    async def changed(self) -> str | None:
        """Return the text of the rules if it was not returned before, else None. Raises a Fault."""
        version = await self._ask(self._key, "HGET", self._key, "version")
        if int(version or 0) == self._version:
            return None
        self._version, text = await read_rules(self._nodes, self._key)
        return text

    async def rules(self) -> str:
        return (await read_rules(self._nodes, self._key))[1]

    async def acts(self) -> list[Act | ActResult]:
        return list(read_audit(await self._ask(self._audit, "LRANGE", self._audit, 0, -1)))

    async def audit_lines(self) -> int:
        """Return how many lines the audit has."""
        return int(await self._ask(self._audit, "LLEN", self._audit))

    async def write(self, before: str, after: str, act: Act) -> bool:
        line = msgspec.json.encode(act)
        wrote = await self._ask(
            self._key, "EVAL", _WRITE, 2, self._key, self._audit, before, after, line, act.number
        )
        return bool(wrote)

    async def note(self, touched: ActResult) -> None:
        await self._ask(self._audit, "RPUSH", self._audit, msgspec.json.encode(touched))

    async def take_lock(self, worker: str) -> bool:
        """Return whether *worker* may carry acts out now: it alone, for some time."""
        taken = await self._ask(self._lock, "SET", self._lock, worker, "NX", "GET", "EX", _LOCK_S)
        return taken is None or taken == worker.encode()

    async def keep_lock(self, worker: str) -> None:
        await self._ask(self._lock, "SET", self._lock, worker, "XX", "EX", _LOCK_S)

    async def free_lock(self) -> None:
        await self._ask(self._lock, "DEL", self._lock)

    async def _ask(self, key: str, *command: Any) -> Any:
        return await self._nodes.checked_command(key, *command)


async def read_rules(nodes: Nodes, key: str) -> tuple[int, str]:
    """Return the version and the text of the rules. Raises a Fault."""
    version, text = await nodes.checked_command(key, "HMGET", key, "version", "text")
    return int(version or 0), (text or b"").decode(errors="replace")


class SharedQueues:
    """Implement `Queues` of `crawler/operate/acts.py` for a frontier in Redis, for one worker at a
    time."""

    def __init__(
        self, nodes: Nodes, ops: ShardOperations, store: SharedStore, worker: str = ""
    ) -> None:
        """*worker*: the name of this one, which it keeps when it is started again: then it goes on
        with what it began. Empty: of a command, which carries nothing out."""
        self._worker = worker
        self._nodes = nodes
        self._ops = ops
        self._store = store
        self._name = store.name

        self._is_locked = False

    async def carry_out(
        self,
        acts: Sequence[Act],
        do: Callable[[Act], Awaitable[int]],
        note: Callable[[Act, int], Awaitable[None]],
    ) -> bool:
        self._is_locked = bool(acts) and await self._store.take_lock(self._worker)
        if not self._is_locked:
            return not acts
        try:
            # Another worker may have done some of them while this one waited.
            lines = await self._store.acts()
            finished = {line.of for line in lines if isinstance(line, ActResult)}
            for act in acts:
                if act.number not in finished:
                    await note(act, await do(act))
            return True
        finally:
            self._is_locked = False
            await self._store.free_lock()

    async def sweep(
        self,
        hosts: Iterable[HostKey] | None,
        may_concern: Callable[[HostKey], bool],
        fate: Callable[[Candidate], Fate],
        now: Callable[[], float],
    ) -> AsyncIterator[int]:
        """Decide about each URL that waits, or waits for a date, as `frontier.sweep.Sweep.run`."""
        kept_at = now()
        async for shard, host, fronts in self._queues(hosts, may_concern):
            if now() > kept_at + _KEEP_LOCK_S:
                kept_at = now()
                await self._keep_lock()
            for front in fronts:
                key = keys.queue(self._name, shard, front, host)
                left = int(await self._ask(shard, "LLEN", key))
                if not await self._touches_any(shard, key, host, front, fate):
                    yield 0
                    continue
                while left > 0:
                    passed, touched = await self._pass_some(shard, key, host, front, fate, now())
                    left -= max(1, passed)
                    yield touched
        for shard in range(self._ops.shards):
            await self._keep_lock()
            async for touched in self._sweep_later(shard, fate, now):
                yield touched

    async def _sweep_later(
        self, shard: int, fate: Callable[[Candidate], Fate], now: Callable[[], float]
    ) -> AsyncIterator[int]:
        """Decide about the URLs of *shard* with a date. A refused one stays: it is judged when its
        date has come."""
        async for pairs in self._pairs(shard, keys.later(self._name, shard), "ZSCAN"):
            judged = []
            for entry, score in pairs:
                candidate = read_later(entry, float(score))
                found = fate(candidate)
                front = candidate.level + 1
                if _is_touched(found, front) and not isinstance(found, Refusal):
                    judged.append((entry, _word(found, candidate, front, now())))
            touched = 0
            for at in range(0, len(judged), BATCH):
                some = judged[at : at + BATCH]
                touched += await self._run(self._ops.sweep_later(shard, some))
            yield touched

    async def put_back(
        self,
        is_chosen: Callable[[DeadLetter], bool],
        now: Callable[[], float],
        domains: Collection[str] | None = None,
    ) -> AsyncIterator[int]:
        shards: Iterable[int] = range(self._ops.shards)
        if domains is not None:
            shards = {shard_of(domain, self._ops.shards) for domain in domains}
        for shard in shards:
            await self._keep_lock()
            totals = keys.totals(self._name, shard)
            begun_at = int(await self._ask(shard, "HGET", totals, "next") or 1)
            async for pairs in self._pairs(shard, keys.dead(self._name, shard)):
                letters = ((int(number), _decode_letter(packed)) for number, packed in pairs)
                # Later ones are of URLs that were put back here, and have failed again.
                meant = [each for each in letters if each[0] < begun_at and is_chosen(each[1])]
                for at in range(0, len(meant), BATCH):
                    some = meant[at : at + BATCH]
                    await self._forget_unreachable(shard, some)
                    yield await self._run(self._ops.retry_dead(shard, some))

    async def _forget_unreachable(
        self, shard: int, letters: Sequence[tuple[int, DeadLetter]]
    ) -> None:
        """Delete stored records of an unreachable robots.txt: they would refuse the URLs again."""
        for authority in {authority_of(letter.candidate.url) for _, letter in letters}:
            key = keys.robots(self._name, shard, authority)
            packed = await self._ask(shard, "GET", key)
            if packed is not None and forbids_all(packed):
                await self._ask(shard, "DEL", key)

    async def forget_kept(
        self, is_meant: Callable[[str], bool], now: Callable[[], float]
    ) -> AsyncIterator[int]:
        for what, key_of, url_of in _KEPT:
            for shard in range(self._ops.shards):
                await self._keep_lock()
                async for pairs in self._pairs(shard, key_of(self._name, shard)):
                    meant = [int(number) for number, packed in pairs if is_meant(url_of(packed))]
                    for at in range(0, len(meant), BATCH):
                        yield await self._run(self._ops.forget(shard, what, meant[at : at + BATCH]))

        for shard in range(self._ops.shards):
            await self._keep_lock()
            async for claim in self._forget_claims(shard, is_meant):
                yield claim

    async def _forget_claims(
        self, shard: int, is_meant: Callable[[str], bool]
    ) -> AsyncIterator[int]:
        """Forget which page had a content first, of the pages that are meant. Yields 0 for each
        bucket: these are no URLs. (The counter of claims says how many were ever made.)"""
        totals = keys.totals(self._name, shard)
        made = int(await self._ask(shard, "HGET", totals, "claims") or 0)
        for bucket in range(buckets_of(made)):
            key = keys.claims(self._name, shard, bucket)
            for filed in await self._ask(shard, "LRANGE", key, 0, -1):
                if is_meant(read_filed(filed, {}).url):
                    await self._ask(shard, "LREM", key, 1, filed)
            yield 0

    async def _queues(
        self, hosts: Iterable[HostKey] | None, may_concern: Callable[[HostKey], bool]
    ) -> AsyncIterator[tuple[int, HostKey, list[int]]]:
        """Yield shard, name and fronts with URLs of each host."""
        if hosts is not None:
            for host in hosts:
                shard = shard_of(registered_domain(host), self._ops.shards)
                packed = await self._ask(shard, "HGET", keys.hosts(self._name, shard), host)
                if packed is not None:
                    yield shard, host, read_host(packed).fronts
            return
        for shard in range(self._ops.shards):
            async for pairs in self._pairs(shard, keys.hosts(self._name, shard)):
                for name, packed in pairs:
                    host = HostKey(name.decode())
                    if may_concern(host):
                        yield shard, host, read_host(packed).fronts

    async def _touches_any(
        self, shard: int, key: str, host: HostKey, front: int, fate: Callable[[Candidate], Fate]
    ) -> bool:
        at = 0
        while found := await self._ask(shard, "LRANGE", key, at, at + _HOSTS - 1):
            if any(_is_touched(fate(read_waiting(each, host, front)), front) for each in found):
                return True
            at += len(found)
        return False

    async def _pass_some(
        self,
        shard: int,
        key: str,
        host: HostKey,
        front: int,
        fate: Callable[[Candidate], Fate],
        now: float,
    ) -> tuple[int, int]:
        """Pass the next URLs of a queue. Returns how many, and how many of them were touched."""
        packed_urls = await self._ask(shard, "LRANGE", key, 0, BATCH - 1)
        judged, touched = [], []
        for packed in packed_urls:
            candidate = read_waiting(packed, host, front)
            found = fate(candidate)
            touched.append(_is_touched(found, front))
            judged.append((packed, _word(found, candidate, front, now)))
        domain = registered_domain(host)
        passed = await self._run(self._ops.sweep(shard, host, domain, front, judged))
        return passed, sum(touched[:passed])

    async def _keep_lock(self) -> None:
        if self._is_locked:
            await self._store.keep_lock(self._worker)

    async def _pairs(
        self, shard: int, key: str, scan: str = "HSCAN"
    ) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Yield the fields of a hash and their values, or with ZSCAN the members of a sorted set
        and their scores, in parts."""
        cursor = b"0"
        while True:
            cursor, found = await self._ask(shard, scan, key, cursor, "COUNT", _HOSTS)
            yield list(zip(found[::2], found[1::2], strict=True))
            if cursor == b"0":
                return

    async def _run(self, call: Call) -> int:
        """Return the number that a script answers."""
        (reply,) = await self._nodes.run([call])
        if isinstance(reply, FAULTS):
            raise reply
        return int(reply[1])

    async def _ask(self, shard: int, *command: Any) -> Any:
        (reply,) = await self._nodes.commands([(shard, command)])
        if isinstance(reply, FAULTS):
            raise reply
        return reply


def _is_touched(fate: Fate, front: int) -> bool:
    return fate is not None and not (isinstance(fate, int) and fate + 1 == front)


def _word(fate: Fate, candidate: Candidate, front: int, now: float) -> bytes:
    """Return *fate* as an argument of sweep.lua."""
    match fate:
        case Refusal(reason):
            return b"r" + reason.encode()
        case Dead(reason):
            return b"d" + encode_letter(DeadLetter(candidate, reason, now))
        case Forget():
            return b"x"
        case int() as level if level + 1 != front:
            return b"f%d" % (level + 1)
        case _:
            return b""


def _url_of_letter(packed: bytes) -> str:
    return _decode_letter(packed).candidate.url


def _url_of_refused(packed: bytes) -> str:
    return read_refused(packed)[0].url


_KEPT: Final = (
    ("dead", keys.dead, _url_of_letter),
    ("refused", keys.refused_urls, _url_of_refused),
)
