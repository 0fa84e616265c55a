"""Random lives of two workers of one crawl: their connections break, their server restarts, and
they are killed, at the worst moments. Checked from outside: by a polite web server (when each host
is contacted) and by an accountant (what became of every URL).

Time passes for the workers, the server and the web alike, and only where the test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Final

import pytest

from crawler.model.types import Candidate, Done, Lease, PutBack, RetryAt, Verdict
from crawler.shared import keys
from crawler.shared.worker.frontier import TICK_S
from crawler.shared.worker.join import RELEASE_LAG_S
from crawler.shared.worker.leases import MAX_SHARD_SILENCE_S, UNUSED_LEASE_S
from tests.harness.budget import examples
from tests.harness.frontiers import TIGHT, WebServer, candidate, rest
from tests.harness.redis_world import NAME
from tests.harness.shared_frontier import SmallStore
from tests.harness.shared_world import SharedWorld, SimulatedWorker, shared_world
from tests.servers.redis import RedisServer
from tests.servers.simulated import FAILURES

FETCH_S: Final = 2.0  # no fetch takes longer
LEASE_S: Final = 16.0  # shorter than the longest time in which no server answers
RULES: Final = replace(TIGHT, longest_fetch_s=FETCH_S)
GAP_S: Final = RULES.min_gap_s  # such rests are kept even if the server does not get them
STEP_S: Final = 0.25
LOST_S: Final = 2.0  # with appendfsync everysec a server loses no more
APART_S: Final = 10.0  # between the death of a worker and of a server that loses something
LONGEST_S: Final = 400.0  # of the end of a life: all that is left is fetched
HOSTS: Final = "abcdefghij"
STEPS: Final = 100
LIVES: Final = 8


@dataclass
class Held:
    lease: Lease
    began: float
    is_released: bool = False


@dataclass
class Life:
    """A worker, in one session after the other, and what was called in its present one."""

    name: str
    disk: SmallStore = field(default_factory=SmallStore)
    worker: SimulatedWorker | None = None
    session: str | None = None
    held: dict[int, Held] = field(default_factory=dict)
    added: list[Candidate] = field(default_factory=list)  # not known to be acknowledged
    rests: dict[str, float] = field(default_factory=dict)  # host -> end, as `added`
    finished: list[tuple[Lease, Verdict]] = field(default_factory=list)  # as `added`


class Lives:
    def __init__(self, world: SharedWorld, random: Random, is_sure: bool) -> None:
        """*is_sure*: the server loses nothing that it has acknowledged (appendfsync always);
        else it may lose its last two seconds."""
        self.random = random
        self.is_sure = is_sure
        self.world = world
        world.limits = RULES
        world.lease_s, world.fetch_s = LEASE_S, FETCH_S
        world.heartbeat_s = LEASE_S / 4
        world.wait_s = UNUSED_LEASE_S
        world.quiet_s = FETCH_S + MAX_SHARD_SILENCE_S + RELEASE_LAG_S
        world.is_sure = is_sure
        world.at(1000.0)
        world.begin()
        self.web = WebServer()
        self.lives = {name: Life(name) for name in "vw"}
        self.urls = count()
        self.added: dict[str, Candidate] = {}
        self.done: dict[str, Lease] = {}
        self.perhaps_done: set[str] = set()  # not known
        self.leases: set[int] = set()
        self.killed_at = self.lost_at = float("-inf")
        for life in self.lives.values():
            self.start(life)

    def step(self) -> None:
        steps: list[tuple[Callable[[Life], None], int]] = [
            (self.add, 14),
            (self.lease, 40),
            (self.release, 20),
            (self.finish, 20),
            (self.wait, 30),
            (self.fail, 10),
            (self.cut, 1),
            (self.restart, 1),
            (self.power_cut, 2),
            (self.kill, 2),
            (self.come_back, 4),
        ]
        (do,) = self.random.choices([do for do, _ in steps], [weight for _, weight in steps])
        do(self.random.choice(list(self.lives.values())))

    # What the crawls do

    def add(self, life: Life) -> None:
        if life.worker is not None:
            host = self.random.choice(HOSTS)
            found = [candidate(str(next(self.urls)), host=host) for _ in range(3)]
            self.added |= {each.url: each for each in found}
            found.append(self.random.choice(list(self.added.values())))
            life.worker.frontier.add(found, self.world.now)
            life.added += found

    def lease(self, life: Life) -> None:
        if life.worker is None:
            return
        for lease in life.worker.frontier.lease(self.world.now, 3):
            url = lease.candidate.url
            assert lease.id not in self.leases, "a fencing token is used twice"
            assert url in self.added
            assert url not in self.done, f"{url} was finished"
            self.leases.add(lease.id)
            self.web.visited(lease.candidate.host, self.world.now)
            life.held[lease.id] = Held(lease, self.world.now)

    def release(self, life: Life) -> None:
        if open_ := [held for held in life.held.values() if not held.is_released]:
            self.fetched(life, self.random.choice(open_), self.random.choice([0.0, 1.0, 5.0]))

    def fetched(self, life: Life, held: Held, seconds: float) -> None:
        assert life.worker is not None
        host, now = held.lease.candidate.host, self.world.now
        held.is_released = True
        life.worker.frontier.release(held.lease, rest(seconds), now)
        self.web.left(host, now + min(seconds, GAP_S))
        life.rests[host] = max(life.rests.get(host, 0.0), now + seconds)

    def finish(self, life: Life) -> None:
        if ready := [held.lease for held in life.held.values() if held.is_released]:
            retry = RetryAt(self.world.now + 3.0)
            verdict = self.random.choice([Done(), Done(), PutBack(), retry])
            self.finished(life, self.random.choice(ready), verdict)

    def finished(self, life: Life, lease: Lease, verdict: Verdict) -> None:
        assert life.worker is not None
        del life.held[lease.id]
        if life.worker.frontier.finish(lease, verdict, self.world.now):
            life.finished.append((lease, verdict))

    # What happens to them

    def wait(self, _: Life) -> None:
        self.time_passes(self.random.choice([STEP_S, STEP_S, 0.5, 0.5, 1.0, 1.0, 3.0, LEASE_S]))

    def time_passes(self, seconds: float) -> None:
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.at(self.world.now + STEP_S)
            self.world.run(lambda: False, STEP_S)
            self.time_out()
            self.account()

    def fail(self, life: Life) -> None:
        """The next pipelines of this worker fail."""
        if life.worker is not None:
            life.worker.network.failures.extend(self.random.choices(FAILURES, k=2))

    def cut(self, life: Life) -> None:
        if life.worker is not None:
            life.worker.network.cut()

    def restart(self, _: Life) -> None:
        self.world.server.restart()

    def power_cut(self, _: Life) -> None:
        """The server loses what is called now, and acknowledged in the next moments."""
        if self.is_sure or self.world.now - self.killed_at < APART_S:
            return
        self.world.server.checkpoint()
        begun = self.world.now
        end = self.world.now + self.random.choice([0.5, 1.0, LOST_S])
        while self.world.now < end:
            for do in (self.add, self.lease, self.release, self.finish):
                do(self.random.choice(list(self.lives.values())))
            self.time_passes(STEP_S)
        self.world.server.restart(loses=True)
        self.lost_at = self.world.now
        # A lease that the server has lost cannot be finished again: its URL may be leased again.
        lost = [url for url, lease in self.done.items() if lease.taken_at >= begun]
        self.perhaps_done |= {self.done.pop(url).candidate.url for url in lost}

    def kill(self, life: Life) -> None:
        if life.worker is None or self.world.now - self.lost_at < APART_S:
            return
        self.account()
        self.world.crash(life.worker)
        self.killed_at = self.world.now
        life.worker = None
        for held in life.held.values():
            if not held.is_released:
                self.web.left(held.lease.candidate.host, self.world.now + GAP_S)
        self.perhaps_done |= {lease.candidate.url for lease, _ in life.finished}
        life.held, life.rests, life.finished = {}, {}, []

    def come_back(self, life: Life) -> None:
        if life.worker is None:
            self.start(life)

    def start(self, life: Life) -> None:
        """Pages whose links were not acknowledged are fetched again: so are their links found."""
        life.worker, _ = self.world.start(life.name, life.session, life.disk)
        life.session = life.worker.session
        life.worker.frontier.is_over()  # all that it begins with was added
        again, life.added = life.added, []
        life.worker.frontier.add(again, self.world.now)
        life.added += again

    # The judges

    def time_out(self) -> None:
        for life in self.lives.values():
            for held in list(life.held.values()):
                if not held.is_released and self.world.now >= held.began + FETCH_S - STEP_S:
                    self.fetched(life, held, 1.0)

    def account(self) -> None:
        """Note what is acknowledged."""
        for life in self.lives.values():
            if life.worker is None or not life.worker.frontier.sender.is_idle():
                continue
            refused = {lease.id for lease in life.worker.listener.refusals}
            for lease, verdict in life.finished:
                if lease.id not in refused and isinstance(verdict, Done):
                    assert lease.candidate.url not in self.done, "done twice"
                    self.done[lease.candidate.url] = lease
            for host, end in life.rests.items():
                self.web.quiet_until[host] = max(self.web.quiet_until.get(host, 0.0), end)
            life.added, life.rests, life.finished = [], {}, []
            assert not life.worker.listener.failures

    def ends(self) -> None:
        """Everything is whole again, and all that is left is fetched."""
        for life in self.lives.values():
            if life.worker is None:
                self.start(life)
            life.worker.network.failures.clear()
        end = self.world.now + LONGEST_S
        while not all(life.worker.frontier.is_over() for life in self.lives.values()):
            assert self.world.now < end, f"left: {sorted(self.added.keys() - self.done.keys())}"
            for life in self.lives.values():
                self.lease(life)
                for held in list(life.held.values()):
                    if not held.is_released:
                        self.fetched(life, held, 0.0)
                    self.finished(life, held.lease, Done())
            self.time_passes(0.5)
        lost = self.added.keys() - self.done.keys() - self.perhaps_done
        assert not lost, f"lost: {sorted(lost)}"
        for life in self.lives.values():
            self.world.crash(life.worker)
            life.worker = None
        self.world.check()


def test_a_note_of_an_outbox_that_is_empty_does_not_keep_the_crawl_from_its_end(
    redis_server: RedisServer,
) -> None:
    """Its removal was lost with the server's last second, or overtaken by an older call."""
    with redis_server.client() as client, shared_world(client, redis_server.port) as world:
        shared = world.reopen(0.0).worker.frontier
        world.run(lambda: False, 2 * TICK_S)
        client.sadd(f"{keys.root(NAME, 1)}:x", "w")
        assert world.run(shared.is_over, 10 * TICK_S)


@pytest.mark.parametrize("is_sure", [True, False], ids=["always", "everysec"])
@pytest.mark.parametrize("seed", range(examples(LIVES)))
def test_no_failure_loses_a_url_or_breaks_politeness(
    redis_server: RedisServer, seed: int, is_sure: bool
) -> None:
    with redis_server.client() as client, shared_world(client, redis_server.port) as world:
        lives = Lives(world, Random(seed), is_sure)
        for _ in range(STEPS):
            lives.step()
        lives.ends()
