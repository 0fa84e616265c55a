"""Seeds that lead nowhere, as a user sees them: in the log, exit status, summary and report."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from scrapy import Request, Spider
from scrapy.http import Response

from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.crawling import Crawled, crawl
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, site

HOST, OTHER, FORBIDDEN, NAMED = (f"127.0.37.{number}" for number in range(1, 5))
SETTINGS: Final = {"CRAWLER_RETRIES": 0, "CRAWLER_SOFT_404": False}
HTML: Final = "text/html; charset=utf-8"


class Nowhere:
    """Each path of `HOST` leads nowhere in another way."""

    def __init__(self) -> None:
        self.elsewhere = ""
        self.waits = False

    def __call__(self, ask: Ask) -> Reply:
        if ask.path == "/robots.txt":
            forbids = ask.host == FORBIDDEN
            return Reply("User-agent: *\nDisallow: /" if forbids else "", 200 if forbids else 404)
        if ask.path == "/slow" and self.waits:
            return Reply(hang=True)
        out = self.elsewhere
        replies = {
            "/moved": Reply(status=301, headers=(("Location", out),)),
            "/hop": Reply(status=302, headers=(("Location", "/gone"),)),
            "/round": Reply(status=302, headers=(("Location", "/about"),)),
            "/about": Reply(status=302, headers=(("Location", "/round"),)),
            "/good": Reply(status=302, headers=(("Location", "/page"),)),
            "/refresh": Reply(f'<meta http-equiv=refresh content="0; url={out}">'),
            "/header": Reply("on", headers=(("Refresh", f"0; url={out}"),)),
            "/401": Reply("no", 401),
            "/403": Reply("no", 403),
            "/noindex": Reply("<meta name=robots content=noindex><p>x"),
            "/nofollow": Reply('<meta name=robots content=nofollow><a href="/page">x</a>'),
            "/links": Reply(f'<a href="{out}">x</a>'),
            "/empty": Reply(""),
            "/broken": Reply(close=True),
            "/sent": Reply('<meta http-equiv=refresh content="0; url=/out"><a href="/out">x'),
            "/out": Reply(status=301, headers=(("Location", out),)),
            "/sends": Reply("", headers=(("Refresh", "0; url=/sent-on"),)),
            "/sent-on": Reply("go on", headers=(("Refresh", "0; url=/lost"),)),
            "/reloads": Reply('<meta http-equiv=refresh content="9"><p>a page'),
            "/page": Reply("<p>a page"),
            "/slow": Reply("no", 404),
        }
        return replies.get(ask.path, Reply("no", 404))


@contextmanager
def nowhere() -> Iterator[tuple[Nowhere, LoopbackWeb]]:
    answer = Nowhere()
    with LoopbackWeb(answer, [HOST, OTHER, FORBIDDEN, NAMED]) as served:
        answer.elsewhere = served.url(OTHER, "/home")
        yield answer, served


def summary(data: Path) -> Any:
    return json.loads((data / "summary.json").read_text())


def test_each_seed_that_leads_nowhere_is_named_with_what_to_do(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with nowhere() as (answer, served):
        out = answer.elsewhere
        want = {
            "/moved": f"leads to {out}, which is not in the scope: give {out} as a seed",
            "/hop": f"which redirects to {served.url(HOST, '/gone')}, leads nowhere: status 404",
            "/round": f"which redirects to {served.url(HOST, '/about')}, leads nowhere: redirects"
            " without an end",
            "/refresh": f"leads to {out}, which is not in the scope: give {out} as a seed",
            "/header": f"leads to {out}, which is not in the scope: give {out} as a seed",
            "/sent": f"which redirects to {served.url(HOST, '/out')}, leads to {out}, which is",
            "/sends": f"which redirects to {served.url(HOST, '/lost')}, leads nowhere: status 404",
            "/401": "leads nowhere: status 401: give its credentials",
            "/403": "leads nowhere: status 403: the host refuses this crawler",
            "/404": "leads nowhere: status 404: correct the seed",
            "/noindex": "CRAWLER_RESPECT_NOINDEX = False stores it",
            "/empty": "leads nowhere: an empty answer",
            "/broken": "leads nowhere: left amid the answer",
        }
        seeds = {served.url(HOST, path): text for path, text in want.items()}
        seeds[served.url(FORBIDDEN)] = "robots.txt forbids it: line 2: Disallow: /"
        refused = served.url(HOST, "/denied")
        arguments = {"scope": "host", "deny": "/denied"}
        command = crawl_command(data, SETTINGS, seeds=",".join([*seeds, refused]), **arguments)
        done = fork_server.run(command)
        assert done.returncode == 1, done.stderr[-3000:]
        assert "error: no seed brought a page: " in done.stderr
        warned = [line for line in done.stderr.splitlines() if "WARNING: " in line]
        for seed, text in seeds.items():
            assert any(f"The seed {seed}" in line and text in line for line in warned), seed
        assert sum("The seed " in line for line in warned) == len(seeds)
        rows = summary(data)["seeds"]
        assert {row["seed"] for row in rows["failed"]} == {*seeds, refused}
        assert sum(rows["fates"].values()) == len(seeds) + 1
        report = (data / "report.html").read_text()
        assert all(seed.partition("//")[2] in report for seed in [*seeds, refused])

        # A later start with seeds that bring pages counts on, and no seed twice.
        more = [served.url(HOST, path) for path in ("/nofollow", "/links", "/good", "/reloads")]
        given = ",".join([*seeds, refused, *more])
        done = fork_server.run(crawl_command(data, SETTINGS, seeds=given, **arguments))
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"The seed {more[0]} leads nowhere: " in done.stderr
    assert "CRAWLER_RESPECT_NOFOLLOW = False" in done.stderr
    assert f"The seed {more[1]} leads nowhere: " in done.stderr
    fates = summary(data)["seeds"]["fates"]
    assert (fates["page"], fates["refused"], fates["robots"]) == (2, 1, 1)
    assert sum(fates.values()) == len(seeds) + 1 + len(more)


def test_seeds_over_budget_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"CRAWLER_MAX_URLS_PER_HOST": 2}
    with nowhere() as (_, served):
        seeds = ",".join(served.url(HOST, f"/{number}") for number in range(5))
        done = crawl(tmp_path / "data", settings=settings, seeds=seeds)
    assert summary(done.data)["seeds"]["fates"] == {"over_budget": 3, "status_404": 2}
    assert caplog.text.count("Seeds of 127.0.37.1 wait: ") == 1
    assert "a larger CRAWLER_MAX_URLS_PER_HOST fetches them" in caplog.text


def test_after_a_kill_each_seed_is_counted_once(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    with nowhere() as (answer, served):
        answer.waits = True
        seeds = ",".join([served.url(HOST, "/404"), served.url(NAMED, "/slow")])
        command = crawl_command(data, SETTINGS, seeds=seeds, scope="host")
        outcomes = data / "outcomes.jsonl"
        with fork_server.running(command, log) as first:
            wait_until(
                lambda: outcomes.exists() and "status_404" in outcomes.read_text(),
                PATIENCE_S,
                log=log.read_text,
            )
            first.kill()
            first.wait()
        answer.waits = False
        done = fork_server.run(command)
    assert done.returncode == 1, done.stderr[-3000:]
    assert "no seed brought a page: status 404 2" in done.stderr
    assert summary(data)["seeds"]["fates"] == {"status_404": 2}


def test_workers_have_one_table(tmp_path: Path) -> None:
    with nowhere() as (_, served):
        seeds = [served.url(host, path) for host in (HOST, NAMED) for path in ("/404", "/hop")]
        command = [sys.executable, "-m", "scrapy", "share", "web", "--workers", "2"]
        command += ["-a", f"seeds={','.join([*seeds, served.url(HOST, '/denied')])}"]
        command += ["-a", "deny=/denied", "-s", f"CRAWLER_DATA_DIR={tmp_path}"]
        for name, value in {**SETTINGS, "CRAWLER_MIN_DELAY_S": 0.05}.items():
            command += ["-s", f"{name}={value}"]
        done = fork_server.run(command)
    assert done.returncode == 1, done.stderr[-3000:]
    assert "error: no seed brought a page: status 404 4" in done.stderr
    found = summary(tmp_path)["seeds"]
    assert found["fates"] == {"refused": 1, "status_404": 4}
    assert {row["seed"] for row in found["failed"]} >= set(seeds)
    assert seeds[0] in (tmp_path / "report.html").read_text()


class Started(Spider):
    """Its start request is answered with an error, which its callback may take."""

    name = "started"

    def __init__(self, root: str, takes: str = "") -> None:
        super().__init__()
        self.root, self.handle_httpstatus_list = root, [404] if takes else []

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.root)

    def parse(self, response: Response) -> None:
        pass


@pytest.mark.parametrize("takes", ["", "yes"])
def test_a_start_request_whose_callback_takes_its_error_leads_on(
    tmp_path: Path, takes: str
) -> None:
    with site(HOST, {"/": Reply("no", 404)}) as web:
        done: Crawled = crawl(tmp_path / "data", Started, root=web.url("/"), takes=takes)
    assert summary(done.data)["seeds"]["fates"] == {"page" if takes else "status_404": 1}


def test_a_spider_without_a_request_is_an_error(tmp_path: Path) -> None:
    settings = {"SPIDER_MODULES": "tests.harness.spiders"}
    done = fork_server.run(crawl_command(tmp_path / "data", settings, spider="old_start"))
    assert done.returncode == 1, done.stderr[-3000:]
    assert "WARNING: The spider old_start made no request: its `async def start`" in done.stderr
    assert "error: the spider old_start made no request: " in done.stderr
