"""The HTTP API over real sockets: who may use it, and what is refused."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop
from scrapy.settings import Settings

from crawler.cli.place import place_of
from crawler.config.settings import read_config
from crawler.console.live import CrawlOverview, LiveEvent
from crawler.console.pages import CrawlPages
from crawler.console.views import VIEWS, OutcomesAsked, Shown, as_csv, is_asked
from crawler.model.counts import Counts
from crawler.model.types import (
    ConfigError,
    CrawlerError,
    Outcome,
    StoreUnavailable,
    encode_outcome,
)
from crawler.operate import client
from crawler.operate.connections import ClientLimits, CommandSocket, ConnectionLimit
from crawler.operate.server import ApiServer, Served, application, read_tokens
from crawler.operate.verbs import ActAnswer, ActRequest, check
from tests.servers.redis_process import free_port

JSON = {"Content-Type": "application/json"}
TOKENS = {"anna": "x" * 20}
RULES = ClientLimits()


class Acts:
    """What was asked for, and by whom."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ActRequest]] = []
        self.failures: list[CrawlerError | None] = [None]  # what `/healthz` finds, the last first

    async def act(self, request: ActRequest, by: str) -> ActAnswer:
        check(request)
        self.asked.append((by, request))
        return ActAnswer("done", len(self.asked))

    async def freeze(self, folder: str) -> None:
        raise AssertionError(folder)


def served(data: Path, acts: Acts) -> Served:
    """Return what is served of a crawl that has not begun."""
    settings = Settings({"CRAWLER_DATA_DIR": str(data)})
    counts = Counts()
    overview = CrawlOverview(
        1.0, "web", str(data), "", 1, 7, 0.5, 0, 0, 0, 0, 8, None, "", "", counts, {"2xx": 7}, {}
    )

    async def glance() -> CrawlOverview:
        return overview

    async def events(asked: OutcomesAsked) -> AsyncIterator[LiveEvent]:
        page = Outcome(1.0, "https://a.example/<script>", "a.example", "done", status=200)
        yield LiveEvent(overview, [page] if is_asked(page, asked) else [], 0)

    shown = Shown(place_of(settings, read_config(settings)), settings)
    pages = CrawlPages(shown, glance, events)
    return Served(acts.act, lambda: b"up 1\n", acts.failures.pop, acts.freeze, pages.add_to)


def serving(
    data: Path,
    acts: Acts,
    use: Callable[[int], Any],
    tokens: dict[str, str] | None = None,
    limits: ClientLimits = RULES,
    host: str = "127.0.0.1",
) -> Any:
    """Return what *use*, in a thread, returns for the port of a server."""

    async def run() -> Any:
        made = partial(application, served(data, acts))
        server = ApiServer(made, "console", data, ConnectionLimit(limits))
        command_socket = CommandSocket(data, server.protocol_factory, ConnectionLimit(limits))
        await command_socket.open()
        await server.open_port(host, free_port(), tokens or {})
        port = int((data / "control.address").read_text().rpartition(":")[2])
        try:
            return await asyncio.to_thread(use, port)
        finally:
            command_socket.close()
            await server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as a crawl has it
        return runner.run(run())


def post(
    port: int, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    sent = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", path, sent, JSON if headers is None else headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_a_request_is_carried_out_for_who_sends_it(tmp_path: Path) -> None:
    acts = Acts()

    def use(port: int) -> None:
        status, answer = post(port, "/api/refuse", {"targets": ["www.example.org"]})
        assert (status, answer) == (200, {"said": "done", "number": 1})
        answered = client.ask(tmp_path, ActRequest("delay", ("example.org",), "5s"))
        assert answered == ActAnswer("done", 2)

    serving(tmp_path, acts, use)

    assert acts.asked[0] == ("127.0.0.1", ActRequest("refuse", ("www.example.org",)))
    assert acts.asked[1][1] == ActRequest("delay", ("example.org",), "5s")
    assert not (tmp_path / "control.sock").exists()
    with pytest.raises(client.NoCrawl):
        client.ask(tmp_path, ActRequest("stop"))


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        pytest.param("/api/fly", {}, JSON, 404, id="a verb that there is not"),
        pytest.param("/snapshot", {"folder": "a"}, JSON, 404, id="what is at the socket only"),
        pytest.param("/api/refuse", {}, JSON, 400, id="a verb without its target"),
        pytest.param("/api/refuse", b'{"\xff": 1}', JSON, 400, id="no text"),
        pytest.param("/api/refuse", b"{", JSON, 400, id="no JSON"),
        pytest.param("/api/refuse", {"target": "a.example"}, JSON, 400, id="a field that is not"),
        pytest.param(
            "/api/stop", {}, {"Content-Type": "text/plain"}, 415, id="a form of a browser"
        ),
        pytest.param("/api/stop", {}, {**JSON, "Host": "evil.example"}, 403, id="a rebound name"),
        pytest.param(
            "/api/stop", {}, {**JSON, "Origin": "https://evil.example"}, 403, id="another site"
        ),
        pytest.param("/api/stop", {}, {**JSON, "Origin": "null"}, 403, id="a sandboxed frame"),
        pytest.param("/api/add", b" " * (3 << 20), JSON, 413, id="a body that is too large"),
        pytest.param("/api/add", b'{"a":' * 300_000, JSON, 400, id="nested objects"),
        pytest.param("/api/add", b'{"a":' + b"[" * 300_000, JSON, 400, id="nested arrays"),
        pytest.param("/api/add", b'{"level":' + b"9" * 9999 + b"}", JSON, 400, id="a huge number"),
        pytest.param(
            "/api/add", gzip.compress(b"{}"), {**JSON, "Content-Encoding": "gzip"}, 400, id="packed"
        ),
    ],
)
def test_what_is_refused_changes_nothing(
    tmp_path: Path, path: str, body: object, headers: dict[str, str], status: int
) -> None:
    acts = Acts()

    answered = serving(tmp_path, acts, lambda port: post(port, path, body, headers))

    assert answered[0] == status and answered[1]["error"]
    assert not acts.asked


def test_a_token_is_needed_where_there_are_any(tmp_path: Path) -> None:
    acts = Acts()

    def use(port: int) -> None:
        assert post(port, "/api/stop")[0] == 401
        wrong = {**JSON, "Authorization": "Bearer " + "y" * 20}
        assert post(port, "/api/stop", {}, wrong)[0] == 401
        for other in ("Bearer \xff", "Bearer \xe4" * 20, "\xff"):  # sent as Latin-1
            assert post(port, "/api/stop", {}, {**JSON, "Authorization": other})[0] == 401
        right = {**JSON, "Authorization": f"Bearer {TOKENS['anna']}"}
        assert post(port, "/api/stop", {}, right)[0] == 200

    serving(tmp_path, acts, use, TOKENS)

    assert [by for by, _ in acts.asked] == ["anna"]


def test_the_description_names_each_verb(tmp_path: Path) -> None:
    def use(port: int) -> Any:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", "/api/openapi.json")
            return json.loads(connection.getresponse().read())

    described = serving(tmp_path, Acts(), use)

    assert described["openapi"] == "3.1.0"
    assert {"/api/refuse", "/api/undo", "/api/add"} <= described["paths"].keys()


def get(
    port: int, path: str, headers: dict[str, str] | None = None, at: str = "127.0.0.1"
) -> tuple[int, dict[str, str], str]:
    with closing(http.client.HTTPConnection(at, port, timeout=30)) as connection:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        body = answer.read(2000) if "live" in path else answer.read()
        return answer.status, dict(answer.headers), body.decode()


def test_each_view_is_described_and_answers_or_says_why_not(tmp_path: Path) -> None:
    def use(port: int) -> None:
        described = json.loads(get(port, "/api/openapi.json")[2])["paths"]
        assert {"/api/overview", "/api/live", "/api/openapi.json"} <= described.keys()
        for name, view in VIEWS.items():
            assert "get" in described[f"/api/{name}"]
            assert (f"/api/{name}.csv" in described) is view.is_table
            status, headers, body = get(port, f"/api/{name}?top=x")
            assert status == 400, body
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert get(port, "/api/nothing")[0] == 404
        # No crawl has begun here: that is said, and nothing breaks.
        status, _, body = get(port, "/api/hosts")
        assert status == 503 and str(tmp_path) in body
        assert json.loads(get(port, "/api/archive")[2]) == []
        assert json.loads(get(port, "/api/outcomes")[2]) == []

    serving(tmp_path, Acts(), use)


def test_hosts_are_put_in_order_by_a_figure_up_to_a_bound(tmp_path: Path) -> None:
    def use(port: int) -> None:
        status, _, body = get(port, "/api/hosts?offset=9980&top=21")
        assert status == 400 and "sort=name" in body and "match" in body
        assert get(port, "/api/hosts?offset=-1")[0] == 400
        # 503: they are looked for, and no crawl has begun here.
        assert get(port, "/api/hosts?offset=9980&top=20")[0] == 503
        assert get(port, "/api/hosts?offset=999980&sort=name")[0] == 503
        assert get(port, "/api/domains?offset=9980&top=21")[0] == 400
        status, _, body = get(port, "/api/domains?sort=waiting")
        assert status == 400 and "waiting" in body and "spilled" in body, "which there are"
        assert get(port, "/api/domains?offset=9980&top=20&sort=linked")[0] == 503

    serving(tmp_path, Acts(), use)


def test_the_latest_outcomes_as_json_and_csv(tmp_path: Path) -> None:
    found = [
        Outcome(1.0, "https://a.example/1", "a.example", "done", status=200),
        Outcome(2.0, "https://a.example/2", "a.example", "dead", reason="=cmd()"),
        Outcome(3.0, "https://b.example/3", "b.example", "done", status=404),
    ]
    log = b"".join(encode_outcome(each) + b"\n" for each in found)
    (tmp_path / "outcomes.jsonl").write_bytes(b"{half a line\n" + log)

    def use(port: int) -> None:
        status, _, body = get(port, "/api/outcomes?fate=failed")
        assert status == 400 and "retry, moved" in body

        def urls(query: str) -> list[str]:
            return [each["url"][-1] for each in json.loads(get(port, f"/api/outcomes{query}")[2])]

        assert urls("") == ["3", "2", "1"]
        assert urls("?top=1") == ["3"]
        assert urls("?status=4xx") == ["3"]
        assert urls("?status=200&match=a.example") == ["1"]
        assert urls("?fate=dead") == urls("?reason=cmd") == ["2"]
        _, headers, text = get(port, "/api/outcomes.csv")
        assert headers["Content-Type"].startswith("text/csv")
        assert text.splitlines()[0].startswith("at,url,host,fate")
        assert "'=cmd()" in text  # no spreadsheet runs it
        assert get(port, "/api/rules.csv")[0] in (404, 503)

    serving(tmp_path, Acts(), use)
    assert as_csv(Outcome, []).strip().startswith("at,url")


def test_the_page_and_its_figures_come_without_a_word_to_others(tmp_path: Path) -> None:
    def use(port: int) -> None:
        for path in ("/", "/page/page.js", "/page/page.css", "/page/uplot.js"):
            status, headers, _ = get(port, path)
            assert status == 200, path
            assert "script-src 'self'" in headers["Content-Security-Policy"]
            assert get(port, path, {"Host": "evil.example"})[0] == 403
        assert get(port, "/page/..%2fserver.py")[0] == 404
        assert get(port, "/page/server.py")[0] == 404
        other_site = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        assert get(port, "/api/overview", other_site)[0] == 403
        visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert get(port, "/", visit)[0] == 200
        assert get(port, "/api/overview", visit)[0] == 403
        assert json.loads(get(port, "/api/overview")[2])["pages"] == 7
        _, _, stream = get(port, "/api/live")
        event = json.loads(stream.removeprefix("data: ").strip())
        assert event["overview"]["pages"] == 7 and "<script>" in event["outcomes"][0]["url"]

    serving(tmp_path, Acts(), use)


def test_what_is_shown_needs_the_token_too(tmp_path: Path) -> None:
    def use(port: int) -> None:
        for name in ("overview", "live", "openapi.json", *VIEWS):
            assert get(port, f"/api/{name}")[0] == 401
        right = {"Authorization": f"Bearer {TOKENS['anna']}"}
        assert get(port, "/api/overview", right)[0] == 200
        assert get(port, f"/api/overview?token={TOKENS['anna']}")[0] == 401
        assert get(port, "/")[0] == 200  # it holds nothing of the crawl, and asks for the token

    serving(tmp_path, Acts(), use, TOKENS)


@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
def test_figures_and_health_are_for_those_who_may_use_the_api(tmp_path: Path, path: str) -> None:
    def get(port: int, **headers: str) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def use(port: int) -> None:
        assert get(port)[0] == 401
        assert get(port, Host="evil.example")[0] == 403
        token = f"Bearer {TOKENS['anna']}"
        want = b"up 1\n" if path == "/metrics" else b'{"status":"ok"}'
        assert get(port, Authorization=token) == (200, want)

    serving(tmp_path, Acts(), use, TOKENS)


def test_a_crawl_that_fails_is_not_healthy(tmp_path: Path) -> None:
    """Asked on its socket, where no token is needed."""
    acts = Acts()
    acts.failures = [StoreUnavailable("the disk is full"), None]

    def get(path: str) -> tuple[int, bytes]:
        folder = os.open(tmp_path, os.O_RDONLY)  # the path to a socket has 107 bytes at most
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(f"/proc/self/fd/{folder}/control.sock")
            os.close(folder)
            asking.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = http.client.HTTPResponse(asking)
            answer.begin()
            return answer.status, answer.read()

    def use(_: int) -> None:
        assert get("/metrics") == (200, b"up 1\n")
        assert get("/healthz") == (200, b'{"status":"ok"}')
        assert get("/healthz") == (503, b'{"error":"the disk is full"}')

    serving(tmp_path, acts, use, TOKENS)


def connected(where: int | Path) -> socket.socket:
    """Return a connection to a port, or to the socket in a data directory."""
    if isinstance(where, int):
        return socket.create_connection(("127.0.0.1", where), timeout=30)
    folder = os.open(where, os.O_RDONLY)  # the path to a socket has 107 bytes at most
    asking = socket.socket(socket.AF_UNIX)
    try:  # without a time-out, with which a full backlog is an error
        asking.connect(f"/proc/self/fd/{folder}/control.sock")
    finally:
        os.close(folder)
    asking.settimeout(30)
    return asking


def is_closed(connection: socket.socket) -> bool:
    """Read to the end of *connection*, which comes before its time-out. Return True."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


def answer_of(connection: socket.socket, request: bytes) -> int:
    connection.sendall(request)
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


HEAD = b"Host: localhost\r\nAuthorization: Bearer xxxxxxxxxxxxxxxxxxxx\r\n"
GET_HEALTH = b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n"
POST_STOP = b"POST /api/stop HTTP/1.1\r\nContent-Type: application/json\r\n" + HEAD


@pytest.mark.parametrize("is_port", [True, False], ids=["port", "socket"])
def test_connections_without_a_request_take_the_place_of_nothing(
    tmp_path: Path, is_port: bool
) -> None:
    acts = Acts()
    acts.failures = [None] * 9

    def use(port: int) -> None:
        where = port if is_port else tmp_path
        before = len(list(Path("/proc/self/fd").iterdir()))
        with ExitStack() as held:
            idle = [held.enter_context(connected(where)) for _ in range(300)]
            for each in idle[::3]:
                with suppress(ConnectionError):  # it may be closed already
                    each.sendall(b"GET / HTTP/1.1\r\nHost:")
            asking = held.enter_context(connected(where))
            assert answer_of(asking, GET_HEALTH) == 200
            assert all(is_closed(each) for each in idle[:150])
            # Both ends are in this process: 301 of clients, and at most 100 of the server.
            assert len(list(Path("/proc/self/fd").iterdir())) - before < 301 + RULES.most + 20
            assert answer_of(asking, GET_HEALTH) == 200  # it keeps its own

    patient = ClientLimits(head_s=600.0)  # so that only the bound closes any
    serving(tmp_path, acts, use, TOKENS, patient)


@pytest.mark.parametrize("is_port", [True, False], ids=["port", "socket"])
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\nX:", id="half a head"),
        pytest.param(GET_HEALTH, id="no second request"),
        pytest.param(POST_STOP + b"Content-Length: 9\r\n\r\n{", id="half a body"),
        pytest.param(POST_STOP + b"Transfer-Encoding: chunked\r\n\r\n1\r\n", id="half a chunk"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
            id="half a body that nothing reads",
        ),
    ],
)
def test_a_client_that_waits_is_closed(tmp_path: Path, sent: bytes, is_port: bool) -> None:
    acts = Acts()
    rules = ClientLimits(head_s=0.2, body_s=0.2)

    def use(port: int) -> None:
        with connected(port if is_port else tmp_path) as waiting:
            waiting.sendall(sent)
            assert is_closed(waiting)

    serving(tmp_path, acts, use, TOKENS, rules)

    assert not acts.asked


def test_a_client_that_takes_no_answer_is_closed(tmp_path: Path) -> None:
    log = encode_outcome(Outcome(1.0, "https://a.example/" + "x" * 9000, "a.example", "done"))
    (tmp_path / "outcomes.jsonl").write_bytes((log + b"\n") * 2000)
    rules = ClientLimits(most=1, answer_s=0.2)

    def use(port: int) -> None:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the answer has 4 MB
            slow.connect(("127.0.0.1", port))
            slow.sendall(b"GET /api/outcomes?top=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert slow.recv(1)  # it is being answered
            while True:  # the one place is taken until the slow client is closed
                with connected(port) as asking, suppress(ConnectionError):
                    if answer_of(asking, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200:
                        break

    serving(tmp_path, Acts(), use, limits=rules)


def test_a_client_that_takes_its_answer_slowly_gets_all_of_it(tmp_path: Path) -> None:
    log = encode_outcome(Outcome(1.0, "https://a.example/" + "x" * 9000, "a.example", "done"))
    (tmp_path / "outcomes.jsonl").write_bytes((log + b"\n") * 2000)
    rules = ClientLimits(most=1, head_s=0.3, answer_s=0.6)

    def use(port: int) -> None:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
            slow.settimeout(30)
            slow.connect(("127.0.0.1", port))
            slow.sendall(b"GET /api/outcomes?top=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = http.client.HTTPResponse(slow)
            answer.begin()
            assert answer.length is not None and answer.length > 4_000_000
            slow_until_s = time.monotonic() + 3 * rules.answer_s
            while answer.length:
                assert answer.read(16 * 1024)
                if time.monotonic() < slow_until_s:
                    with connected(port) as other:  # which may not take its place
                        assert is_closed(other)
                    time.sleep(0.02)

    serving(tmp_path, Acts(), use, limits=rules)


@pytest.mark.parametrize(("host", "at"), [("0.0.0.0", "127.0.0.1"), ("[::]", "::1")])
def test_where_tokens_are_needed_the_names_of_the_machine_lead_to_it(
    tmp_path: Path, host: str, at: str
) -> None:
    acts = Acts()
    acts.failures = [None] * 24
    right = {"Authorization": f"Bearer {TOKENS['anna']}"}

    def use(port: int) -> None:
        for name in (socket.gethostname(), socket.getfqdn(), "192.0.2.7", "[2001:db8::7]"):
            for written in (name, f"{name}:", f"{name}:{port}", f"{name.upper()}:{port}"):
                assert get(port, "/healthz", {**right, "Host": written}, at)[0] == 200, written
                assert get(port, "/healthz", {"Host": written}, at)[0] == 401
        for name in ("evil.example", "192.0.2.7.evil.example", "", "["):
            assert get(port, "/healthz", {**right, "Host": name}, at)[0] == 403, name
        with socket.create_connection((at, port), timeout=30) as asking:  # no Host at all
            assert answer_of(asking, b"GET /healthz HTTP/1.0\r\n\r\n") == 403

    serving(tmp_path, acts, use, TOKENS, host=host)


@pytest.mark.parametrize(
    "more", [{"X": "x" * 9000}, {f"X{n}": "" for n in range(200)}], ids=["long", "many"]
)
def test_a_head_is_bounded(
    tmp_path: Path, more: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert serving(tmp_path, Acts(), lambda port: get(port, "/", more)[0]) == 400
    assert not caplog.records, "a port scanner would fill the log with tracebacks"


def test_without_tokens_no_other_name_or_address_leads_to_it(tmp_path: Path) -> None:
    def use(port: int) -> None:
        for name in ("192.0.2.7", "[2001:db8::7]", "evil.example"):
            assert get(port, "/healthz", {"Host": name})[0] == 403, name

    serving(tmp_path, Acts(), use)


def in_loop(use: Callable[[ApiServer], Awaitable[None]], data: Path) -> None:
    async def run() -> None:
        server = ApiServer(partial(application, served(data, Acts())), "console", data)
        try:
            await use(server)
        finally:
            await server.close()

    asyncio.run(run())


def test_the_socket_is_for_its_user_alone_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 40)  # longer than the path of a socket may be
    data.mkdir()
    stale = socket.socket(socket.AF_UNIX)
    directory = os.open(data, os.O_RDONLY)
    stale.bind(f"/proc/self/fd/{directory}/control.sock")
    stale.close()
    os.close(directory)

    async def use(server: ApiServer) -> None:
        command_socket = CommandSocket(data, server.protocol_factory)
        await command_socket.open()
        assert stat.S_IMODE((data / "control.sock").stat().st_mode) == 0o600
        answer = await asyncio.to_thread(client.ask, data, ActRequest("stop"))
        assert answer.said == "done"
        command_socket.close()
        assert not (data / "control.sock").exists()

    in_loop(use, data)


def test_a_port_that_is_taken_gives_way_to_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(server: ApiServer) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            await server.open_port("127.0.0.1", port, {})
            written = int((tmp_path / "control.address").read_text().rpartition(":")[2])
            assert written > port
            assert f"Port {port} is taken" in caplog.text

    in_loop(use, tmp_path)


def test_others_reach_it_with_a_token_only(tmp_path: Path) -> None:
    async def use(server: ApiServer) -> None:
        with pytest.raises(ConfigError, match="set CRAWLER_HTTP_TOKENS"):
            await server.open_port("0.0.0.0", free_port(), {})

    in_loop(use, tmp_path)


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("anna:" + "x" * 20, 0o644, "chmod 600"),
        ("anna:short", 0o600, "NAME:TOKEN"),
        ("", 0o600, "NAME:TOKEN"),
    ],
)
def test_a_file_of_tokens_is_private_and_whole(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=why):
        read_tokens(file)
    assert "x" * 20 not in why
