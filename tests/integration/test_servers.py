"""The webs that tests crawl, asked by a plain client: their logs are true, their files whole."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.servers import files
from tests.servers.judge import ROBOTS, Kind
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.loopback import Ask, LoopbackWeb, Reply

MIN_DELAY_S = 0.02


@pytest.fixture
def judge() -> Iterator[Judge]:
    with Judge(JudgedWeb(hosts=6, pages=12)) as serving:
        yield serving


def ask(web: LoopbackWeb, host: str, *paths: str, rest_s: float = 0.0) -> list[int]:
    """Ask one after the other on one connection; the statuses."""
    statuses = []
    with closing(HTTPConnection(host, web.port)) as connection:
        for path in paths:
            begun_s = time.monotonic()
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
            if rest_s:  # the judge asks for twice what the answer took, by its clock
                time.sleep(max(rest_s, 3 * (time.monotonic() - begun_s)))
    return statuses


def kinds(judge: Judge) -> set[Kind]:
    """However slowly an impolite client is served: it rests for less than a minute."""
    return {violation.kind for violation in judge.report(60.0, delay_factor=2.0).found}


def test_a_client_that_rests_is_not_accused(judge: Judge) -> None:
    host = judge.hosts[0]
    assert ask(judge, host, ROBOTS, "/", "/p/1.html", "/missing", rest_s=0.05) == [
        200,
        200,
        200,
        404,
    ]
    report = judge.report(MIN_DELAY_S, delay_factor=2.0)
    assert (report.found, report.visits, report.hosts) == ((), 4, 1)


@pytest.mark.parametrize(
    ("host", "paths", "expected"),
    [
        pytest.param(0, [ROBOTS, "/", "/p/1.html"], {Kind.GAP}, id="without a rest"),
        pytest.param(0, ["/"], {Kind.UNREAD}, id="without reading robots.txt"),
        pytest.param(0, [ROBOTS, "/private/"], {Kind.GAP, Kind.FORBIDDEN}, id="what is forbidden"),
        pytest.param(
            0,
            [ROBOTS, "/p/3.html", "/p/3.html"],
            {Kind.GAP, Kind.RETRY_AFTER},
            id="again at once after a 429",
        ),
        pytest.param(
            1,
            [ROBOTS, "/p/3.html", "/p/3.html"],
            {Kind.GAP, Kind.RETRY_AFTER},
            id="again at once after a 503 with a date",
        ),
    ],
)
def test_an_impolite_client_is_found_out(
    judge: Judge, host: int, paths: list[str], expected: set[Kind]
) -> None:
    ask(judge, judge.hosts[host], *paths)
    assert kinds(judge) == expected


def test_two_connections_at_once_are_an_overlap() -> None:
    with Judge(JudgedWeb(hosts=7)) as judge:
        host = judge.hosts[6]  # its page 5 is the slow one
        ask(judge, host, ROBOTS, rest_s=0.1)
        for _ in range(5):  # on a busy machine one may begin when the other has ended
            both = [threading.Thread(target=ask, args=(judge, host, "/p/5.html")) for _ in range(2)]
            for client in both:
                client.start()
            for client in both:
                client.join()
            if judge.report(MIN_DELAY_S).of(Kind.OVERLAP):
                break
        assert len(judge.report(MIN_DELAY_S).of(Kind.OVERLAP)) == 1


def test_every_page_of_a_judged_web_is_reached_by_its_links(judge: Judge) -> None:
    for seed in judge.seeds():
        files.walk(seed)  # finds the failing pages, too impatient to ask for them again
    again = judge.expected() - judge.answered()
    assert len(again) == 10, "two pages each of five hosts fail at first"
    for url in again:
        parts = urlsplit(url)
        assert ask(judge, parts.hostname or "", parts.path) == [200]
    assert judge.expected() <= judge.answered()


def test_the_request_log_times_an_answer_from_request_to_end() -> None:
    with LoopbackWeb(lambda _: Reply(b"x" * 300_000, wait_s=0.05), ["127.0.1.1"]) as web:
        started_s = time.monotonic()
        ask(web, "127.0.1.1", "/")
        elapsed_s = time.monotonic() - started_s
        web.settle()
        (visit,) = web.visits
        assert 0.05 <= visit.end_s - visit.arrival_s <= elapsed_s


async def in_chunks() -> AsyncIterator[bytes]:
    yield b"got "
    yield b"it"


@pytest.mark.parametrize("body", ["got it", b"got it", in_chunks], ids=["text", "bytes", "chunks"])
def test_a_request_is_read_whole_whatever_its_method(
    body: str | bytes | Callable[[], AsyncIterator[bytes]],
) -> None:
    sent = [("PUT", b"a\r\n\r\nb"), ("HEAD", b""), ("POST", b"c"), ("GET", b"")]
    asked: list[Ask] = []

    def web(request: Ask) -> Reply:
        asked.append(request)
        return Reply(body)

    with (
        LoopbackWeb(web, ["127.0.1.1"]) as served,
        closing(HTTPConnection("127.0.1.1", served.port)) as connection,
    ):
        for method, content in sent:
            connection.request(method, "/x?y", content, {"X-One": method})
            assert connection.getresponse().read() == (b"" if method == "HEAD" else b"got it")
    assert [(each.method, each.body) for each in asked] == sent
    assert [(each.turn, each.use) for each in asked] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert all(("X-One", each.method) in each.headers for each in asked)


def test_a_request_that_is_not_answered_is_logged_as_that() -> None:
    with LoopbackWeb(lambda _: Reply(close=True), ["127.0.1.1"]) as web:
        with pytest.raises(ConnectionError):
            ask(web, "127.0.1.1", "/x")
        web.settle()
    assert [(visit.status, visit.cut) for visit in web.visits] == [(0, False)]


def test_a_client_that_leaves_early_is_logged_as_cut() -> None:
    asked = threading.Event()

    def slow(request: Ask) -> Reply:
        asked.set()
        return Reply(wait_s=60.0)

    with LoopbackWeb(slow, ["127.0.1.1"]) as web:
        connection = HTTPConnection("127.0.1.1", web.port)
        connection.request("GET", "/slow")
        asked.wait()
        connection.close()
    assert [(visit.path, visit.cut) for visit in web.visits] == [("/slow", True)]


@pytest.mark.parametrize("wait_s", [0.01, 60.0], ids=["due", "not yet due"])
def test_a_client_that_left_while_the_server_was_busy_is_not_logged_as_present(
    wait_s: float,
) -> None:
    """So it is on a machine that is busy with other things."""
    asked, busy, over = threading.Event(), threading.Event(), threading.Event()

    def web(request: Ask) -> Reply:
        asked.set()
        if request.path == "/busy":
            busy.set()
            over.wait()
        return Reply(wait_s=wait_s)

    with LoopbackWeb(web, ["127.0.1.1"]) as served:
        leaving, other = (HTTPConnection("127.0.1.1", served.port) for _ in range(2))
        leaving.request("GET", "/left")
        asked.wait()
        other.request("GET", "/busy")
        busy.wait()
        leaving.close()
        left_s = time.monotonic()
        over.set()
    other.close()
    (visit,) = (visit for visit in served.visits if visit.path == "/left")
    assert visit.arrival_s <= visit.end_s < left_s


def test_a_fault_of_a_web_is_raised_where_it_is_used() -> None:
    def broken(request: Ask) -> Reply:
        raise LookupError(request.path)

    web = LoopbackWeb(broken, ["127.0.1.1"])
    web.__enter__()
    with pytest.raises(ConnectionError):
        ask(web, "127.0.1.1", "/x")
    with pytest.raises(LookupError, match="/x"):
        web.__exit__()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text('<a href="a b.html?x=1#y">1</a> <a href=sub>2</a>')
    (tmp_path / "a b.html").write_text("<a href='mailto:x@example.com'> <a href='http://['>")
    (tmp_path / "sub" / "index.html").write_text("<base href='/sub/deep/'><a href='../n.txt'>")
    (tmp_path / "sub" / "n.txt").write_text("<a href=/hidden.html>")
    (tmp_path / "hidden.html").write_text("nobody links here")
    return tmp_path


REACHED = {"", "a%20b.html?x=1", "sub/", "sub/n.txt"}
SERVERS = [
    files.plain,
    pytest.param(files.nginx, marks=pytest.mark.skipif(not files.has_nginx(), reason="no nginx")),
]


@pytest.mark.parametrize("server", SERVERS)
def test_files_are_served_and_walked(
    server: Callable[[Path, str], AbstractContextManager[str]], tree: Path
) -> None:
    with server(tree, "127.0.1.1") as url:
        assert files.walk(url) == {url + path for path in REACHED}
