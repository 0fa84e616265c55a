"""What a later visit costs the frontier beside a first one, and a date that a sitemap has for a
page that waits for one: `python -m bench.visit_costs`. Two minutes, one core.

Rule: the embedded frontier with its store on disk. Times are those of the processor in the thread
that calls it, commits among them, and the least of five rounds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import thread_time_ns
from typing import Any, Final

from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from bench.figures import Figures
from crawler.frontier import records as keys
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.records import UrlEvent, UrlState
from crawler.frontier.staging import all_records
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Again, Candidate, Done, HostKey, Pace, PageHistory, Rest
from crawler.policy.revisits import ChangeRate, Signals, pack_rate

DAY_S: Final = 86_400
START: Final = 1_800_000_000
ROUNDS: Final = 5
KNOWN: Final = 100_000
HOSTS: Final = 1_000
VISITS: Final = 2_000  # a round
DATED: Final = (5_000, 50_000)
LINKS_A_CALL: Final = 500  # as of pages and sitemaps (crawler/pipelines.py)
MOST_VISIT_US, MOST_DATE_US = 20.0, 100.0
FLAT: Final = 1.5  # times the cost of a date among a tenth as many
# Nine of ten dates are changes, and nine of ten changes have a date.
RIGHT: Final = Signals(300, 270, 270, 300 * DAY_S, 30, 3_000 * DAY_S)
_NO_REST: Final = Rest(0.0, Pace())


@dataclass(slots=True)
class Work:
    """A frontier, and the turns of its event loop."""

    frontier: TwoTierFrontier
    turns: FrontierTurns
    now: float = START

    def end_turn(self) -> None:
        self.turns.end(self.frontier, self.now)


def opened(folder: str) -> Work:
    turns = FrontierTurns()
    return Work(open_frontier(Path(folder), FrontierLimits(), START, background=turns), turns)


def page(number: int, host: str, **given: Any) -> Candidate:
    url = f"http://{host}/section/{number % 97}/page-{number}.html"
    key = xxh3_64_intdigest(url.encode())
    return Candidate(url, key, HostKey(host), host, depth=2, **given)


def history(number: int, random: Random) -> PageHistory:
    """Return that of a page of one of some sixty classes, visited in the last month."""
    days = 2.0 ** random.uniform(-1, 9)
    at = START - int(random.uniform(0.1, 30) * DAY_S)
    rate = ChangeRate(0.2 * 2.0 ** (number % 3), days)
    return PageHistory(at, at - DAY_S, at, visits=3, changes=1, rate=pack_rate(rate), content=7)


def keep(work: Work, pages: Sequence[Candidate]) -> None:
    """File *pages* as visited before."""
    batch = work.frontier._batch
    for at in range(0, len(pages), 1_000):
        for each in pages[at : at + 1_000]:
            work.frontier._later.put_again(each)
            batch.count(b"\0", UrlState.UNKNOWN, UrlEvent.ADD_FOR_LATER)
        work.end_turn()


class Spent:
    """The processor's time in calls of methods, in nanoseconds: of each without those in it."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self._inner = [0]

    def watch(self, owner: object, method: str, name: str) -> None:
        call = getattr(owner, method)

        def timed(*given: Any, **named: Any) -> Any:
            self._inner.append(0)
            began = thread_time_ns()
            try:
                return call(*given, **named)
            finally:
                spent = thread_time_ns() - began
                self.of[name] = self.of.get(name, 0) + spent - self._inner.pop()
                self._inner[-1] += spent

        setattr(owner, method, timed)


def visit_us(work: Work, first: Sequence[Candidate] = ()) -> float:
    """Return the time to lease and finish a page that is due, one in a turn: one of *first*, each
    added before its turn, or else one that is visited again, when the usual budget has a visit."""
    random, frontier = Random(3), work.frontier
    spent = 0
    for at in range(VISITS):
        if first:
            work.now += 0.01
            frontier.add([first[at]], work.now, at_once=True)
            work.end_turn()
        else:
            wake_at = frontier.wake_at()
            assert wake_at is not None, "no page waits"
            work.now = max(work.now, wake_at)
        is_changed = random.random() < 0.3
        began = thread_time_ns()
        (lease,) = frontier.lease(work.now)
        spent += thread_time_ns() - began
        again, before = None, lease.candidate.history
        if before is not None:
            after = replace(before, visited_at=int(work.now), visits=before.visits + 1)
            again = Again(after, is_changed)
        verdict = Done(again=again)
        began = thread_time_ns()
        frontier.release(lease, _NO_REST, work.now)
        frontier.finish(lease, verdict, work.now)
        work.end_turn()
        spent += thread_time_ns() - began
    return spent / VISITS / 1e3


def visits(figures: Figures) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        once, again = opened(one), opened(other)
        random = Random(1)
        known = [page(n, f"h{n % HOSTS}.example", history=history(n, random)) for n in range(KNOWN)]
        keep(again, known)
        new = [page(n, f"h{n % HOSTS}.example") for n in range(ROUNDS * VISITS)]
        firsts, laters = [], []
        for at in range(0, len(new), VISITS):
            firsts.append(visit_us(once, new[at : at + VISITS]))
            laters.append(visit_us(again))
        figures.note("lease and finish the only page of a host, us", min(firsts))
        figures.note(f"the same, visited again, {KNOWN:,} of which wait, us", min(laters))
        figures.note("what a later visit adds, us", min(laters) - min(firsts), MOST_VISIT_US)
        for name, us in _parts(again).items():
            figures.note(f"  of this: {name}, us", us)
        once.frontier.close()
        again.frontier.close()


def _parts(work: Work) -> dict[str, float]:
    """Return what the parts of a later visit take, the least of the rounds, in microseconds."""
    spent, frontier = Spent(), work.frontier
    later = frontier._later
    spent.watch(later, "take_due", "taking the page when it is due")
    spent.watch(frontier, "_append", "queueing it")
    spent.watch(later, "learned", "learning")
    spent.watch(later, "put_again", "filing it")
    spent.watch(frontier, "lease", "(the lease)")
    spent.watch(frontier, "finish", "(the verdict)")
    spent.watch(frontier, "commit", "(the commit)")
    least: dict[str, float] = {}
    for _ in range(ROUNDS):
        spent.of.clear()
        visit_us(work)
        for name, ns in spent.of.items():
            least[name] = min(least.get(name, 1e9), ns / VISITS / 1e3)
    return least


def date_us(number: int, signals: Signals) -> float:
    """Return the time of a date of one of *number* pages of a host, in calls of LINKS_A_CALL."""
    random, host = Random(2), "h.example"
    pages = [page(n, host, history=history(n, random), modified=1.0) for n in range(number)]
    with tempfile.TemporaryDirectory() as folder:
        work = opened(folder)
        batch = work.frontier._batch
        for at in range(0, number, LINKS_A_CALL):  # they were admitted once
            batch.host(HostKey(host))
            work.frontier._seen.mark([each.key for each in pages[at : at + LINKS_A_CALL]], b"\0")
        keep(work, pages)
        times = []
        for turn in range(ROUNDS):
            record = batch.host(HostKey(host))
            record.visits = replace(record.visits, signals=signals)
            work.now += 60.0
            found = [replace(each, modified=START + 1.0 + turn, history=None) for each in pages]
            spent = 0
            for at in range(0, number, LINKS_A_CALL):
                some = found[at : at + LINKS_A_CALL]
                began = thread_time_ns()
                work.frontier.add(some, work.now, at_once=True)
                work.end_turn()
                spent += thread_time_ns() - began
            times.append(spent / number / 1e3)
        classes = len(work.frontier._later._classes)
        signalled = sum(
            each.history.signals == ROUNDS for each in _kept(work) if each.history is not None
        )
        assert signalled == number, f"{signalled} of {number} have noted all dates"
        work.frontier.close()
    print(f"  {number:,} pages of {classes} classes: {', '.join(f'{us:.0f}' for us in times)} us")
    return min(times)


def _kept(work: Work) -> list[Candidate]:
    return [
        keys.decode_candidate(packed)
        for _, packed in all_records(work.frontier.records, keys.LATER)
    ]


def dates(figures: Figures) -> None:
    for name, signals in (("nothing is known of its dates", Signals()), ("they are right", RIGHT)):
        few, many = (date_us(number, signals) for number in DATED)
        figures.note(f"a date of {DATED[1]:,} of a sitemap, us ({name})", many, MOST_DATE_US)
        figures.note(f"times that of one of {DATED[0]:,}", many / few, FLAT)


def main() -> int:
    figures = Figures()
    visits(figures)
    dates(figures)
    return int(figures.missed)


if __name__ == "__main__":
    sys.exit(main())
