"""The servers of a simulated web: when and how they answer.

Rule: pure; a request is answered at once with a `Reply`, which says when its head and its last byte
will come. A server has some workers, and other visitors: the busier it is, the longer a request
waits (Sakasegawa's formula for M/G/k queues, 1977).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from email.utils import formatdate
from enum import StrEnum
from math import exp, inf, log, pi, sin, sqrt
from random import Random
from statistics import NormalDist
from typing import Final, NamedTuple

from crawler.simulate.web import DAY_S, START, Content, SeededDraws, Web, is_robots

_normal: Final = NormalDist().inv_cdf
_TINY: Final = 1e-9
_BUSIEST: Final = 0.97  # load above which a server does not get slower, but refuses
_NOTHING: Final = Content(0)


class TroubleKind(StrEnum):
    """What may happen to a server for a while."""

    BUSY = "429"
    BROKEN = "503"
    RESTARTS = "restarts"  # it refuses connections, and drops what it was about to answer
    HANGS = "hangs"  # it takes requests and never answers
    CUT_OFF = "cut off"  # our own line is down; of all servers at once


class Trouble(NamedTuple):
    """One time of trouble, from *begin* to *end*, in epoch seconds."""

    begin: float
    end: float
    kind: TroubleKind
    retry_after: str = ""  # "", "seconds" or "date": in which form it is sent
    retry_after_s: float = 0.0  # the time that it asks for; 0: until the end


class Guard(NamedTuple):
    """What stands before a server, and sends challenges in place of pages from *begin* to *end*,
    epoch seconds."""

    begin: float
    end: float
    status: int  # of its challenges
    share: float  # of the requests for pages that it challenges

    def challenges(self, now: float, draw: float) -> bool:
        return self.begin <= now < self.end and draw < self.share


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParameters:
    """The shape of all servers of a web."""

    workers: tuple[int, ...] = (1, 4, 16)
    service_s: float = 0.08  # geometric mean over servers and requests
    spread: float = 0.6  # standard deviation of its logarithm, between requests of one server
    spread_of_servers: float = 0.8
    background: float = 0.3  # share of its workers that others keep busy, in the mean
    troubles: float = 2.0  # of a server, in the mean
    longest_s: float = 2 * 3600.0  # of a trouble
    horizon_s: float = DAY_S  # within which troubles begin
    retries_after_s: tuple[float, ...] = (0.0, 0.0, 30.0, 900.0, 7200.0)  # that they may ask for
    limited: float = 0.2  # share of servers that refuse too many requests in a minute
    broken_off: float = 0.01  # share of answers whose body breaks off
    dead: float = 0.1  # share of servers that never answer
    cut_offs: int = 0  # times in which our own line is down
    guarded: float = 0.0  # share of servers behind a guard


class Reply(NamedTuple):
    """The answer to one request. Times are epoch seconds."""

    head_at: float
    end_at: float
    status: int | None  # None: no answer
    error: str  # as of model.types.Answer; with a status, the body breaks off
    content: Content
    retry_after: bytes | None = None
    retry_after_s: float = 0.0  # what retry_after asks for, from *head_at*
    is_challenge: bool = False


class OriginServer:
    """The server of one host."""

    def __init__(
        self, name: str, parameters: ServerParameters, draws: SeededDraws, cut_offs: list[Trouble]
    ) -> None:
        random = draws.random(f"server {name}")
        self._name, self._parameters, self._draws = name, parameters, draws
        self._workers = random.choice(parameters.workers)
        self._service_s = parameters.service_s * exp(
            random.gauss(0.0, parameters.spread_of_servers)
        )
        self._background = min(0.9, random.expovariate(1.0) * parameters.background)
        self._phase = random.uniform(0.0, DAY_S)
        self.is_dead = random.random() < parameters.dead
        self._limit = random.choice((4, 10, 20)) if random.random() < parameters.limited else 0
        self._limit_form = random.choice(("", "seconds", "date"))
        self.troubles = sorted([*_draw_troubles(parameters, random), *cut_offs])
        self._begins = [each.begin for each in self.troubles]
        self._guard = _draw_guard(name, parameters, draws)
        self._recent: deque[float] = deque()  # our requests of the last minute
        self._count = 0

    def load(self, now: float) -> float:
        """Return the share of its workers that is busy, by others and by us."""
        daily = 1.0 + 0.5 * sin(2 * pi * (now + self._phase) / DAY_S)
        ours = len(self._recent) * self._service_s / (60.0 * self._workers)
        return min(_BUSIEST, self._background * daily + ours)

    def answer(self, url: str, now: float, web: Web, timeout_s: float) -> Reply:
        """Answer the request for *url* that arrives *now*, whose client waits *timeout_s*."""
        self._count += 1
        recent = self._recent
        while recent and recent[0] <= now - 60.0:
            recent.popleft()
        trouble = self._trouble(now)
        if self.is_dead or (trouble is not None and trouble.kind is TroubleKind.CUT_OFF):
            return Reply(now, now + 0.02, None, "connect", _NOTHING)
        if trouble is not None and trouble.kind is TroubleKind.RESTARTS:
            return Reply(now, now + 0.02, None, "connect", _NOTHING)
        if trouble is not None and trouble.kind is TroubleKind.HANGS:
            return Reply(now, now + timeout_s, None, "timeout", _NOTHING)
        recent.append(now)
        took_s = self._took_s(now)
        if took_s >= timeout_s:
            return Reply(now, now + timeout_s, None, "timeout", _NOTHING)
        end = now + took_s
        stop = self._restart_between(now, end)
        if stop is not None:
            return Reply(now, stop, None, "disconnect", _NOTHING)
        if trouble is not None:
            return self._refusal(int(trouble.kind), trouble.retry_after, trouble, now, end)
        if self._limit and len(recent) > self._limit:
            until = Trouble(now, recent[0] + 60.0, TroubleKind.BUSY)
            return self._refusal(429, self._limit_form, until, now, now + min(took_s, 0.01))
        guard = self._guard
        if guard is not None and not is_robots(url) and guard.challenges(now, self._unit("guard")):
            challenge = Content(guard.status, text="Just a moment")
            return Reply(end, end, guard.status, "", challenge, is_challenge=True)
        content = web.content(url, now)
        head_at = now + 0.7 * took_s
        is_cut = content.status == 200 and self._unit("cut") < self._parameters.broken_off
        return Reply(head_at, end, content.status, "disconnect" if is_cut else "", content)

    def _took_s(self, now: float) -> float:
        """Return how long a request waits for a worker and is served."""
        service_s = self._service_s * exp(self._parameters.spread * _normal(self._unit("service")))
        busy = self.load(now)
        if busy <= 0.0:
            return service_s
        waits: float = busy ** (
            sqrt(2.0 * (self._workers + 1)) - 1.0
        )  # chance, in the formula's terms
        mean_s = self._service_s * waits / (self._workers * (1.0 - busy))
        return service_s - mean_s * log(1.0 - self._unit("wait"))

    def _refusal(self, status: int, form: str, until: Trouble, now: float, end: float) -> Reply:
        retry_after_s = until.retry_after_s or max(0.0, until.end - end)
        header, content = None, Content(status)
        if form == "seconds":
            retry_after_s = float(int(retry_after_s) + 1)
            header = b"%d" % retry_after_s
        elif form == "date":
            date = float(int(end + retry_after_s) + 1)
            header, retry_after_s = formatdate(date, usegmt=True).encode(), date - end
        return Reply(end, end, status, "", content, header, retry_after_s if header else 0.0)

    def _trouble(self, now: float) -> Trouble | None:
        """Return the trouble of *now* that began last."""
        for at in range(bisect_right(self._begins, now) - 1, -1, -1):
            if now < self.troubles[at].end:
                return self.troubles[at]
        return None

    def _restart_between(self, begin: float, end: float) -> float | None:
        """Return when a restart drops what is served from *begin* to *end*."""
        for at in range(bisect_right(self._begins, begin), bisect_right(self._begins, end)):
            if self.troubles[at].kind is TroubleKind.RESTARTS:
                return self._begins[at]
        return None

    def _unit(self, what: str) -> float:
        return min(max(self._draws.unit(f"{what} {self._name} {self._count}"), _TINY), 1.0 - _TINY)


class Servers:
    """The servers of all hosts of *web*."""

    def __init__(self, seed: int, web: Web, parameters: ServerParameters) -> None:
        self._web = web
        self._draws = SeededDraws(seed)
        random = self._draws.random("cut-offs")
        cut_offs = [
            Trouble(begin, begin + random.uniform(60.0, 1800.0), TroubleKind.CUT_OFF)
            for begin in (
                START + random.uniform(10.0, parameters.horizon_s / 24)
                for _ in range(parameters.cut_offs)
            )
        ]
        self.of_host = {
            name: OriginServer(name, parameters, self._draws, cut_offs) for name in web.sites
        }
        self.cut_offs = cut_offs
        self._addresses = _draw_addresses(list(web.sites), self._draws.random("addresses"))

    def addresses(self, host: str) -> tuple[str, ...]:
        """Implements frontier.port.HostAddresses: two hosts share an address, in the mean."""
        address = self._addresses.get(host)
        return () if address is None else (address,)

    def answer(self, host: str, url: str, now: float, timeout_s: float) -> Reply:
        server = self.of_host.get(host)
        if server is None:
            return Reply(now, now + 0.02, None, "dns", _NOTHING)
        return server.answer(url, now, self._web, timeout_s)


def _draw_guard(name: str, parameters: ServerParameters, draws: SeededDraws) -> Guard | None:
    """Return what stands before the server *name*: for a while, or for ever, from the start or from
    some pages on. Its draws are of its own: no other changes where there are guards."""
    if draws.unit(f"guarded {name}") >= parameters.guarded:
        return None
    random = draws.random(f"guard {name}")
    begin = START + random.choice((0.0, 0.0, random.uniform(0.0, 600.0)))
    lasts_s = random.choice((600.0, 3 * 3600.0, DAY_S, inf, inf))
    return Guard(
        begin, begin + lasts_s, random.choice((200, 403, 429, 503)), random.choice((0.5, 1.0, 1.0))
    )


def _draw_addresses(hosts: list[str], random: Random) -> dict[str, str]:
    """Return the address of each host."""
    return {host: f"192.0.2.{random.randint(1, max(1, len(hosts) // 2))}" for host in hosts}


def _draw_troubles(parameters: ServerParameters, random: Random) -> list[Trouble]:
    """Return the troubles of one server: most of them soon, as crawls of small webs are short."""
    found = []
    for _ in range(min(8, int(random.expovariate(1.0) * parameters.troubles))):
        begin = START + parameters.horizon_s * random.random() ** 4
        kind = random.choice([each for each in TroubleKind if each is not TroubleKind.CUT_OFF])
        lasts_s = parameters.longest_s ** random.random()
        form = random.choice(("", "seconds", "date"))
        retry_after_s = random.choice(parameters.retries_after_s)
        found.append(Trouble(begin, begin + lasts_s, kind, form, retry_after_s))
    return found
