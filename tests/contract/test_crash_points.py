"""The embedded frontier dies before each of its writes, to the store and to the files of the seen
set, one after the other. Judged from outside: what was acknowledged is neither lost nor done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from crawler.frontier import admit, two_tier
from crawler.frontier.gate import Gate
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import SEEN
from crawler.frontier.run_files import OpenFd, RunFolder
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import (
    Candidate,
    Dead,
    Done,
    Lease,
    Moved,
    PutBack,
    RetryAt,
    StoreUnavailable,
    Verdict,
)
from tests.harness.frontiers import TIGHT, candidate, drain, rest

ROUNDS = 7


class Countdown:
    """Lets a number of writes pass; from then on each fails, as after the death of the process."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def write(self) -> None:
        if self.left == 0:
            raise StoreUnavailable("the process is dead")
        self.left -= 1


class DyingStore(MemoryStore):
    def __init__(self, countdown: Countdown) -> None:
        super().__init__()
        self.countdown = countdown

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        self.countdown.write()
        super().write(changes)


class DyingFolder(RunFolder):
    def __init__(self, path: Path, countdown: Countdown) -> None:
        super().__init__(path)
        self.countdown = countdown

    def create(self, name: str) -> OpenFd:
        self.countdown.write()
        return super().create(name)

    def write(self, file: OpenFd, data: memoryview, offset: int) -> None:
        self.countdown.write()
        super().write(file, data, offset)

    def sync(self, file: OpenFd) -> None:
        self.countdown.write()
        super().sync(file)

    def remove(self, name: str) -> None:
        self.countdown.write()
        super().remove(name)


@dataclass
class Books:
    """What writes have acknowledged, and what the calls since the last one were about."""

    waiting: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    _added: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)

    def add(self, frontier: TwoTierFrontier, found: list[Candidate], now: float) -> None:
        new = {each.url for each in found} - self.waiting - self.finished
        self.unsure |= new
        frontier.add(found, now)
        self._added |= new

    def finish(self, frontier: TwoTierFrontier, lease: Lease, verdict: Verdict, now: float) -> None:
        url = lease.candidate.url
        target = {verdict.candidate.url} if isinstance(verdict, Moved) else set()
        self.unsure |= {url} | target
        frontier.finish(lease, verdict, now)
        self._added |= target
        if not isinstance(verdict, PutBack | RetryAt):
            self._ended.add(url)

    def acknowledge(self) -> None:
        self.waiting = (self.waiting | self._added) - self._ended
        self.finished |= self._ended
        self.unsure, self._added, self._ended = set(), set(), set()


def verdicts() -> Iterator[tuple[str, int]]:
    for number in count():
        yield ("done", "moved", "back", "retry", "dead")[number % 5], number


def live(frontier: TwoTierFrontier, books: Books, end_turn: Callable[[float], None]) -> None:
    """Add, find again, fetch and finish in every way, through merges and searches. *end_turn* is
    called where the calls may be written."""
    kinds, now = verdicts(), 0.0
    for turn in range(ROUNDS):
        found = [candidate(f"{turn}-{n}", host="abc"[n % 3], level=n % 2) for n in range(5)]
        books.add(frontier, [*found, candidate(f"{turn - 1}-0", host="a")], now)
        end_turn(now)
        for lease in frontier.lease(now, 3):
            frontier.release(lease, rest(1.0), now)
            kind, number = next(kinds)
            verdict: Verdict = Done()
            match kind:
                case "moved":
                    target = candidate(f"moved-{number}", host="a", chain=(lease.candidate.key,))
                    verdict = Moved(target)
                case "back":
                    verdict = PutBack()
                case "retry":
                    verdict = RetryAt(now + 2.0)
                case "dead":
                    verdict = Dead("by the test")
            books.finish(frontier, lease, verdict, now)
            end_turn(now)
        now += 1.5


def fetch_all(frontier: TwoTierFrontier) -> list[str]:
    fetched = []
    for now in range(100, 1000, 10):
        for lease in drain(frontier, float(now)):
            fetched.append(lease.candidate.url)
            frontier.release(lease, rest(1.0), float(now))
            frontier.finish(lease, Done(), float(now))
    return fetched


def open_calls(
    store: MemoryStore, runs: RunFolder, books: Books
) -> tuple[TwoTierFrontier, Callable[[float], None]]:
    """Return a frontier that writes each call."""
    frontier = open_frontier(runs.path.parent, TIGHT, 0.0, store=store, runs=runs)
    return frontier, lambda _: books.acknowledge()


def open_turns(
    store: MemoryStore, runs: RunFolder, books: Books
) -> tuple[TwoTierFrontier, Callable[[float], None]]:
    """Return a frontier that writes the calls of a turn together, with work beside them."""
    turns = FrontierTurns()
    frontier = open_frontier(runs.path.parent, TIGHT, 0.0, background=turns, store=store, runs=runs)

    def end_turn(now: float) -> None:
        for _ in turns.steps(frontier, lambda: now):
            books.acknowledge()

    return frontier, end_turn


@pytest.mark.parametrize("mode", [open_calls, open_turns])
@pytest.mark.parametrize("gate", ["a gate", "a gate that knows nothing"])
def test_nothing_is_lost_or_done_again_wherever_it_dies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gate: str,
    mode: Callable[
        [MemoryStore, RunFolder, Books], tuple[TwoTierFrontier, Callable[[float], None]]
    ],
) -> None:
    if gate != "a gate":
        monkeypatch.setattr(Gate, "may_contain", lambda _, keys: np.ones(len(keys), np.bool_))
    monkeypatch.setattr(admit, "_PART", 2)
    monkeypatch.setattr(two_tier, "_LARGE", 0)  # so that admission in a turn is a write of its own
    for writes in count():
        countdown, books = Countdown(writes), Books()
        store = DyingStore(countdown)
        runs = DyingFolder(tmp_path / str(writes) / SEEN, countdown)
        try:
            frontier, end_turn = mode(store, runs, books)
            live(frontier, books, end_turn)
        except StoreUnavailable:
            died = True
        else:
            died = False
        countdown.left = -1
        frontier = open_frontier(runs.path.parent, TIGHT, 50.0, store=store)
        fetched = fetch_all(frontier)
        assert len(fetched) == len(set(fetched)), f"fetched twice after {writes} writes"
        lost = books.waiting - set(fetched) - books.unsure
        again = (books.finished - books.unsure) & set(fetched)
        invented = set(fetched) - books.waiting - books.unsure
        assert (lost, again, invented) == (set(), set(), set()), f"after {writes} writes"
        assert frontier.is_over()
        if not died:
            assert writes > 80, "the life is too short to prove anything"
            return
