"""Runs that fetch only what failed, or the URLs of a list, into the same archive."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crawler.config.arguments import OTHER_READS
from crawler.model.types import CrawlerError
from tests.harness.crawling import crawl
from tests.servers.loopback import Ask, Reply, page, site

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
        before = Counter(web.hits)
        of_later = {"only": str(file), OTHER_READS: "yes"}
        crawl(tmp_path / "data", settings={**where, **AT_ONCE}, **of_later)
        assert not (web.hits - before).keys() & routes.keys(), "the first worker of a run adds them"
        file.write_text("# none\n")
        with pytest.raises(CrawlerError, match="gives no seed"):
            crawl(tmp_path / "data", settings={**where, **AT_ONCE}, only=str(file))
        with pytest.raises(CrawlerError, match="does not exist"):
            crawl(tmp_path / "data", settings={**where, **AT_ONCE}, only="./none.txt")
        with pytest.raises(CrawlerError, match="only is 'chnged'; want all or new or failed"):
            crawl(tmp_path / "data", settings={**where, **AT_ONCE}, only="chnged")
