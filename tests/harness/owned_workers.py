"""Workers of a crawl over owned shards, as coroutines: they claim, hand over and release shards as
the plan says, and lease URLs without end; over a model of a Redis server, or a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.memory_store import MemoryStore
from crawler.model.types import CrawlerError, StoreUnavailable
from crawler.shared import keys as shared_keys
from crawler.shared.crawl_format import CrawlFormat, new_format
from crawler.shared.faults import FAULTS, Unreachable
from crawler.shared.keys import root
from crawler.shared.owned import leader as leading
from crawler.shared.owned.handover import ShardHolder
from crawler.shared.owned.inbox import LinkPushes
from crawler.shared.owned.leader import PlanLeader
from crawler.shared.owned.mirror import Mirror
from crawler.shared.owned.owner import Arrived, OwnedShard
from crawler.shared.owned.scripts import ClaimedShard, InboxCommands, OwnedScripts, ShardCommands
from crawler.shared.worker.outbox import Outbox, Overflow
from crawler.simulate.redis_model import RedisModel

NAME: Final = "o"
SHARDS: Final = 8
LEASE_S: Final = 10.0
LONGEST_FETCH_S: Final = 6.0
SETTLE_S: Final = 4.0
ALIVE_S: Final = 10.0
SCRIPTS: Final = OwnedScripts()
ALIVE: Final = shared_keys.announced(NAME)[1]
_SHARD_BITS: Final = 48


def new_crawl() -> CrawlFormat:
    return replace(new_format(SHARDS, 3, ()), begun=False)


class World:
    """A server, and what an observer of all fetches knows. Times are of the loop's clock."""

    turn_s = 1.0
    delays_s: Sequence[float] = (0.02, 0.1, 1.5)  # from a lease to its request
    fetches_s: Sequence[float] = (0.1, 0.5, LONGEST_FETCH_S - 3.0)

    def __init__(self, random: Random) -> None:
        self.random = random
        self.workers: list[Worker] = []
        self.lost_leases = 0  # that an owner found open
        self.breaches: list[str] = []
        self.left_after_s: list[float] = []  # from the last lease of a shard to its release
        self.begun_at_s: dict[int, float] = {}  # the last fetch of each shard
        self._claims: dict[str, int] = {}  # tokens, in the order in which they loaded a shard
        self._last_begun: dict[int, int] = {}  # by shard: the last of these that fetched
        self._numbers = count()

    def nodes_of(self, worker: Worker) -> Any:
        raise NotImplementedError

    def announce(self, name: str) -> None:
        raise NotImplementedError

    def forget(self, name: str) -> None:
        raise NotImplementedError

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def on_loaded(self, token: str) -> None:
        self._claims[token] = len(self._claims)

    def on_begin(self, shard: int, token: str) -> None:
        """A fetch of a URL of *shard* begins under a claim."""
        number = self._claims[token]
        if number < self._last_begun.get(shard, 0):
            self.breaches.append(f"shard {shard} has two owners")
        self._last_begun[shard], self.begun_at_s[shard] = number, self.now_s()

    def hire(self, crawl: CrawlFormat, begin_wait_s: float = leading.BEGIN_WAIT_S) -> Worker:
        worker = Worker(self, f"w{next(self._numbers)}", crawl, begin_wait_s)
        self.workers.append(worker)
        return worker

    def holders(self) -> dict[int, str]:
        """Return which worker holds each shard, as they see it. Fails if two do."""
        pairs = [(shard, each.name) for each in self.workers for shard in each.holder.held]
        assert len(dict(pairs)) == len(pairs), pairs
        return dict(pairs)

    def may_lose_all(self) -> bool:
        """Return whether each shard has an owner that can fill an empty server again."""
        owned = [each for worker in self.workers for each in worker.holder.held.values()]
        return len(owned) == SHARDS and all(
            each.is_owned and self.now_s() < each.renewed_at_s + LEASE_S / 3 for each in owned
        )

    async def until(self, condition: Callable[[], bool], most_s: float) -> float:
        """Return how long it takes until *condition* is true."""
        begun_s = self.now_s()
        while not condition():
            await asyncio.sleep(0.1)
            assert self.now_s() - begun_s < most_s, f"not within {most_s} s"
        return self.now_s() - begun_s

    async def end(self) -> None:
        """End all workers. Fails if there was an error."""
        assert not self.breaches, self.breaches
        for worker in list(self.workers):
            assert not worker.errors, worker.errors
            await worker.kill()


class ModelWorld(World):
    """Over a model of a server."""

    def __init__(self, random: Random, redis: RedisModel) -> None:
        super().__init__(random)
        self.redis = redis
        self.announced: dict[str, float] = {}
        self.is_down = False

    def nodes_of(self, worker: Worker) -> ModelNodes:
        return ModelNodes(self, worker)

    def announce(self, name: str) -> None:
        if not self.is_down:
            self.announced[name] = self.now_s()

    def forget(self, name: str) -> None:
        del self.announced[name]

    def lose_all(self) -> None:
        self.redis.lose_all()
        self.announced.clear()

    def ask(self, command: Sequence[Any]) -> Any:
        self.redis.now_ms = round(self.now_s() * 1000)
        if command[0] == "ZRANGE":
            assert command[1] == ALIVE
            dead_s = self.now_s() - ALIVE_S
            return [name.encode() for name, at_s in self.announced.items() if at_s > dead_s]
        return self.redis.ask(command)

    def owners(self) -> list[str]:
        return [self.redis.owner_of(root(NAME, shard)) for shard in range(SHARDS)]


class ModelNodes:
    """As client.Nodes, of a worker that may stand still."""

    name = NAME
    shards = SHARDS

    def __init__(self, world: ModelWorld, worker: Worker) -> None:
        self._world = world
        self._worker = worker

    async def commands(self, asks: Sequence[tuple[int, Any]]) -> list[Any]:
        return await self._ask([command for _, command in asks])

    async def command(self, _: str, *command: Any) -> Any:
        return (await self._ask([command]))[0]

    async def checked_command(self, key: str, *command: Any) -> Any:
        reply = await self.command(key, *command)
        if isinstance(reply, FAULTS):
            raise reply
        return reply

    def node_of(self, _: int) -> str:
        return "the server"

    async def _ask(self, asks: Sequence[Any]) -> list[Any]:
        await asyncio.sleep(self._world.random.choice((0.001, 0.02)))
        await self._worker.awake.wait()
        if self._world.is_down:
            return [Unreachable("it is down")] * len(asks)
        replies = [self._world.ask(command) for command in asks]
        await self._worker.awake.wait()
        return replies


class ModelFrontier:
    """Implements handover.ShardFrontier: leases URLs without end, each under a record in the
    mirror."""

    def __init__(self, world: World, nodes: Any) -> None:
        self._world = world
        self._nodes = nodes
        self._shards: dict[int, tuple[OwnedShard, dict[bytes, bytes | None]]] = {}
        self._stopped: dict[int, float] = {}  # since when
        self._numbers = count(1)

    async def load(
        self,
        commands: ShardCommands,
        claimed: ClaimedShard,
        claimed_at_s: float,
        on_noted: Callable[[], None],
    ) -> OwnedShard:
        key = commands.key(keys.OPEN.decode())
        (reply,) = await self._nodes.commands([(commands.shard, ("HSCAN", key, 0))])
        if isinstance(reply, FAULTS):
            raise reply
        if claimed.is_filling:
            self._world.breaches.append(f"shard {commands.shard} is lost in part")
        records: dict[bytes, bytes | None] = {}
        mirror = Mirror(claimed.seq, on_noted)
        owned = OwnedShard(commands, claimed, claimed_at_s, mirror, lambda: iter([dict(records)]))
        owned.note_loaded(0.0)
        opened = reply[1][::2]
        self._world.lost_leases += len(opened)
        mirror.note({keys.OPEN + name: None for name in opened})
        assert commands.shard not in self._shards
        self._world.on_loaded(commands._token)
        self._shards[commands.shard] = owned, records
        return owned

    def stop_leasing(self, shard: int) -> None:
        assert shard not in self._stopped
        self._stopped[shard] = self._world.now_s()

    def is_idle(self, shard: int) -> bool:
        return not self._shards[shard][1]

    def close(self, shard: int) -> None:
        del self._shards[shard]
        if shard in self._stopped:
            self._world.left_after_s.append(self._world.now_s() - self._stopped[shard])

    async def drop(self, shard: int) -> None:
        assert shard not in self._shards
        await asyncio.sleep(0.05)
        self._stopped.pop(shard, None)

    async def crawl(self, fetches: asyncio.TaskGroup, awake: asyncio.Event) -> None:
        random = self._world.random
        while True:
            await asyncio.sleep(self._world.turn_s)
            await awake.wait()
            for shard, (owned, records) in list(self._shards.items()):
                may = owned.may_lease(self._world.now_s()) and shard not in self._stopped
                if may and len(records) < 2 and random.random() < 0.7:
                    number = shard << _SHARD_BITS | next(self._numbers)
                    name = keys.numbered(keys.OPEN, number)
                    records[name] = b"a URL"
                    owned.mirror.note({name: b"a URL"})
                    fetches.create_task(self._fetch(shard, (owned, records), number, awake))

    async def _fetch(
        self,
        shard: int,
        held: tuple[OwnedShard, dict[bytes, bytes | None]],
        number: int,
        awake: asyncio.Event,
    ) -> None:
        (owned, records), name = held, keys.numbered(keys.OPEN, number)
        random = self._world.random
        await asyncio.sleep(random.choice(self._world.delays_s))
        await awake.wait()
        if owned.may_begin(number, self._world.now_s()):
            self._world.on_begin(shard, owned.commands._token)
            await asyncio.sleep(random.choice(self._world.fetches_s))
            await awake.wait()
        del records[name]
        if (now := self._shards.get(shard)) is not None and now[
            0
        ] is owned:  # else its result is refused
            owned.mirror.note({name: None})


async def noted() -> bool:
    return True


class Worker:
    """A process of the crawl."""

    def __init__(self, world: World, name: str, crawl: CrawlFormat, begin_wait_s: float) -> None:
        self.name = name
        self.world = world
        self.awake = asyncio.Event()
        self.awake.set()
        self.errors: list[CrawlerError] = []
        self.arrived: list[Arrived] = []
        outbox = Outbox(MemoryStore(), lambda _: 0)
        overflow = Overflow(outbox=outbox, is_full=lambda _: False, ensure_noted=noted, sync=None)
        nodes = world.nodes_of(self)
        self.frontier = ModelFrontier(world, nodes)
        self.leader = PlanLeader(nodes, SCRIPTS, crawl, name, world.now_s, begin_wait_s)
        self.holder = ShardHolder(
            nodes,
            SCRIPTS,
            self.leader,
            self.frontier,
            LinkPushes(
                *(lambda at: InboxCommands(SCRIPTS, NAME, at), SHARDS, name.encode(), overflow),
                on_fault=self.on_failed,
            ),
            worker=name,
            lease_s=LEASE_S,
            longest_fetch_s=LONGEST_FETCH_S,
            settle_s=SETTLE_S,
            now_s=world.now_s,
            on_arrived=self.arrived.append,
            on_failed=self.on_failed,
        )
        loop = asyncio.get_running_loop()
        self.announcing = loop.create_task(self._announce())
        self.tasks = [loop.create_task(self.holder.run()), loop.create_task(self._crawl())]

    def on_failed(self, error: CrawlerError) -> None:
        if not isinstance(error, StoreUnavailable):  # that one is waited for
            self.errors.append(error)

    async def _announce(self) -> None:
        while True:
            await self.awake.wait()
            self.world.announce(self.name)
            await asyncio.sleep(1.0)

    async def _crawl(self) -> None:
        async with asyncio.TaskGroup() as fetches:
            await self.frontier.crawl(fetches, self.awake)

    async def kill(self) -> None:
        self.world.workers.remove(self)
        tasks = [self.announcing, *self.tasks]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self.holder.close()

    async def leave(self) -> None:
        """Stop in good order."""
        self.leave_list()
        self.tasks[0].cancel()
        await self.holder.release_all()
        assert not self.holder.held
        await self.kill()

    def leave_list(self) -> None:
        """Leave the list of workers."""
        self.announcing.cancel()
        self.world.forget(self.name)
