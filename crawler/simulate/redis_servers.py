"""The Redis servers of a simulated crawl, and the network between them and its workers.

Rule: commands and replies are events. The commands of one connection come in their order; what
breaks a connection loses some commands, or replies to some that were carried out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any, Final, NamedTuple

from crawler.shared.client import Nodes
from crawler.shared.connection import Argument
from crawler.shared.faults import Unreachable
from crawler.shared.owned.scripts import OwnedScripts
from crawler.simulate.event_loop import SimulatedEventLoop
from crawler.simulate.redis_model import RedisModel
from crawler.simulate.web import START

SCRIPTS: Final = OwnedScripts()
NAME: Final = "simulated"
_UNDER_WAY_S: Final = 1.0  # from a note of a worker to the write of it, mostly
_TIMEOUT_S: Final = 5.0  # after which a client takes a server for unreachable


class _SentCommands(NamedTuple):
    """Commands on their way to a server."""

    server: int
    run: int  # of the server, when they were sent
    commands: Sequence[Sequence[Any]]
    on_replies: Callable[[float, list[Any]], None]
    on_lost: Callable[[float], None]


@dataclass(slots=True)
class SimulatedServer:
    model: RedisModel
    down_until: float = 0.0
    paused_until: float = 0.0  # it gets commands, and carries them out then


class RedisServers:
    """All servers of a crawl."""

    def __init__(
        self,
        count: int,
        random: Random,
        breaks: float,
        one_way_s: Sequence[float],
        model: Callable[..., RedisModel],
    ) -> None:
        """*breaks*: the share of pipelines whose connection breaks. *one_way_s*: how long commands
        or replies may be on their way."""
        self.all = [SimulatedServer(model(SCRIPTS, kept_writes=None)) for _ in range(count)]
        self.now = START
        self.breaks = breaks
        self._one_way = one_way_s
        self._random = random
        self._events: list[tuple[float, int, _SentCommands]] = []
        self._tick = 0

    def server_of(self, shard: int) -> int:
        return shard % len(self.all)

    def run_of(self, shard: int) -> bytes:
        """Return the run of the server that has *shard*."""
        return b"run%d" % self.all[self.server_of(shard)].model.run

    @property
    def next_at(self) -> float:
        return self._events[0][0] if self._events else inf

    def advance(self) -> None:
        """Carry out the next commands."""
        at, _, pipeline = heappop(self._events)
        self.now = max(self.now, at)
        server, commands = self.all[pipeline.server], pipeline.commands
        lost = Unreachable("the connection is broken")
        if self.now < server.down_until or pipeline.run != server.model.run:
            pipeline.on_lost(self.now)
            pipeline.on_replies(self.now + self._one_way_s(), [lost] * len(commands))
            return
        server.model.pass_time(milliseconds(self.now))
        sent = heard = len(commands)
        if self._random.random() < self.breaks:
            sent = self._random.randint(0, sent)
            heard = self._random.randint(0, sent)
            pipeline.on_lost(self.now)
        replies = [server.model.ask(command) for command in commands[:sent]]
        replies[heard:] = [lost] * (len(commands) - heard)
        pipeline.on_replies(self.now + self._one_way_s(), replies)

    def send(
        self,
        server: int,
        now: float,
        earliest: float,
        commands: Sequence[Sequence[Any]],
        on_replies: Callable[[float, list[Any]], None],
        on_lost: Callable[[float], None],
    ) -> float:
        """Send *commands* to *server*, not to come there before *earliest*. *on_replies* is called
        with the time at which the replies will come, *on_lost* with the time if some may not be
        carried out. Returns when the commands will be there."""
        there, run = self.all[server], self.all[server].model.run
        at = max(now + self._one_way_s(), earliest, there.paused_until)
        self._tick += 1
        if at > now + _TIMEOUT_S:
            on_lost(at)
            on_replies(now + _TIMEOUT_S, [Unreachable("no reply")] * len(commands))
            on_replies = _forget
        heappush(
            self._events,
            (at, self._tick, _SentCommands(server, run, commands, on_replies, on_lost)),
        )
        return at

    def restart(self, server: int, now: float, down_s: float, *, is_lossy: bool) -> float | None:
        """Restart a server, which is down for *down_s*. Returns since when what it had acknowledged
        is lost, or None."""
        there = self.all[server]
        there.model.pass_time(milliseconds(now))
        random = self._random if is_lossy else None
        lost_since_ms = there.model.restart(random, down_ms=milliseconds(START + down_s))
        there.down_until, there.paused_until = now + down_s, 0.0
        return None if lost_since_ms is None else START + lost_since_ms / 1000 - _UNDER_WAY_S

    def pause(self, server: int, until: float) -> None:
        """Let a server carry out nothing before *until*."""
        self.all[server].paused_until = until

    def _one_way_s(self) -> float:
        return self._random.choice(self._one_way)


def _forget(at: float, replies: list[Any]) -> None:
    """Nothing waits for them any more."""


def milliseconds(now: float) -> int:
    return round((now - START) * 1000)


class SimulatedNodes(Nodes):
    """The servers as one worker reaches them. Shards and keys are on them in turn."""

    def __init__(
        self,
        servers: RedisServers,
        shards: int,
        loop: SimulatedEventLoop,
        schedule: Callable[..., None],
        on_lost: Callable[[float, float], None],
    ) -> None:
        """*schedule(at, call, argument)* lets an event of the worker come. *on_lost* is called with
        the time at which something was sent that may not be carried out, and with that at which
        this is certain."""
        self.name, self.shards = NAME, shards
        self._on_lost = on_lost
        self._redis, self._loop, self._schedule = servers, loop, schedule
        self._is_answered = False
        self._sent_until: dict[int, float] = defaultdict(float)  # by server

    def take_answered(self) -> bool:
        """Return whether replies have come since the last call."""
        is_answered, self._is_answered = self._is_answered, False
        return is_answered

    @property
    def single_server(self) -> bool:
        return len(self._redis.all) == 1

    def node_of(self, shard: int) -> str:
        return f"server {self._redis.server_of(shard)}"

    async def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]:
        parts: dict[int, list[int]] = {}
        for at, (shard, _) in enumerate(asks):
            parts.setdefault(self._redis.server_of(shard), []).append(at)
        waiting = [self._send(each, [asks[at][1] for at in part]) for each, part in parts.items()]
        replies: list[Any] = [None] * len(asks)
        for part, answer in zip(parts.values(), waiting, strict=True):
            for at, reply in zip(part, await answer, strict=True):
                replies[at] = reply
        return replies

    async def command(self, key: str, *command: Argument) -> Any:
        return (await self._send(0, [command]))[0]

    def post_command(
        self, shard: int, command: tuple[Argument, ...], on_done: Callable[[], None]
    ) -> None:
        self._send(self._redis.server_of(shard), [command]).add_done_callback(lambda _: on_done())

    def _send(self, server: int, commands: Sequence[Sequence[Any]]) -> Any:
        """Return a future of the replies."""
        future = self._loop.create_future()

        def answer(replies: list[Any]) -> None:
            self._is_answered = True
            if not future.done():
                future.set_result(replies)

        now, last = self._loop.time(), self._sent_until
        last[server] = self._redis.send(
            *(server, now, last[server], commands),
            lambda at, replies: self._schedule(at, answer, replies),
            lambda at: self._on_lost(now, at),
        )
        return future
