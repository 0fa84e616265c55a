"""The frontier of a worker for the contract suite: what users run, with all its tasks, over a real
redis-server and a network that fails as a test says.

Rule: the suite's *now* is the only clock, of the worker and of the server. It stands still while
the tasks run; the loop's own timers pass in no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import msgspec
import redis

from crawler.data.disk_room import DiskRoom
from crawler.frontier.port import FrontierLimits, LeaseRules
from crawler.loop.slots import NO_LIMIT
from crawler.model.counts import Counts
from crawler.model.types import (
    STANDINGS,
    Added,
    Candidate,
    HostWork,
    Lease,
    OverBudgetLinks,
    Pace,
    PutBack,
    Rest,
    Standing,
    Verdict,
)
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.codec import ShardTotals, WorkerRecord
from crawler.shared.crawl_format import check_format, encode_format, new_format
from crawler.shared.shard import ShardOperations, shard_of
from crawler.shared.worker.frontier import TICK_S, SharedFrontier, WorkerBase
from crawler.shared.worker.kept_rests import KeptRests
from crawler.shared.worker.leases import POLL_OTHERS_S
from crawler.shared.worker.membership import return_leases
from crawler.shared.worker.outbox import Outbox
from crawler.shared.worker.status import WorkerSettings
from tests.harness.frontiers import TIGHT
from tests.harness.redis_world import FOR_EVER_S, NAME, SCRIPTS, SHARDS, RedisWorld, TimedLink
from tests.harness.shared_frontier import NoKnowledge, RecordingListener, SmallStore, confirm
from tests.servers.redis_process import HOST
from tests.servers.simulated import Network, SimulatedLoop, SimulatedServer

LEAST_S: Final = 0.01  # of the loop, between two looks whether something is so
ROUND_S: Final = 0.03  # of the loop; a worker that is to ask all shards has then done so


class AddedListener(RecordingListener):
    """A listener that sums up the results of the last adds."""

    def __init__(self) -> None:
        super().__init__()
        self.result = Added()

    def on_added(self, added: Added) -> None:
        last = self.result
        self.result = Added(
            last.new + added.new,
            last.seen + added.seen,
            last.over_budget + added.over_budget,
            kept_out=(*last.kept_out, *added.kept_out),
        )


class Gate(DiskRoom):
    """A disk that is full while the gate is shut: then the worker asks for no leases and gives
    none."""

    is_shut = False

    @property
    def is_full(self) -> bool:
        return self.is_shut or super().is_full


class SimulatedWorker:
    """One session of a worker. Its frontier has the time of *world*, and a network of its own."""

    def __init__(
        self,
        world: SharedWorld,
        name: str,
        session: str,
        network: Network,
        disk: SmallStore,
        lease_rules: LeaseRules | None,
    ) -> None:
        self.listener = AddedListener()
        self.session = session
        self.network = network
        self.ops = ShardOperations(session, SHARDS, world.limits, world.lease_s, world.wait_s)
        self.nodes = world.nodes(network)
        base = WorkerBase.of(
            nodes=self.nodes,
            ops=self.ops,
            settings=WorkerSettings(
                name=NAME,
                shards=SHARDS,
                lease_s=world.lease_s,
                heartbeat_s=world.heartbeat_s,
                fetch_s=world.fetch_s,
                max_leases=2,
                is_ack_durable=world.is_sure,
                full_bytes=lambda _: None,
            ),
            outbox=Outbox(disk, lambda domain: shard_of(domain, SHARDS)),
            kept_rests=KeptRests(disk),
            listener=self.listener,
            make_record=lambda: WorkerRecord(name=name, session=session, host="here", pid=1),
            now=lambda: world.now,
            confirm=confirm,
            steady=lambda: world.now,
        )
        self.gate = Gate(
            base.status_log.wait_warnings,
            "this worker's disk",
            lambda: base.status_log.is_hopeless,
            base.steady,
        )
        self.frontier = SharedFrontier(
            replace(base, disk=self.gate),
            NoKnowledge(),
            lease_rules=lease_rules,
            free_slots=lambda _: NO_LIMIT,
            wake=self.listener.wake,
            pushing=None,
        )

    def poll(self) -> None:
        """Ask all shards for leases now."""
        for shard in range(SHARDS):
            self.frontier.lease_buffer.wake_shard(shard, 0.0)


class SettledFrontier:
    """Implements the port: each call is acknowledged when it returns. The worker asks for leases in
    `lease` only. A lease that it has ready and that was not taken counts as a URL that waits."""

    def __init__(self, world: SharedWorld, worker: SimulatedWorker, put_back_at_open: int) -> None:
        self.put_back_at_open = put_back_at_open
        self.worker = worker
        self._world = world
        self._shared = worker.frontier
        worker.gate.is_shut = True

    @property
    def clock(self) -> float:
        return max(each.clock for each in self._world.totals())

    def add(self, found: Iterable[Candidate], now: float) -> Added:
        self._world.at(now)
        self.worker.listener.result = Added()
        self._shared.add(found, now)
        self._acknowledged()
        result = self.worker.listener.result
        return msgspec.structs.replace(result, kept_out=_summed(result.kept_out))

    def lease(
        self, now: float, limit: int = 1, standings: Sequence[Standing] = STANDINGS
    ) -> list[Lease]:
        self._world.at(now)
        leases: list[Lease] = []

        def is_enough() -> bool:
            leases.extend(self._shared.lease(now, limit - len(leases), standings))
            return len(leases) == limit

        self.worker.gate.is_shut = False
        before = -1
        while before < len(leases) < limit:
            before = len(leases)
            # A shard is asked again a moment later only (POLL_S), and time stands still.
            self.worker.poll()
            self._world.run(is_enough, ROUND_S)
        self.worker.gate.is_shut = True
        return leases

    def put_back_unused(self) -> None:
        """As the worker itself does with leases that it has ready for too long."""
        now = self._world.now
        while len(self._shared.lease_buffer):
            self.worker.gate.is_shut = False
            self.worker.poll()  # a lease may be used only if its shard has just answered
            self._world.run(lambda: False, POLL_OTHERS_S)
            for lease in self._shared.lease(now, 100):
                self._shared.release(lease, Rest(0.0, lease.pace, "unused"), now)
                self._shared.finish(lease, PutBack(), now)
            self.worker.gate.is_shut = True
            self._acknowledged()

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        self._world.at(now)
        held = self._shared.release(lease, rest, now)
        self._acknowledged()
        return held

    def note_trouble(self, lease: Lease, rest: Rest, now: float) -> None:
        self._world.at(now)
        self._shared.note_trouble(lease, rest, now)
        self._world.run(lambda: False, 0.0)

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        self._world.at(now)
        held = self._shared.finish(lease, verdict, now)
        self._acknowledged()
        return held and lease not in self.worker.listener.refusals

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        """Return None: the frontier calls back, see `SharedWorld.wakes`."""
        return None

    def counts(self) -> Counts:
        self._world.run(lambda: False, TICK_S)
        counts, unused = self._shared.counts(), len(self._shared.lease_buffer)
        return msgspec.structs.replace(
            counts,
            waiting=counts.waiting + unused,
            leased=counts.leased - unused,
            hosts_active=counts.hosts_active - unused,
        )

    def longest_hosts(self, limit: int) -> Sequence[HostWork]:
        self._shared.longest_hosts(limit)
        self._world.run(lambda: False, 2 * TICK_S)
        return self._shared.longest_hosts(limit)

    def sampled_paces(self) -> Sequence[Pace]:
        return self._shared.sampled_paces()

    def may_begin(self, lease: Lease) -> bool:
        return self._shared.may_begin(lease)

    def is_over(self) -> bool:
        self._world.run(self._shared.is_over, 4 * TICK_S)
        return self._shared.is_over()

    def is_congested(self) -> bool:
        return self._shared.is_congested()

    async def wait_until_durable(self) -> None:
        """It is, by now."""

    def _acknowledged(self) -> None:
        self._world.loop.run_until_complete(self._shared.wait_until_durable())


def _summed(kept_out: Iterable[OverBudgetLinks]) -> tuple[OverBudgetLinks, ...]:
    """One entry a host or domain, as one call of an embedded frontier has it."""
    links: dict[tuple[str, str], int] = {}
    for each in kept_out:
        links[each.unit, each.name] = links.get((each.unit, each.name), 0) + each.links
    return tuple(OverBudgetLinks(unit, name, n) for (unit, name), n in links.items())


class SharedWorld(RedisWorld):
    """A world in which `reopen` is a crash: nothing more is sent, and the next session returns the
    leases of the last one when it begins (join.py)."""

    lease_s = FOR_EVER_S
    heartbeat_s = 5.0
    fetch_s = 1.0
    wait_s = 0.0
    quiet_s = 0.0
    is_sure = True

    def __init__(self, client: redis.Redis, port: int, limits: FrontierLimits = TIGHT) -> None:
        super().__init__(client, limits)
        self.now = 0.0
        self.loop = SimulatedLoop()
        refusable = {
            SCRIPTS.sha(name) for name in SCRIPTS.names() if "allow-oom" not in first_line(name)
        }
        self.server = SimulatedServer(client, port, refusable, lambda: self.now)
        self.frontier: SettledFrontier | None = None
        self.disk = SmallStore()

    def close(self) -> None:
        if self.frontier is not None:
            self.crash(self.frontier.worker)
        self.loop.close()
        self.server.close()

    def reopen(self, now: float, lease_rules: LeaseRules | None = None) -> SettledFrontier:
        self.at(max(now, self.now))
        self.begin()
        self.now = max(now, *(each.clock for each in self.totals()))
        last = self.frontier.worker if self.frontier is not None else None
        if self.frontier is not None and last is not None:
            self.frontier.put_back_unused()
            self.crash(last)
        worker, put_back = self.start("w", last.session if last else None, self.disk, lease_rules)
        self.frontier = SettledFrontier(self, worker, put_back)
        return self.frontier

    def begin(self) -> None:
        """Write the format of the crawl, or compare it with ours."""
        ours = new_format(SHARDS, len(self.limits.level_shares), ())
        if not self.client.set(keys.format_key(NAME), encode_format(ours), nx=True):
            check_format(self.client.get(keys.format_key(NAME)), ours, NAME)

    def start(
        self,
        name: str,
        dead: str | None,
        disk: SmallStore,
        lease_rules: LeaseRules | None = None,
    ) -> tuple[SimulatedWorker, int]:
        """Start the worker *name* again, whose last session was *dead*; also return how many of its
        leases were put back."""
        number = next(self._sessions)
        network = Network(self.loop, self.server, 1 + number)
        session = f"{name}.{number}"
        worker = SimulatedWorker(self, name, session, network, disk, lease_rules)
        put_back = self.loop.run_until_complete(self._join(worker, dead))
        self.loop.begin(session, worker.frontier.begin)
        return worker, put_back

    async def _join(self, worker: SimulatedWorker, dead: str | None) -> int:
        nodes = self.nodes(worker.network)
        await nodes.open()
        await nodes.open_shards()
        put_back = await return_leases(nodes, worker.ops, dead) if dead else 0
        await nodes.close()
        return put_back

    def nodes(self, network: Network) -> Nodes:
        opening = (self.quiet_s, self.lease_s, keys.SCHEMA)
        address = Address(host=HOST, port=network.port)
        return Nodes(address, SCRIPTS, NAME, SHARDS, opening)

    def crash(self, worker: SimulatedWorker) -> None:
        """Its process is killed: nothing more is sent, and nothing is written."""
        worker.network.kill()
        self.loop.kill(worker.session)

    def at(self, now: float) -> None:
        self.now = max(self.now, now)

    def run(self, is_so: Callable[[], bool], most_s: float) -> bool:
        """Run all tasks until it *is_so*, or for *most_s* of the loop's time."""
        return self.loop.run_until_complete(self._until(is_so, most_s))

    async def _until(self, is_so: Callable[[], bool], most_s: float) -> bool:
        end = self.loop.time() + most_s
        while not is_so():
            if self.loop.time() >= end:
                return False
            await asyncio.sleep(max(LEAST_S, most_s / 4))
        return True

    def wakes(
        self, frontier: SettledFrontier, now: float, standings: Sequence[Standing] = STANDINGS
    ) -> bool:
        """Whether it calls back by *now* because something can be leased."""
        worker, shared = frontier.worker, frontier.worker.frontier
        self.at(now)
        wakes = worker.listener.wakes
        worker.gate.is_shut = False
        try:
            return self.run(
                lambda: worker.listener.wakes > wakes and shared.wake_at(standings) is not None,
                POLL_OTHERS_S + TICK_S,
            )
        finally:
            worker.gate.is_shut = True

    def totals(self) -> list[ShardTotals]:
        return TimedLink(self.client).totals()


def first_line(name: str) -> str:
    return SCRIPTS.text(name).partition("\n")[0]


@contextmanager
def shared_world(client: redis.Redis, port: int) -> Iterator[SharedWorld]:
    world = SharedWorld(client, port)
    try:
        yield world
    finally:
        world.close()
