"""How fast each way to pace requests asks one server, and what its other visitors notice of it.

Rule: pure. A server has some workers, which take requests in the order in which they come, of us
and of others; the others are the same for each way. What a way costs them is their mean latency
beside that without us.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush, heapreplace
from math import exp, inf
from random import Random
from typing import Final, NamedTuple, Protocol

from crawler.config.settings import PolitenessSettings
from crawler.model.types import Answer, Pace
from crawler.policy.pacing import at_once, bundle_size, spacing_s
from crawler.policy.politeness import next_rest

_SPREAD: Final = 0.5  # standard deviation of the logarithm of service times
_DOWN_S: Final = 5.0  # of a restart


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedServer:
    """A server, and its other visitors."""

    name: str
    workers: int
    service_s: float  # in the mean
    background: float  # share of its workers that others keep busy
    knee: int = 0  # busy workers above which each takes longer; 0: none
    brown_out: float = 1.0  # how many times as long a request takes in the second half
    restarts_every_s: float = 0.0  # it answers nothing for some seconds then; 0: never
    most_a_second: float = 0.0  # of our requests; it refuses more with 429; 0: any
    retry_after_s: float | None = None  # what it asks for then


SERVERS: Final = (
    PacedServer(name="1 worker, 30 % busy", workers=1, service_s=0.1, background=0.3),
    PacedServer(name="2 workers, half busy", workers=2, service_s=0.1, background=0.5),
    PacedServer(name="4 workers, half busy", workers=4, service_s=0.1, background=0.5),
    PacedServer(name="8 workers, 30 % busy", workers=8, service_s=0.05, background=0.3),
    PacedServer(name="16 workers, 30 % busy", workers=16, service_s=0.1, background=0.3),
    PacedServer(name="32 workers, 20 % busy", workers=32, service_s=0.05, background=0.2),
    PacedServer(name="8 workers, knee at 4", workers=8, service_s=0.1, background=0.3, knee=4),
    PacedServer(
        name="8 workers, 3 x slower", workers=8, service_s=0.1, background=0.2, brown_out=3.0
    ),
    PacedServer(
        name="4 workers, restarts", workers=4, service_s=0.1, background=0.3, restarts_every_s=300.0
    ),
    PacedServer(
        name="8 workers, 4 a second", workers=8, service_s=0.05, background=0.2, most_a_second=4.0
    ),
    PacedServer(
        name="the same, asks for 20 s",
        workers=8,
        service_s=0.05,
        background=0.2,
        most_a_second=4.0,
        retry_after_s=20.0,
    ),
)


class Controller(Protocol):
    """A way to pace requests to one host."""

    def on_answer(self, begun_at: float, ended_at: float, answer: Answer) -> None: ...

    def next_at(self) -> float:
        """Return when the next request may be sent; infinity: not before an answer."""

    def on_sent(self, at: float) -> None: ...


class Resting:
    """Rests as this crawler does."""

    def __init__(self, settings: PolitenessSettings, seed: int = 0) -> None:
        self.pace = Pace()
        self._settings, self._random = settings, Random(seed)
        self._under_way = self._unused = 0  # of a bundle
        self._turn_at = self._next_at = self._rest_until = 0.0

    def on_answer(self, begun_at: float, ended_at: float, answer: Answer) -> None:
        rest = next_rest(self.pace, answer, self._settings, self._random, self._turn_at)
        self.pace, self._under_way = rest.pace, self._under_way - 1
        self._rest_until = max(self._rest_until, ended_at + rest.seconds)
        if at_once(self.pace, self._settings) == 1:
            self._unused = 0

    def next_at(self) -> float:
        if not self._unused:
            return inf if self._under_way else self._rest_until
        is_free = self._under_way < at_once(self.pace, self._settings)
        return self._next_at if is_free else inf

    def on_sent(self, at: float) -> None:
        if not self._unused:
            self._turn_at, self._rest_until = at, at
            self._unused = bundle_size(self.pace, self._settings)
        self._unused -= 1
        self._under_way += 1
        self._next_at = at + spacing_s(self.pace, self._settings)


class Heritrix:
    """Five times the last fetch, from 3 to 30 s."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def on_answer(self, begun_at: float, ended_at: float, answer: Answer) -> None:
        rest_s = min(30.0, max(3.0, 5.0 * answer.duration_s, answer.retry_after_s or 0.0))
        self._next_at = ended_at + rest_s

    def next_at(self) -> float:
        return self._next_at

    def on_sent(self, at: float) -> None:
        self._next_at = inf


class AutoThrottle:
    """As Scrapy's, for one request at once in the mean, from one request to the next."""

    def __init__(self) -> None:
        self._delay_s, self._sent_at = 5.0, -inf

    def on_answer(self, begun_at: float, ended_at: float, answer: Answer) -> None:
        target_s = answer.duration_s
        new_s = min(60.0, max(target_s, (self._delay_s + target_s) / 2.0))
        if answer.status == 200 or new_s > self._delay_s:
            self._delay_s = new_s

    def next_at(self) -> float:
        return max(0.0, self._sent_at + self._delay_s)

    def on_sent(self, at: float) -> None:
        self._sent_at = at


_DEFAULT: Final = PolitenessSettings()
CONTROLLERS: Final[dict[str, Callable[[], Controller]]] = {
    "ours": lambda: Resting(_DEFAULT),
    "ours, 8 at once": lambda: Resting(replace(_DEFAULT, paced_connections=8)),
    "10 x": lambda: Resting(replace(_DEFAULT, paced_share=1 / 11)),
    "one second": lambda: Resting(replace(_DEFAULT, delay_factor=0.0)),
    "Heritrix": Heritrix,
    "AutoThrottle": AutoThrottle,
}


class PacedVisit(NamedTuple):
    """One of our requests."""

    begun_at: float
    ended_at: float
    status: int | None


@dataclass(slots=True)
class PacedRun:
    """What came of one way at one server."""

    visits: list[PacedVisit] = field(default_factory=list)
    others_s: float = 0.0  # the mean latency of the other visitors

    @property
    def pages(self) -> int:
        return sum(each.status == 200 for each in self.visits)

    @property
    def refused(self) -> int:
        return sum(each.status == 429 for each in self.visits)


def run_pace(
    server: PacedServer, controller: Controller | None, seconds: float, seed: int = 1
) -> PacedRun:
    """Ask *server* for so many seconds, as fast as *controller* says; None: not at all."""
    return _PaceSimulation(server, controller, seconds, seed).run()


class _PaceSimulation:
    def __init__(
        self, server: PacedServer, controller: Controller | None, seconds: float, seed: int
    ) -> None:
        self._server, self._controller, self._seconds = server, controller, seconds
        self._seed = seed
        self._ours = Random(seed + 1)
        self._free_at = [0.0] * server.workers
        self._ends: list[float] = []  # of all requests under way
        self._recent: deque[float] = deque()  # ours, of the last second
        self._begun: list[tuple[float, float, Answer]] = []  # ours: end, begin, answer
        self.result = PacedRun()

    def run(self) -> PacedRun:
        took: list[float] = []
        for at, service_s in self._others():
            if self._controller is not None:
                self._ask_until(at, self._controller)
            took.append(self._serve(at, service_s) - at)
        self.result.others_s = sum(took) / len(took)
        return self.result

    def _ask_until(self, end: float, controller: Controller) -> None:
        """Send our requests, and let the answers to them come, up to *end*."""
        while True:
            answered_at = self._begun[0][0] if self._begun else inf
            next_at = controller.next_at()
            if min(answered_at, next_at) > end:
                return
            if answered_at <= next_at:
                _, begun_at, answer = heappop(self._begun)
                controller.on_answer(begun_at, answered_at, answer)
                continue
            answer = self._answer(next_at)
            ended_at = next_at + answer.duration_s
            self.result.visits.append(PacedVisit(next_at, ended_at, answer.status))
            heappush(self._begun, (ended_at, next_at, answer))
            controller.on_sent(next_at)

    def _others(self) -> Iterator[tuple[float, float]]:
        """Yield when the others ask, and how long a worker takes for that."""
        random, server = Random(self._seed), self._server
        rate = server.background * server.workers / server.service_s
        at = random.expovariate(rate)
        while at < self._seconds:
            yield at, self._drawn_s(random)
            at += random.expovariate(rate)

    def _drawn_s(self, random: Random) -> float:
        return self._server.service_s * exp(random.gauss(-_SPREAD * _SPREAD / 2, _SPREAD))

    def _serve(self, at: float, service_s: float) -> float:
        """Return when a request is answered."""
        server = self._server
        while self._ends and self._ends[0] <= at:
            heappop(self._ends)
        if at > self._seconds / 2:
            service_s *= server.brown_out
        if server.knee:  # they slow each other down; those that wait for a worker do not
            service_s *= max(1.0, min(len(self._ends), server.workers) / server.knee)
        end = max(at, self._free_at[0]) + service_s
        heapreplace(self._free_at, end)
        heappush(self._ends, end)
        return end

    def _answer(self, at: float) -> Answer:
        server = self._server
        if (
            server.restarts_every_s
            and at % server.restarts_every_s > server.restarts_every_s - _DOWN_S
        ):
            return Answer(0.01, error="connect")
        while self._recent and self._recent[0] <= at - 1.0:
            self._recent.popleft()
        if server.most_a_second and len(self._recent) >= server.most_a_second:
            return Answer(0.005, status=429, retry_after_s=server.retry_after_s)
        self._recent.append(at)
        return Answer(self._serve(at, self._drawn_s(self._ours)) - at, status=200)


def compare_paces(
    names: Sequence[str], servers: Sequence[PacedServer] = SERVERS, seconds: float = 3600.0
) -> Iterator[str]:
    """Yield the lines of a table: pages, refusals, and the latency of others beside that without
    us."""
    yield f"{'server':26}" + "".join(f"{name:>24}" for name in names)
    for server in servers:
        alone_s = run_pace(server, None, seconds).others_s
        row = ""
        for name in names:
            found = run_pace(server, CONTROLLERS[name](), seconds)
            refused = f" {found.refused} ref." if found.refused else ""
            row += f"{f'{found.pages:,}{refused} {found.others_s / alone_s:.2f}x':>24}"
        yield f"{server.name:26}{row}"
