"""A crawl that is resumed with other rules: waiting URLs are checked by the new rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawler.config.settings import read_config
from crawler.report.why_text import why_text
from crawler.view.local import LocalView
from crawler.view.why import why
from tests.harness.crawling import Crawled, crawl
from tests.servers.loopback import Site, page, site

A, B = ([f"/{name}/{number}" for number in range(12)] for name in "ab")
ROUTES = {"/": page(*A, *B), **{path: page(text=path) for path in (*A, *B)}}


def pages(web: Site, begin: int = 0) -> set[str]:
    return {path for path in web.asked[begin:] if path != "/robots.txt"}


def refused(done: Crawled) -> dict[str, str]:
    """By path the rule."""
    found = (each for each in done.outcomes if each.fate == "refused")
    return {"/" + each.url.split("/", 3)[3]: each.reason.partition(":")[0] for each in found}


def test_waiting_urls_are_checked_with_the_rules_of_this_start(
    tmp_path: Path, where: dict[str, Any]
) -> None:
    with site("127.0.14.1", ROUTES) as web:
        given = {"settings": where, "seeds": web.url("/")}
        crawl(tmp_path / "data", max_pages="3", **given)
        first = pages(web)
        begin = len(web.asked)
        denied = crawl(tmp_path / "data", deny="/a/", **given)
        assert denied.reason == "finished"
        assert pages(web, begin) | first == {"/", *B} | (first & set(A))
        left = set(A) - first
        assert refused(denied) == dict.fromkeys(left, "denied")
        assert denied.stats["crawler/refused_waiting/denied"] == len(left)
        begin = len(web.asked)
        admitted = crawl(tmp_path / "data", deny="", **given)
        assert admitted.reason == "finished"
        assert pages(web, begin) == left
    assert sorted(path for path in web.asked if path != "/robots.txt") == sorted(ROUTES)


@pytest.mark.parametrize(
    ("settings", "arguments", "rule"),
    [
        pytest.param({}, {"max_depth": "0"}, "max_depth", id="a depth"),
        pytest.param({}, {"allow": "/none/"}, "not_allowed", id="what is allowed"),
        pytest.param({"CRAWLER_MAX_PATH_SEGMENTS": 1}, {}, "path_too_deep", id="a trap"),
        pytest.param({"CRAWLER_MAX_URLS_PER_HOST": 2}, {}, "host_budget", id="a host's budget"),
        pytest.param(
            {"CRAWLER_MAX_URLS_PER_DOMAIN": 2}, {}, "domain_budget", id="a domain's budget"
        ),
    ],
)
def test_every_rule_counts(
    tmp_path: Path,
    where: dict[str, Any],
    settings: dict[str, Any],
    arguments: dict[str, str],
    rule: str,
) -> None:
    with site("127.0.14.1", ROUTES) as web:
        seeds = web.url("/")
        crawl(tmp_path / "data", settings=where, seeds=seeds, max_pages="2")
        begin = len(web.asked)
        settings = {**where, **settings}
        done = crawl(tmp_path / "data", settings=settings, seeds=seeds, **arguments)
    assert done.reason == "finished"
    assert pages(web, begin) == set()
    assert set(refused(done).values()) == {rule}
    assert len(refused(done)) == 23


def test_without_a_contact_waiting_urls_of_public_hosts_are_not_fetched(tmp_path: Path) -> None:
    with site("127.0.14.2", {"/": page("http://public.example/")}) as web:
        contact = {"CRAWLER_CONTACT": "ops@w3.org"}
        crawl(tmp_path / "data", settings=contact, seeds=web.url("/"), max_pages="1")
        done = crawl(tmp_path / "data", seeds=web.url("/"))
    assert done.reason == "finished"
    assert refused(done) == {"/": "no_contact"}
    config = read_config({})
    with LocalView(tmp_path / "data") as view:
        now = view.now()
        answer = why("http://public.example/", view, config, {})
    text = "\n".join(why_text(answer, now))
    assert "refused by a rule when its turn came" in text
    assert "no_contact" in text
