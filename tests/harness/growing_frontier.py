"""Fill a frontier with a million URLs and print the anonymous memory of this process on the way.

Run by test_memory.py, because memory can only be judged in a process of its own.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.model.types import (
    Candidate,
    Done,
    HostKey,
    Rest,
)

HOSTS = 20_000
PAGE = 40


def anonymous_bytes() -> int:
    with Path("/proc/self/status").open(encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def page(dice: random.Random, count: int) -> list[Candidate]:
    own = dice.randrange(HOSTS)
    found = []
    for number in range(PAGE):
        host = dice.randrange(HOSTS) if number % 4 == 0 else own
        name = HostKey(f"host{host}.example")
        url = f"http://{name}/some/rather/long/path/to/a/page-{count + number}.html"
        found.append(Candidate(url, dice.getrandbits(64), name, str(name), depth=2, level=2))
    return found


def main(folder: str, most: int) -> None:
    dice = random.Random(1)
    rules = FrontierLimits(max_urls_per_domain=10_000, max_active_hosts=1_000)
    frontier = open_frontier(Path(folder), rules, 0.0)
    for count in range(0, most, PAGE):
        now = count / 1_000
        frontier.add(page(dice, count), now)
        for lease in frontier.lease(now):
            frontier.release(lease, Rest(30.0, lease.pace), now)
            frontier.finish(lease, Done(), now)
        if (count + PAGE) % 100_000 < PAGE:
            print(frontier.counts().waiting, anonymous_bytes(), flush=True)
    frontier.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
