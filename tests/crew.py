"""Workers of one shared crawl: real commands over a real Redis, on a web that judges them.

Rule: what is waited for is what the web's books or a log say; the clock only bounds it.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from tests.command import crawl_command
from tests.ready import running
from tests.servers.judge import ROBOTS
from tests.servers.judged_web import MOVED_ROBOTS, Judge, JudgedWeb

MIN_DELAY_S: Final = 0.05
FACTOR: Final = 10.0
TOTAL_S: Final = 3.0
SETTINGS: Final[Mapping[str, object]] = {
    "CRAWLER_MIN_DELAY_S": MIN_DELAY_S,
    "CRAWLER_DELAY_FACTOR": FACTOR,
    "CRAWLER_BACKOFF_BASE_S": 0.1,
    "CRAWLER_TOTAL_TIMEOUT_S": TOTAL_S,
    "CRAWLER_CONNECT_TIMEOUT_S": 2,
    "CRAWLER_LEASE_S": 15,
    "CRAWLER_HEARTBEAT_S": 1,
    "CRAWLER_FRONTIER_SHARDS": 16,
}
POLL_S: Final = 0.02
BOUND_S: Final = 180.0  # of what takes seconds on a quiet machine


class Worker:
    """One `scrapy crawl web`, with a data directory and a log of its own."""

    def __init__(self, folder: Path, command: list[str], exits: ExitStack) -> None:
        self.name = folder.name
        self.log_path = folder / "log"
        self.process = exits.enter_context(running(command, self.log_path))

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait(self, timeout_s: float = BOUND_S) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.log[-3000:]}") from None


class Crew:
    """A judged web, and whoever crawls it."""

    def __init__(
        self, folder: Path, url: str, web: JudgedWeb, settings: Mapping[str, object] | None = None
    ) -> None:
        self.folder = folder
        self.judge = Judge(web)
        self.workers: list[Worker] = []
        self._settings = {**SETTINGS, "CRAWLER_FRONTIER_URL": url, **(settings or {})}
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self._exits.enter_context(self.judge)
        (self.folder / "seeds.txt").write_text("\n".join(self.judge.seeds()))
        return self

    def __exit__(self, *exc: object) -> None:
        self._exits.close()

    def command(self, name: str, settings: Mapping[str, object] | None = None) -> list[str]:
        """Of the worker *name*."""
        return crawl_command(
            self.folder / name / "data",
            {**self._settings, **(settings or {})},
            seeds=self.folder / "seeds.txt",
        )

    def start(self, *names: str, settings: Mapping[str, object] | None = None) -> list[Worker]:
        started = []
        for name in names:
            (self.folder / name).mkdir(exist_ok=True)
            command = self.command(name, settings)
            started.append(Worker(self.folder / name, command, self._exits))
        self.workers += started
        return started

    def kill(self, name: str) -> None:
        """With no warning; what is started under that name again goes on with its data."""
        (worker,) = (each for each in self.workers if each.name == name)
        worker.process.kill()
        worker.process.wait()
        self.workers.remove(worker)

    def until(self, is_so: Callable[[], bool], timeout_s: float = BOUND_S) -> None:
        """Wait for it, as long as all workers live."""
        end = time.monotonic() + timeout_s
        while not is_so():
            for worker in self.workers:
                assert worker.process.poll() is None, worker.log[-3000:]
            assert time.monotonic() < end, "\n".join(each.log[-1500:] for each in self.workers)
            time.sleep(POLL_S)

    def until_more(self, visits: int, timeout_s: float = BOUND_S) -> None:
        """Wait for so many more visits."""
        goal = len(self.judge.visits) + visits
        self.until(lambda: len(self.judge.visits) >= goal, timeout_s)

    def finish(self, timeout_s: float = 2 * BOUND_S) -> None:
        """All end by themselves, every page was fetched, and no host was hurt."""
        until = time.monotonic() + timeout_s
        for worker in self.workers:
            code = worker.wait(max(0.1, until - time.monotonic()))
            assert code == 0, worker.log[-3000:]
        report = self.judge.report(MIN_DELAY_S, float(str(self._settings["CRAWLER_DELAY_FACTOR"])))
        assert not report.found, report
        missing = self.judge.expected() - self.judge.answered()
        assert not missing, (len(missing), sorted(missing)[:5])
        assert self.judge.answered() == self.judge.expected()

    def twice(self) -> dict[tuple[str, str], int]:
        """Pages that were fetched more than once, and how often."""
        pages = Counter(
            (visit.host, visit.path)
            for visit in self.judge.visits
            if visit.status == 200 and visit.path not in (ROBOTS, MOVED_ROBOTS) and not visit.cut
        )
        return {page: count for page, count in pages.items() if count > 1}
