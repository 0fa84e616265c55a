"""A crawl that goes on without its arguments goes on with those of its last start, and `why` judges
by its settings."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from scrapy import Request, Spider

from crawler.spiders.web import WebSpider
from crawler.view.local import LocalView
from tests.harness import fork_server
from tests.harness.crawling import crawl
from tests.servers.loopback import Reply, page, site

ROUTES = {"/": page("/1"), "/1": page("/2"), "/2": page("/3"), "/3": page()}


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


def frontier(verb: str, url: str, settings: dict[str, Any], *typed: str) -> str:
    """Return what `scrapy frontier` prints, in the directory of the project."""
    given = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    done = fork_server.run([*fork_server.SCRAPY, "frontier", verb, url, *given, *typed])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_crawl_keeps_to_the_folders_of_its_seeds(tmp_path: Path, where: dict[str, Any]) -> None:
    data = tmp_path / "data"
    routes = {
        "/docs/index.html": page(
            "/docs/a/", "/docs/b?c=/d", "/docsearch", "/", "//127.0.14.9/docs/"
        ),
        "/docs/a/": page("/docs/a/deep", "/docs/../blog/"),
        "/docs/b?c=/d": page(),
        "/docs/a/deep": page(),
    }
    routes["/docs/moved"] = Reply(status=301, headers=(("Location", "/elsewhere"),))
    routes["/elsewhere"] = page("/elsewhere/too")
    with site("127.0.14.5", routes) as web:
        seeds = ",".join(map(web.url, ("/docs/index.html", "/docs/moved")))
        done = crawl(data, settings=where, seeds=seeds, scope="prefix")
        assert done.reason == "finished"
        assert web.hits == dict.fromkeys(("/robots.txt", *routes), 1)
        settings = {**where, "CRAWLER_DATA_DIR": data}
        said = frontier("why", web.url("/blog/"), settings)
        assert "/blog/ is in no folder of a seed" in said
        for path in ("/docs/new", "/elsewhere"):
            assert "folder of a seed" not in frontier("why", web.url(path), settings)
        crawl(data, settings=where, seeds=web.url("/docs/"), scope="page", only="all")
    assert web.hits == dict.fromkeys(("/robots.txt", *routes, "/docs/"), 1), "no link of it"


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

    def why(url: str, *typed: str) -> str:
        return frontier("why", url, {**where, "CRAWLER_DATA_DIR": data}, *typed)

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


def test_why_judges_as_a_start_in_another_directory_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the files that were named there, and by what an operator has added since."""
    where = {"CRAWLER_DATA_DIR": tmp_path / "data"}
    monkeypatch.chdir(tmp_path)
    with site("127.0.14.6", ROUTES) as web:
        Path("own.toml").write_text(f'[[rule]]\nfor = "{web.url("/no")}"\nrefuse = true\n')
        Path("seeds.txt").write_text(web.url("/"))
        settings = {"CRAWLER_RULES": "own.toml"}
        crawl(tmp_path / "data", settings=settings, seeds="seeds.txt", scope="host", max_pages="1")
    other = "http://127.0.14.7:1"
    assert "refused by the rule operator" in frontier("why", web.url("/no"), where)
    assert "admit it" in frontier("why", web.url("/yes"), where)
    assert "refused by the rule out_of_scope" in frontier("why", f"{other}/found", where)
    frontier("add", f"{other}/added", where)
    assert "admit it" in frontier("why", f"{other}/found", where)


class Named(Spider):
    """A spider whose code names each URL."""

    name = "named"
    root = ""

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.root)


def test_why_judges_what_a_spider_names_by_no_rule_for_links(tmp_path: Path) -> None:
    settings = {"CRAWLER_MAX_PATH_SEGMENTS": 3, "CRAWLER_MAX_URLS_PER_HOST": 1}
    with site("127.0.14.8", ROUTES) as web:
        crawl(tmp_path / "data", Named, settings, root=web.url("/"))
        said = frontier("why", web.url("/a/b/c/d"), {"CRAWLER_DATA_DIR": tmp_path / "data"})
    assert "the rules admit it\n" in said
