"""The two crawls that are compared, as commands.

Rule: a crawl is a process of its own, started as a user would start it.
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
    "CRAWLER_DELAY_FACTOR": "0",
    "LOG_LEVEL": "INFO",
}
"""Robots, seen test, duplicates and WARC stay on. Only the waiting is taken out: it costs
no CPU, and a crawl that waits would measure the web's patience."""


@dataclass(frozen=True, slots=True)
class Crawl(ABC):
    """A crawler, and the two lengths it is measured at: their difference is free of start-up."""

    name: str
    few: int
    many: int

    @abstractmethod
    def command(self, seeds: Path, pages: int, home: Path) -> list[str]:
        """To be run in the project's folder. *home* is where it may keep things."""


class Ours(Crawl):
    def command(self, seeds: Path, pages: int, home: Path) -> list[str]:
        settings = {**WITHOUT_DELAYS, "CRAWLER_DATA_DIR": str(home)}
        arguments = {"seeds": str(seeds), "max_pages": str(pages)}
        command = [sys.executable, "-m", "scrapy", "crawl", "web"]
        for name, value in arguments.items():
            command += ["-a", f"{name}={value}"]
        for name, value in settings.items():
            command += ["-s", f"{name}={value}"]
        return command


class Plain(Crawl):
    def command(self, seeds: Path, pages: int, home: Path) -> list[str]:
        return [sys.executable, "-m", "bench.plain.crawl", str(seeds), str(pages)]
