"""Workers of one shared crawl, as real processes over a real Redis: started, killed, paused.

Rule: what is asked about them is asked of Redis, of the web server's books and of what they
left on disk, never of themselves.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from struct import unpack_from
from typing import Any, Final, Self

from crawler.archive.recovery import recover
from crawler.shared import codec
from tests.command import crawl_command
from tests.ready import Begun, running
from tests.servers.judged_web import Judge
from tests.servers.loopback import Visit
from tests.servers.redis import RedisServer
from tests.warc_judges import read_folder

NAME: Final = "gossamer"  # the default of CRAWLER_FRONTIER_NAME
SHARDS: Final = 64
PAGES: Final = ("response", "revisit")
COUNTED: Final = re.compile(r"'crawler/([a-z_/]+)': (\d+)")

LETTERS: Final = str.maketrans("0123456789", "abcdefghij")
BEGUN: Final = "Spider opened"  # as it says in its log
BOUND_S: Final = 180.0  # of what takes seconds on a quiet machine

# What a lease takes with these: two fetches and two heartbeats.
QUICK_LEASES: Final[Mapping[str, object]] = {
    "CRAWLER_LEASE_S": 6,
    "CRAWLER_HEARTBEAT_S": 0.5,
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
        self._process: Begun | None = None
        self._life = ExitStack()

    def start(self) -> Self:
        assert not self.is_up, "it works already"
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
        while self._stat()[0] != "T":
            time.sleep(0.001)

    def wait(self, timeout_s: float = BOUND_S) -> int:
        """Its status; 0 is a crawl that came to its end, or was stopped in good order."""
        assert self._process is not None, "it was never started"
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.told()[-3000:]}") from None
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
        """Of its last life; empty as long as it has not joined."""
        file = self.data / "worker.json"
        return str(json.loads(file.read_bytes())["session"]) if file.exists() else ""

    @property
    def has_begun(self) -> bool:
        """In one of its lives: from now on it fetches."""
        return BEGUN in self.told()

    def told(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def counted(self, name: str) -> int:
        """A figure of the stats that it has dumped, all its lives together."""
        return sum(int(count) for found, count in COUNTED.findall(self.told()) if found == name)

    def cpu_s(self) -> float:
        """Of its own threads, in user and in system mode."""
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _stat(self) -> list[str]:
        """What the kernel says of it, from its state on."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()

    def archived(self) -> Counter[str]:
        """How often each page is in its WARC files; what a kill left open is closed first."""
        recover(self.data / "warc")
        records = read_folder(self.data / "warc").values()
        return Counter(record.url for record in records if record.kind in PAGES)


class Workers:
    """Of one crawl, over one Redis, on one judged web."""

    def __init__(
        self, folder: Path, server: RedisServer, judge: Judge, settings: Mapping[str, object]
    ) -> None:
        self.server = server
        self.judge = judge
        self.all: list[Worker] = []
        self._folder = folder
        self._settings = {"STATS_DUMP": True, **settings}
        self._seeds = folder / "seeds.txt"
        self._seeds.write_text("\n".join(judge.seeds()))
        self._client = server.client()

    def new(self, **settings: object) -> Worker:
        """With an empty data directory."""
        number = len(self.all)
        agent = agent_of(number)
        own = {"CRAWLER_FRONTIER_URL": self.server.url, "CRAWLER_USER_AGENT_NAME": agent}
        given = {**own, **self._settings, **settings}
        data = self._folder / f"data{number}"
        command = crawl_command(data, given, seeds=self._seeds)
        self.all.append(Worker(data, command, self._folder / f"log{number}", agent))
        return self.all[-1]

    def start(self, count: int) -> list[Worker]:
        return [self.new().start() for _ in range(count)]

    def start_together(self, count: int) -> list[Worker]:
        """However long it takes on a busy machine, nobody begins before the last of them."""
        workers, paused = self.start(count), set[Worker]()

        def are_there() -> bool:
            for worker in workers:
                if worker not in paused and worker.has_begun:
                    worker.pause()
                    paused.add(worker)
            return len(paused) == count

        self.until(are_there)
        for worker in workers:
            worker.send(signal.SIGCONT)
        return workers

    def start_beside(self, others: Iterable[Worker]) -> Worker:
        """One more, while *others* stand still until it has begun."""
        for worker in others:
            worker.pause()
        late = self.new().start()
        self.until(lambda: late.has_begun)
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
            asked.hvals(f"{NAME}:{{{shard}}}:o:{session}")
        return [_url(lease) for held in asked.execute() for lease in held]

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

    def twice(self) -> int:
        """How many pages were answered more than once, each time too many."""
        pages = Counter((visit.host, visit.path) for visit in self.pages())
        return sum(pages.values()) - len(pages)

    def until(self, is_so: Callable[[], Any], timeout_s: float = BOUND_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert not any(worker.has_failed for worker in self.all), self.logs()
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.02)

    def until_pages(self, count: int) -> None:
        self.until(lambda: len(self.pages()) >= count)

    def logs(self) -> str:
        return "\n".join(f"{worker.log.name}:\n{worker.told()[-3000:]}" for worker in self.all)


def agent_of(number: int) -> str:
    """Letters: a product token has no digits (RFC 9309, 2.2.1)."""
    return "Worker-" + str(number).translate(LETTERS)


def is_page(visit: Visit, since_s: float = 0.0) -> bool:
    is_robots = visit.path.endswith("/robots.txt")
    return visit.status == 200 and not (is_robots or visit.cut) and visit.arrival_s >= since_s


def _url(lease: bytes) -> str:
    """As lua/shard.lua packs it: taken 8, released 1, front 1, length of the host 2, host, body."""
    front, length = unpack_from("<BH", lease, 9)
    host, body = lease[12 : 12 + length], lease[12 + length :]
    return codec.unpack(body, host.decode(), front - 1).url
