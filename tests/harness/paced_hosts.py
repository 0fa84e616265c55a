"""A crawl at its own pace, of servers with a few workers, that is killed now and then: judged by
the servers' logs.

Rule: each unit of politeness, a name, a domain or an address, has a server of its own on an address
of its own. So whatever the unit is, the log is judged by address; a Crawl-delay, which is the wish
of one site, by name. Some servers refuse what is above four requests a second, some ask for a rest
now and then.

    python -m tests.harness.paced_hosts --unit address --hosts 200 --seconds 300 --kills 5
    python -m tests.harness.paced_hosts --hosts 100 --slow 1000 --seconds 120 --kills 0
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from itertools import pairwise
from math import exp
from pathlib import Path
from random import Random
from typing import Final

from crawler.policy.pacing import FIRST_ANSWERS
from tests.harness.commands import crawl_command, running
from tests.servers.judge import ROBOTS, TOLERANCE_S, Gap, Kind, Rules, judge
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Visit
from tests.servers.names import NameServer

UNITS: Final = ("host", "domain", "address")
LATER_GAP: Final = Gap(min_delay_s=0.1, delay_factor=1.0)
"""The shortest rest of any stage."""
FIRST_GAP: Final = Gap(min_delay_s=1.0, delay_factor=10.0)
PAGES: Final = 5_000  # of each name
LINKS: Final = 5  # of a page
SLOW_S: Final = 3.0


@dataclass
class BoundedServer:
    """A server with some workers, which take requests in the order in which they come."""

    number: int
    random: Random
    slow_s: float = 0.0  # what each answer takes; 0: as its number says
    free_at: list[float] = field(default_factory=list)
    recent: deque[float] = field(default_factory=deque)  # requests of the last second
    asked: int = 0

    def __post_init__(self) -> None:
        self.free_at = [0.0] * (1, 2, 4, 8, 16)[self.number % 5]
        self.service_s = self.random.uniform(0.01, 0.08)
        kind = -1 if self.slow_s else self.number % 10
        self.refuses_above = 4 if kind == 3 else 0
        self.busy_every = 40 if kind == 6 else 0
        self.rules = Rules(crawl_delay_s=2.0 if kind == 9 else 0.0, disallow=("/private",))

    def reply(self, ask: Ask, now: float) -> Reply:
        if ask.path == ROBOTS:
            return Reply(self.rules.text(), content_type="text/plain")
        self.asked += 1
        while self.recent and self.recent[0] <= now - 1.0:
            self.recent.popleft()
        if self.refuses_above and len(self.recent) >= self.refuses_above:
            return Reply(status=429, headers=(("Retry-After", "2"),))
        self.recent.append(now)
        if self.busy_every and self.asked % self.busy_every == 0:
            return Reply(status=503, headers=(("Retry-After", "3"),))
        took_s = self.slow_s or self.service_s * exp(self.random.gauss(-0.125, 0.5))
        end = max(now, self.free_at[0]) + took_s
        heapreplace(self.free_at, end)
        return Reply(_text(ask), wait_s=end - now)


def _text(ask: Ask) -> str:
    number = int(ask.path.rpartition("/p")[2] or 0) if "/p" in ask.path else 0
    name = dict(ask.headers)["Host"].partition(":")[0]
    found = [LINKS * number + each for each in range(1, LINKS + 1)]
    links = [f'<a href="/{name}/p{each}">{each}</a>' for each in found if each < PAGES]
    return f"<title>{name} {number}</title><a href=/private/{number}>no</a>" + " ".join(links)


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of a web, and the address of each."""

    addresses: dict[str, str]

    @classmethod
    def of(cls, unit: str, hosts: int) -> Layout:
        """Two names have a domain in common, or, of two domains, an address."""
        units = hosts if unit == "host" else -(-hosts // 2)
        found = {}
        for number in range(hosts):
            name = f"w{number % 2}.d{number // 2}.example"
            match unit:
                case "host":
                    at = number
                case "domain":
                    at = number // 2
                case _:
                    at = (number // 2 + number % 2) % units
            found[name] = f"127.60.{at // 250}.{at % 250 + 1}"
        return cls(found)


@dataclass(slots=True)
class Found:
    """What the logs say."""

    kinds: Counter[str]
    early_at_first: list[str]
    visits: int
    statuses: Counter[int]
    examples: list[str]
    fast_pages: int  # of servers that are not slow

    def __str__(self) -> str:
        broken = dict(self.kinds) or "none"
        return (
            f"{self.visits:,} requests {dict(self.statuses)}; violations: {broken};"
            f" in the first stage: {len(self.early_at_first)};"
            f" {self.fast_pages:,} pages of fast hosts"
        )


def run(
    unit: str,
    hosts: int,
    seconds: float,
    kills: int,
    folder: Path,
    *,
    slow: int = 0,
    seed: int = 1,
) -> Found:
    """Crawl for so many *seconds*, with so many kills, and judge. *slow*: so many hosts, the last
    ones, take SLOW_S for each answer."""
    random, layout = Random(seed), Layout.of(unit, hosts)
    addresses = list(dict.fromkeys(layout.addresses.values()))
    of_address = {
        address: BoundedServer(
            number, Random(seed + number), SLOW_S if number >= len(addresses) - slow else 0.0
        )
        for number, address in enumerate(addresses)
    }

    def answer(ask: Ask) -> Reply:
        return of_address[ask.host].reply(ask, time.monotonic())

    records = {name: (address,) for name, address in layout.addresses.items()}
    with LoopbackWeb(answer, list(of_address)) as web, NameServer(records) as names:
        seeds = folder / "seeds.txt"
        seeds.write_text("".join(f"http://{name}:{web.port}/\n" for name in layout.addresses))
        command = crawl_command(
            folder / "data",
            {
                "CRAWLER_MIN_DELAY_S": None,
                "CRAWLER_PACED_MIN_DELAY_S": None,
                "CRAWLER_DELAY_FACTOR": None,
                "CRAWLER_CONTACT": "ops@w3.org",
                "CRAWLER_NAME_SERVERS": names.address,
                "CRAWLER_HOST_UNIT": unit,
                "CRAWLER_SOFT_404": False,
                "CRAWLER_COLUMNS": False,
            },
            seeds=seeds,
            scope="host",
        )
        for life_s in _lives(random, seconds, kills):
            with running(command, folder / "log") as process:
                time.sleep(life_s)
                process.kill()
        web.settle()
    rules = {address: server.rules for address, server in of_address.items()}
    judged = judge(
        web.visits, {at: replace(each, crawl_delay_s=0.0) for at, each in rules.items()}, LATER_GAP
    )
    by_name = [
        replace(each, host=each.path.split("/")[1]) for each in web.visits if "/p" in each.path
    ]
    late = [
        found
        for name, address in layout.addresses.items()
        if (delay_s := rules[address].crawl_delay_s)
        for found in judge([v for v in by_name if v.host == name], {}, Gap(delay_s, 0.0)).found
        if found.kind is Kind.GAP
    ]
    return Found(
        Counter(str(each.kind) for each in (*judged.found, *late)),
        list(_early_at_first(web.visits)),
        judged.visits,
        Counter(each.status for each in web.visits),
        [str(each) for each in (*judged.found, *late)[:10]],
        sum(each.status == 200 and not of_address[each.host].slow_s for each in web.visits),
    )


def _lives(random: Random, seconds: float, kills: int) -> Iterator[float]:
    ends = sorted(random.uniform(0.0, seconds) for _ in range(kills))
    for begin, end in zip([0.0, *ends], [*ends, seconds], strict=True):
        yield end - begin


def _early_at_first(visits: Sequence[Visit]) -> Iterator[str]:
    """Yield the requests that came before the rest of the first stage was over."""
    of_address: dict[str, list[Visit]] = defaultdict(list)
    for visit in sorted(visits, key=lambda visit: visit.arrival_s):
        of_address[visit.host].append(visit)
    for found in of_address.values():
        answered = 0
        for visit, later in pairwise(found):
            answered += visit.status == 200 and visit.path != ROBOTS
            rest_s = FIRST_GAP.after(visit, 0.0)
            if answered < FIRST_ANSWERS and later.arrival_s < visit.end_s + rest_s - TOLERANCE_S:
                yield f"{later.host}{later.path} after {later.arrival_s - visit.end_s:.3f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--unit", choices=UNITS, default="host")
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--slow", type=int, default=0, help="so many more, that are slow")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(
            *(asked.unit, asked.hosts + asked.slow, asked.seconds, asked.kills, Path(folder)),
            slow=asked.slow,
            seed=asked.seed,
        )
    print(f"{asked.unit}: {found}", *found.examples, *found.early_at_first[:10], sep="\n")
    return bool(found.kinds or found.early_at_first)


if __name__ == "__main__":
    raise SystemExit(main())
