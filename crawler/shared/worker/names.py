"""Answers of name servers that workers share.

Rule: nothing that Redis says is trusted. What it has of a name is read as addresses or not at all,
and the resolver checks them, and for how long they count, as those of a name server. No look-up
waits for a Redis that is slow or absent, but the first ones.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from time import monotonic
from typing import Any, Final, TypeAlias

from crawler.frontier.shards import shard_of
from crawler.model.page import ResolvedName
from crawler.model.url import registered_domain
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.connection import Argument
from crawler.shared.faults import FAULTS
from crawler.shared.worker.batcher import Batcher, ShardClient

MOST_NAMES: Final = 1_000_000
"""Kept in Redis of a crawl: 100 MB."""
KEPT_MS: Final = 86_400_000
"""After which Redis drops all names of a shard to which none is added: the longest TTL that a
resolver gives out is a day."""
GATHER_S: Final = 0.005  # 20 of 4,000 names a second; a look-up takes 10 to 500 ms
ANSWER_S: Final = 0.1  # guess; a look-up takes as long, and a server 30 ms for a batch of links
ASK_AGAIN_S: Final = 5.0
LEAST_LEFT_S: Final = 5.0  # what is to expire sooner is looked up
MOST_ADDRESSES: Final = 32  # of a name; ten times what large sites have
MOST_BYTES: Final = 2048  # of what Redis has of a name: 32 addresses take 1.3 kB
MOST_UNSENT: Final = 1000  # names that wait to be sent
UNANSWERED: Final = "names/unanswered"
"""Counts names that were looked up as Redis did not say in time whether another worker had."""

RunCommands: TypeAlias = Callable[
    [Sequence[tuple[int, tuple[Argument, ...]]]], Awaitable[list[Any]]
]
"""As Nodes.commands."""


class SharedNames:
    """The answers of all workers, in Redis. Bound there: *most* names, and the time that each
    counts; here: the questions of waiting look-ups, and MOST_UNSENT answers."""

    def __init__(
        self,
        link: ShardClient,
        name: str,
        commands: RunCommands,
        *,
        most: int = MOST_NAMES,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        """*name* is that of the crawl."""
        self._link = link
        self._crawl = name
        self._commands = commands
        self._shards = link.contents.shards
        self._most_of_shard = max(1, most // self._shards)
        self._steady = steady
        self._questions = Batcher(self._read_all, GATHER_S)
        self._is_silent = False  # whether Redis did not answer in time
        self._ask_at = 0.0  # when it is asked again, of the steady clock
        self._asked: set[asyncio.Task[ResolvedName | None]] = set()
        self._unsent: dict[str, ResolvedName] = {}
        self._sending: asyncio.Task[None] | None = None

    async def find(self, name: str) -> ResolvedName | None:
        """Return what another worker was told of *name*, with the seconds that are left of it, or
        None. While Redis is silent it is asked for one name each ASK_AGAIN_S, and none waits."""
        if self._is_silent and self._steady() < self._ask_at:
            self._link.count(UNANSWERED)
            return None
        was_silent = self._is_silent
        if was_silent:
            self._ask_at = self._steady() + ASK_AGAIN_S
        asked = asyncio.create_task(self._ask(name))
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        answered, _ = await asyncio.wait({asked}, timeout=0.0 if was_silent else ANSWER_S)
        if answered:
            return asked.result()
        self._link.count(UNANSWERED)
        self._note_silence()
        return None

    def add(self, name: str, found: ResolvedName) -> None:
        """Keep for the others what a name server has said about *name*, as far as there is room."""
        if len(self._unsent) < MOST_UNSENT:
            self._unsent[name] = found
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be sent."""
        return self._sending is None

    def close(self) -> None:
        """Forget what was not sent or answered."""
        for task in (self._sending, *self._asked):
            if task is not None:
                task.cancel()

    async def _ask(self, name: str) -> ResolvedName | None:
        asked_at_s = self._steady()
        reply = await self._questions.ask(name)
        if isinstance(reply, FAULTS) or self._steady() - asked_at_s > ANSWER_S:
            self._note_silence()
        else:
            self._is_silent = False
        return None if isinstance(reply, FAULTS) else read_answer(*reply)

    def _note_silence(self) -> None:
        if not self._is_silent:
            self._is_silent, self._ask_at = True, self._steady() + ASK_AGAIN_S

    async def _read_all(self, names: Sequence[str]) -> list[Any]:
        """Return for each name the time of its server, and what that has of the name; or a
        Fault."""
        of_shards: defaultdict[int, list[str]] = defaultdict(list)
        for name in names:
            of_shards[self._shard(name)].append(name)
        asks: list[tuple[int, tuple[Argument, ...]]] = []
        for shard, some in of_shards.items():
            key = keys.names(self._crawl, shard)
            asks += [(shard, ("TIME",)), (shard, ("HMGET", key, *some))]
        replies = await self._commands(asks)
        found: dict[str, Any] = {}
        for at, some in enumerate(of_shards.values()):
            time, values = replies[2 * at], replies[2 * at + 1]
            fault = next((each for each in (time, values) if isinstance(each, FAULTS)), None)
            for place, name in enumerate(some):
                found[name] = fault or (time, values[place])
        return [found[name] for name in names]

    async def _send_all(self) -> None:
        try:
            while self._unsent:
                await asyncio.sleep(GATHER_S)
                await self._send()
        finally:
            self._sending = None

    async def _send(self) -> None:
        unsent, self._unsent = self._unsent, {}
        added: defaultdict[int, list[Argument]] = defaultdict(list)
        for name, found in unsent.items():
            if not self._link.is_full(shard := self._shard(name)):
                addresses = " ".join(found.ips[:MOST_ADDRESSES])
                added[shard] += [name, int(found.ttl_s * 1000), addresses]
        limits = self._most_of_shard, KEPT_MS
        # A Fault is not handled: what is lost is looked up again.
        await self._link.run([Call(at, "names", (*limits, *args)) for at, args in added.items()])

    def _shard(self, name: str) -> int:
        return shard_of(registered_domain(name), self._shards)


def read_answer(time: Any, value: Any) -> ResolvedName | None:
    """Return the addresses in *value*, a field of the hash, with the seconds that are left of them
    at *time*, a reply to TIME. None if it has no field, or is not what a worker writes."""
    if not isinstance(value, bytes) or len(value) > MOST_BYTES:
        return None
    try:
        until_ms, *texts = value.decode("ascii").split(" ")
        left_s = int(until_ms) / 1000 - (int(time[0]) + int(time[1]) / 1e6)
        ips = tuple([str(ip_address(text)) for text in texts if "%" not in text])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if not ips or len(ips) > MOST_ADDRESSES or left_s < LEAST_LEFT_S:
        return None
    return ResolvedName(ips, left_s)
