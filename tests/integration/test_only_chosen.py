"""Runs that fetch only what failed, or the URLs of a list, into the same archive."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from crawler.model.types import CrawlerError
from crawler.shared.keys import root
from crawler.shared.owned.rounds import rounds_key
from tests.harness import fork_server
from tests.harness.commands import crawl_command
from tests.harness.crawling import crawl
from tests.harness.workers import NAME
from tests.servers.loopback import Ask, Reply, Routes, page, site
from tests.servers.redis import RedisServer

HOST = "127.0.15.11"
AT_ONCE = {"CRAWLER_RETRIES": 0, "CRAWLER_SOFT_404": False}  # a failure is a dead letter


def test_what_failed_is_fetched_again_with_what_it_needs_and_nothing_else(
    tmp_path: Path, where: dict[str, Any]
) -> None:
    """Not what still waits, not the links of what is there now: the next run has these."""
    is_well = False

    def flaky(_: Ask) -> Reply:
        body = '<link rel=stylesheet href=/a.css><a href="/of-it">it</a>'
        return Reply(body) if is_well else Reply("not now", 503)

    routes = {
        "/": page("/flaky", "/moved", "/gone", *(f"/{number}" for number in range(9))),
        "/flaky": flaky,
        "/moved": lambda _: (
            Reply(status=301, headers=(("Location", "/target"),)) if is_well else Reply("", 500)
        ),
        "/target": page(),
        "/gone": Reply("", 404),
        "/of-it": page(),
        "/a.css": Reply("p { color: red }", headers=(("Content-Type", "text/css"),)),
        **{f"/{number}": page() for number in range(9)},
    }
    with site(HOST, routes) as web:
        first = {"seeds": web.url("/"), "requisites": "yes", "scope": "host"}
        crawl(tmp_path / "data", settings={**where, **AT_ONCE}, **first, deny=r"/\d$")
        assert web.hits["/flaky"] and web.hits["/moved"] and not web.hits["/target"]
        is_well = True
        before = Counter(web.hits)
        done = crawl(tmp_path / "data", settings={**where, **AT_ONCE}, deny="", only="failed")
        assert done.reason == "finished"
        fetched = {path: hits for path, hits in (web.hits - before).items() if path in routes}
        assert fetched == dict.fromkeys(("/flaky", "/moved", "/target", "/a.css"), 1)
        crawl(tmp_path / "data", settings={**where, **AT_ONCE})
        assert web.hits["/of-it"] == 1, "its link waited"
        again = crawl(tmp_path / "data", settings={**where, **AT_ONCE}, only="failed")
        assert again.reason == "finished" and web.hits["/flaky"] == 2


def test_the_urls_of_a_list_are_fetched_again_and_nothing_else(
    tmp_path: Path, where: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    routes = {"/": page("/1", "/2"), "/1": page("/3"), "/2": page(), "/3": page(), "/new": page()}
    file = tmp_path / "urls.txt"
    with site(HOST, routes) as web:
        crawl(tmp_path / "data", settings={**where, **AT_ONCE}, seeds=web.url("/"), scope="host")
        before = Counter(web.hits)
        urls = [web.url("/1"), web.url("/new"), "http://127.0.15.12/out", "no url"]
        urls += [web.url("/1"), web.url("/new#part")]
        file.write_text("\n".join(urls))
        crawl(tmp_path / "data", settings={**where, **AT_ONCE}, only=str(file))
        fetched = web.hits - before
        assert {path: n for path, n in fetched.items() if path in routes} == {"/1": 1, "/new": 1}
        assert not fetched.keys() - {"/1", "/new", "/robots.txt"}
        assert "line 4 skipped" in caplog.text
        caplog.clear()
        long = [web.url("/" + "x" * 100_000), *(f"http://127.0.15.12/{n}" for n in range(30))]
        file.write_text("\n".join([web.url("/1"), *long]))
        crawl(tmp_path / "data", settings={**where, **AT_ONCE}, only=str(file))
        named = [each for each in caplog.text.splitlines() if "is not fetched:" in each]
        assert len(named) == 20 and max(map(len, named)) < 1_000
        assert f"31 URLs of {file} in all are not fetched" in caplog.text
        file.write_text('{"url": "http://127.0.15.12/"}\n')
        with pytest.raises(CrawlerError, match="no good line"):
            crawl(tmp_path / "data", settings={**where, **AT_ONCE}, only=str(file))
        assert "it is JSON: name a list of such lines LIST.jsonl" in caplog.text
        file.write_text("# none\n")
        with pytest.raises(CrawlerError, match="gives no seed"):
            crawl(tmp_path / "data", settings={**where, **AT_ONCE}, only=str(file))
        with pytest.raises(CrawlerError, match="does not exist"):
            crawl(tmp_path / "data", settings={**where, **AT_ONCE}, only="./none.txt")
        with pytest.raises(CrawlerError, match="only is 'chnged'; want all or new or failed"):
            crawl(tmp_path / "data", settings={**where, **AT_ONCE}, only="chnged")


def test_a_list_is_continued_until_all_of_it_was_fetched(
    tmp_path: Path, where: dict[str, Any]
) -> None:
    """Rounds stop it twice, and then another list of which half waits is given."""
    plan, other = tmp_path / "plan.txt", tmp_path / "other.txt"
    with site(HOST, {f"/{n}": page() for n in range(9)}) as web:

        def fetched(file: Path, **more: Any) -> list[int]:
            before = Counter(web.hits)
            settings = {**where, **AT_ONCE}
            crawl(tmp_path / "data", settings=settings, only=str(file), **more)
            paths = (path[1:] for path in (web.hits - before).elements())
            return sorted(int(path) for path in paths if path.isdigit())

        plan.write_text("".join(web.url(f"/{n}\n") for n in range(6)))
        other.write_text("".join(web.url(f"/{n}\n") for n in (3, 5, 7, 8)))
        assert fetched(plan, round=2, seeds=web.url("/"), scope="host") == [0, 1]
        assert fetched(plan, round=2) == [2, 3]
        assert fetched(other) == [3, 4, 5, 7, 8]
        assert fetched(plan) == [0, 1, 2, 3, 4, 5], "all of both was fetched"


def test_workers_that_are_started_one_by_one_fetch_a_list_once(
    tmp_path: Path, server: RedisServer, client: redis.Redis
) -> None:
    """What waits and is in the list is not fetched again by a later run."""
    shared = {**AT_ONCE, "CRAWLER_FRONTIER_URL": server.url, "CRAWLER_FRONTIER_SHARDS": 8}
    links = {"/": ("/a", "/b"), "/a": ("/of-it",), "/b": (), "/of-it": ()}
    hosts = [f"127.0.15.{number}" for number in range(21, 25)]

    def routes(host: str) -> Routes:
        return {path: page(*to, text=host + path) for path, to in links.items()}

    with ExitStack() as stack:
        webs = [stack.enter_context(site(host, routes(host))) for host in hosts]
        seeds = ",".join(web.url("/") for web in webs)
        crawl(tmp_path / "data0", settings=shared, seeds=seeds, scope="host", round_per_host=1)
        assert [(web.hits["/"], web.hits["/a"]) for web in webs] == [(1, 0)] * 4
        file = tmp_path / "plan.jsonl"
        plan = [sys.executable, "-m", "scrapy", "frontier", "plan", "--per-host", "1"]
        for name, value in (("FRONTIER_URL", server.url), ("DATA_DIR", tmp_path / "data0")):
            plan += ["-s", f"CRAWLER_{name}={value}"]
        before = {key: client.dump(key) for key in client.scan_iter()}
        done = fork_server.run([*plan, "--out", str(file)])
        assert done.returncode == 0, done.stderr
        assert {key: client.dump(key) for key in client.scan_iter()} == before, "it reads only"
        assert "host_cap  4  beyond" in done.stdout
        planned = [json.loads(line)["url"] for line in file.read_text().splitlines()]
        assert sorted(planned) == sorted(web.url("/a") for web in webs)
        client.hset(rounds_key(NAME), "first", 1)  # as where it was stopped before the round ended
        rest_of_round = fork_server.run([*plan[:-6], "-a", "round_per_host=2", *plan[-4:]])
        assert "4 URLs planned of round 1" in rest_of_round.stdout
        assert "round 1 is under way" in fork_server.run(plan).stdout
        client.hset(rounds_key(NAME), "first", 0)
        claim = client.hgetall(root(NAME, 0))
        client.hset(root(NAME, 0), mapping={"owner": "other:1", "until": 1 << 50})
        assert "made when they have stopped" in fork_server.run(plan).stderr
        client.hset(root(NAME, 0), mapping=claim)
        commands = [
            crawl_command(tmp_path / f"data{number}", shared, seeds=seeds, only=file, scope="host")
            for number in (1, 2)
        ]
        workers = [
            stack.enter_context(fork_server.running(command, tmp_path / f"log{number}"))
            for number, command in enumerate(commands)
        ]
        assert [worker.wait(120) for worker in workers] == [0, 0]
        assert [(web.hits["/"], web.hits["/a"], web.hits["/b"]) for web in webs] == [(1, 1, 0)] * 4
        crawl(tmp_path / "data0", settings=shared)
        assert [[web.hits[path] for path in links] for web in webs] == [[1, 1, 1, 1]] * 4
