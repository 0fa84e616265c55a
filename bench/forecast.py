"""How far what a crawl says of its end is off: `python -m bench.forecast [SHAPE...]`.

Rule: real crawls of loopback hosts, whose answers take log-normal times, with the rests of a real
crawl; two to ten minutes each. What each line of progress says is compared with when the crawl
ended. Some twenty minutes, and one core.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page

HOSTS: Final = 40
SAID_EVERY_S: Final = 5.0
UNITS: Final = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class Shape:
    """A web: the pages of each host, how long they take, and which lead to which."""

    pages: tuple[int, ...]
    seconds: Callable[[int], float]  # median of the host of that number
    spread: float  # of the logarithms
    links: Callable[[int, int], Iterable[int]] | None = None  # None: all pages are seeds
    crawl_delay_s: Callable[[int], float] = lambda _: 0.0


def tree(at: int, _: int) -> Iterable[int]:
    return range(4 * at + 1, 4 * at + 5)


def woven(at: int, pages: int) -> Iterable[int]:
    return Random(at).sample(range(pages), min(6, pages))


ZIPF: Final = tuple(max(1, int(80 / rank**1.2)) for rank in range(1, HOSTS + 1))
SHAPES: Final = {
    "alike": Shape(ZIPF, lambda _: 0.082, 0.5),
    "differ": Shape(
        tuple(max(1, int(160 / rank**0.8)) for rank in range(1, HOSTS + 1)),
        lambda number: (0.02, 0.05, 0.12, 0.2)[number % 4],
        0.4,
        crawl_delay_s=lambda number: 3.0 if number == 5 else 0.0,
    ),
    "equal": Shape((120,) * HOSTS, lambda number: 0.1 + 0.002 * number, 0.4),
    "many": Shape((80,) * 250, lambda _: 0.1, 0.5),
    "links": Shape(
        tuple(max(5, int(200 / rank**1.2)) for rank in range(1, HOSTS + 1)),
        lambda _: 0.06,
        0.5,
        tree,
    ),
    "woven": Shape(
        tuple(max(5, int(150 / rank**0.8)) for rank in range(1, HOSTS + 1)),
        lambda _: 0.06,
        0.5,
        woven,
    ),
}


class ForecastWeb:
    """Answers for a shape."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._random = Random(7)
        self.hosts = tuple(f"127.0.77.{number + 1}" for number in range(len(shape.pages)))

    def answer(self, ask: Ask) -> Reply:
        number = self.hosts.index(ask.host)
        if ask.path == "/robots.txt":
            delay_s = self._shape.crawl_delay_s(number)
            rule = f"User-agent: *\nCrawl-delay: {delay_s:g}\n"
            return Reply(rule, content_type="text/plain") if delay_s else not_here(ask)
        at = int(ask.path[1:]) if ask.path[1:].isdecimal() else -1
        pages, links = self._shape.pages[number], self._shape.links
        if not 0 <= at < pages:
            return not_here(ask)
        ahead = links(at, pages) if links else ()
        made = page(
            *(f"/{other}" for other in ahead if other < pages), text=f"{ask.host} {ask.path} " * 40
        )
        wait_s = self._random.lognormvariate(0, self._shape.spread) * self._shape.seconds(number)
        return Reply(made.body, wait_s=wait_s)


def measure(name: str) -> None:
    shape = SHAPES[name]
    web = ForecastWeb(shape)
    with tempfile.TemporaryDirectory() as folder, LoopbackWeb(web.answer, web.hosts) as served:
        seeds, log = Path(folder) / "seeds.txt", Path(folder) / "log"
        pages = (
            served.url(host, f"/{at}")
            for host, number in zip(web.hosts, shape.pages, strict=True)
            for at in range(1 if shape.links else number)
        )
        seeds.write_text("\n".join(pages), encoding="utf-8")
        settings = {
            "CRAWLER_ALLOW_INSIDE": "127.0.0.0/8",
            "CRAWLER_DATA_DIR": Path(folder) / "data",
            "CRAWLER_PROGRESS": "log",
            "CRAWLER_PROGRESS_LOG_S": SAID_EVERY_S,
            "CRAWLER_SUMMARY": False,
            "LOG_FILE": log,
            "LOG_DATEFORMAT": "%s",
        }
        command = [sys.executable, "-m", "scrapy", "crawl", "web", "-a", f"seeds={seeds}"]
        for key, value in settings.items():
            command += ["-s", f"{key}={value}"]
        subprocess.run(command, check=True)
        asked = [visit.ended_at for visit in served.visits]
        _report(name, log.read_text(encoding="utf-8"), min(asked), max(asked))


def _report(name: str, log: str, began: float, ended: float) -> None:
    span_s = ended - began
    print(f"{name}: {span_s:.0f} s")
    for line in log.splitlines():
        said = re.match(r"(\d+) .*?waiting.*?; (.*)", line)
        if said is None:
            continue
        at, words = float(said[1]), said[2]
        left = ended - at
        found = re.match(r"ends in ((?:[\d.]+ (?:d|h|min|s) ?)+)\(", words)
        off = ""
        if found:
            parts = re.findall(r"([\d.]+) (d|h|min|s)\b", found[1])
            told = sum(float(value) * UNITS[unit] for value, unit in parts)
            off = f"{(at - began + told) / span_s - 1:+.1%} of the whole"
        print(f"  {(at - began) / span_s:4.0%}  left {left:5.0f} s  {off:24}  {words}")


if __name__ == "__main__":
    for each in sys.argv[1:] or SHAPES:
        measure(each)
