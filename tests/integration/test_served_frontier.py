"""A server of our frontiers that is killed between any two calls. The judge knows what was
acknowledged, and checks each URL that is served."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from argparse import ArgumentParser
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from urllib.request import urlopen

import grpc
import pytest
from scrapy.settings import Settings

from crawler.cli import frontier
from crawler.commands.frontier import FrontierCommand
from crawler.frontier.rocks_store import RocksStore
from crawler.urlfrontier import urlfrontier_pb2 as pb
from crawler.urlfrontier import urlfrontier_pb2_grpc as rpc
from crawler.urlfrontier.client import discovered, known, url_info

LIVES = int(os.environ.get("SERVED_LIVES", "1"))  # `make kills`
STEPS = 50
BEGIN = 1_800_000_000


@dataclass
class JudgedQueue:
    """What may be served of one queue."""

    delay: int | None = None
    blocked_until: int = 0
    limit: int = 0
    ended_at: float = 0.0  # its last lease; 0: none was
    urls: dict[str, int] = field(default_factory=dict)  # dates; 0: completed
    leased: dict[str, float] = field(default_factory=dict)  # ends of leases

    def in_process(self, now):
        return {url for url, end in self.leased.items() if end > now}

    def may_be_served(self, now, default_delay):
        delay = default_delay if self.delay is None else self.delay
        rest_until = self.ended_at + delay if self.ended_at else 0
        done = sum(date == 0 for date in self.urls.values())
        is_held = 0 < self.limit <= done
        return now >= max(rest_until, self.blocked_until) and not is_held


class ServedLife:
    """Random calls of a server with kills between them."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.random = folder, Random(seed)
        self.now = BEGIN
        self.clock = folder / "clock"
        self.default_delay = 1
        self.queues: dict[str, JudgedQueue] = defaultdict(JudgedQueue)
        self.process = None
        self.start()

    def start(self):
        self.set_clock(self.now)
        command = (sys.executable, "-m", "tests.harness.served_process")
        self.process = subprocess.Popen(
            [*command, str(self.folder / "data"), str(self.clock)], stdout=subprocess.PIPE
        )
        port = int(self.process.stdout.readline())
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = rpc.URLFrontierStub(self.channel)

    def kill(self):
        self.channel.close()
        self.process.kill()
        self.process.communicate()

    def set_clock(self, now):
        self.now = now
        written = self.clock.with_suffix(".new")
        written.write_text(str(now))
        written.replace(self.clock)

    def step(self):
        random = self.random
        self.set_clock(self.now + random.choice([0, 0, 1, 2, 7, 40]))
        calls = ["discover", "batch", "update", "update", "get", "get", "get", "steer", "restart"]
        getattr(self, random.choice(calls))()

    def url(self):
        number = self.random.randrange(24)
        return f"q{number % 4}", f"http://q{number % 4}/{number}"

    def discover(self):
        self.note_discovered([self.url() for _ in range(3)], self.put_one_by_one)

    def batch(self):
        self.note_discovered([self.url() for _ in range(5)], self.put_as_batch)

    def put_one_by_one(self, infos):
        return [ack.status for ack in self.stub.PutURLs(map(discovered, infos), timeout=20)]

    def put_as_batch(self, infos):
        batches = iter([pb.DiscoveredBatch(ID="b", items=infos)])
        return [
            status
            for ack in self.stub.PutDiscovered(batches, timeout=20)
            for status in ack.statuses
        ]

    def note_discovered(self, found, put):
        statuses = put([url_info(url, key=key) for key, url in found])
        for (key, url), status in zip(found, statuses, strict=True):
            urls = self.queues[key].urls
            assert status == (1 if url in urls else 0), url
            urls.setdefault(url, self.now)

    def update(self):
        key, url = self.url()
        queue = self.queues[key]
        date = self.random.choice([0, 0, self.now, self.now - 100, self.now + 5, self.now + 300])
        (ack,) = self.stub.PutURLs(iter([known(url_info(url, key=key), date)]), timeout=20)
        assert ack.status == 0
        queue.urls[url] = date
        if queue.leased.pop(url, 0) > self.now and not queue.in_process(self.now):
            queue.ended_at = self.now

    def get(self):
        key = self.random.choice(["", "", "q1", "q2"])
        per_queue, lease_s = self.random.choice([1, 2, 5]), self.random.choice([5, 30])
        request = pb.GetParams(
            key=key, max_urls_per_queue=per_queue, delay_requestable=lease_s, crawlID="DEFAULT"
        )
        served = defaultdict(list)
        for info in self.stub.GetURLs(request, timeout=20):
            served[info.key].append(info.url)
        for queue_key, urls in served.items():
            assert key in ("", queue_key)
            self.judge(queue_key, urls, per_queue, lease_s)
        if not key:
            self.nothing_is_left(set(served))

    def judge(self, key, urls, per_queue, lease_s):
        queue = self.queues[key]
        assert queue.may_be_served(self.now, self.default_delay), f"{key} is served too early"
        assert not queue.in_process(self.now), f"{key} is served under another lease"
        assert len(urls) == len(set(urls)) <= per_queue
        for url in urls:
            assert 0 < queue.urls[url] <= self.now, f"{url} is not due"
            queue.leased[url] = self.now + lease_s
        queue.ended_at = self.now + lease_s

    def nothing_is_left(self, served):
        for key, queue in self.queues.items():
            if (
                key in served
                or not queue.may_be_served(self.now, self.default_delay)
                or queue.in_process(self.now)
            ):
                continue
            due = [url for url, date in queue.urls.items() if 0 < date <= self.now]
            assert not due, f"{key} is due, and was not served"

    def steer(self):
        key = f"q{self.random.randrange(4)}"
        queue = self.queues[key]
        match self.random.randrange(4):
            case 0:
                until = self.random.choice([0, self.now + 20, self.now + 200])
                self.stub.BlockQueueUntil(pb.BlockQueueParams(key=key, time=until))
                queue.blocked_until = until
            case 1:
                queue.delay = self.random.choice([0, 3, 60])
                self.stub.SetDelay(pb.QueueDelayParams(key=key, delay_requestable=queue.delay))
            case 2 if queue.urls:
                queue.limit = self.random.choice([0, 2, 4])
                self.stub.SetCrawlLimit(pb.CrawlLimitParams(key=key, limit=queue.limit))
            case 3:
                self.default_delay = self.random.choice([1, 9])
                self.stub.SetDelay(pb.QueueDelayParams(delay_requestable=self.default_delay))

    def restart(self):
        self.kill()
        self.start()
        self.is_as_acknowledged()

    def is_as_acknowledged(self):
        listed = {
            item.known.info.url: item.known.refetchable_from_date
            for item in self.stub.ListURLs(pb.ListUrlParams(size=1000), timeout=20)
        }
        assert listed == {
            url: date for queue in self.queues.values() for url, date in queue.urls.items()
        }
        for key, queue in self.queues.items():
            stats = self.stub.GetStats(pb.QueueWithinCrawlParams(key=key))
            done = sum(date == 0 for date in queue.urls.values())
            assert stats.inProcess == len(queue.in_process(self.now))
            assert (stats.size, stats.counts["completed"]) == (len(queue.urls) - done, done)


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_server_that_is_killed_between_any_two_calls(seed, tmp_path):
    life = ServedLife(tmp_path, seed)
    try:
        life.discover()
        for _ in range(STEPS):
            life.step()
        life.restart()
    finally:
        life.kill()


def test_a_purged_url_is_in_no_record_and_is_new_again(tmp_path):
    life = ServedLife(tmp_path, 0)
    marked = ["http://q1/marker-1", "http://q1/marker-2", "http://q2/marker-3"]
    try:
        life.put_one_by_one([url_info(url) for url in [*marked, "http://q1/kept"]])
        list(life.stub.PutURLs(iter([known(url_info(marked[1])), known(url_info(marked[2]))])))
        life.get()
    finally:
        life.kill()
    words = ("-m", "scrapy", "frontier", "purge", *marked)
    place = ("-s", f"CRAWLER_DATA_DIR={tmp_path / 'data'}")
    done = subprocess.run(
        [sys.executable, *words, *place], capture_output=True, text=True, check=True
    )
    assert done.stdout == "purged 3 URLs\n"
    (store,) = (tmp_path / "data").glob("served/*/frontier")
    with closing(RocksStore(store, read_only=True)) as opened:
        records = opened.scan(b"", b"\xff", 10_000)
    assert not [key for key, value in records if b"marker" in key + value]
    life.start()
    try:
        assert life.put_one_by_one([url_info(url) for url in marked]) == [0, 0, 0]
    finally:
        life.kill()


def test_the_command_serves_until_it_is_stopped(tmp_path):
    place = ("-s", f"CRAWLER_DATA_DIR={tmp_path / 'served'}")
    serve = (sys.executable, "-m", "scrapy", "frontier", "serve")
    for _ in range(2):
        process = subprocess.Popen(
            [*serve, "127.0.0.1:0", "--metrics", "127.0.0.1:0", *place],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        address = process.stdout.readline().rpartition("//")[2].strip()
        metrics = re.search(r"http://\S+", process.stderr.readline()).group()
        with grpc.insecure_channel(address) as channel:
            stub = rpc.URLFrontierStub(channel)
            (ack,) = stub.PutURLs(iter([known(url_info("http://q1/1"), 9)]), timeout=20)
            assert ack.status == 0
            assert stub.CountURLs(pb.CountUrlParams(), timeout=20).value == 1, "it is kept"
        with urlopen(f"{metrics}metrics", timeout=20) as answer:  # noqa: S310  # http, ours
            assert b"frontier_putURLs_total 1.0" in answer.read()
        process.terminate()
        process.communicate(timeout=20)
        assert process.returncode == 0
    crawl = [sys.executable, "-m", "scrapy", "crawl", "web", "-a", "seeds=http://127.0.0.1:9/"]
    refused = subprocess.run([*crawl, *place], capture_output=True, text=True, check=False)
    assert "holds what is served to other crawlers" in refused.stderr


@pytest.fixture
def busy_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("localhost",), "serve takes HOST:PORT"),
        (("127.0.0.1:99999",), "serve takes HOST:PORT"),
        (("0.0.0.0:7071",), "which others can reach"),
        (("127.0.0.1:0", "--certificate", "nowhere.pem"), "nowhere.pem"),
        (("127.0.0.1:0", "--metrics", "0.0.0.0:7072"), "which others can reach"),
        (("127.0.0.1:0", "--key", "key.pem"), "key.pem is a key without its certificate"),
        (("127.0.0.1:BUSY",), "cannot be listened on"),
        (("no-such-host.invalid:0",), "which others can reach"),
    ],
)
def test_what_cannot_be_served_is_said(words, error, tmp_path, capsys, busy_port, monkeypatch):
    # That is of the process: its handler would be there in all later tests.
    monkeypatch.setattr("crawler.cli.serve.configure_logging", lambda _: None)
    words = [word.replace("BUSY", str(busy_port)) for word in words]
    settings = Settings()
    settings.setmodule("crawler.settings", priority="project")
    settings.set("CRAWLER_DATA_DIR", str(tmp_path / "data"))
    command, parser = FrontierCommand(), ArgumentParser()
    command.settings = settings
    command.add_options(parser)
    given, opts = ["serve", words[0]], parser.parse_args(words[1:])
    assert frontier.run(given, opts, settings) == 1
    assert error in capsys.readouterr().err
