"""A generated web that tries a crawler's manners: every host another mix of trials.

Rule: the same numbers give the same web. It is so made that a polite crawler can fetch all of
it in a minute: a host fails twice in all (five failures in a row may pause a host for minutes),
and what failed passes when it is asked for again.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from email.utils import formatdate
from typing import Final

from tests.servers.judge import ROBOTS, Gap, Rules, Violations, judge
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Visit

FANOUT: Final = 4  # children of a page; forty pages are then four hops deep
ANSWER_S: Final = 0.010  # longest of the ordinary answers
SLOW_S: Final = 0.150
CRAWL_DELAY_S: Final = 0.5
RETRY_AFTER_S: Final = 1.0
MOVED_ROBOTS: Final = "/moved/robots.txt"
PRIVATE: Final = ("/private/", "/private/open/", "/private/letters?to=me", "/private/deep/er")
DISALLOW: Final = ("/private/",)
ALLOW: Final = ("/private/open/",)
FAILING: Final = (3, 7)  # numbers of the pages whose first ask fails
SLOW: Final = 5  # number of a page that is slow on every eleventh host


def _in_seconds() -> Reply:
    return Reply(b"Later.", 429, headers=(("Retry-After", f"{math.ceil(RETRY_AFTER_S)}"),))


def _as_date() -> Reply:
    when = math.ceil(time.time() + RETRY_AFTER_S)  # whole seconds: 1 to 2 s from now
    return Reply(b"Later.", 503, headers=(("Retry-After", formatdate(when, usegmt=True)),))


FAILURES: Final[tuple[Callable[[], Reply] | None, ...]] = (
    None,
    _in_seconds,
    _as_date,
    lambda: Reply(b"Out of order.", 500),
    lambda: Reply(b"Overloaded.", 503),
    lambda: Reply(b"Too many.", 429),
    None,
)
"""What the first ask of the failing pages of a host gets; by the host's number."""

ROBOTS_KINDS: Final[tuple[Rules | None, ...]] = (
    None,  # 404: everything is allowed
    Rules(disallow=DISALLOW, allow=ALLOW),
    Rules(disallow=DISALLOW, crawl_delay_s=CRAWL_DELAY_S),
    Rules(disallow=DISALLOW, allow=ALLOW, robots_paths=(ROBOTS, MOVED_ROBOTS)),
    Rules(),
)


@dataclass(frozen=True, slots=True)
class JudgedWeb:
    """*hosts* hosts of *pages* pages each, at 127.0.1.1 and up."""

    hosts: int = 55
    pages: int = 40
    seed: int = 1
    crawl_delay_s: float = CRAWL_DELAY_S  # of every fifth host

    def __post_init__(self) -> None:
        if not (0 < self.hosts < 255 and self.pages >= 10):
            raise ValueError("1 to 254 hosts, of at least 10 pages")

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.1.{number}" for number in range(1, self.hosts + 1)]

    def rules(self, host: str) -> Rules:
        return self._robots(host) or Rules()

    def answers(self, host: str) -> set[str]:
        """The paths that a polite crawler ends up with a 200 for; robots.txt apart."""
        pages = {_page(number) for number in range(self.pages)}
        return pages | {path for path in PRIVATE if not self.rules(host).forbids(path)}

    def __call__(self, ask: Ask) -> Reply:
        reply = self._reply(ask)
        wait_s = self._dice(ask.host, ask.path).uniform(0.0, ANSWER_S)
        return replace(reply, wait_s=max(reply.wait_s, wait_s))

    def _reply(self, ask: Ask) -> Reply:
        if ask.path in (ROBOTS, MOVED_ROBOTS):
            return self._robots_reply(ask)
        if ask.path in PRIVATE:
            return Reply(f"<title>Private</title> {ask.path} of {ask.host}".encode())
        if ask.path.startswith("/to/"):
            return self._redirect(ask)
        number = _number(ask.path)
        if number is None or number >= self.pages:
            return Reply(b"<title>Not here</title>", 404)
        return self._page_reply(ask, number)

    def _page_reply(self, ask: Ask, number: int) -> Reply:
        failure = FAILURES[_place(ask.host) % len(FAILURES)]
        if failure is not None and ask.turn == 0 and number in FAILING:
            return failure()
        slow = number == SLOW and _place(ask.host) % 11 == 7
        return Reply(self._text(ask, number), wait_s=SLOW_S if slow else 0.0)

    def _robots(self, host: str) -> Rules | None:
        rules = ROBOTS_KINDS[_place(host) % len(ROBOTS_KINDS)]
        if rules is not None and rules.crawl_delay_s:
            return replace(rules, crawl_delay_s=self.crawl_delay_s)
        return rules

    def _robots_reply(self, ask: Ask) -> Reply:
        rules = self._robots(ask.host)
        if rules is None:
            return Reply(b"No rules.", 404)
        if ask.path not in rules.robots_paths:
            return Reply(b"No rules here.", 404)
        if ask.path != rules.robots_paths[-1]:
            return Reply(status=301, headers=(("Location", rules.robots_paths[-1]),))
        return Reply(rules.text().encode(), content_type="text/plain")

    def _redirect(self, ask: Ask) -> Reply:
        """/to/loop/1 and /to/loop/2 chase each other, /to/N/... leads to a page by two hops."""
        _, _, step, rest = ask.path.split("/", 3)
        if step == "loop":
            target = f"/to/loop/{3 - int(rest)}"
        elif rest == "far":
            target = f"http://{self._neighbour(ask.host)}:{ask.port}/to/{step}/near"
        else:
            target = _page(int(step))
        status = (301, 302, 303, 307, 308)[len(target) % 5]
        return Reply(status=status, headers=(("Location", target),))

    def _text(self, ask: Ask, number: int) -> bytes:
        links = "\n".join(f'<a href="{link}">{link}</a>' for link in self._links(ask, number))
        title = f"Page {number} of {ask.host}"
        words = " ".join(str(self._dice(title, str(n)).random()) for n in range(20))
        page = f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{words}</p>\n{links}\n"
        return page.encode()

    def _links(self, ask: Ask, number: int) -> list[str]:
        """The tree that reaches every page, a few cross links, and the host's trials."""
        dice = self._dice(ask.host, f"links of {number}")
        first = number * FANOUT + 1
        links = [_page(child) for child in range(first, min(first + FANOUT, self.pages))]
        links += [_page(dice.randrange(self.pages)) for _ in range(3)]
        other = dice.choice(self.addresses)
        links.append(f"http://{other}:{ask.port}{_page(dice.randrange(self.pages))}")
        trials = {
            0: ["/to/loop/1", *PRIVATE],
            1: [f"/to/{dice.randrange(self.pages)}/near", "/missing.html"],
            2: [f"/to/{dice.randrange(self.pages)}/far"],
        }
        return links + trials.get(number, [])

    def _neighbour(self, host: str) -> str:
        return self.addresses[_place(host) % self.hosts]

    def _dice(self, *names: str) -> random.Random:
        return random.Random(" ".join((str(self.seed), *names)))


class Judge(LoopbackWeb):
    """A server of the web that checks its visits."""

    def __init__(self, web: JudgedWeb) -> None:
        super().__init__(web, web.addresses)
        self.judged_web = web

    def seeds(self) -> list[str]:
        """The front page of each host."""
        return [self.url(host) for host in self.hosts]

    def expected(self) -> set[str]:
        """Every URL that a polite crawler of the seeds gets a 200 for; robots.txt apart."""
        web = self.judged_web
        return {self.url(host, path) for host in self.hosts for path in web.answers(host)}

    def answered(self) -> set[str]:
        """Every URL that got a 200, robots.txt and its hops apart."""
        self.settle()
        robots = (ROBOTS, MOVED_ROBOTS)
        good = [visit for visit in self.visits if visit.status == 200 and not visit.cut]
        return {self.url(visit.host, visit.path) for visit in good if visit.path not in robots}

    def report(
        self,
        min_delay_s: float,
        delay_factor: float = 10.0,
        max_delay_s: float = 300.0,
        unread: Collection[Visit] = (),
    ) -> Violations:
        """*unread*: answers that no client had the time to read. Their Retry-After is forgiven,
        the gap behind them is not."""
        self.settle()
        rules = {host: self.judged_web.rules(host) for host in self.hosts}
        visits = [
            replace(visit, retry_after="") if visit in unread else visit for visit in self.visits
        ]
        return judge(visits, rules, Gap(min_delay_s, delay_factor, max_delay_s))


def _place(host: str) -> int:
    return int(host.rpartition(".")[2])


def _page(number: int) -> str:
    return f"/p/{number}.html" if number else "/"


def _number(path: str) -> int | None:
    if path == "/":
        return 0
    middle = path.removeprefix("/p/").removesuffix(".html")
    return int(middle) if _is_page(path, middle) else None


def _is_page(path: str, middle: str) -> bool:
    return middle.isdecimal() and path == f"/p/{middle}.html" and middle != "0"
