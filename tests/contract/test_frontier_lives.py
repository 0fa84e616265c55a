"""Random lives of a frontier, checked from outside: by a polite web server (when each host is
contacted) and by an accountant (what became of every URL). With crashes: the frontier is dropped in
mid-life and opened again over what is on disk."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from copy import deepcopy
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from crawler.frontier import admit
from crawler.frontier.gate import Gate
from crawler.frontier.later import LEAST_S
from crawler.model.types import (
    Again,
    BorrowedTurn,
    Dead,
    Done,
    HostKey,
    Lease,
    Moved,
    PageHistory,
    PutBack,
    Rest,
    RetryAt,
)
from tests.harness.budget import examples
from tests.harness.frontiers import (
    ADMIT_ALL,
    TIGHT,
    EmbeddedWorld,
    Refusing,
    TurnWorld,
    WebServer,
    at_once,
    candidate,
    memory_store,
    rest,
    rocks_store,
)
from tests.harness.owned_world import OWNED_LIVES, OwnedWorld, open_nodes
from tests.servers.redis import RedisServer

HOSTS = st.sampled_from("abcdef")
SOON = 1e-5  # times on disk are kept to the microsecond


class FrontierLives(RuleBasedStateMachine):
    redis: RedisServer

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.world = self.new_world(folder)
        self.now = 0.0
        self.frontier = self.world.reopen(self.now)
        self.server = WebServer()
        self.waiting: dict[str, float] = {}  # url -> not before
        self.again: dict[str, float] = {}  # pages visited again when that is worth it: the same
        self.leased: dict[str, Lease] = {}  # url -> lease, until finished
        self.unreleased: dict[int, Lease] = {}
        self.borrowed: dict[str, BorrowedTurn] = {}  # by host
        self.gap: dict[str, float] = {}
        self.done = self.dead = self.added = 0
        self.rules = ADMIT_ALL

    def new_world(self, folder: Path) -> EmbeddedWorld:
        return EmbeddedWorld(self.stack.enter_context(memory_store(folder)), folder, TIGHT)

    def teardown(self) -> None:
        self.stack.close()

    @rule(
        host=HOSTS,
        level=st.integers(0, 2),
        wait=st.sampled_from([0, 0, 0, 3, 9]),
        n=st.integers(1, 4),
    )
    def add(self, host, level, wait, n):
        found = []
        for _ in range(n):
            not_before = self.now + wait if wait else 0.0
            found.append(candidate(str(self.added), host=host, level=level, not_before=not_before))
            self.waiting[found[-1].url] = not_before
            self.added += 1
        added = self.frontier.add(found, self.now)
        assert added.new + added.undecided == n
        assert self.frontier.add(found, self.now).seen == n

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 6.0, 20.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.forget_overdue()

    @rule()
    def sleep_until_woken(self):
        wake_at = self.frontier.wake_at()
        if wake_at is not None:
            self.now = max(self.now, wake_at)
        self.forget_overdue()

    @rule(limit=st.integers(1, 3), at_once=st.sampled_from([1, 1, 2, 3]))
    def lease(self, limit, at_once):
        leases = self.frontier.lease(self.now, limit, per_host=lambda *_: at_once)
        by_host = {h: list(some) for h, some in groupby(leases, lambda each: each.candidate.host)}
        assert len(by_host) <= limit and sum(map(len, by_host.values())) == len(leases)
        for some in by_host.values():
            assert len(some) <= at_once
            self.leased_now(*some)

    @rule()
    def lease_all(self):
        """Then nothing that was due is left, and the wake-up is not too late for the rest."""
        for _ in range(200):
            leases = self.frontier.lease(self.now, 2)
            for lease in leases:
                self.leased_now(lease)
            wake_at = self.frontier.wake_at()
            if not leases and (wake_at is None or wake_at > self.now):
                break
        else:
            raise AssertionError("it asks to be asked for ever")
        waiting = [url for url in self.waiting if not self.rules.refuses(url)]
        due = [max(self.due_at(url), self.now) for url in waiting if not self.blocked(url)]
        if due:
            assert min(due) > self.now, "a due URL is starved"
            assert self.world.wakes(self.frontier, min(due) + SOON), "it would wake too late"

    def due_at(self, url):
        return max(self.waiting[url], self.server.quiet_until.get(url.split("/")[2], 0.0)) + SOON

    def blocked(self, url):
        return self.server.busy[url.split("/")[2]]

    def leased_now(self, *of_one_host):
        self.server.visited(of_one_host[0].candidate.host, self.now, len(of_one_host))
        for lease in of_one_host:
            url = lease.candidate.url
            assert not self.rules.refuses(url), f"{url} is refused by the rules of this start"
            where = self.again if url in self.again else self.waiting
            assert url in where, f"{url} was not waiting: leased twice, or finished before"
            assert where.pop(url) <= self.now, "fetched before its date"
            self.leased[url] = lease
            self.unreleased[lease.id] = lease

    @rule(data=st.data(), seconds=st.sampled_from([0.0, 1.0, 3.0, 7.0]))
    def release(self, data, seconds):
        if self.unreleased:
            lease = self.unreleased.pop(data.draw(st.sampled_from(sorted(self.unreleased))))
            host = lease.candidate.host
            assert self.frontier.release(lease, rest(seconds), self.now)
            assert not self.frontier.release(lease, rest(0.0), self.now), "released twice"
            self.gap[host] = seconds
            self.server.left(host, self.now + seconds)

    @rule(
        data=st.data(),
        what=st.sampled_from(["done", "again", "kept", "retry", "moved", "back", "dead"]),
    )
    def finish(self, data, what):
        if not self.leased:
            return
        lease = self.leased.pop(data.draw(st.sampled_from(sorted(self.leased))))
        url, host = lease.candidate.url, lease.candidate.host
        if self.unreleased.pop(lease.id, None):
            self.server.left(host, self.now + max(self.gap.get(host, 0.0), TIGHT.min_gap_s))
        assert self.frontier.finish(lease, self.verdict(what, lease), self.now)
        assert not self.frontier.finish(lease, Done(), self.now), "finished twice"
        self.done += what in ("done", "again", "kept", "moved")
        self.dead += what == "dead"
        if what in ("again", "retry", "back"):
            self.waiting[url] = self.now + 5.0 if what != "back" else 0.0

    def verdict(self, what, lease):
        match what:
            case "again":
                return Done(again=Again(PageHistory(int(self.now), 0, 0), at=self.now + 5.0))
            case "kept":
                at, before = int(self.now), lease.candidate.history
                self.again[lease.candidate.url] = at + LEAST_S
                return Done(again=Again(PageHistory(at, at, at), bool(at % 2) if before else None))
            case "retry":
                return RetryAt(self.now + 5.0)
            case "moved":
                # A redirect to what the rules refuse is not followed.
                while self.rules.refuses(f"http://f/{self.added}"):
                    self.added += 1
                target = candidate(f"{self.added}", host="f", chain=(lease.candidate.key,))
                self.added += 1
                self.waiting[target.url] = 0.0
                return Moved(target)
            case "back":
                return PutBack()
            case "dead":
                return Dead("by the test")
        return Done()

    @rule(host=HOSTS, seconds=st.sampled_from([1.0, 4.0]))
    def borrow(self, host, seconds):
        turn = at_once(self.frontier.borrow(HostKey(host), self.now, self.now + seconds))
        if isinstance(turn, BorrowedTurn):
            self.server.visited(host, self.now)
            self.borrowed[host] = turn
        elif turn.at is not None:
            assert turn.at > self.now

    @rule(data=st.data(), seconds=st.sampled_from([0.0, 1.0, 3.0, 7.0]))
    def give_back(self, data, seconds):
        if self.borrowed:
            host = data.draw(st.sampled_from(sorted(self.borrowed)))
            turn = self.borrowed.pop(host)
            assert self.frontier.give_back(turn, rest(seconds), self.now)
            self.gap[host] = seconds
            self.server.left(host, self.now + seconds)

    @rule(data=st.data(), seconds=st.sampled_from([1.0, 30.0]))
    def head_of_a_turn(self, data, seconds):
        if self.borrowed:
            host = data.draw(st.sampled_from(sorted(self.borrowed)))
            noted = Rest(seconds, self.borrowed[host].pace, asked_s=0.0)
            self.frontier.note_trouble(self.borrowed[host], noted, self.now)
            self.server.note_rest(host, self.now + seconds)

    def forget_overdue(self):
        """Turns that are never given back."""
        for host, turn in list(self.borrowed.items()):
            if turn.rests_until <= self.now:
                del self.borrowed[host]
                self.server.left(host, turn.rests_until)

    @rule(refused=st.sampled_from([(), (), (0,), (1, 2), (0, 1, 2)]))
    def crash(self, refused):
        """The next start may have other rules."""
        self.rules = Refusing(lambda url: int(url.rpartition("/")[2]) % 3 in refused)
        old, self.frontier = self.frontier, self.world.reopen(self.now, self.rules)
        assert self.frontier.put_back_at_open == len(self.leased)
        for url, lease in self.leased.items():
            self.waiting[url] = 0.0
            if lease.id in self.unreleased or not self.is_known_released(lease):
                self.server.left(lease.candidate.host, self.rest_after_death(lease))
            assert not self.frontier.finish(lease, Done(), self.now), "fenced off"
        for host, turn in self.borrowed.items():
            self.server.left(host, turn.rests_until)
        self.leased, self.unreleased, self.borrowed = {}, {}, {}
        del old

    def is_known_released(self, lease):
        """A lease released in the moment it was taken may look like one that was not, unless its
        host was leased again since."""
        host = lease.candidate.host
        return self.server.quiet_until.get(host, 0.0) > lease.taken_at or any(
            other.candidate.host == host and other.taken_at > lease.taken_at
            for other in self.leased.values()
        )

    def rest_after_death(self, lease):
        """The host may have answered at any moment since, and its gap began then."""
        gap_s = max(self.gap.get(lease.candidate.host, 0.0), TIGHT.min_gap_s)
        took_s = min(self.now - lease.taken_at, TIGHT.longest_fetch_s)
        return max(self.now + gap_s, lease.taken_at + took_s * (1 + TIGHT.gap_factor))

    @invariant()
    def the_books_balance(self):
        counts = self.frontier.counts()
        known = counts.waiting + counts.later + counts.refused + counts.undecided
        assert known == len(self.waiting) + len(self.again)
        assert counts.leased == len(self.leased)
        assert (counts.done, counts.dead) == (self.done, self.dead)
        self.world.check(self.frontier)


class RocksLives(FrontierLives):
    def new_world(self, folder: Path) -> EmbeddedWorld:
        return EmbeddedWorld(self.stack.enter_context(rocks_store(folder)), folder, TIGHT)


class UndecidedLives(FrontierLives):
    """The gate never says that a URL is new, so the runs are searched for each."""

    def __init__(self) -> None:
        super().__init__()
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(Gate, "may_contain", lambda _, keys: np.ones(len(keys), np.bool_))


def test_what_is_decided_of_a_record_is_not_counted_after_a_crash():
    state = UndecidedLives()
    for urls in (3, 2, 2):  # more than may be undecided: the second record is searched for in part
        state.add(host="a", level=0, n=urls, wait=0)
    state.crash(refused=())
    state.the_books_balance()
    state.teardown()


class TurnLives(FrontierLives):
    """The calls of a turn of the event loop are one write. A crash before it undoes them all. The
    work beside them is run and applied step by step, with calls between any two steps."""

    COMMITTED: ClassVar = (
        "waiting",
        "again",
        "leased",
        "unreleased",
        "borrowed",
        "gap",
        "done",
        "dead",
        "server",
    )

    def __init__(self) -> None:
        super().__init__()
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(admit, "_STEP", 1)
        patch.setattr(admit, "_PART", 2)
        self.work = None  # begun, and not run
        self.steps = None  # of work that is being applied
        self.turn_ends()

    def new_world(self, folder: Path) -> EmbeddedWorld:
        return TurnWorld(self.stack.enter_context(memory_store(folder)), folder, TIGHT)

    @rule()
    def work_goes_on(self):
        self.frontier.commit()
        if self.steps is not None:
            self.steps = self.steps if next(self.steps, self) is None else None
            self.frontier.commit()
        elif self.work is not None:
            self.work.run()
            self.work, self.steps = None, self.work.apply(self.now)
        else:
            self.work = self.frontier.next_work(self.now)
        self.keep()

    @rule()
    def turn_ends(self):
        while self.work is not None or self.steps is not None:
            self.work_goes_on()
        self.world.end_turn(self.frontier, self.now)
        self.world.check(self.frontier)
        self.keep()

    def keep(self):
        self.kept = {name: deepcopy(getattr(self, name)) for name in self.COMMITTED}

    @rule(host=HOSTS, seconds=st.sampled_from([1.0, 4.0]))
    def borrow(self, host, seconds):
        super().borrow(host, seconds)
        self.frontier.commit()  # as a turn that is lent is
        self.keep()

    @rule(data=st.data(), seconds=st.sampled_from([1.0, 30.0]))
    def head_of_a_turn(self, data, seconds):
        super().head_of_a_turn(data, seconds)
        self.frontier.commit()
        self.keep()

    def decide_all(self):
        for _ in range(20):  # with too many new URLs, or URLs that come due, nothing is leased
            self.frontier.lease(self.now, 0)
            self.turn_ends()

    @rule()
    def lease_all(self):
        self.decide_all()
        super().lease_all()

    @rule(refused=st.sampled_from([(), (), (0,), (1, 2), (0, 1, 2)]))
    def crash(self, refused):
        self.work = self.steps = None
        for name in self.COMMITTED:
            setattr(self, name, self.kept[name])
        super().crash(refused)
        # URLs that came together are admitted by parts, which depend on the hashes of their hosts.
        # Where some were not, all are decided once more: until then some count twice.
        self.decide_all()

    @invariant()
    def the_books_balance(self):
        counts = self.frontier.counts()
        known = counts.waiting + counts.later + counts.refused + counts.undecided
        assert known == len(self.waiting) + len(self.again)
        assert counts.leased == len(self.leased)


class OwnedLives(FrontierLives):
    """After each crash another owner takes the shard over, into an empty store."""

    def new_world(self, folder: Path) -> EmbeddedWorld:
        client = self.stack.enter_context(self.redis.client())
        return OwnedWorld(client, self.stack.enter_context(open_nodes(self.redis.port)), folder)


def lives(number: int) -> settings:
    return settings(
        max_examples=examples(number),
        stateful_step_count=50,
        suppress_health_check=list(HealthCheck),
    )


TestMemory = FrontierLives.TestCase
TestMemory.settings = lives(200)
TestUndecided = UndecidedLives.TestCase
TestUndecided.settings = lives(100)
TestTurns = TurnLives.TestCase
TestTurns.settings = lives(150)
TestRocks = RocksLives.TestCase
TestRocks.settings = lives(60)


class OverRedis:
    """One redis-server for all lives of a kind."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        FrontierLives.redis = RedisServer(Path(cls.folder.name))
        FrontierLives.redis.__enter__()

    @classmethod
    def tearDownClass(cls) -> None:
        FrontierLives.redis.__exit__(None, None, None)
        cls.folder.cleanup()


class TestOwned(OverRedis, OwnedLives.TestCase):
    settings = lives(OWNED_LIVES)
