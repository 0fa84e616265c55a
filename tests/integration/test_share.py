"""`scrapy share`: two workers started by one command, over a Redis of their own, and all that may
end them.

Rule: the request log of a small web is the measure. Processes are killed by the number that the
system itself gives.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest
import redis

from crawler.config.settings import SharedSettings
from crawler.data.data_dir import InheritedLock
from crawler.workers.redis_server import OwnRedis, own_redis
from tests.harness import fork_server
from tests.harness.commands import crawl_command, run
from tests.harness.waiting import wait_until
from tests.servers.judge import ROBOTS, Gap, judge
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.redis import RedisServer
from tests.servers.redis_process import free_port

HOSTS: Final = tuple(f"127.0.21.{number}" for number in range(1, 7))
MIN_DELAY_S: Final = 0.1
SETTINGS: Final[Mapping[str, object]] = {
    "CRAWLER_ALLOW_INSIDE": "127.0.0.0/8",  # its hosts link to each other
    "CRAWLER_MIN_DELAY_S": MIN_DELAY_S,
    "CRAWLER_DELAY_FACTOR": 1,
    "CRAWLER_TOTAL_TIMEOUT_S": 2,
    "CRAWLER_CONNECT_TIMEOUT_S": 1,
    "CRAWLER_LEASE_S": 10,
    "CRAWLER_FRONTIER_SHARDS": 8,
    "CRAWLER_PROGRESS_LOG_S": 1,
}
PATIENCE_S: Final = 300.0


class Growing:
    """Every page links to the next three of its host, until the web is full: the crawl is not over
    while a process is killed and restarted."""

    def __init__(self) -> None:
        self.is_full = False
        self.pages = Counter(HOSTS)  # of each host

    def __call__(self, ask: Ask) -> Reply:
        if ask.path == ROBOTS:
            return Reply(status=404)
        number = int(ask.path[1:] or 0)
        if not self.is_full:
            self.pages[ask.host] = max(self.pages[ask.host], number + 4)
        end = min(number + 4, self.pages[ask.host])
        links = "".join(f"<a href=/{n}>{n}</a>" for n in range(number + 1, end))
        return Reply(f"<title>{ask.host} {number}</title>{links}".encode(), wait_s=0.01)


class Shared:
    """One crawl and its command, which may be run several times."""

    def __init__(self, folder: Path, web: Growing, served: LoopbackWeb) -> None:
        self.folder = folder
        self.web = web
        self.data = folder / "web"
        self.log = folder / "log"
        self.served = served
        self.seeds = folder / "seeds.txt"
        self.seeds.write_text("\n".join(served.url(host) for host in HOSTS))

    def command(self, *more: str, workers: int = 2) -> list[str]:
        command = [sys.executable, "-m", "scrapy", "share", "web", "--workers", str(workers)]
        command += ["-a", f"seeds={self.seeds}", "-s", f"CRAWLER_DATA_DIR={self.folder}/%(name)s"]
        for name, value in SETTINGS.items():
            command += ["-s", f"{name}={value}"]
        return [*command, *more]

    def running(self, *more: str) -> AbstractContextManager[fork_server.ForkedProcess]:
        return fork_server.running(self.command(*more), self.log)

    def until(self, is_so: Callable[[], bool]) -> None:
        wait_until(is_so, PATIENCE_S, log=lambda: self.log_text)

    def until_more(self, visits: int) -> None:
        goal = len(self.served.visits) + visits
        self.until(lambda: len(self.served.visits) >= goal)

    @property
    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def counts_command(self) -> subprocess.CompletedProcess[str]:
        """Run `scrapy frontier counts`, with the data directory as its only setting."""
        return self.frontier("counts", "--json")

    def frontier(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "scrapy", "frontier", *words]
        return fork_server.run([*command, "-s", f"CRAWLER_DATA_DIR={self.data}"])

    def counts(self) -> Any:
        done = self.counts_command()
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    def workers_seen(self) -> int:
        """Return the workers as `scrapy frontier` shows them during the crawl. 0: Redis could not
        be reached."""
        done = self.counts_command()
        return json.loads(done.stdout)["workers"] if done.returncode == 0 else 0

    def summary(self) -> Any:
        return json.loads((self.data / "summary.json").read_text())

    def worker(self, number: int) -> int:
        """Its process, by the lock of its data directory. 0: there is none yet."""
        lock = self.data / "workers" / str(number) / "crawl.lock"
        return int((lock.read_text() if lock.exists() else "") or 0)

    @property
    def redis(self) -> int:
        """Its process. 0: it is writing that down."""
        return int((self.data / "redis" / "redis.pid").read_text() or 0)

    def processes(self) -> list[int]:
        return [self.worker(1), self.worker(2), self.redis]

    def fetched(self) -> Counter[tuple[str, str]]:
        """Pages, and how often each was fetched."""
        whole = [each for each in self.served.visits if each.path != ROBOTS and not each.cut]
        return Counter((each.host, each.path) for each in whole)

    def check_politeness(self) -> None:
        """Check that everything was fetched, and politely."""
        counted = self.web.pages.items()
        pages = {(host, f"/{number or ''}") for host, count in counted for number in range(count)}
        assert self.fetched().keys() == pages, self.log_text[-3000:]
        found = judge(self.served.visits, {}, Gap(MIN_DELAY_S, 1)).found
        assert not found, found


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    web = Growing()
    with LoopbackWeb(web, HOSTS) as served:
        yield Shared(tmp_path, web, served)


def is_there(pid: int) -> bool:
    """Return whether it runs, and is not only a zombie that its new parent has not waited for."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_process_does_not_end_the_crawl(shared: Shared) -> None:
    with shared.running() as process:
        shared.until_more(12)
        shared.until(lambda: all(map(shared.worker, (1, 2))))
        password = (shared.data / "redis" / "url").read_text().split(":")[2].split("@")[0]
        assert password not in command_lines(*shared.processes())
        worker, redis = shared.worker(1), shared.redis
        begun = shared.processes()
        visits = len(shared.served.visits)
        os.kill(worker, signal.SIGKILL)
        shared.until(lambda: shared.worker(1) not in (0, worker))
        shared.until_more(6)
        begun.append(shared.worker(1))
        os.kill(redis, signal.SIGKILL)
        shared.until(lambda: shared.redis not in (0, redis))
        begun.append(shared.redis)
        shared.until(lambda: shared.workers_seen() == 2)
        shared.web.is_full = True
        assert process.wait(PATIENCE_S) == 0, shared.log_text[-3000:]
        assert not any(map(is_there, begun))
    shared.check_politeness()
    assert shared.log_text.count("worker 1 has died (SIGKILL); it is started again in 1.0 s") == 1
    assert shared.log_text.count("redis-server has died (SIGKILL); it is started again") == 1
    assert password not in shared.log_text
    summary = shared.summary()
    assert (summary["reason"], summary["unfinished"]) == ("finished", False)
    assert summary["frontier"]["done"] == shared.web.pages.total()
    # The last record of the dead worker is up to a second older than its end.
    assert summary["pages"] >= shared.web.pages.total() - visits
    assert summary["archive"]["files"] >= 1
    # Two workers, of which one was started again; the first time it may not have begun yet.
    assert summary["whole"]["runs"] in (2, 3)
    assert "gap_over_due/early" not in summary["whole"]["counters"]
    written = (shared.data / "report.html").read_text()
    elsewhere = shared.data / "elsewhere.html"
    asked = shared.frontier("report", "-o", str(elsewhere))
    assert asked.returncode == 0, asked.stderr[-3000:]
    for report in (written, elsewhere.read_text()):
        assert all(f"<td>{host}</td>" in report for host in HOSTS)


def test_a_duration_counts_from_the_start_of_the_command_for_all_workers(shared: Shared) -> None:
    """Also for one that is started again."""
    with shared.running("-a", "until=20s") as process:
        shared.until(lambda: process.poll() is not None or shared.worker(1) != 0)
        if killed := shared.worker(1):
            os.kill(killed, signal.SIGKILL)
        assert process.wait(PATIENCE_S) == 0, shared.log_text[-3000:]
    summary = shared.summary()
    assert summary["reason"] == "until" and summary["duration_s"] < PATIENCE_S / 2
    logs = [each.read_text() for each in shared.data.glob("workers/*/crawl.log")]
    ends = {line.partition("ends at ")[2] for log in logs for line in log.splitlines()} - {""}
    assert len(ends) == 1, ends


def test_a_worker_that_begins_while_redis_is_away_ends_no_other(
    shared: Shared, tmp_path: Path
) -> None:
    """Not even when it has waited for as long as it may."""
    with RedisServer(tmp_path / "redis") as server:
        settings = (f"CRAWLER_FRONTIER_URL={server.url}", "CRAWLER_REDIS_WAIT_S=1")
        with shared.running("-s", settings[0], "-s", settings[1]) as process:
            shared.until_more(12)
            shared.until(lambda: all(map(shared.worker, (1, 2))))
            server.kill()
            os.kill(shared.worker(1), signal.SIGKILL)
            shared.until(lambda: "worker 1 has died (Redis at" in shared.log_text)
            server.start()
            shared.until_more(12)
            shared.web.is_full = True
            assert process.wait(PATIENCE_S) == 0, shared.log_text[-3000:]
    assert "Gave up after 1 s" in shared.log_text
    shared.check_politeness()


def command_lines(*pids: int) -> str:
    return "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in pids)


def test_a_crawl_stopped_and_resumed_fetches_nothing_twice(shared: Shared) -> None:
    # A fetch that a loaded machine holds up for seconds would be tried again, which is no fault.
    unhurried = ("-s", "CRAWLER_TOTAL_TIMEOUT_S=12", "-s", "CRAWLER_LEASE_S=60")
    with shared.running(*unhurried) as process:
        shared.until_more(20)
        shared.until(lambda: all(map(shared.worker, (1, 2))))
        begun = shared.processes()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0, shared.log_text[-3000:]
        assert not any(map(is_there, begun))
    summary = shared.summary()
    assert (summary["reason"], summary["unfinished"]) == ("shutdown", True)
    assert summary["frontier"]["leased"] == 0, "each has put back what was under way"
    for name in ("url", "redis.conf"):
        assert stat.S_IMODE((shared.data / "redis" / name).stat().st_mode) == 0o600
    assert shared.counts()["counts"]["done"] == summary["frontier"]["done"], "also at rest"
    alone = fork_server.run(crawl_command(shared.data, seeds=shared.seeds))
    assert (alone.returncode, alone.stderr.count("a crawl by several workers")) == (1, 1)
    shared.web.is_full = True
    with shared.running(*unhurried) as process:
        assert process.wait(PATIENCE_S) == 0, shared.log_text[-3000:]
    shared.check_politeness()
    assert set(shared.fetched().values()) == {1}
    assert shared.summary()["pages"] + summary["pages"] == shared.web.pages.total()
    assert shared.summary()["frontier"]["put_back_at_open"] == 0


def test_only_a_redis_that_was_stopped_in_good_order_has_lost_nothing(tmp_path: Path) -> None:
    """Else each host that is known would rest for minutes when a crawl goes on."""

    async def run_of_shard(end: Callable[[OwnRedis], None]) -> tuple[bool, str, str]:
        """Return whether it is whole, the run of its shard, and its own; then let it *end*."""
        async with own_redis(tmp_path, SharedSettings(), lambda _: None) as own:
            with redis.Redis.from_url((tmp_path / "url").read_text().strip()) as client:
                run = client.info("server")["run_id"]
                of_shard = client.hget("gossamer:{0}", "run") or b""
                client.hset("gossamer:{0}", "run", run)
            end(own)
            return own.is_whole, of_shard.decode(), run

    def kill(own: OwnRedis) -> None:
        assert own.pid is not None
        os.kill(own.pid, signal.SIGKILL)

    def stop(_: OwnRedis) -> None: ...

    runs = [asyncio.run(run_of_shard(end)) for end in (stop, stop, kill, stop)]
    assert [is_whole for is_whole, *_ in runs] == [False, True, True, False]
    assert [of_shard == run for _, of_shard, run in runs] == [False, True, True, False]
    assert runs[3][1] == runs[2][2], "as it was before the kill"


def test_after_a_kill_of_the_command_no_process_remains_and_the_crawl_can_continue(
    shared: Shared,
) -> None:
    with shared.running() as process:
        shared.until_more(20)
        left = shared.processes()
        process.kill()
        process.wait(PATIENCE_S)
    shared.web.is_full = True
    with shared.running() as process:
        shared.until(lambda: not any(map(is_there, left)))
        assert process.wait(PATIENCE_S) == 0, shared.log_text[-3000:]
    shared.check_politeness()
    twice = {page: n for page, n in shared.fetched().items() if n > 1}
    assert set(twice.values()) <= {2}, "what was under way, and what was not yet safe on a disk"


def test_an_orphaned_redis_is_stopped_before_another_opens_its_file(shared: Shared) -> None:
    """As on a kernel that does not signal a child when its parent dies."""
    with shared.running() as process:
        shared.until_more(6)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0, shared.log_text[-3000:]
    folder = shared.data / "redis"
    lock = InheritedLock.take(folder / "redis.lock")
    assert lock is not None
    with subprocess.Popen(
        ["redis-server", str(folder / "redis.conf")], cwd=folder, pass_fds=(lock.descriptor,)
    ) as left:
        lock.close()
        shared.until(lambda: (folder / "redis.pid").exists())
        with shared.running("-a", "max_pages=6") as process:
            assert process.wait(PATIENCE_S) == 0, shared.log_text[-3000:]
        assert left.wait(PATIENCE_S) == 0
    assert shared.log_text.count("A redis-server of an earlier run is still there") == 1
    assert shared.summary()["pages"] == 6


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        pytest.param(
            ["-s", "CRAWLER_MIN_DELAYS=1"], "CRAWLER_MIN_DELAYS", id="found before anything starts"
        ),
        pytest.param(
            ["-s", "CRAWLER_PRIORITIZER=no.such"], "CRAWLER_PRIORITIZER", id="found by each worker"
        ),
        pytest.param(["--workers", "many"], "--workers is 'many'", id="no number of workers"),
        pytest.param(["-a", "max_pages=0"], "max_pages is", id="an argument of the spider"),
        pytest.param(["-O", "x.jsonl"], "no option -O. (Of feeds each", id="a feed of them all"),
    ],
)
def test_an_error_is_reported_once(shared: Shared, more: list[str], sentence: str) -> None:
    done = fork_server.run(shared.command(*more))
    assert done.returncode == 1
    assert done.stderr.count("gossamer: error: ") == done.stderr.count(sentence) == 1
    assert "Traceback" not in done.stderr
    assert not shared.served.visits


def test_max_pages_is_for_all_workers_together(shared: Shared) -> None:
    done = fork_server.run(shared.command("-a", "max_pages=7", workers=3))
    assert done.returncode == 0, done.stderr[-3000:]
    summary = shared.summary()
    assert (summary["reason"], summary["pages"]) == ("max_pages", 7)
    assert sum(shared.fetched().values()) == 7


def test_max_bytes_is_for_all_workers_together(shared: Shared) -> None:
    done = fork_server.run(shared.command("-a", "max_bytes=300", workers=3))
    assert done.returncode == 0, done.stderr[-3000:]
    summary = shared.summary()
    assert summary["reason"] == "max_bytes"
    assert 300 <= summary["bytes"] < 3 * (100 + 400), "each may have one page under way"


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        pytest.param("Redis server v=6.2.14 sha=0", "has version 6.2.14, and 7.0", id="too old"),
        pytest.param("Hello", "does not report its version", id="something else of that name"),
    ],
)
def test_a_redis_that_will_not_do(shared: Shared, version: str, sentence: str) -> None:
    program = shared.folder / "redis-server"
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    path = f"{shared.folder}{os.pathsep}{os.environ['PATH']}"
    done = run(shared.command(), env={**os.environ, "PATH": path})
    assert done.returncode == 1
    assert sentence in done.stderr
    assert done.stderr.count("gossamer: error: ") == 1


def test_two_at_once_are_one_too_many(shared: Shared) -> None:
    lock = InheritedLock.take(shared.data / "workers" / "share.lock")
    assert lock is not None
    done = fork_server.run(shared.command())
    lock.close()
    assert done.returncode == 1
    assert done.stderr.count(f"is in use by another crawl (process {os.getpid()})") == 1


def test_a_redis_that_has_lost_its_data_begins_nothing_anew(shared: Shared) -> None:
    worker = shared.data / "workers" / "1"
    worker.mkdir(parents=True)
    (worker / "outcomes.jsonl").write_text("{}\n")
    done = fork_server.run(shared.command())
    assert (done.returncode, done.stderr.count("but their Redis knows no URL")) == (1, 1)
    assert not shared.served.visits


def test_a_crawl_of_a_single_worker_is_refused(shared: Shared) -> None:
    (shared.data / "frontier").mkdir(parents=True)
    done = fork_server.run(shared.command())
    assert (done.returncode, done.stderr.count("holds a crawl of one worker")) == (1, 1)
    assert list(shared.data.iterdir()) == [shared.data / "frontier"]


def test_one_worker_serves_the_console_of_all(shared: Shared) -> None:
    with shared.running("-s", f"CRAWLER_HTTP=127.0.0.1:{free_port()}"):
        shared.until(lambda: "The console is at http://127.0.0.1:" in shared.log_text)
        root = shared.log_text.partition("The console is at ")[2].split()[0]

        def get(view: str) -> Any:
            with urlopen(f"{root}api/{view}", timeout=PATIENCE_S) as answer:  # noqa: S310  # http, ours
                return json.loads(answer.read())

        shared.until(lambda: get("overview")["workers"] == 2)
        shared.until(lambda: all(row["pages"] > 5 for row in get("workers")))
        rows = get("workers")
        assert get("overview")["pages"] >= sum(row["pages"] for row in rows) - len(rows)
        assert {row["host"] for row in get("hosts")} == set(HOSTS)
        fetched = {row["url"] for row in get("outcomes?top=10000")}
        assert fetched >= {shared.served.url(host) for host in HOSTS}
        assert {Path(row["folder"]).parent.name for row in get("archive")} == {"1", "2"}
        other = shared.data / "workers" / "2" / "control.address"
        assert other.read_text().strip() not in root, "for its metrics"
        assert shared.log_text.count("The console is at ") == 1
        shared.web.is_full = True
