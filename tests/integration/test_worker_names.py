"""Names and data directories of workers: a second worker with the same one is refused, and a worker
that was killed during its start restarts under its name.

Rule: a worker counts as running by its entry in the hash of workers; it need not run for that.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
import redis

from crawler.engine.web_bot_auth import SigningKey
from crawler.shared import keys
from crawler.shared.codec import WorkerRecord
from crawler.shared.worker.worker_file import read_worker, write_worker
from tests.harness.commands import crawl_command
from tests.harness.fork_server import run
from tests.servers.loopback import Ask, LoopbackWeb, Reply, page, site
from tests.servers.redis import RedisServer

NAME: Final = "gossamer"
HOST: Final = "127.0.2.1"
WORKERS: Final = keys.workers(NAME)
BOUND_S: Final = 180.0  # of what takes seconds on a quiet machine


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as running:
        yield running


def announce(
    client: redis.Redis,
    name: str,
    session: str,
    silent_s: float = 0.0,
    signs_as: str | None = "",
) -> None:
    now, micros = client.time()
    record = WorkerRecord(
        name=name,
        session=session,
        state="working",
        host="elsewhere.example",
        pid=7,
        at=now + micros / 1e6 - silent_s,
        signs_as=signs_as,
    )
    client.hset(WORKERS, name, msgspec.json.encode(record))


def one_page(ask: Ask) -> Reply:
    return Reply(status=404) if ask.path == "/robots.txt" else Reply(b"<title>one</title>")


def crawl(folder: Path, server: RedisServer, **settings: object) -> tuple[int, str]:
    """Crawl one page and return the exit status and the output."""
    given = {
        "CRAWLER_FRONTIER_URL": server.url,
        "CRAWLER_FRONTIER_SHARDS": 2,
        **settings,
    }
    seeds = folder / "seeds.txt"
    with LoopbackWeb(one_page, [HOST]) as web:
        seeds.write_text(web.url(HOST))
        done = run(crawl_command(folder / "data", given, seeds=seeds), timeout_s=BOUND_S)
    return done.returncode, done.stderr


def test_the_name_of_a_running_worker_is_refused(tmp_path: Path, server: RedisServer) -> None:
    with alive(server, "same", "same.1"):
        status, output = crawl(tmp_path, server, CRAWLER_WORKER_NAME="same")
    assert status != 0
    assert "a worker named same takes part in this crawl already" in output.splitlines()[-1]
    assert sessions(server.client()) == {"same": "same.1"}
    assert not (tmp_path / "data" / "worker.json").exists()
    announce(server.client(), "same", "same.1", silent_s=11.0)
    assert crawl(tmp_path, server, CRAWLER_WORKER_NAME="same")[0] == 0


def sessions(client: redis.Redis) -> dict[str, str]:
    """Return the records of all workers there ever were, by their names."""
    records = [msgspec.json.decode(each, type=WorkerRecord) for each in client.hvals(WORKERS)]
    return {each.name: each.session for each in records}


@contextmanager
def alive(
    server: RedisServer, name: str, session: str, signs_as: str | None = ""
) -> Iterator[None]:
    """Write the heartbeat of a worker again and again."""
    over = threading.Event()

    def speak() -> None:
        while not over.wait(0.3):
            announce(server.client(), name, session, signs_as=signs_as)

    announce(server.client(), name, session, signs_as=signs_as)
    thread = threading.Thread(target=speak)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def life(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "data" / "worker.json").read_bytes())
    return found


def test_a_copy_of_a_data_directory_ends_no_other_session(
    tmp_path: Path, server: RedisServer
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    assert crawl(one, server)[0] == 0
    shutil.copytree(one, two)
    first = life(one)
    with alive(server, first["name"], first["session"]):
        status, output = crawl(two, server)
        assert status == 0, output[-2000:]
        assert "is a copy of the data directory of the worker" in output
        assert life(two)["name"] != first["name"]
        # Where the directory does not tell, as of a cloned disk, its voice does.
        status, output = crawl(one, server)
        assert status == 1
        assert "takes part in this crawl already" in output.splitlines()[-1]


def test_a_data_directory_that_was_moved_keeps_its_name(
    tmp_path: Path, server: RedisServer
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    assert crawl(one, server)[0] == 0
    first = life(one)
    shutil.copytree(one, two)
    shutil.rmtree(one)
    assert crawl(two, server)[0] == 0
    second = life(two)
    assert second["name"] == first["name"] and second["session"] != first["session"]


def test_a_data_directory_of_another_crawl_is_refused(tmp_path: Path, server: RedisServer) -> None:
    assert crawl(tmp_path, server)[0] == 0
    before = life(tmp_path)
    server.client().flushall()
    status, output = crawl(tmp_path, server)
    assert status == 1
    assert "belongs to another crawl (gossamer)" in output.splitlines()[-1]
    status, output = crawl(tmp_path, server, CRAWLER_FRONTIER_NAME="other")
    assert status == 1
    assert "not to the one that is other in Redis" in output.splitlines()[-1]
    assert life(tmp_path) == before


@pytest.mark.parametrize(("appendonly", "times"), [("no", 1), ("yes", 0)])
def test_a_server_without_an_append_only_file_is_warned_of(
    tmp_path: Path, appendonly: str, times: int
) -> None:
    with RedisServer(tmp_path / "redis", appendonly=appendonly) as server:
        status, output = crawl(tmp_path, server)
    assert status == 0
    assert output.count("Redis keeps no append-only file") == times


SETTINGS = {"CRAWLER_FRONTIER_SHARDS": 2, "CRAWLER_WORKER_NAME": "same"}


def test_a_worker_killed_before_it_joined_is_not_taken_for_another(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RedisServer(tmp_path / "redis") as server, site("127.0.0.77", {"/": page()}) as web:
        settings = {**SETTINGS, "CRAWLER_FRONTIER_URL": server.url}
        command = crawl_command(data, settings, seeds=web.url("/"))
        assert run(command).returncode == 0
        first = read_worker(data)
        assert first is not None
        # The next start wrote its session; Redis has the one before, with a recent heartbeat.
        unheard = msgspec.structs.replace(first, session="same.unheard", before=first.session)
        write_worker(data, unheard)
        record = WorkerRecord(
            name="same", session=first.session, state="working", host="h", pid=7, at=time.time()
        )
        server.client().hset(keys.workers("gossamer"), "same", msgspec.json.encode(record))
        again = run(command)
        last = read_worker(data)
    assert again.returncode == 0, again.stderr[-2000:]
    assert last is not None and last.before == first.session


def test_all_workers_sign_alike(tmp_path: Path, server: RedisServer) -> None:
    key = SigningKey.new()
    (tmp_path / "key.pem").write_bytes(key.pem())
    (tmp_path / "key.pem").chmod(0o600)
    thumbprint, agent = key.public.thumbprint, "https://bot.example.org"
    ours = f"{thumbprint} {agent}"
    signing = {"CRAWLER_SIGNING_KEY": tmp_path / "key.pem", "CRAWLER_SIGNATURE_AGENT": agent}
    for theirs, settings, said in (
        ("", signing, f"signs none, and this one signs requests for {agent} by the key"),
        (ours, {}, f"for {agent} by the key {thumbprint}, and this one signs none"),
        (f"{thumbprint} https://other.example", signing, "for https://other.example by the key"),
        (f"other {agent}", signing, f"by the key other, and this one signs requests for {agent}"),
    ):
        with alive(server, "other", "other.1", theirs):
            status, output = crawl(tmp_path, server, **settings)
        assert status != 0
        last = output.splitlines()[-1]
        assert "the worker other (process 7 on elsewhere.example)" in last and said in last
        assert sessions(server.client()) == {"other": "other.1"}
        assert not (tmp_path / "data" / "worker.json").exists()
    for same in (ours, None):  # None: it sends no requests
        with alive(server, "other", "other.1", same):
            assert crawl(tmp_path, server, **signing)[0] == 0
