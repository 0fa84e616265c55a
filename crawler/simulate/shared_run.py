"""One simulated crawl of several workers over owned shards, from its seed: the workers, their
servers, what happens to both, and the run.

Rule: as of a crawl of one process, all comes from the seed and the policy. Nothing happens at the
same time: the next event is the earliest one of the workers, of the servers and of what is planned.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec.structs import replace as replace_struct

from crawler.config.settings import (
    FetchSettings,
    PatternSettings,
    PolitenessSettings,
    RobotsSettings,
)
from crawler.frontier import records
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import frontier_limits
from crawler.frontier.reader import FrontierReader
from crawler.frontier.run_files import RunFolder
from crawler.frontier.shards import Shards
from crawler.model.choices import HostUnit
from crawler.model.types import Candidate, PageHistory
from crawler.policy.operator_rules import read_rules
from crawler.policy.rounds import RoundCaps
from crawler.shared import keys
from crawler.shared.crawl_format import CrawlFormat, encode_format
from crawler.shared.keys import root
from crawler.shared.owned.mirror import AS_THEY_ARE, unpack_chunk
from crawler.simulate.disk import Disk
from crawler.simulate.process import Machine, Policy, ProcessKilled
from crawler.simulate.redis_model import RedisModel
from crawler.simulate.redis_servers import NAME, RedisServers
from crawler.simulate.run import (
    FEW_AT_ONCE,
    IN_ROUNDS,
    OVER_BUDGETS,
    SMALL,
    VISITED_AGAIN,
    Crash,
    OperatorAct,
    Run,
    World,
    revisit_rules,
)
from crawler.simulate.run_log import RulesChange, RunLog
from crawler.simulate.servers import ServerParameters, Servers
from crawler.simulate.web import DAY_S, START, RobotsKind, Web, WebParameters
from crawler.simulate.worker import SharedCrawl, SimulatedWorker

_LEFT: Final = ("b", "l", "o", "i", "u", "inbox")  # what a shard has left
_NEVER: Final = inf
_AGAIN_S: Final = 1800.0  # of crawls that visit pages again
_STOPS_S: Final = 120.0  # within which workers have left after the last date of a crawl


class TroubleOfWorkers(StrEnum):
    """What may happen to workers and their Redis servers."""

    KILL = "kill"
    STAND_STILL = "stand still"
    LEAVE = "leave"  # in good order
    JOIN = "join"
    RESTART = "restart"  # a server, which loses its last writes
    KILL_ALL = "kill all"  # the workers, and a server restarts
    PAUSE = "pause"  # a server
    FILL = "fill"  # a server takes no links


_OF_WORKERS: Final = frozenset(
    {
        TroubleOfWorkers.KILL,
        TroubleOfWorkers.STAND_STILL,
        TroubleOfWorkers.LEAVE,
        TroubleOfWorkers.JOIN,
    }
)


@dataclass(frozen=True, slots=True)
class PlannedTrouble:
    """What happens at a time, to which worker or server, and for how long."""

    at: float
    what: TroubleOfWorkers
    which: int
    lasts_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWorld:
    """All of a simulation of several workers but its policy. The crashes of *world* are those of
    the workers that start first; its acts are those of its begin."""

    world: World
    workers: int
    shards: int
    redis_servers: int = 1
    lease_s: float = 4.0
    one_way_s: tuple[float, ...] = (0.0002, 0.001, 0.02)  # of commands and replies
    breaks: float = 0.0  # share of pipelines to Redis whose connection breaks
    faults: tuple[PlannedTrouble, ...] = ()


def run_shared(
    shared: SharedWorld,
    policy: Policy,
    trace: Callable[[str], None] | None = None,
    model: Callable[..., RedisModel] = RedisModel,
) -> Run:
    """Run a crawl of *shared* by *policy* to its end. *trace* is called with each event. *model*
    makes the servers."""
    with tempfile.TemporaryDirectory(prefix="simulate-") as folder:
        return _SharedRun(shared, policy, trace, model, Path(folder)).run()


class _SharedRun:
    def __init__(
        self,
        shared: SharedWorld,
        policy: Policy,
        trace: Callable[[str], None] | None,
        model: Callable[..., RedisModel],
        folder: Path,
    ) -> None:
        self._shared, self._policy, self._folder = shared, policy, folder
        world = shared.world
        self._web = Web(world.seed, world.web, world.edges, world.changes_a_day)
        self._servers = Servers(world.seed, self._web, world.servers)
        self._log = log = RunLog(trace=trace, most_events=world.most_events)
        levels = len(policy.config.frontier.level_shares)
        log.rules_changes.append(RulesChange(START, read_rules("", levels), ""))
        self._rules = "".join([act.text for act in world.acts])
        if self._rules:
            rules = read_rules(self._rules, levels)
            log.rules_changes.append(RulesChange(START, rules, self._rules))
        self._random = Random(world.seed)
        self._redis = RedisServers(
            shared.redis_servers,
            Random(world.seed + 1),
            shared.breaks,
            shared.one_way_s,
            model,
        )
        self._crashes = list(world.crashes)
        self._now = START
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._tick = 0
        self._disks: dict[str, Disk] = {}
        self._sessions: defaultdict[str, list[int]] = defaultdict(list)
        self._alive: dict[str, SimulatedWorker] = {}
        self._away_s: dict[str, float] = {}  # for how long workers leave
        self._awake_at: dict[str, float] = {}  # of those that stand still
        self._is_stopping = False  # its last date has come: no worker starts any more
        self._format = CrawlFormat(shared.shards, levels, (), key_seed=world.seed, begun=False)
        first = self._redis.all[0].model
        first.ask(("SET", keys.format_key(NAME), encode_format(self._format)))
        for number in range(shared.workers):
            self._plan(START, self._start, f"w{number}")
        for fault in shared.faults:
            self._plan(fault.at, self._begin_fault, fault)
        self._longest_at = START + world.longest_s
        if world.until is not None:
            self._plan(world.until, self._stop)
            self._longest_at = world.until + _STOPS_S

    def run(self) -> Run:
        log = self._log
        while not log.failure and not log.is_over and (self._alive or not self._is_stopping):
            self._advance()
        log.ended_at = self._now
        log.note(self._now, f"end {log.is_over} {log.failure}")
        for worker in self._alive.values():
            worker.kill()
        admission = self._last.origins.admission
        return Run(
            *(self._shared.world, self._policy, self._web, self._servers, log),
            admission,
            self._left(),
            self._histories(),
        )

    def _histories(self) -> dict[str, PageHistory]:
        """Return those of the pages that the servers have."""
        held = self._held() if self._shared.world.until is not None else ()
        return {each.url: each.history for each in held if each.history is not None}

    def _held(self) -> Iterator[Candidate]:
        """Yield the URLs that the servers have, read as those of a frontier on disk."""
        store, shards = MemoryStore(), self._shared.shards
        for shard in range(shards):
            model = self._redis.all[self._redis.server_of(shard)].model
            for kind in (*AS_THEY_ARE, records.QUEUED):
                for name, packed in model.hash_of(f"{root(NAME, shard)}:{kind.decode()}").items():
                    key = records.record_of_shard(kind, shard.to_bytes(records.SHARD_BYTES), name)
                    is_chunk = kind == records.QUEUED
                    store.write({key: unpack_chunk(name, packed)[1] if is_chunk else packed})
        runs = RunFolder(self._folder / "none")
        return FrontierReader(store, runs, Shards(shards)).held()

    def _left(self) -> int:
        """Return how much is left in all shards."""
        return sum(
            len(self._redis.all[self._redis.server_of(shard)].model.hash_of(f"{name}:{kind}"))
            for shard in range(self._shared.shards)
            for name in (root(NAME, shard),)
            for kind in _LEFT
        )

    def _plan(self, at: float, call: Callable[..., None], *arguments: Any) -> None:
        self._tick += 1
        heappush(self._events, (at, self._tick, call, arguments))

    def _advance(self) -> None:
        """Let the next event happen."""
        at, worker = _NEVER, None
        for name, each in self._alive.items():
            next_at = each.next_at
            if next_at is not None and next_at < at:
                next_at = max(next_at, self._awake_at.get(name, 0.0))
                if next_at < at:
                    at, worker = next_at, each
        is_of_redis = self._redis.next_at <= at
        at = min(at, self._redis.next_at)
        is_planned = bool(self._events) and self._events[0][0] <= at
        if is_planned:
            at = self._events[0][0]
        self._now = max(self._now, at)
        if at == _NEVER:
            self._log.failure = "nothing will happen any more, and URLs are left"
        elif at > self._longest_at:
            self._log.failure = f"not over after {self._longest_at - START:g} s"
        elif self._log.is_endless:
            self._log.failure = f"not over after {self._log.most_events:,} events"
        elif is_planned:
            _, _, call, arguments = heappop(self._events)
            call(*arguments)
        elif is_of_redis:
            self._redis.advance()
        elif worker is not None:
            self._advance_worker(worker)

    def _advance_worker(self, worker: SimulatedWorker) -> None:
        try:
            worker.advance_to(self._now)
        except ProcessKilled:
            self._kill(worker.name, self._random.choice((0.1, 3.0, 20.0)))
            return
        if worker.has_left:
            self._end(worker.name, "leave")
            self._plan(self._now + self._away_s.get(worker.name, 0.0), self._start, worker.name)
        elif worker.has_seen_end and all(each.has_seen_end for each in self._alive.values()):
            self._log.is_over = True

    def _start(self, name: str) -> None:
        log, now, world = self._log, self._now, self._shared.world
        is_over = log.is_over or any(each.has_seen_end for each in self._alive.values())
        if (
            name in self._alive or is_over or self._is_stopping
        ):  # it would only send its seeds again
            return
        log.starts.append(now)
        log.note(now, f"start {name}")
        if name not in self._disks:
            disk_folder = self._folder / name
            disk = self._disks[name] = Disk(disk_folder, self._format.key_seed, log, may_lose=False)
            disk.write_rules(self._rules)
        kept = self._redis.all[0].model.ask(("GET", keys.format_key(NAME)))
        is_begun = b'"begun":true' in kept
        crawl = SharedCrawl(
            redis=self._redis,
            format=replace_struct(self._format, begun=is_begun),
            lease_s=self._shared.lease_s,
            sessions=tuple(map(str, self._sessions[name])),
        )
        number = len(log.starts)
        self._sessions[name].append(number)
        crash = self._crashes[number - 1] if number <= len(self._crashes) else None
        try:
            self._last = self._alive[name] = SimulatedWorker(
                *(name, crawl, self._disks[name], self._policy, world.machine),
                *(self._servers, log),
                seeds=self._web.seeds,
                now=now,
                random=Random(world.seed * 1000 + number),
                steps=crash.steps if crash else 0,
            )
        except ProcessKilled:
            log.note_crash(now, number)
            self._plan(now + 1.0, self._start, name)

    def _end(self, name: str, how: str) -> SimulatedWorker:
        worker = self._alive.pop(name)
        self._awake_at.pop(name, None)
        self._log.note(self._now, f"{how} {name}")
        worker.kill()
        return worker

    def _kill(self, name: str, down_s: float) -> None:
        worker = self._end(name, "kill")
        self._log.note_crash(self._now, worker.number)
        self._plan(self._now + down_s, self._start, name)

    def _begin_fault(self, fault: PlannedTrouble) -> None:
        self._log.note(self._now, f"fault {fault.what} {fault.which} {fault.lasts_s:g}")
        names = list(self._alive)
        name = names[fault.which % len(names)] if names else ""
        number = fault.which % len(self._redis.all)
        server = self._redis.all[number]
        match fault.what:
            case TroubleOfWorkers.KILL if name:
                self._kill(name, fault.lasts_s)
            case TroubleOfWorkers.STAND_STILL if name:
                self._alive[name].stand_still(self._now)
                self._awake_at[name] = self._now + fault.lasts_s
            case TroubleOfWorkers.LEAVE if len(names) > 1:
                self._away_s[name] = fault.lasts_s
                self._alive[name].leave()
            case TroubleOfWorkers.JOIN:
                self._start(f"w{len(self._disks)}")
            case TroubleOfWorkers.RESTART:
                self._restart(number, fault.lasts_s)
            case TroubleOfWorkers.KILL_ALL:
                for each in names:
                    self._kill(each, self._random.choice((0.1, fault.lasts_s)))
                self._restart(number, 0.0)
            case TroubleOfWorkers.PAUSE:
                self._redis.pause(number, self._now + fault.lasts_s)
            case TroubleOfWorkers.FILL:
                server.model.fill()
                self._plan(self._now + fault.lasts_s, server.model.fill)

    def _stop(self) -> None:
        """Let all workers leave, as the last date of the crawl has come."""
        self._is_stopping = True
        for worker in self._alive.values():
            worker.leave()

    def _restart(self, number: int, down_s: float) -> None:
        lost_since = self._redis.restart(number, self._now, down_s, is_lossy=True)
        if lost_since is not None:
            self._log.note_lost_writes(lost_since, self._now)


def shared_world(seed: int) -> SharedWorld:
    """Return a small world of two to four workers. Its limits are tight, and its times short: a
    worker asks its servers some times a second, however little happens."""
    random = Random(seed)
    web = WebParameters(
        hosts=random.randint(3, 7),
        largest=random.choice((5, 10, 20)),
        crawl_delays=(0, 0, 0, 2),
        odd_robots=0.3,
        outward=0.5,
        robots_kinds=(RobotsKind.ABSENT, RobotsKind.PAGE, RobotsKind.ERROR, RobotsKind.REFUSED),
        robots_trouble_s=20.0,
        features=0.15,
    )
    servers = ServerParameters(
        longest_s=20.0,
        horizon_s=600.0,
        retries_after_s=(0.0, 0.0, 10.0, 25.0),
        limited=0.0,
        dead=0.0,
        troubles=0.5,
    )
    limits = replace(
        frontier_limits(SHARED.config),
        max_active_hosts=3,
        head_urls=4,
        chunk_urls=4,
        recent_keys=1024,
        evict_rest_s=random.choice((2.0, 5.0)),
        max_front_reads=4,
        due_slice=4,
        judged_slice=8,
        max_arrived=20,
        max_arrived_s=0.5,
        max_new_keys=random.choice((30, 60, 1 << 16)),
        max_undecided=10,
        max_undecided_s=2.0,
        recovered_slice=2,
        budgets=FEW_AT_ONCE if seed % 10 == OVER_BUDGETS else None,
        rounds=_round_caps(seed) if seed % 10 == IN_ROUNDS else None,
    )
    is_visited_again = seed % 10 == VISITED_AGAIN
    world = World(
        seed=seed,
        web=web,
        servers=servers,
        machine=Machine(concurrency=random.choice((2, 8)), frontier=limits),
        edges=_tree(random.choice((5, 8)), 60) if random.random() < 0.6 else {},
        longest_s=3600.0,
        most_events=400_000,
        crashes=tuple(
            Crash(1 + int(random.expovariate(1 / random.choice((150, 1000)))), 0.0)
            for _ in range(random.choice((0, 1, 4, 8)))
        ),
    )
    faults = sorted((_fault(random) for _ in range(random.choice((0, 2, 4, 8)))), key=_time_of)
    shared = SharedWorld(
        breaks=random.choice((0.0, 0.01)),
        one_way_s=random.choice(((0.0002, 0.001, 0.02), (0.02, 0.2, 0.5))),
        faults=tuple(faults),
        world=world,
        workers=random.randint(2, 3),
        shards=random.choice((2, 4, 6)),
        redis_servers=random.choice((1, 1, 2)),
    )
    if limits.rounds is not None:
        # A server that loses its last writes has lost what was counted, too.
        kept = [each for each in faults if each.what in _OF_WORKERS]
        shared = replace(shared, faults=tuple(kept), redis_servers=1)
    return _visited_again(shared) if is_visited_again else shared


def _round_caps(seed: int) -> RoundCaps:
    random = Random(f"rounds of {seed}")  # what else is drawn of the seed stays as it is
    urls, per_host = random.choice((None, 6, 20)), random.choice((None, 3, 6))
    if urls is per_host is None:
        per_host = 2
    return RoundCaps(urls=urls, per_host=per_host, rounds=1_000_000)


def _visited_again(shared: SharedWorld) -> SharedWorld:
    """Return *shared* with hosts whose pages are visited once, each so often, or when that is worth
    it, for three times the least time between two visits; with a budget for some of these visits,
    or for all. The workers' troubles come early and late."""
    world = shared.world
    random = Random(world.seed)
    hosts = [f"h{n}.test" for n in range(world.web.hosts)]
    per_day, modes = random.choice(
        (
            (1_000.0, ["adaptive"]),
            (20_000.0, ["adaptive", "adaptive", "adaptive", "every 10m", "every 20m", "once"]),
        )
    )
    revisits = {host: random.choice(modes) for host in hosts}
    faults = [
        replace(each, at=START + 3.0 + random.choice((60.0, _AGAIN_S - 90.0)) * random.random())
        for each in shared.faults
    ]
    crashes = [replace(each, steps=each.steps * random.choice((1, 30))) for each in world.crashes]
    limits = replace(world.machine.frontier, visits_per_day=per_day)
    return replace(
        shared,
        faults=tuple(sorted(faults, key=_time_of)),
        world=replace(
            world,
            web=replace(world.web, largest=10, changes_a_day=20.0),
            edges={},
            acts=(OperatorAct(START, revisit_rules(revisits)),),
            crashes=tuple(crashes),
            machine=replace(world.machine, frontier=limits),
            until=START + _AGAIN_S,
            slack_s=300.0,
            revisits=revisits,
            most_events=4_000_000,
        ),
    )


def _tree(hosts: int, pages: int) -> dict[str, tuple[str, ...]]:
    """Return a graph in which each page is linked once, mostly from another host: a lost link is
    seen."""
    urls = [f"http://h{number * 7 % hosts}.test/t{number}" for number in range(pages)]
    return {url: tuple(urls[2 * at + 1 : 2 * at + 3]) for at, url in enumerate(urls)}


def _fault(random: Random) -> PlannedTrouble:
    lasts_s = {
        TroubleOfWorkers.KILL: (0.1, 3.0, 20.0),
        TroubleOfWorkers.STAND_STILL: (1.0, 3.9, 5.0, 30.0),
        TroubleOfWorkers.LEAVE: (0.1, 20.0),
        TroubleOfWorkers.JOIN: (0.0,),
        TroubleOfWorkers.RESTART: (0.0, 0.0, 0.5, 3.0, 6.0),
        TroubleOfWorkers.KILL_ALL: (0.1, 1.0, 20.0),
        TroubleOfWorkers.PAUSE: (1.0, 4.5, 8.0),
        TroubleOfWorkers.FILL: (2.0, 10.0),
    }
    often = (TroubleOfWorkers.RESTART, TroubleOfWorkers.KILL_ALL)
    what = random.choice((*lasts_s, *often, *often, *often))
    at = START + 3.0 + random.choice((10.0, 30.0)) * random.random()
    return PlannedTrouble(at, what, random.randrange(60), random.choice(lasts_s[what]))


def _time_of(fault: PlannedTrouble) -> float:
    return fault.at


SHARED: Final = replace(
    SMALL,
    name="shared",
    config=replace(
        SMALL.config,
        fetch=FetchSettings(total_timeout_s=5.0),
        patterns=PatternSettings(pattern_max_pages=8, pattern_barren_pages=4),
        politeness=PolitenessSettings(
            min_delay_s=0.5,
            delay_factor=2.0,
            max_delay_s=20.0,
            max_crawl_delay_s=20.0,
            max_retry_after_s=30.0,
            callback_retries=2,
            backoff_max_s=5.0,
            pause_after_failures=3,
            pause_s=2.0,
            pause_max_s=4.0,
        ),
        robots=RobotsSettings(robots_unreachable_s=10.0),
    ),
)
"""The policy of shared worlds: the same promises, with shorter times."""

SHARED_ADDRESSES_OF_WORKERS: Final = replace(
    SHARED,
    config=replace(
        SHARED.config,
        politeness=replace(
            SHARED.config.politeness, host_unit=HostUnit.ADDRESS, address_wait_s=60 * DAY_S
        ),
    ),
)
"""The same where hosts of one address take turns, however long each waits."""
