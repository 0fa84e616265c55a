"""A crawl that goes on without its arguments goes on with those of its last start, and `why` judges
by its settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from crawler.spiders.web import WebSpider
from crawler.view.local import LocalView
from tests.harness import fork_server
from tests.harness.crawling import crawl
from tests.servers.loopback import page, site
from tests.servers.redis import RedisServer

ROUTES = {"/": page("/1"), "/1": page("/2"), "/2": page("/3"), "/3": page()}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=["embedded", "shared"])
def where(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "embedded":
        return {}
    server = request.getfixturevalue("server")
    server.client().flushall()
    return {"CRAWLER_FRONTIER_URL": server.url, "CRAWLER_FRONTIER_SHARDS": 4}


def test_missing_arguments_are_those_of_the_last_start(
    tmp_path: Path, where: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    with site("127.0.14.3", ROUTES) as web, caplog.at_level(logging.INFO):
        crawl(data, settings=where, seeds=web.url("/"), max_depth="1", max_pages="1")
        assert "kept of the last start" not in caplog.text
        done = crawl(data, settings=where)
        assert done.reason == "finished"
        assert "/2" not in web.asked and "/1" in web.asked
        (message,) = (each for each in caplog.messages if each.startswith("Arguments "))
        assert "max_depth='1'" in message and "max_pages" not in message
        crawl(data, settings=where, max_depth="2", seeds=web.url("/"))
        assert "max_depth='2' (was '1')" in caplog.text
        if not where:
            with LocalView(data) as view:
                assert view.last_start().arguments == {"seeds": web.url("/"), "max_depth": "2"}


def test_an_empty_argument_clears_what_was_kept(tmp_path: Path, where: dict[str, Any]) -> None:
    data = tmp_path / "data"
    with site("127.0.14.4", ROUTES) as web:
        crawl(data, settings=where, seeds=web.url("/"), deny="/2", max_pages="1")
        done = crawl(data, settings=where, deny="")
    assert done.reason == "finished"
    assert {"/", "/1", "/2", "/3"} <= set(web.asked)


class Own(WebSpider):
    """A spider with settings of its own, as Python values."""

    custom_settings: ClassVar = {
        "CRAWLER_CONTACT": "https://crawl-bot.org/",
        "CRAWLER_MAX_PATH_SEGMENTS": 3,
        "CRAWLER_DENY_EXTENSIONS": ("abc",),
        "CRAWLER_ALLOW_INSIDE": ["127.0.0.0/8"],
        "CRAWLER_MAX_URLS_PER_DOMAIN": None,
    }


def test_why_judges_by_the_settings_of_the_last_start(
    tmp_path: Path, where: dict[str, Any]
) -> None:
    data = tmp_path / "data"

    def why(path: str, *typed: str) -> str:
        chosen = {**where, "CRAWLER_DATA_DIR": data}
        given = [part for name, value in chosen.items() for part in ("-s", f"{name}={value}")]
        command = [*fork_server.SCRAPY, "frontier", "why", path, *given, *typed]
        done = fork_server.run(command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with site("127.0.14.5", ROUTES) as web:
        first = {**where, "CRAWLER_MAX_PATH_SEGMENTS": 9}
        crawl(data, settings=first, seeds=web.url("/"), max_pages="1")
        assert "contact address" in why("http://other.example/"), "it had none"
        assert "admit it" in why(web.url("/a/b/c/d"))
        crawl(data, Own, settings=where, seeds=web.url("/"), max_pages="1")
    assert "admit it" in why("http://other.example/")
    assert "segments" in why(web.url("/a/b/c/d"))
    assert "abc" in why(web.url("/x.abc"))
    assert "admit it" in why(web.url("/x.jpg"))
    typed = ("-s", "CRAWLER_MAX_PATH_SEGMENTS=9")
    assert "admit it" in why(web.url("/a/b/c/d"), *typed), "what is typed goes before"
