"""The crawls that are compared, as commands.

Rule: a crawl is processes of its own, started as a user would start them.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[1]

WITHOUT_DELAYS: Final = {
    "CRAWLER_MIN_DELAY_S": "0",
    "CRAWLER_ALLOW_INSIDE": "127.0.0.0/8",  # its hosts link to each other
    "CRAWLER_DELAY_FACTOR": "0",
    "LOG_LEVEL": "INFO",
}
"""Robots, seen test, duplicates and WARC stay on. Only the waiting is taken out: it costs
no CPU, and a crawl that waits would measure the web's patience."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a crawl is started with."""

    seeds: Path
    pages: int
    home: Path  # where it may keep things
    redis_url: str = ""


@dataclass(frozen=True, slots=True)
class Crawl(ABC):
    """A crawler, and the two lengths it is measured at: their difference is free of start-up."""

    name: str
    few: int
    many: int
    shared: bool = False  # over Redis
    workers: int = 1
    settings: tuple[tuple[str, str], ...] = ()

    @abstractmethod
    def commands(self, start: Start) -> list[list[str]]:
        """One for each worker, to be run in the project's folder at the same time."""


class Ours(Crawl):
    def commands(self, start: Start) -> list[list[str]]:
        return [self._worker(start, number) for number in range(self.workers)]

    def _worker(self, start: Start, number: int) -> list[str]:
        home = str(start.home / str(number))
        settings = {**WITHOUT_DELAYS, "CRAWLER_DATA_DIR": home, **dict(self.settings)}
        if self.shared:
            settings["CRAWLER_FRONTIER_URL"] = start.redis_url
        pages = -(-start.pages // self.workers)
        arguments = {"seeds": str(start.seeds), "max_pages": str(pages)}
        command = [sys.executable, "-m", "scrapy", "crawl", "web"]
        for name, value in arguments.items():
            command += ["-a", f"{name}={value}"]
        for name, value in settings.items():
            command += ["-s", f"{name}={value}"]
        return command


class Plain(Crawl):
    def commands(self, start: Start) -> list[list[str]]:
        return [[sys.executable, "-m", "bench.plain.crawl", str(start.seeds), str(start.pages)]]


class ScrapyRedis(Crawl):
    def commands(self, start: Start) -> list[list[str]]:
        arguments = [str(start.seeds), str(start.pages), start.redis_url]
        return [[sys.executable, "-m", "bench.scrapy_redis_crawl.crawl", *arguments]]


class Crawlee(Crawl):
    def commands(self, start: Start) -> list[list[str]]:
        arguments = [str(start.seeds), str(start.pages)]
        return [[sys.executable, "-m", "bench.crawlee_crawl.crawl", *arguments]]
