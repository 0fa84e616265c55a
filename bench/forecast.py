"""How far what a crawl says of its end is off: `python -m bench.forecast [SHAPE...]`.

Rule: real crawls of loopback hosts, whose answers take log-normal times, with the rests of a real
crawl; two to ten minutes each. What each line of progress says is compared with when the crawl
ended, and with the bars. Some thirty minutes, and one core. Those that visit pages again do so in a
second run, for whose crawl time has passed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

from crawler.report.end_forecast import GROWS
from tests.harness.crawling import pass_time
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page

HOSTS: Final = 40
SAID_EVERY_S: Final = 5.0
MOST_OFF_FIRST: Final = 0.15  # of the whole, of a crawl all URLs of which are known
MOST_OFF: Final = 0.10  # from a tenth of the time on
UNITS: Final = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class Shape:
    """A web: the pages of each host, how long they take, and which lead to which."""

    pages: tuple[int, ...]
    seconds: Callable[[int], float]  # median of the host of that number
    spread: float  # of the logarithms
    links: Callable[[int, int], Iterable[int]] | None = None  # None: all pages are seeds
    crawl_delay_s: Callable[[int], float] = lambda _: 0.0
    revisit: str = "once"
    arguments: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] | None = None  # arguments of an earlier run; None: there was none


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


# Hosts that stay fast are asked faster and faster: so that a crawl takes two minutes.
ALIKE: Final = replace(SHAPES["alike"], pages=tuple(6 * pages for pages in ZIPF))
EVERY: Final = "every 10m"
SHAPES.update(
    {
        # The first visits, then no page is due until the date.
        "until": replace(ALIKE, revisit=EVERY, arguments={"until": "200s"}),
        "until, found": replace(SHAPES["links"], revisit="adaptive", arguments={"until": "100s"}),
        # All pages are due at the start, and some when the date comes.
        "until, again": replace(
            ALIKE, revisit=EVERY, arguments={"until": "60s"}, before={"only": "new"}
        ),
        # Nothing is left before.
        "before until": replace(ALIKE, arguments={"until": "15m"}),
        "changed, before until": replace(
            ALIKE,
            revisit=EVERY,
            arguments={"only": "changed", "until": "15m"},
            before={"only": "new"},
        ),
    }
)


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
        seeds, log, data = (Path(folder) / name for name in ("seeds.txt", "log", "data"))
        pages = (
            served.url(host, f"/{at}")
            for host, number in zip(web.hosts, shape.pages, strict=True)
            for at in range(1 if shape.links else number)
        )
        seeds.write_text("\n".join(pages), encoding="utf-8")
        settings = {
            "CRAWLER_ALLOW_INSIDE": "127.0.0.0/8",
            "CRAWLER_DATA_DIR": data,
            "CRAWLER_PROGRESS": "log",
            "CRAWLER_PROGRESS_LOG_S": SAID_EVERY_S,
            "CRAWLER_REVISIT": shape.revisit,
            "CRAWLER_SUMMARY": False,
            "LOG_FILE": log,
            "LOG_FORMAT": "%(created).2f %(message)s",
        }
        if shape.before is not None:
            _crawl(settings, {"seeds": str(seeds), **shape.before})
            pass_time(data, 3_600.0)
            log.unlink()
        asked_before = len(served.visits)
        _crawl(settings, {"seeds": str(seeds), **shape.arguments})
        asked = [visit.ended_at for visit in served.visits[asked_before:]]
        said = log.read_text(encoding="utf-8")
        stop = re.search(r"^([\d.]+) Closing spider \(until\)", said, re.MULTILINE)
        _report(name, said, min(asked), float(stop[1]) if stop else max(asked))


def _crawl(settings: Mapping[str, object], arguments: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "scrapy", "crawl", "web"]
    for key, value in arguments.items():
        command += ["-a", f"{key}={value}"]
    for key, given in settings.items():
        command += ["-s", f"{key}={given}"]
    subprocess.run(command, check=True)


def _report(name: str, log: str, began: float, ended: float) -> None:
    span_s = ended - began
    print(f"{name}: {span_s:.0f} s")
    told: list[tuple[float, float]] = []  # when, and how far off, both as shares of the whole
    waiting, grows = None, 0
    for line in log.splitlines():
        said = re.match(r"([\d.]+) .*?([\d,]+) URLs? waiting.*?; (.*)", line)
        if said is None:
            continue
        at, words = float(said[1]), said[3]
        before, waiting = waiting, int(said[2].replace(",", ""))
        grows += words == GROWS and before is not None and waiting < before
        found = re.match(r"ends in ((?:[\d.]+ (?:d|h|min|s) ?)+)\(", words)
        off = ""
        if found and "at the latest" not in words:
            parts = re.findall(r"([\d.]+) (d|h|min|s)\b", found[1])
            left_s = sum(float(value) * UNITS[unit] for value, unit in parts)
            told.append(((at - began) / span_s, (at - began + left_s) / span_s - 1))
            off = f"{told[-1][1]:+.1%} of the whole"
        print(f"  {(at - began) / span_s:4.0%}  left {ended - at:5.0f} s  {off:24}  {words}")
    later = [abs(off) for at, off in told if at >= 0.1]
    first = abs(told[0][1]) if told else 1.0
    worst = max(later, default=1.0)
    print(
        f"  {'ok  ' if first <= MOST_OFF_FIRST else 'MISS'} first said, off {first:.1%}"
        f" (bar {MOST_OFF_FIRST:.0%}; only where all URLs are known)"
    )
    print(
        f"  {'ok  ' if worst <= MOST_OFF else 'MISS'} from a tenth on, off {worst:.1%} at most"
        f" (bar {MOST_OFF:.0%})"
    )
    print(f"  {'MISS' if grows else 'ok  '} said to grow while fewer wait: {grows} times")


if __name__ == "__main__":
    for each in sys.argv[1:] or SHAPES:
        measure(each)
