"""`scrapy console`: it shows a crawl that has ended and one that runs, and outlives the latter."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crawler.console.crawls import (
    CrawlAccess,
    ManyCrawls,
    crawl_id,
    crawls_below,
    ended_state,
)
from crawler.data.operator_files import Act, Audit
from crawler.data.runs import CountedRuns, RunFigures
from crawler.operate.server import ApiServer
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.crawling import crawl
from tests.harness.waiting import wait_until
from tests.servers.browser import open_tab
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page
from tests.servers.redis_process import free_port

HOSTS = ("127.0.0.150", "127.0.0.151")
JSON = {"Content-Type": "application/json"}


def answer(ask: Ask) -> Reply:
    """A web of one page, and one without an end."""
    if ask.path == "/robots.txt":
        return not_here(ask)
    at = int(ask.path[1:] or 0)
    return page(*([] if ask.host == HOSTS[0] else [f"/{at + 1}", f"/{at + 2}"]), text=ask.path)


class Crawls:
    """The console of a folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.ended, self.running = folder / "one" / "crawl-data", folder / "two"
        self.described = folder / "three"

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(
        self, path: str, body: object = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            sent = None if body is None else json.dumps(body)
            given = headers if body is None else {**JSON, **headers}
            connection.request("GET" if sent is None else "POST", path, sent, given)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def get(self, path: str) -> Any:
        status, _, body = self.ask(f"/api/crawls{path}")
        assert status == 200, body
        return json.loads(body)

    def rows(self) -> dict[str, Any]:
        return {row["path"]: row for row in self.get("")}


@pytest.fixture
def crawls(tmp_path: Path) -> Iterator[Crawls]:
    made = Crawls(tmp_path / "crawls", free_port())
    made.running.mkdir(parents=True)
    made.described.mkdir()
    (made.folder / "link").symlink_to(tmp_path)
    with LoopbackWeb(answer, HOSTS) as web:
        seeds = f'contact = "ops@w3.org"\nseeds = "{web.url(HOSTS[0])}"\n'
        (made.described / "crawl.toml").write_text(seeds)
        crawl(made.ended, settings={"CRAWLER_SUMMARY": True}, seeds=web.url(HOSTS[0]))
        settings = {"CRAWLER_MIN_DELAY_S": 0.1, "CRAWLER_SOFT_404": False}
        command = crawl_command(made.running, settings, seeds=web.url(HOSTS[1]))
        console = [*fork_server.SCRAPY, "console", str(made.folder)]
        console += ["--http", f"127.0.0.1:{made.port}", "--start"]
        with (
            fork_server.running(command, tmp_path / "log"),
            fork_server.running(console, tmp_path / "console.log"),
        ):
            log = (tmp_path / "console.log").read_text
            wait_until(lambda: "http://" in log(), PATIENCE_S, log=log)
            wait_until(lambda: (made.running / "control.sock").exists(), PATIENCE_S)
            yield made


def test_crawls_are_shown_whether_they_run_or_not(crawls: Crawls, tmp_path: Path) -> None:
    running, ended = str(crawls.running), str(crawls.ended)
    wait_until(lambda: crawls.rows()[running]["pages"] > 0, PATIENCE_S, log=crawls.rows)
    rows = crawls.rows()
    assert rows.keys() == {running, ended}, "a link is not followed"
    assert rows[running]["is_running"] and rows[running]["process"]
    assert (rows[ended]["is_running"], rows[ended]["pages"], rows[ended]["has_report"]) == (
        *(False, 1),
        True,
    )
    assert rows[ended]["state"] == "Finished: nothing is left to fetch."
    of = {path: f"/{row['id']}" for path, row in rows.items()}
    for path, host in ((running, HOSTS[1]), (ended, HOSTS[0])):
        (row,) = crawls.get(f"{of[path]}/hosts")
        assert row["host"] == host and row["pages"] > 0
        assert crawls.ask(f"/api/crawls{of[path]}/hosts.csv")[2].startswith(b"host,waiting,")
        assert crawls.ask(f"/api/crawls{of[path]}/hosts?top=0")[0] == 400
        assert crawls.ask(f"/api/crawls{of[path]}/nothing")[0] == 404
        rest = {"targets": ["a.example"], "value": "9s"}
        status, _, said = crawls.ask(f"/api/crawls{of[path]}/delay", rest)
        assert (status, json.loads(said)["number"]) == (200, 1)
        acts = [each for each in Audit(Path(path) / "audit.jsonl").read() if isinstance(each, Act)]
        assert [(act.verb, act.targets) for act in acts] == [("delay", ("a.example",))]
        evil = {"Origin": "http://evil.example"}
        for headers, wanted in ((evil, 403), ({"Host": "evil.example"}, 403)):
            assert crawls.ask(f"/api/crawls{of[path]}/stop", {}, **headers)[0] == wanted
        plain = {"Content-Type": "text/plain"}
        assert crawls.ask(f"/api/crawls{of[path]}/stop", {}, **plain)[0] == 415
        assert crawls.ask(f"/api/crawls{of[path]}/fly", {})[0] == 404
    assert crawls.ask(f"/api/crawls/{crawl_id(tmp_path)}/hosts")[0] == 404
    status, headers, report = crawls.ask(f"/api/crawls{of[ended]}/report.html")
    assert status == 200 and b"<h1>" in report
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src")
    assert crawls.ask(f"/api/crawls{of[running]}/report.html")[0] == 404

    sentence = "document.getElementById('sentence').textContent"
    with open_tab(tmp_path / "browser") as tab:
        for width, scheme in ((1280, "light"), (390, "dark")):
            tab.resize((width, 800), scheme)
            tab.open(crawls.root)
            tab.wait(f"{sentence}.startsWith('2 crawls, 1 of them at work')")
            assert tab.run("document.documentElement.scrollWidth") == width
            assert tab.cut_off() == tab.violations() == []
        tab.click("a", ended)
        tab.wait(f"{sentence}.startsWith('Finished: nothing is left to fetch. 1 pages in all')")
        tab.click("nav a", "All crawls")
        tab.click("a", running)
        tab.wait(f"{sentence}.startsWith('Well: ')")
        tab.wait("document.getElementById('undo').textContent === 'Undo: delay a.example 9s'")
        assert json.loads(crawls.ask(f"/api/crawls{of[running]}/stop", {})[2])["number"] == 2
        tab.wait(f"{sentence}.startsWith('Stopped: operator')")
    rows = crawls.rows()
    assert not rows[running]["is_running"] and rows[running]["state"].startswith(
        "Stopped: operator"
    )
    (row,) = crawls.get(f"{of[running]}/hosts")
    assert row["waiting"] > 0
    check_start(crawls, tmp_path)


def check_start(crawls: Crawls, tmp_path: Path) -> None:
    """A crawl is started by its description, whose error is said, and by nothing else."""
    file = crawls.described / "crawl.toml"
    whole = file.read_text()
    file.write_text(whole + "max_pagse = 5\n")
    (row,) = json.loads(crawls.ask("/api/described")[2])
    assert (row["path"], row["is_running"]) == (str(file), False)
    refused = [
        ({"id": row["id"], "path": "/etc"}, JSON, 400),
        ({"id": crawl_id(tmp_path / "crawl.toml")}, JSON, 404),
        ({"id": row["id"]}, {"Content-Type": "text/plain"}, 415),
        ({"id": row["id"]}, {"Origin": "http://evil.example"}, 403),
    ]
    for body, headers, status in refused:
        assert crawls.ask("/api/start", body, **headers)[0] == status
    assert not (crawls.described / "crawl-data").exists()
    with open_tab(tmp_path / "another browser") as tab:
        said = "document.getElementById('said').textContent"

        def start() -> None:
            tab.click(f"button[aria-label='start {file}']")
            tab.wait("document.getElementById('ask').open")
            tab.click("#yes")

        tab.open(crawls.root)
        start()
        assert "crawl.toml line 3" in tab.wait(f"{said}.includes('has not begun') && {said}")
        file.write_text(whole)
        start()
        tab.wait(f"{said}.includes('is started: process')")
        assert not [each for each in tab.errors if "400" not in each], tab.errors
    data = str(crawls.described / "crawl-data")
    wait_until(lambda: crawls.rows().get(data, {}).get("has_report"), PATIENCE_S, log=crawls.rows)
    assert crawls.rows()[data]["pages"] == 1
    log = (crawls.described / "crawl.start.log").read_text()
    assert log.startswith("started by 127.0.0.1 from a console\n")


def test_nothing_is_started_without_leave_or_token(tmp_path: Path) -> None:
    (tmp_path / "crawl.toml").write_text('seeds = "https://www.example.org/"\n')
    name, token = crawl_id(tmp_path / "crawl.toml"), "t" * 20

    def unused(*_: object) -> Any:
        raise AssertionError

    def ask(port: int) -> None:
        there = Crawls(tmp_path, port)
        bearer = {"Authorization": f"Bearer {token}"}
        assert there.ask("/api/start", {"id": name})[0] == 401
        assert there.ask("/api/crawls")[0] == 401
        assert there.ask("/api/start", {"id": name}, **bearer)[0] == 403
        assert there.ask("/api/described", **bearer)[2] == b"[]"
        assert b"crawls" in there.ask("/")[2], "the page itself is for all"

    async def serve() -> None:
        many = ManyCrawls([tmp_path], CrawlAccess(unused, unused))
        server = ApiServer(many.application, "console")
        port = await server.open_port("127.0.0.1", free_port(), {"anna": token})
        await asyncio.to_thread(ask, port)
        await server.close()
        await many.close()

    asyncio.run(serve())
    assert {each.name for each in tmp_path.iterdir()} == {"crawl.toml"}


def test_where_crawls_are_looked_for(tmp_path: Path) -> None:
    for name in ("a", "a/below", "b/c", "b/c/d/e", "f/workers/1"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    for name in ("a", "a/below", "b/c", "b/c/d/e", "f/workers/1"):
        (tmp_path / name / "format.json").touch()
    found = [str(each.relative_to(tmp_path)) for each in crawls_below([tmp_path]).values()]
    assert found == ["a", "f", "b/c"], "nothing below a crawl, or more than two levels down"
    assert list(crawls_below([tmp_path / "b/c/d/e"]).values()) == [tmp_path / "b/c/d/e"]


def test_how_a_crawl_has_ended() -> None:
    assert ended_state(CountedRuns()) == ("It has never run.", 0.0)
    run = RunFigures("1970-01-01T00:01:00+00:00", 5.0, "shutdown")
    assert ended_state(CountedRuns([run])) == ("Stopped on request (Ctrl-C or a signal).", 65.0)
    killed = RunFigures("1970-01-01T00:01:00+00:00", 5.0)
    assert ended_state(CountedRuns([run, killed]))[0].startswith("Killed: ")
