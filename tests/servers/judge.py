"""Politeness as a web server sees it: rules, books, and what in the books breaks the rules.

Rule: nothing of ours is asked or imported. The judge knows only the books a server kept and
what its own robots.txt files say.

A gap counts from the end of an answer to the next arrival. Both stamps err in the client's
favour (see loopback.py), so one tolerance is enough: 1 ms, the granularity of the clocks that
clients sleep by (libuv's timers count in whole milliseconds). An answer that the client cut
short counts as ended when the server last knew that the client was there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from itertools import groupby
from typing import Final

from tests.servers.loopback import Visit

TOLERANCE_S: Final = 0.001
NOTICED_S: Final = 0.005  # faster answers are lost in the noise of a busy machine
ROBOTS: Final = "/robots.txt"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one host, as in its robots.txt."""

    crawl_delay_s: float = 0.0
    disallow: tuple[str, ...] = ()  # prefixes
    allow: tuple[str, ...] = ()  # prefixes; the longest match wins, a tie allows (RFC 9309)
    robots_paths: tuple[str, ...] = (ROBOTS,)  # with the hops of its redirects

    def forbids(self, path: str) -> bool:
        return _longest(self.disallow, path) > _longest(self.allow, path)

    def text(self, agent: str = "*") -> str:
        lines = [f"User-agent: {agent}"]
        lines += [f"Disallow: {prefix}" for prefix in self.disallow]
        lines += [f"Allow: {prefix}" for prefix in self.allow]
        if self.crawl_delay_s:
            lines.append(f"Crawl-delay: {self.crawl_delay_s:g}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Gap:
    """The rest that is due after an answer."""

    min_delay_s: float
    delay_factor: float  # times the answer's duration, if that was noticed
    max_delay_s: float = 300.0  # of the part that the factor asks for

    def after(self, visit: Visit, crawl_delay_s: float) -> float:
        duration_s = visit.end_s - visit.arrival_s
        paced_s = self.delay_factor * duration_s if duration_s > NOTICED_S else 0.0
        return max(self.min_delay_s, crawl_delay_s, min(paced_s, self.max_delay_s))


class Kind(StrEnum):
    OVERLAP = "asked while an answer was under way"
    GAP = "asked too soon after an answer"
    RETRY_AFTER = "asked inside a Retry-After"
    FORBIDDEN = "asked for what robots.txt forbids"
    UNREAD = "asked before robots.txt was answered"


@dataclass(frozen=True, slots=True)
class Violation:
    kind: Kind
    visit: Visit
    early_s: float = 0.0  # by how much

    def __str__(self) -> str:
        where = f"http://{self.visit.host}{self.visit.path}"
        early = f", {self.early_s:.4f} s early" if self.early_s else ""
        return f"{where}: {self.kind}{early} (at {self.visit.arrival_s:.4f})"


@dataclass(frozen=True, slots=True)
class Violations:
    """The violations that were found, and in how many requests."""

    found: tuple[Violation, ...]
    hosts: int
    visits: int
    statuses: Mapping[int, int]

    def of(self, kind: Kind) -> tuple[Violation, ...]:
        return tuple(each for each in self.found if each.kind is kind)

    def __str__(self) -> str:
        lines = [f"{self.visits} requests to {self.hosts} hosts, {len(self.found)} violations"]
        return "\n".join([*lines, *map(str, self.found)])


def each_alone(visit: Visit) -> str:
    """Say that no two requests belong together."""
    del visit
    return ""


def judge(
    visits: Iterable[Visit],
    rules: Mapping[str, Rules],
    gap: Gap,
    turn_of: Callable[[Visit], str] = each_alone,
) -> Violations:
    """Read the books of any number of hosts. A host without rules has an empty robots.txt. Requests
    that follow each other with the same *turn_of*, but "", are of one turn: no rest is between
    them, and those of all of them are due at its end."""
    books = sorted(visits, key=lambda visit: (visit.host, visit.arrival_s))
    hosts = [(host, list(lines)) for host, lines in groupby(books, lambda visit: visit.host)]
    found = [
        violation
        for host, lines in hosts
        for violation in _of_host(lines, rules.get(host, Rules()), gap, turn_of)
    ]
    statuses = Counter(visit.status for visit in books)
    return Violations(tuple(found), len(hosts), len(books), dict(sorted(statuses.items())))


def _of_host(
    visits: list[Visit], rules: Rules, gap: Gap, turn_of: Callable[[Visit], str]
) -> Iterator[Violation]:
    """*visits* in order of arrival. One that overlaps is not blamed for the missing gap as well."""
    busy_until_s = quiet_until_s = retry_until_s = float("-inf")
    robots_read_s = float("inf")
    turn, due_s = "", 0.0
    for visit in visits:
        is_same_turn = turn_of(visit) == turn != ""
        turn = turn_of(visit)
        if visit.arrival_s < busy_until_s - TOLERANCE_S:
            yield Violation(Kind.OVERLAP, visit, busy_until_s - visit.arrival_s)
        elif visit.arrival_s < quiet_until_s - TOLERANCE_S and not is_same_turn:
            yield Violation(Kind.GAP, visit, quiet_until_s - visit.arrival_s)
        if visit.arrival_s < retry_until_s - TOLERANCE_S:
            yield Violation(Kind.RETRY_AFTER, visit, retry_until_s - visit.arrival_s)
        yield from _of_robots(visit, rules, robots_read_s)
        end_s = visit.end_s
        if visit.path in rules.robots_paths and not 300 <= visit.status < 400:
            robots_read_s = min(robots_read_s, end_s)
        crawl_delay_s = rules.crawl_delay_s if robots_read_s <= end_s else 0.0
        busy_until_s = max(busy_until_s, end_s)
        due_s = gap.after(visit, crawl_delay_s) + (due_s if is_same_turn else 0.0)
        quiet_until_s = max(quiet_until_s, end_s + due_s)
        retry_until_s = max(retry_until_s, end_s + _retry_after_s(visit))


def _of_robots(visit: Visit, rules: Rules, robots_read_s: float) -> Iterator[Violation]:
    if visit.path in rules.robots_paths:
        return
    if visit.arrival_s < robots_read_s:
        yield Violation(Kind.UNREAD, visit)
    if rules.forbids(visit.path):
        yield Violation(Kind.FORBIDDEN, visit)


def _retry_after_s(visit: Visit) -> float:
    """Seconds after the end. A date is wall time, so it is compared with the end's own."""
    if not visit.retry_after:
        return float("-inf")  # not 0: a request before the end breaks no Retry-After
    if visit.retry_after.isdecimal():
        return float(visit.retry_after)
    return parsedate_to_datetime(visit.retry_after).timestamp() - visit.ended_at


def _longest(prefixes: Iterable[str], path: str) -> int:
    return max((len(prefix) for prefix in prefixes if path.startswith(prefix)), default=-1)
