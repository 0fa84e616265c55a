"""A Redis that cannot serve a crawl, at its start or in its middle: one clear error, or a wait that
is logged once; and never is anything overwritten."""

from __future__ import annotations

import asyncio
import random
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from resource import RLIM_INFINITY as INFINITY
from typing import Any, Final

import pytest
import redis

from crawler.config.settings import read_config
from crawler.data.outcomes import read_outcomes
from crawler.policy.admission import identity_of_urls
from crawler.report.endings import TRY_AGAIN
from crawler.shared import keys
from crawler.shared.crawl_format import CrawlFormat, encode_format
from tests.harness.commands import crawl_command
from tests.harness.fork_server import run, running
from tests.harness.small_disks import SmallDisk, can_mount
from tests.harness.waiting import wait_until
from tests.harness.workers import BOUND_S, QUICK_LEASES, SETTINGS, Workers, judged_workers
from tests.servers.judged_web import JudgedWeb
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.redis import RedisServer
from tests.servers.redis_process import free_port

WEB: Final = JudgedWeb(hosts=10, pages=10, crawl_delay_s=0.1)
NAME: Final = "gossamer"
SECRET: Final = "s3cr3t"  # noqa: S105 - of a server that a test starts
MOST: Final = 10**15
LOADING_S: Final = 4.0
OURS: Final = {"identity": ("unit=host",), "key_seed": 1}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


def started(folder: Path, url: str, **settings: object) -> Any:
    """A worker that should not get far."""
    data = folder / "data"
    command = crawl_command(
        data, {"CRAWLER_FRONTIER_URL": url, **settings}, seeds="http://127.0.0.1:1/"
    )
    return run(command, timeout_s=BOUND_S)


def complaint(done: Any, status: int = 1) -> str:
    """The one sentence that it ended with."""
    assert done.returncode == status, done.stderr[-2000:]
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    last: str = done.stderr.splitlines()[-1]
    assert last.startswith("gossamer: error: "), last
    return last


def dumps(client: redis.Redis) -> dict[bytes, bytes]:
    return {key: client.dump(key) for key in client.scan_iter()}


def begun(**with_: Any) -> Callable[[redis.Redis], None]:
    """A crawl that began with other settings."""
    crawl = CrawlFormat(**{"shards": 64, "levels": 3, **OURS, **with_})
    return lambda client: client.set(keys.format_key(NAME), encode_format(crawl))


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        pytest.param(
            begun(schema="0"), "has schema 0, and this version reads", id="another schema"
        ),
        pytest.param(begun(shards=16), "was begun with 16 shards", id="other shards"),
        pytest.param(begun(identity=("unit=domain",)), "other rules of which URLs", id="identity"),
        pytest.param(
            begun(identity=(*identity_of_urls(read_config({})), "suffixes=0")),
            *("another public suffix list",),
            id="another public suffix list",
        ),
        pytest.param(
            lambda client: client.set(f"{NAME}:format", "x"), "is no format of a crawl", id="format"
        ),
        pytest.param(
            lambda client: client.rpush(f"{NAME}:format", "x"), "another type", id="format, a list"
        ),
        pytest.param(lambda client: client.set(f"{NAME}:{{3}}", "x"), "another type", id="a shard"),
        pytest.param(
            lambda client: client.set(f"{NAME}:workers", "x"), "another type", id="workers"
        ),
    ],
)
def test_foreign_data_is_reported_and_not_changed(
    tmp_path: Path, server: RedisServer, prepare: Callable[[redis.Redis], None], message: str
) -> None:
    client = server.client()
    prepare(client)
    before = dumps(client)
    assert message in complaint(started(tmp_path, server.url))
    after = dumps(client)
    assert {key: after.get(key) for key in before} == before
    if keys.format_key(NAME).encode() in before:
        assert after == before, "a crawl of another format gets no key more"


@pytest.mark.parametrize(
    ("options", "login", "message"),
    [
        pytest.param({"password": SECRET}, ("", "wrong"), "does not accept", id="wrong password"),
        pytest.param({"password": SECRET}, ("", ""), "wants a password", id="no password"),
        pytest.param(
            {"users": (f"web on >{SECRET} ~* +@all -evalsha",)},
            *(("web", SECRET), "Give it the rights in docs/"),
            id="no rights to run scripts",
        ),
        pytest.param(
            {"users": (f"web on >{SECRET} ~other:* +@all",)},
            *(("web", SECRET), "Give it the rights in docs/"),
            id="no rights on our keys",
        ),
        pytest.param(
            {"maxmemory": "50mb", "maxmemory_policy": "allkeys-lru"},
            *(("", ""), "maxmemory-policy"),
            id="a cache, which would throw the crawl away",
        ),
    ],
)
def test_a_server_that_does_not_let_us_in(
    tmp_path: Path, options: dict[str, Any], login: tuple[str, str], message: str
) -> None:
    with RedisServer(tmp_path / "redis", **options) as server:
        sentence = complaint(started(tmp_path, server.url_as(*login)))
        assert message in sentence and SECRET not in sentence
        assert not {*server.client().scan_iter()} - {keys.format_key(NAME).encode()}


def test_a_replica_is_not_written_to(tmp_path: Path, server: RedisServer) -> None:
    with RedisServer(tmp_path / "replica", replica_of=server) as replica:
        sentence = complaint(started(tmp_path, replica.url, CRAWLER_REDIS_WAIT_S=0), TRY_AGAIN)
    assert "is a read-only replica" in sentence
    assert list(server.client().scan_iter()) == []


def test_a_server_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """First the port is closed, then a server that is no Redis listens, then Redis."""
    server = RedisServer(tmp_path / "redis")
    with server:
        server.stop()
        with judged_workers(
            tmp_path, server, JudgedWeb(hosts=2, pages=10, crawl_delay_s=0.1)
        ) as crawl:
            (worker,) = crawl.start(1)
            crawl.wait_until(lambda: "takes no connections" in worker.log_text())
            with Stranger(server.port):
                crawl.wait_until(lambda: "answers what no Redis answers" in worker.log_text())
            server.start()
            crawl.finish()


def test_a_server_that_loads_its_data_is_waited_for(tmp_path: Path, server: RedisServer) -> None:
    """It takes connections meanwhile, and answers what it may."""
    server.load_slowly(LOADING_S)
    server.kill()
    with judged_workers(tmp_path, server, JudgedWeb(hosts=2, pages=10, crawl_delay_s=0.1)) as crawl:
        (worker,) = crawl.start(1)
        crawl.wait_until(lambda: "takes no connections" in worker.log_text())
        server.start()
        crawl.finish()
    assert "(CRAWLER_REDIS_WAIT_S) to begin: Redis at" in worker.log_text()
    assert "is loading its data" in worker.log_text()


def test_how_long_a_server_is_waited_for_is_bounded(tmp_path: Path) -> None:
    sentence = complaint(
        started(tmp_path, f"redis://127.0.0.1:{free_port()}", CRAWLER_REDIS_WAIT_S=1.5), TRY_AGAIN
    )
    assert "takes no connections" in sentence
    assert sentence.endswith("Gave up after 1.5 s (CRAWLER_REDIS_WAIT_S)")


def test_a_worker_that_waits_for_its_server_can_be_ended(tmp_path: Path) -> None:
    settings = {"CRAWLER_FRONTIER_URL": f"redis://127.0.0.1:{free_port()}"}
    command = crawl_command(tmp_path / "data", settings, seeds="http://127.0.0.1:1/")
    log = tmp_path / "log"
    with running(command, log) as process:
        wait_until(lambda: "Waiting up to 300 s" in log.read_text(), BOUND_S, log=log.read_text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == TRY_AGAIN
    assert "ended while it waited: Redis at" in log.read_text().splitlines()[-1]


def test_a_server_without_memory_takes_a_worker_in(tmp_path: Path, server: RedisServer) -> None:
    """What is there can be fetched, and so makes room. Only a crawl that is new cannot begin."""
    with judged_workers(tmp_path, server, WEB, QUICK_LEASES) as crawl:
        server.client().config_set("maxmemory", 1)
        refused = started(tmp_path, server.url)
        assert "has no memory left" in complaint(refused)
        server.client().config_set("maxmemory", 0)
        (first,) = crawl.start(1)
        crawl.wait_for_visits(20)
        first.kill()
        server.client().config_set("maxmemory", 1)
        crawl.start(1)
        crawl.wait_for_visits(5)
        server.client().config_set("maxmemory", 0)
        first.start()
        crawl.finish()


class Stranger:
    """Speaks first, and no Redis."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._greet)
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _greet(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            with caller:
                caller.sendall(b"220 mail.example.com ESMTP\r\n")


def forbid(client: redis.Redis) -> None:
    client.config_set("requirepass", SECRET)
    client.client_kill_filter(_type="normal", skipme=True)


def demote(client: redis.Redis) -> None:
    client.replicaof("127.0.0.1", "1")  # no server listens there, so it keeps its data


def promote(client: redis.Redis) -> None:
    client.replicaof("NO", "ONE")


def test_a_changed_password_ends_the_crawl_and_the_next_start_continues(
    tmp_path: Path, server: RedisServer
) -> None:
    with judged_workers(tmp_path, server, WEB) as crawl:
        (worker,) = crawl.start(1)
        crawl.wait_for_visits(30)
        forbid(server.client())
        assert worker.wait() == 1
        assert "wants a password" in worker.log_text().splitlines()[-1]
        worker.close()
        crawl.all.remove(worker)  # the next has its data directory
        crawl.new(CRAWLER_FRONTIER_URL=server.url_as("", SECRET)).start()
        crawl.wait_for_visits(30)


def test_a_server_that_becomes_a_replica_is_waited_for(tmp_path: Path, server: RedisServer) -> None:
    with judged_workers(tmp_path, server, WEB) as crawl:
        (worker,) = crawl.start(1)
        crawl.wait_for_visits(30)
        demote(server.client())
        crawl.wait_until(lambda: "is a read-only replica" in worker.log_text())
        time.sleep(2.5)  # it must not be logged each second
        promote(server.client())
        crawl.finish()
        assert crawl.repeats() == {}
    assert worker.log_text().count("Waiting: ") == 1


def outbox(client: redis.Redis) -> int:
    """Links on disks, as the workers say."""
    records = client.hvals(keys.workers(NAME))
    return sum(int(re.search(rb'"outbox":(\d+)', each)[1]) for each in records)


def test_a_server_without_memory_gets_its_links_later(tmp_path: Path, server: RedisServer) -> None:
    """Its own maxmemory refuses what is new; the pages that hold it are finished all the same."""
    client = server.client()
    with judged_workers(tmp_path, server, WEB, {"CRAWLER_REDIS_MAX_BYTES": MOST}) as crawl:
        one, two = crawl.start(2)
        crawl.wait_for_visits(30)
        client.config_set("maxmemory", 1)
        crawl.wait_until(lambda: outbox(client) > 0)
        settle(crawl)
        client.config_set("maxmemory", 0)
        crawl.finish()
        assert crawl.repeats() == {}
    for worker in (one, two):
        assert worker.log_text().count("Waiting: ") <= 1
    assert "has no memory left" in one.log_text() + two.log_text()


def settle(crawl: Workers) -> None:
    """Until nothing more can be fetched."""
    seen = -1
    while seen < len(crawl.judge.visits):
        seen = len(crawl.judge.visits)
        time.sleep(1.5)


def test_above_its_mark_links_wait_on_the_disk_of_the_worker(
    tmp_path: Path, server: RedisServer
) -> None:
    client = server.client()
    used = server.used_memory()
    ballast = 8 << 20
    client.set("ballast", "x" * ballast)
    with judged_workers(
        tmp_path, server, WEB, {"CRAWLER_REDIS_MAX_BYTES": used + ballast // 2}
    ) as crawl:
        (worker,) = crawl.start(1)
        crawl.wait_until(lambda: outbox(client) > 0)
        assert "above its high-water mark" in worker.log_text()
        client.delete("ballast")
        crawl.finish()
        assert crawl.repeats() == {}
    assert worker.log_text().count("Waiting: ") == 1


HOSTS: Final = [f"127.0.2.{number}" for number in range(1, 21)]
LONG: Final = "x" * 1900  # 400 such links are more than the disk has room for
BALLAST: Final = "x" * (6 << 20)


class OnePageOfManyLinks:
    """It waits until a test has found its Redis to be full."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def __call__(self, ask: Ask) -> Reply:
        if ask.path == "/robots.txt":
            return Reply(status=404)
        if ask.path != "/":
            return Reply(f"<title>{ask.host} {ask.path[:5]}</title>".encode())
        links = [f"http://{host}:{ask.port}/{n}{LONG}" for host in HOSTS for n in range(20)]
        page = "".join(f'<a href="{link}">x</a>' for link in links)
        return Reply(lambda: self._held(page.encode()))

    async def _held(self, page: bytes) -> AsyncIterator[bytes]:
        while not self.may_answer.is_set():
            await asyncio.sleep(0.02)
        yield page


def stuffed(folder: Path, server: RedisServer, web: LoopbackWeb) -> tuple[list[str], Path]:
    """Return the command of a worker whose Redis soon has no room for links, and its log."""
    most = server.used_memory() + (3 << 20)
    settings = {**SETTINGS, "CRAWLER_FRONTIER_URL": server.url, "CRAWLER_REDIS_MAX_BYTES": most}
    settings |= {"CRAWLER_MIN_DELAY_S": 0, "CRAWLER_DELAY_FACTOR": 0}
    settings |= {"CRAWLER_TOTAL_TIMEOUT_S": 100, "CRAWLER_LEASE_S": 600}  # the page waits for us
    command = crawl_command(folder / "data", settings, seeds=web.url(HOSTS[0]), scope="any")
    return command, folder.parent / "log"


def fill(client: redis.Redis, web: LoopbackWeb, log: Path) -> None:
    """While the page is under way; until its worker has noticed."""
    wait_until(lambda: web.requests[HOSTS[0], "/"] == 1, BOUND_S)
    client.set("ballast", BALLAST)
    wait_until(lambda: "above its high-water mark" in log.read_text(), BOUND_S, log=log.read_text)


def test_a_disk_that_is_full_while_redis_is_full_is_waited_for(
    tmp_path: Path, server: RedisServer
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    if not can_mount(folder):
        pytest.skip("only root may have a small disk; test_full_redis.py does without")
    client, disk = server.client(), SmallDisk(folder, 700 << 10)
    page = OnePageOfManyLinks()
    try:
        with LoopbackWeb(page, HOSTS) as web:
            command, log = stuffed(folder, server, web)
            with running(command, log) as process:
                fill(client, web, log)
                page.may_answer.set()
                wait_until(
                    lambda: "no room for links on this worker's disk" in log.read_text(),
                    BOUND_S,
                    log=log.read_text,
                )
                time.sleep(2.5)  # it must not be logged each second
                assert process.poll() is None
                disk.make_room()
                client.delete("ballast")
                assert process.wait(BOUND_S) == 0, log.read_text()[-3000:]
        assert len(web.visits) == 20 + 1 + 400
        assert log.read_text().count("no room for links") == 1
    finally:
        disk.close()


LARGE_PAGES: Final = 25


def large_page(ask: Ask) -> Reply:
    """Of 100 kB that cannot be compressed; the first leads to all others."""
    if ask.path == "/robots.txt":
        return Reply(status=404)
    links = "".join(f"<a href=/{n}>{n}</a>" for n in range(1, LARGE_PAGES) if ask.path == "/")
    text = random.Random(f"{ask.host}{ask.path}").randbytes(100_000).hex()
    return Reply(f"<title>{ask.path}</title>{links}<p>{text}".encode())


def test_a_worker_whose_disk_has_no_room_for_pages_pauses(
    tmp_path: Path, server: RedisServer
) -> None:
    folder, log = tmp_path / "disk", tmp_path / "log"
    folder.mkdir()
    if not can_mount(folder):
        pytest.skip("only root may have a small disk")
    disk = SmallDisk(folder, 2 << 20)
    settings = {**SETTINGS, "CRAWLER_FRONTIER_URL": server.url}
    settings |= {"CRAWLER_MIN_DELAY_S": 0, "CRAWLER_DELAY_FACTOR": 0}
    try:
        with LoopbackWeb(large_page, HOSTS) as web:
            seeds = tmp_path / "seeds.txt"
            seeds.write_text("\n".join(map(web.url, HOSTS[:2])))
            command = crawl_command(folder / "data", settings, seeds=seeds)
            with running(command, log) as process:
                message = "no room on this worker's disk"
                wait_until(
                    lambda: message in log.read_text() or process.poll() is not None,
                    BOUND_S,
                    log=log.read_text,
                )
                time.sleep(2.5)  # it must not be logged each second
                asked = len(web.visits)
                time.sleep(1.0)
                assert process.poll() is None
                assert len(web.visits) == asked, "nothing is fetched that finds no room"
                disk.make_room()
                assert process.wait(BOUND_S) == 0, log.read_text()[-3000:]
        pages = [(visit.host, visit.path) for visit in web.visits if visit.path != "/robots.txt"]
        assert len(pages) == len(set(pages)) == 2 * LARGE_PAGES, "each once"
        assert log.read_text().count("no room on this worker's disk") == 1
        outcomes = list(read_outcomes(folder / "data" / "outcomes.jsonl"))
        assert len(outcomes) == len(pages), "the log of outcomes has all of them"
    finally:
        disk.close()


def test_a_disk_that_is_broken_while_redis_is_full_ends_the_crawl(
    tmp_path: Path, server: RedisServer
) -> None:
    """No file may be longer: to the store that is no want of room, but an error for good."""
    folder = tmp_path / "disk"
    folder.mkdir()
    client, page = server.client(), OnePageOfManyLinks()
    with LoopbackWeb(page, HOSTS) as web:
        command, log = stuffed(folder, server, web)
        with running(command, log) as process:
            fill(client, web, log)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (300 << 10, INFINITY))
            page.may_answer.set()
            assert process.wait(BOUND_S) == 1
        assert "File too large" in log.read_text().splitlines()[-1]
        client.delete("ballast")
        last = run(command, timeout_s=BOUND_S)
        assert last.returncode == 0, last.stderr[-3000:]
    pages = {(visit.host, visit.path) for visit in web.visits}
    assert len(pages) == 20 + 1 + 400, "the page is fetched again for its links"
