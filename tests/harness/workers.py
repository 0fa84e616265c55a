"""Workers of one shared crawl, as real processes over a real Redis: started, killed, paused.

Rule: their state is read from Redis, from the web server's log of requests and from what they left
on disk, never from the processes themselves.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import redis

from crawler.archive.recovery import recover
from crawler.frontier.records import OPEN, decode_open
from crawler.shared.keys import root
from tests.harness.archive_judges import read_folder
from tests.harness.commands import crawl_command
from tests.harness.fork_server import ForkedProcess, running
from tests.harness.waiting import source, wait_until
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.loopback import Visit
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster

NAME: Final = "gossamer"  # the default of CRAWLER_FRONTIER_NAME
SHARDS: Final = 64
PAGES: Final = ("response", "revisit")
COUNTED: Final = re.compile(r"'crawler/([a-z_/]+)': (\d+)")

LETTERS: Final = str.maketrans("0123456789", "abcdefghij")
BEGUN: Final = "Spider opened"  # as it says in its log
BOUND_S: Final = 180.0  # of what takes seconds on a quiet machine

SETTINGS: Final[Mapping[str, object]] = {
    "CRAWLER_MIN_DELAY_S": 0.05,
    "CRAWLER_DELAY_FACTOR": 10,
    "CRAWLER_BACKOFF_BASE_S": 0.1,
    "CRAWLER_TOTAL_TIMEOUT_S": 3,
    "CRAWLER_CONNECT_TIMEOUT_S": 2,
    "CRAWLER_LEASE_S": 15,
    "CRAWLER_FRONTIER_SHARDS": 16,
}

QUICK_LEASES: Final[Mapping[str, object]] = {
    "CRAWLER_LEASE_S": 6,
    "CRAWLER_TOTAL_TIMEOUT_S": 2,
    "CRAWLER_CONNECT_TIMEOUT_S": 1,
}


class Worker:
    """One data directory, and the process that works in it now."""

    def __init__(self, data: Path, command: list[str], log: Path, agent: str) -> None:
        self.data = data
        self.log = log
        self.agent = agent  # as it names itself to the web
        self.ended_at = 0.0  # monotonic
        self._command = command
        self._process: ForkedProcess | None = None
        self._life = ExitStack()

    def start(self) -> Self:
        assert not self.is_up, "it runs already"
        self.ended_at = 0.0
        self._process = self._life.enter_context(running(self._command, self.log))
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_failed(self) -> bool:
        """It has ended, and neither in good order nor because it was killed."""
        status = None if self._process is None else self._process.poll()
        return status not in {None, 0, -signal.SIGKILL}

    def send(self, sign: signal.Signals) -> None:
        os.kill(self.pid, sign)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()

    def pause(self) -> None:
        self.send(signal.SIGSTOP)
        wait_until(lambda: self._stat()[0] == "T", BOUND_S, poll_s=0.001)

    def wait(self, timeout_s: float = BOUND_S) -> int:
        """Return the exit status; 0 is a crawl that finished, or was stopped in good order."""
        assert self._process is not None, "it was never started"
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.log_text()[-3000:]}") from None
        self.has_ended()
        return status

    def has_ended(self) -> bool:
        """The first time that it has is noted."""
        if self.is_up:
            return False
        self.ended_at = self.ended_at or time.monotonic()
        return True

    def close(self) -> None:
        self._life.close()

    @property
    def session(self) -> str:
        """Return the session of its last start; empty until it has joined."""
        file = self.data / "worker.json"
        return str(json.loads(file.read_bytes())["session"]) if file.exists() else ""

    @property
    def has_begun(self) -> bool:
        """Return whether it has joined: from then on it fetches."""
        return BEGUN in self.log_text()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def counted(self, name: str) -> int:
        """Return a figure of the stats that it dumped, summed over all its starts."""
        return sum(int(count) for found, count in COUNTED.findall(self.log_text()) if found == name)

    def cpu_s(self) -> float:
        """Of its own threads, in user and in system mode."""
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _stat(self) -> list[str]:
        """Return the fields of /proc/PID/stat, from the state on."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()

    def archived(self) -> Counter[str]:
        """How often each page is in its WARC files; what a kill left open is closed first."""
        recover(self.data / "warc")
        records = read_folder(self.data / "warc").values()
        return Counter(record.url for record in records if record.kind in PAGES)


class Workers:
    """The workers of one crawl, over one Redis, on one judged web."""

    def __init__(
        self,
        folder: Path,
        server: RedisServer | RedisCluster,
        judge: Judge,
        settings: Mapping[str, object],
        **arguments: str,
    ) -> None:
        self.server = server
        self.judge = judge
        self._arguments = arguments
        self.all: list[Worker] = []
        self._folder = folder
        # Making columns again after each kill takes a third of the CPU of a test of many kills.
        self._settings = {"STATS_DUMP": True, "CRAWLER_COLUMNS": False, **settings}
        self._seeds = folder / "seeds.txt"
        self._seeds.write_text("\n".join(judge.seeds()))

    @cached_property
    def _client(self) -> redis.Redis:
        assert isinstance(self.server, RedisServer)
        return self.server.client()

    def new(self, **settings: object) -> Worker:
        """With an empty data directory."""
        number = len(self.all)
        agent = agent_of(number)
        own = {"CRAWLER_FRONTIER_URL": self.server.url, "CRAWLER_USER_AGENT_NAME": agent}
        given = {**own, **self._settings, **settings}
        data = self._folder / f"data{number}"
        command = crawl_command(data, given, seeds=self._seeds, **self._arguments)
        self.all.append(Worker(data, command, self._folder / f"log{number}", agent))
        return self.all[-1]

    def start(self, count: int) -> list[Worker]:
        return [self.new().start() for _ in range(count)]

    def start_together(self, count: int) -> list[Worker]:
        """Start *count* workers; none begins to fetch before the last of them has started."""
        workers, paused = self.start(count), set[Worker]()

        def are_there() -> bool:
            for worker in workers:
                if worker not in paused and worker.has_begun:
                    worker.pause()
                    paused.add(worker)
            return len(paused) == count

        self.wait_until(are_there)
        for worker in workers:
            worker.send(signal.SIGCONT)
        return workers

    def start_beside(self, others: Iterable[Worker]) -> Worker:
        """Start one more; *others* are paused until it has begun."""
        for worker in others:
            worker.pause()
        late = self.new().start()
        self.wait_until(lambda: late.has_begun)
        for worker in others:
            worker.send(signal.SIGCONT)
        return late

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self.all:
            worker.close()

    def leases(self, session: str) -> list[str]:
        """The URLs that Redis holds under leases of *session*."""
        asked = self._client.pipeline(transaction=False)
        for shard in range(SHARDS):
            asked.hget(root(NAME, shard), "owner")
            asked.hvals(f"{root(NAME, shard)}:{OPEN.decode()}")
        replies = asked.execute()
        return [
            decode_open(lease).candidate.url
            for owner, held in zip(replies[::2], replies[1::2], strict=True)
            if f"/{session}.".encode() in (owner or b"")
            for lease in held
        ]

    def visits_of(
        self, urls: Iterable[str], by: Worker, since_s: float = float("-inf")
    ) -> Counter[str]:
        """Pages answered whole, of these URLs, that *by* has asked for after *since_s*."""
        wanted = set(urls)
        own = (visit for visit in self.pages(since_s) if visit.agent.startswith(f"{by.agent}/"))
        found = (self.judge.url(visit.host, visit.path) for visit in own)
        return Counter(url for url in found if url in wanted)

    def pages(self, since_s: float = 0.0) -> list[Visit]:
        return [visit for visit in list(self.judge.visits) if is_page(visit, since_s)]

    def repeats(self) -> Counter[tuple[str, str]]:
        """The pages that were answered more than once, and how often too many."""
        pages = Counter((visit.host, visit.path) for visit in self.pages())
        return pages - Counter(pages.keys())

    def twice(self) -> int:
        return self.repeats().total()

    def wait_until(
        self, condition: Callable[[], Any], timeout_s: float = BOUND_S, what: str = ""
    ) -> None:
        """Wait for *condition*, as long as no worker fails."""

        def is_met() -> Any:
            found = condition()
            assert found or not any(worker.has_failed for worker in self.all), self.logs()
            return found

        wait_until(is_met, timeout_s, what or source(condition), log=self.logs)

    def wait_for_pages(self, count: int) -> None:
        self.wait_until(lambda: len(self.pages()) >= count, what=f"{count} pages are answered")

    def wait_for_visits(self, more: int) -> None:
        goal = len(self.judge.visits) + more
        self.wait_until(lambda: len(self.judge.visits) >= goal, what=f"{more} more visits")

    def finish(self, timeout_s: float = 2 * BOUND_S) -> None:
        """Wait until all have ended by themselves; check that every page was fetched and that no
        host was asked too often."""
        deadline = time.monotonic() + timeout_s
        for worker in self.all:
            assert worker.wait(max(0.1, deadline - time.monotonic())) == 0, self.logs()
        gap = self._settings["CRAWLER_MIN_DELAY_S"], self._settings["CRAWLER_DELAY_FACTOR"]
        report = self.judge.report(*(float(str(each)) for each in gap))
        assert not report.found, report
        missing = self.judge.expected() - self.judge.answered()
        assert not missing, (len(missing), sorted(missing)[:5])
        assert self.judge.answered() == self.judge.expected()

    def logs(self) -> str:
        """Return the end of each worker's log, and its first traceback before that."""
        return "\n".join(f"{each.log.name}:\n{_shortened(each.log_text())}" for each in self.all)


@contextmanager
def judged_workers(
    folder: Path,
    server: RedisServer | RedisCluster,
    web: JudgedWeb,
    settings: Mapping[str, object] | None = None,
) -> Iterator[Workers]:
    """Serve *web* for workers that have SETTINGS and *settings*."""
    with (
        Judge(web) as judge,
        Workers(folder, server, judge, {**SETTINGS, **(settings or {})}) as workers,
    ):
        yield workers


def _shortened(log: str) -> str:
    begin, end = log[:-3000], log[-3000:]
    before, found, after = begin.partition("Traceback")
    return f"{before[-300:]}{found}{after[:3000]}\n...\n{end}" if found else end


def agent_of(number: int) -> str:
    """Letters: a product token has no digits (RFC 9309, 2.2.1)."""
    return "Worker-" + str(number).translate(LETTERS)


def is_page(visit: Visit, since_s: float = 0.0) -> bool:
    is_robots = visit.path.endswith("/robots.txt")
    return visit.status == 200 and not (is_robots or visit.cut) and visit.arrival_s >= since_s
