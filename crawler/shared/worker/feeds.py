"""What is pushed from outside while the crawl runs: taken as scrapy-redis does, but not lost.

Rule: nothing leaves Redis before the frontier has acknowledged it. What is taken is kept beside its
feed until then; if its worker is not heard of for a lease, another takes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from crawler.model.types import Added, Candidate
from crawler.shared import keys
from crawler.shared.client import Argument, Nodes
from crawler.shared.faults import (
    FAULTS,
    OutOfMemory,
    Unreachable,
)
from crawler.shared.keys import Scripts
from crawler.shared.shard import (
    BATCH,
    Ops,
    read_added,
    shard_of,
)
from crawler.shared.worker.outgoing import SURE_S

MOST_BYTES: Final = 64 * 1024
"""Of one item: a URL is at most 4,096 characters, the rest is meta and form data."""
_MOST_KEPT: Final = 4096  # characters of an item that was refused
_HOSTS_AT_ONCE: Final = 500
_encode = msgspec.json.Encoder().encode
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

T = TypeVar("T")


class Item(NamedTuple):
    id: bytes  # of its being taken: who takes it again gives it another
    text: bytes  # as it was pushed


class OpenedHost(NamedTuple):
    """A host that is open from now on, and its place in the order of all of them."""

    host: str
    mark: int


class Feed:
    """One key that URLs are pushed to. All methods raise a Fault."""

    def __init__(
        self, nodes: Nodes, scripts: Scripts, key: str, session: str, lease_s: float
    ) -> None:
        """*session*: no other Feed of this key ever has the same."""
        self.key = key
        self.too_long = 0  # refused for their size
        self._nodes = nodes
        self._scripts = scripts
        self.refused_key = keys.refused(key)
        self.lease_s = lease_s
        self._keys = (key, keys.taken(key), self.refused_key)
        self._session = session
        self._calls = count()

    def __repr__(self) -> str:
        return f"Feed({self.key!r})"

    async def take(self, limit: int) -> list[Item]:
        """Up to *limit*; they are this worker's for a lease, and after each `hold` for another."""
        token = f"{self._session}/{next(self._calls)}"
        reply = await self._run("feed_take", token, limit, self.lease_s, MOST_BYTES)
        self.too_long += int(reply[0])
        return [Item(*pair) for pair in _parts(reply[1:], 2)]

    async def hold(self, items: Sequence[Item]) -> list[Item]:
        """Those of *items* that are still this worker's, for another lease."""
        reply = await self._run("feed_hold", *(item.id for item in items))
        return [item for item, held in zip(items, reply, strict=True) if held]

    async def taken_in(self, items: Sequence[Item]) -> None:
        """The frontier has them."""
        taken = self._keys[1]
        for part in _parts(items, BATCH):
            await _asked(self._nodes, taken, "HDEL", taken, *(item.id for item in part))

    async def refuse(self, items: Sequence[tuple[Item, str]]) -> None:
        """They cannot be used, each for its reason. The last thousand are kept to be seen."""
        for part in _parts(items, BATCH):
            args = [each for item, why in part for each in (item.id, _entry(item, why))]
            await self._run("feed_refuse", *args)

    async def length(self) -> int:
        """How many are not yet in the frontier: waiting, or taken by whichever worker."""
        return sum(map(int, await self._run("feed_length")))

    async def _run(self, script: str, *args: Argument) -> Any:
        text = self._scripts.text(script)
        return await _asked(
            self._nodes, self.key, "EVAL", text, len(self._keys), *self._keys, *args
        )


class OpenedHosts:
    """Hosts that pushed seeds have opened, in one order for all workers. Raises a Fault."""

    def __init__(self, nodes: Nodes, scripts: Scripts, name: str) -> None:
        self._nodes = nodes
        self._scripts = scripts
        self._key = keys.doors(name)

    async def open(self, hosts: Sequence[str]) -> int:
        """Returns the mark of the last of *hosts*: who has read up to it knows them all."""
        text = self._scripts.text("open_doors")
        mark = 0
        for part in _parts(hosts, _HOSTS_AT_ONCE):
            reply = await _asked(self._nodes, self._key, "EVAL", text, 1, self._key, *part)
            mark = max(mark, int(reply))
        return mark

    async def since(self, mark: int) -> list[OpenedHost]:
        """The first few behind *mark*, in their order."""
        limit = ("LIMIT", 0, _HOSTS_AT_ONCE)
        command = ("ZRANGEBYSCORE", self._key, f"({mark}", "+inf", "WITHSCORES", *limit)
        reply = await _asked(self._nodes, self._key, *command)
        return [OpenedHost(host.decode(), int(float(score))) for host, score in _parts(reply, 2)]


@dataclass(frozen=True, slots=True)
class SentCandidates:
    """What became of candidates, by their shards."""

    added: Added
    runs: dict[int, bytes]  # shards that acknowledged all of theirs, and the run they are in
    failed: frozenset[int]  # shards that could not be asked


class CandidateSender:
    """Candidates into the frontier, with an answer. A Fault that no waiting mends is raised."""

    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        is_sure: bool,
        touched: Callable[[int, float], None],
    ) -> None:
        """*is_sure*: what a server acknowledges is on its disk; *touched*: is told of shards that
        may have something due."""
        self._nodes = nodes
        self._ops = ops
        self._is_sure = is_sure
        self._touched = touched

    @property
    def sure_s(self) -> float:
        """How long after its acknowledgement a candidate is on disk where it is, or was lost with a
        run. One server loses the end of its file: what was acknowledged later is lost first."""
        return 0.0 if self._is_sure or self._nodes.single_server else SURE_S

    def shard(self, candidate: Candidate) -> int:
        return shard_of(candidate.domain, self._ops.shards)

    async def add(self, found: Iterable[Candidate], is_urgent: bool) -> SentCandidates:
        calls = self._ops.urgent(found) if is_urgent else self._ops.add(found, float("inf"))
        runs: dict[int, bytes] = {}
        failed: set[int] = set()
        new = seen = over_budget = 0
        for call, reply in zip(calls, await self._nodes.run(calls), strict=True):
            if not _is_answer(reply):
                failed.add(call.shard)
                continue
            # Two runs of one call: the older, so that it shows as ended.
            runs.setdefault(call.shard, reply[0])
            added = read_added(reply)
            new, seen = new + added.new, seen + added.seen
            over_budget += added.over_budget
            self._touched(call.shard, 0.0)
        fine = {shard: run for shard, run in runs.items() if shard not in failed}
        return SentCandidates(Added(new, seen, over_budget), fine, frozenset(failed))

    async def forgetful(self, runs: dict[int, bytes]) -> set[int] | None:
        """Shards that are in another run now. None: not all could be asked."""
        shards = list(runs)
        replies = await self._nodes.run([self._ops.mine(shard) for shard in shards])
        if not all(map(_is_answer, replies)):
            return None
        return {
            shard for shard, reply in zip(shards, replies, strict=True) if reply[0] != runs[shard]
        }


@dataclass(frozen=True, slots=True)
class PushedFeeds:
    """All that the pushing of URLs has in Redis."""

    start_urls: Feed
    urgent: Feed
    doors: OpenedHosts
    delivery: CandidateSender

    @classmethod
    def of(
        cls,
        nodes: Nodes,
        delivery: CandidateSender,
        name: str,
        key: str,
        session: str,
        lease_s: float,
    ) -> PushedFeeds:
        """*name*: of the crawl; *key*: where its seeds are pushed to."""
        scripts = Scripts()
        return cls(
            Feed(nodes, scripts, key, session, lease_s),
            Feed(nodes, scripts, keys.urgent(name), session, lease_s),
            OpenedHosts(nodes, scripts, name),
            delivery,
        )


def _parts(sequence: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (sequence[begin : begin + size] for begin in range(0, len(sequence), size))


async def _asked(nodes: Nodes, key: str, *command: Argument) -> Any:
    reply = await nodes.command(key, *command)
    if isinstance(reply, FAULTS):
        raise reply
    return reply


def _is_answer(reply: Any) -> bool:
    """False: wait, and ask again. Raises a Fault that no waiting mends."""
    if isinstance(reply, FAULTS) and not isinstance(reply, OutOfMemory | Unreachable):
        raise reply
    return not isinstance(reply, FAULTS)


def _entry(item: Item, why: str) -> bytes:
    text = item.text.decode("utf-8", "backslashreplace")
    return _encode({"why": _SURROGATE.sub("?", why), "item": text[:_MOST_KEPT]})
