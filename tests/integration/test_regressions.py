"""Faults that were found, each by the run that showed it."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from scrapy import Request, Spider, signals
from scrapy.http import Response
from twisted.python.failure import Failure

from crawler.console.views import OutcomesAsked, is_asked
from crawler.data.outcomes import OutcomeLog, read_outcomes
from crawler.download.resolver import Resolver
from crawler.model.types import Outcome, never_waits
from crawler.policy.silent_hosts import NEVER_ANSWERED
from crawler.report.summary import Summary
from crawler.spiders.web import WebSpider
from crawler.view.local import LocalView
from crawler.view.rows import dead_letter_rows
from tests.harness.crawling import crawl
from tests.servers.loopback import Ask, LoopbackWeb, Reply, page, site
from tests.servers.redis import RedisServer

TORN = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nUser-agent: *\nDisallow: /a\n"
CODED = (
    b"HTTP/1.1 200 OK\r\nContent-Encoding: x-unknown\r\nContent-Length: 8\r\n"
    b"Connection: close\r\n\r\nnot text"
)


@contextmanager
def torn_robots(address: str, answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives *answer* to all, and hangs up."""
    asked: list[bytes] = []
    listener = socket.create_server((address, 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                asked.append(peer.recv(4096).split(b" ", 2)[1])
                peer.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://{address}:{listener.getsockname()[1]}", asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.parametrize("answer", [TORN, CODED], ids=["cut off", "in an unknown coding"])
def test_a_robots_txt_that_did_not_come_whole_allows_nothing(tmp_path: Path, answer: bytes):
    with torn_robots("127.0.5.11", answer) as (root, asked):
        done = crawl(tmp_path / "data", settings={"CRAWLER_ROBOTS_TRIES": 2}, seeds=f"{root}/b")
    assert set(asked) == {b"/robots.txt"}
    assert done.fates() == {"/b": ["dead"]}


class Counted(WebSpider):
    """Counts how often the engine asks in vain."""

    name = "counted"
    vain = 0

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.asked_in_vain, signals.scheduler_empty)
        return spider

    def asked_in_vain(self):
        self.vain += 1


def test_the_engine_is_idle_while_the_last_page_is_fetched(tmp_path: Path):
    routes = {"/": Reply("late", wait_s=1.5)}
    with site("127.0.5.12", routes) as slow, site("127.0.5.13", routes) as other:
        seeds = f"{slow.url('/')},{other.url('/')}"
        done = crawl(tmp_path / "data", Counted, seeds=seeds, max_pages="1")
    assert done.reason == "max_pages"
    assert done.spider.vain < 200


@pytest.mark.parametrize("end", [b"\n", b'\n{"url": "http'], ids=["whole lines", "a torn line"])
def test_the_outcome_log_goes_on_without_an_empty_line(tmp_path: Path, end: bytes):
    file = tmp_path / "outcomes.jsonl"
    file.write_bytes(b'{"at": 1}' + end)
    log = OutcomeLog(file, never_waits)
    log.append(Outcome(at=2.0, url="http://a/", host="a", fate="done"))
    log.close()
    lines = file.read_bytes().splitlines()
    assert b"" not in lines
    assert [outcome.at for outcome in read_outcomes(file)][-1] == 2.0


BRIEF = {
    "CRAWLER_MIN_DELAY_S": 0.001,
    "CRAWLER_BACKOFF_BASE_S": 0.001,
    "CRAWLER_BACKOFF_MAX_S": 0.001,
    "CRAWLER_PAUSE_S": 0.01,
    "CRAWLER_PAUSE_MAX_S": 0.01,
}
DOWN = (503, 500, 507, 0, 521, 502, 599, 0, 504, 530)  # 0: closed without an answer


def test_a_host_that_is_down_for_its_first_requests_loses_no_page(tmp_path: Path):
    """The first 20 requests of the whole host fail, so its URLs keep their retries."""
    asked: list[str] = []

    def answer(ask: Ask) -> Reply:
        asked.append(ask.path)
        if len(asked) <= 20:
            status = DOWN[len(asked) % len(DOWN)]
            return Reply("down", status) if status else Reply(close=True)
        return Reply(status=404) if ask.path == "/robots.txt" else page("/a", "/b")

    with LoopbackWeb(answer, ["127.0.5.12"]) as web:
        done = crawl(tmp_path / "data", settings=BRIEF, seeds=web.url("127.0.5.12"))
    assert {path: fates[-1] for path, fates in done.fates().items()} == dict.fromkeys(
        ("/", "/a", "/b"), "done"
    )


@pytest.mark.parametrize("status", [0, 408], ids=["without a word", "with its time-out"])
def test_a_request_on_a_connection_that_was_closed_is_a_fetch_of_the_host(
    tmp_path: Path, status: int
):
    """The server says that it keeps connections, and closes each at its second request."""
    rest_s, paths = 0.2, [f"/{number}" for number in range(6)]

    def answer(ask: Ask) -> Reply:
        if ask.use > 1:
            return Reply("idle", status) if status else Reply(close=True)
        return Reply(status=404) if ask.path == "/robots.txt" else page(*paths)

    with LoopbackWeb(answer, ["127.0.5.16"]) as web:
        brief = {"CRAWLER_MIN_DELAY_S": rest_s}
        done = crawl(tmp_path / "data", settings=brief, seeds=web.url("127.0.5.16"))
    asked_at = sorted(visit.arrival_s for visit in web.visits)
    assert min(b - a for a, b in pairwise(asked_at)) > 0.9 * rest_s
    assert sum(visit.status == status for visit in web.visits) == 1, "then each has a new one"
    fates = {path: tries[-1] for path, tries in done.fates().items()}
    assert fates == dict.fromkeys(["/", *paths], "done")
    assert {outcome.attempts for outcome in done.outcomes} == {0}, "it costs no retry"


NO_FILES = "Too many open files"


class Hoarder(WebSpider):
    """A spider whose code takes all files that may be opened, and gives them back a while after it
    was logged that there are none."""

    taken: list[int]
    short_s = 0.5
    is_logged: Callable[[], bool]

    def parse(self, response: Response) -> Any:
        if response.url.endswith("/0"):
            self.taken = []
            with suppress(OSError):
                while True:
                    self.taken.append(os.open(os.devnull, os.O_RDONLY))
            self.giving_back = asyncio.create_task(self.give_back())
        return super().parse(response)

    async def give_back(self) -> None:
        while not type(self).is_logged():
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.short_s)
        while self.taken:
            os.close(self.taken.pop())


def test_too_many_open_files_end_no_crawl(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    class Short(Hoarder):
        is_logged = staticmethod(lambda: NO_FILES in caplog.text)

    paths = [f"/{number}" for number in range(8)]
    noise = Reply(os.urandom(1 << 20), content_type="x/y")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 400, hard))
    try:
        # Each page needs a new file of the archive.
        settings = {"CRAWLER_WARC_MAX_BYTES": 1 << 20, "CRAWLER_MAX_WAITING": 1}
        with site("127.0.5.17", {"/a": page(*paths), **dict.fromkeys(paths, noise)}) as web:
            done = crawl(tmp_path / "data", Short, settings, seeds=web.url("/a"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert done.reason == "finished"
    fates = {path: tries[-1] for path, tries in done.fates().items()}
    assert fates == dict.fromkeys(["/a", *paths], "done")
    assert NO_FILES in caplog.text, "it was short of files"
    # The server of the test is in this process, and may be short of files too.
    ours = [record for record in caplog.records if record.thread == threading.get_ident()]
    assert not [record for record in ours if record.exc_info]


def test_a_host_that_is_down_for_ever_ends_as_dead_letters(tmp_path: Path):
    def answer(ask: Ask) -> Reply:
        return Reply(status=404 if ask.path == "/robots.txt" else 503)

    with LoopbackWeb(answer, ["127.0.5.13"]) as web:
        seeds = "\n".join(web.url("127.0.5.13", path) for path in ("/a", "/b"))
        done = crawl(tmp_path / "data", settings=BRIEF, seeds=seeds)
    assert {fates[-1] for fates in done.fates().values()} == {"dead"}
    tries = sum(visit.path != "/robots.txt" for visit in web.visits)
    assert 8 < tries < 14, "in pauses it costs its URLs no retry"
    failures = {outcome.failure for outcome in done.outcomes}
    assert failures == {"status_503", "robots_unreachable"}
    for failure in failures:
        asked = OutcomesAsked(failure=failure)
        assert any(is_asked(outcome, asked) for outcome in done.outcomes), "the console finds it"
    counted = {key for key in done.stats if key.startswith("crawler/error/")}
    assert counted == {f"crawler/error/{failure}" for failure in failures}


LONG_PAUSES = {"CRAWLER_PAUSE_S": 3600, "CRAWLER_PAUSE_MAX_S": 3600}
PUBLIC = {**LONG_PAUSES, "CRAWLER_CONTACT": "ops@w3.org"}


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent hosts are given up after a second."""
    monkeypatch.setattr("crawler.policy.silent_hosts.SILENCE_S", 1.0)
    monkeypatch.setattr("crawler.scheduler.silence.LOOK_S", 0.05)


def probes(monkeypatch: pytest.MonkeyPatch, *results: bool) -> list[bool]:
    """Let the name servers answer so, the last for ever; the probes that were made."""
    made: list[bool] = []

    async def reaches_name_servers(_: object) -> bool:
        made.append(results[min(len(made), len(results) - 1)])
        return made[-1]

    monkeypatch.setattr(Resolver, "reaches_name_servers", reaches_name_servers)
    monkeypatch.setattr("crawler.scheduler.silence.UPLINK_PROBE_S", 0.1)
    return made


class Watching(Spider):
    """Notes what its errback is called with."""

    name = "watching"
    url = ""

    def __init__(self, **given: str) -> None:
        super().__init__(**given)
        self.failures: list[Exception] = []

    async def start(self) -> AsyncIterator[Request]:
        for path in ("/a", "/b"):
            yield Request(self.url + path, errback=self.failed)

    def failed(self, failure: Failure) -> None:
        self.failures.append(failure.value)


def test_a_crawl_does_not_wait_for_hosts_that_have_never_answered(
    tmp_path: Path, short_silence: None, caplog: pytest.LogCaptureFixture
):
    """The pauses of the dead host would last for days."""
    with site("127.0.5.14", {"/": page("http://127.0.5.15:9/found")}) as web:
        seeds = f"{web.url('/')}\nhttp://127.0.5.15:9/seed"
        done = crawl(tmp_path / "data", settings=LONG_PAUSES, seeds=seeds)
    assert done.reason == "finished"
    last = {outcome.url: outcome for outcome in done.outcomes}
    assert last.pop(web.url("/")).fate == "done"
    assert {(one.fate, one.failure, one.reason) for one in last.values()} == {
        ("dead", "connect", "its host has never answered: connect")
    }
    assert len(last) == 2
    assert "our own connection" not in caplog.text, "something has answered"


def test_hosts_are_given_up_while_one_of_them_is_tried_again(tmp_path: Path, short_silence: None):
    """It answers nothing for as long as the other one, which refuses all, is not given up."""
    outcomes, dead_while_tried = tmp_path / "data" / "outcomes.jsonl", threading.Event()

    def serve(listener: socket.socket) -> None:
        listener.accept()[0].close()
        tried, _ = listener.accept()
        tried.settimeout(0.05)
        with tried:
            while not outcomes.exists() or "dead" not in outcomes.read_text():
                with suppress(TimeoutError):
                    if not tried.recv(4096):
                        return
            dead_while_tried.set()

    with socket.create_server(("127.0.5.21", 0)) as listener:
        threading.Thread(target=serve, args=[listener], daemon=True).start()
        seeds = f"http://127.0.5.21:{listener.getsockname()[1]}/,http://127.0.5.22:9/"
        done = crawl(tmp_path / "data", settings=LONG_PAUSES, seeds=seeds)
    assert dead_while_tried.is_set()
    assert all(one.reason.startswith(NEVER_ANSWERED) for one in done.outcomes)


def test_an_errback_is_called_for_a_host_that_is_given_up(tmp_path: Path, short_silence: None):
    url = "http://127.0.5.16:9"
    done = crawl(tmp_path / "data", Watching, LONG_PAUSES, url=url)
    assert [type(failure).__name__ for failure in done.spider.failures] == ["ConnectionFailed"] * 2


@pytest.mark.parametrize("after", [[True], [False, False, True]], ids=["up", "up again"])
def test_our_own_connection_is_probed_before_all_hosts_are_given_up(
    tmp_path: Path,
    short_silence: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    after: list[bool],
):
    made = probes(monkeypatch, *after)
    done = crawl(tmp_path / "data", settings=PUBLIC, seeds="http://dead.invalid/")
    assert made[: len(after)] == after
    assert "our own connection is probed" in caplog.text
    assert ("is up again" in caplog.text) is (len(after) > 1)
    assert (done.reason, done.outcomes[-1].failure) == ("finished", "dns")


def test_no_url_is_lost_while_our_own_connection_is_down(
    tmp_path: Path, short_silence: None, monkeypatch: pytest.MonkeyPatch
):
    probes(monkeypatch, False)
    monkeypatch.setattr("crawler.scheduler.silence.UPLINK_WAIT_S", 0.5)
    data = tmp_path / "data"
    assert crawl(data, settings=PUBLIC, seeds="http://dead.invalid/").reason == "no_uplink"
    frontier = msgspec.json.decode((data / "summary.json").read_bytes(), type=Summary).frontier
    assert (frontier.waiting, frontier.dead) == (1, 0)


def test_the_tries_of_a_dead_letter_are_counted(tmp_path: Path):
    routes = {
        "/": page("/loop", "/down"),
        "/loop": Reply(status=302, headers=(("Location", "/loop"),)),
        "/down": Reply(status=503),
    }
    with site("127.0.5.17", routes) as web:
        crawl(tmp_path / "data", settings={"CRAWLER_RETRIES": 1}, seeds=web.url("/"))
    with LocalView(tmp_path / "data") as view:
        rows = {row.url: row for row in dead_letter_rows(view.dead(9))}
    assert {row.url.rpartition("/")[2]: row.attempts for row in rows.values()} == {
        "loop": 1,
        "down": 2,
    }


WALLS = {
    "/itself": ["/itself"],
    "/check": ["/check?c=1", "/check"],  # the first sets the cookie, the second misses it
}


def wall(ask: Ask) -> Reply:
    """Lead in a circle whoever does not send the cookie back."""
    path, _, asked = ask.path.partition("?")
    if path not in WALLS:
        return Reply(status=404) if path == "/robots.txt" else page("/itself", "/check", "/plain")
    if ("Cookie", "a=b") in ask.headers:
        return page(text="behind the wall")
    cookie = () if asked else (("Set-Cookie", "a=b"),)
    to = WALLS[path][0 if not asked else -1]
    return Reply(status=302, headers=(("Location", to), *cookie))


class Followed(Watching):
    """Follows a cookie wall."""

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.url + "/check", errback=self.failed)


@pytest.mark.parametrize("keeps", [False, True], ids=["kept out", "let in"])
def test_a_cookie_wall_says_that_it_sets_a_cookie(tmp_path: Path, keeps: bool):
    with LoopbackWeb(wall, ["127.0.5.18"]) as web:
        settings = {"COOKIES_ENABLED": keeps}
        done = crawl(tmp_path / "web", settings=settings, seeds=web.url("127.0.5.18"))
        own = crawl(tmp_path / "own", Followed, settings, url=web.url("127.0.5.18", ""))
    dead = {
        each.url.rpartition("/")[2]: each.reason for each in done.outcomes if each.fate == "dead"
    }
    said = [str(failure) for failure in own.spider.failures]
    if keeps:
        assert (dead, said) == ({}, [])
        return
    assert len(dead) == 2
    assert all("a redirect loop: it sets a cookie" in reason for reason in dead.values())
    assert "it sets a cookie, and none is sent back" in said[0]


def test_a_shared_crawl_does_not_wait_for_hosts_that_have_never_answered(
    tmp_path: Path, short_silence: None
):
    with RedisServer(tmp_path / "redis") as server, site("127.0.5.19", {"/": page()}) as web:
        settings = {**LONG_PAUSES, "CRAWLER_FRONTIER_URL": server.url, "CRAWLER_FRONTIER_SHARDS": 4}
        seeds = "\n".join([web.url("/"), *(f"http://127.0.5.20:9/{at}" for at in range(3))])
        done = crawl(tmp_path / "data", settings=settings, seeds=seeds)
    assert done.reason == "finished"
    assert sorted(each.failure for each in done.outcomes if each.fate == "dead") == ["connect"] * 3
