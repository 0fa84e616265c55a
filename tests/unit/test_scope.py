"""Which URLs belong to a crawl."""

from __future__ import annotations

import re

import pytest

from crawler.model.choices import ScopeChoice
from crawler.model.url import split
from crawler.policy.scope import Reason, Scope

SEEDS = frozenset({"www.example.com", "docs.example.co.uk"})


@pytest.mark.parametrize(
    ("mode", "hostname", "inside"),
    [
        pytest.param(ScopeChoice.ANY, "anywhere.example", True, id="any host"),
        pytest.param(ScopeChoice.HOST, "www.example.com", True, id="a seed's host"),
        pytest.param(ScopeChoice.HOST, "example.com", True, id="without www"),
        pytest.param(ScopeChoice.HOST, "www.docs.example.co.uk", True, id="with www"),
        pytest.param(ScopeChoice.HOST, "docs.example.co.uk.", True, id="with the root's dot"),
        pytest.param(ScopeChoice.HOST, "blog.example.com", False, id="another host"),
        pytest.param(ScopeChoice.DOMAIN, "blog.example.com", True, id="a seed's domain"),
        pytest.param(ScopeChoice.DOMAIN, "a.b.example.co.uk", True, id="under a long suffix"),
        pytest.param(ScopeChoice.DOMAIN, "other.co.uk", False, id="not its neighbour there"),
        pytest.param(ScopeChoice.DOMAIN, "notexample.com", False, id="not what ends like it"),
    ],
)
def test_hosts(mode: ScopeChoice, hostname: str, inside: bool) -> None:
    refusal = Scope(mode=mode, seeds=SEEDS).host_refusal(hostname)
    assert (refusal is None) is inside
    assert refusal is None or refusal.reason is Reason.OUT_OF_SCOPE


BLOG = Scope(
    allow=(re.compile("/blog/"), re.compile(r"\.pdf$")), deny=(re.compile("/tag/"),), max_depth=3
)

PAGES = Scope(denied_types=frozenset({"gz", "mp4", "zip"}))


@pytest.mark.parametrize(
    ("scope", "path", "depth", "want"),
    [
        pytest.param(Scope(), "/page", 1000, None, id="no bounds by default"),
        pytest.param(BLOG, "/blog/1", 3, None, id="allowed, at the last depth"),
        pytest.param(BLOG, "/paper.pdf", 1, None, id="allowed by the second pattern"),
        pytest.param(BLOG, "/blog/1", 4, Reason.MAX_DEPTH, id="too deep"),
        pytest.param(BLOG, "/shop/", 1, Reason.NOT_ALLOWED, id="not allowed"),
        pytest.param(BLOG, "/blog/tag/x", 1, Reason.DENIED, id="a denial over an allowance"),
        pytest.param(BLOG, "/", 0, None, id="a seed needs no allowance"),
        pytest.param(BLOG, "/tag/x", 0, Reason.DENIED, id="but is denied"),
        pytest.param(Scope(max_depth=0), "/", 0, None, id="only seeds"),
        pytest.param(Scope(max_depth=0), "/", 1, Reason.MAX_DEPTH, id="and no links"),
        pytest.param(Scope(deny=(re.compile("[?]"),)), "/?x", 1, Reason.DENIED, id="in the query"),
        pytest.param(PAGES, "/film.MP4", 1, Reason.FILE_TYPE, id="a file type, in capitals"),
        pytest.param(PAGES, "/a.tar.gz?x=1", 1, Reason.FILE_TYPE, id="before a query"),
        pytest.param(PAGES, "/film.mp4", 0, None, id="a seed's type is as wanted"),
        pytest.param(PAGES, "/get.php?file=a.zip", 1, None, id="the query has no type"),
        pytest.param(PAGES, "/a.zip/info", 1, None, id="nor has a directory"),
        pytest.param(PAGES, "/zip", 1, None, id="nor has a bare name"),
        pytest.param(PAGES, "/paper.pdf", 1, None, id="another type"),
        pytest.param(Scope(), "/a.zip", 1, None, id="all types by default"),
    ],
)
def test_urls(scope: Scope, path: str, depth: int, want: Reason | None) -> None:
    url = f"https://example.com{path}"
    refusal = scope.refusal(url, split(url).path, depth, named=depth == 0)
    assert (refusal.reason if refusal else None) is want
