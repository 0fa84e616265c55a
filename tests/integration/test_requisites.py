"""`-a requisites=yes`: pages whole. Judged by the servers' logs, and by a browser that shows the
archive after the servers are gone. `archive missing`: what they lack all the same."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from zipfile import ZipFile

import pytest
from PIL import Image, ImageChops

from tests.harness import fork_server
from tests.harness.crawling import crawl
from tests.servers.loopback import Reply, site
from tests.servers.pywb import Browser, pywb

HEADER = 90  # rows of pixels: pywb says above a page what it is
PAGE, OTHER = "127.0.74.2", "127.0.74.3"


def picture(colour: str) -> Reply:
    drawn = io.BytesIO()
    Image.new("RGB", (60, 60), colour).save(drawn, "PNG")
    return Reply(drawn.getvalue(), content_type="image/png")


def routes(other: str) -> dict[str, Reply]:
    return {
        "/": Reply(
            f"<!doctype html><title>Whole</title><link rel=stylesheet href={other}/look.css>"
            f"<style>p {{ background: url({other}/inline.png) }}</style>"
            "<meta name=robots content=nofollow>"
            f"<meta property=og:image content={other}/preview.png>"
            f"<link rel=manifest href={other}/app.json>"
            f"<body><h1>Fine silk</h1><p id=said>no script ran</p><img src={other}/a.png>"
            f"<img srcset='{other}/b.png 1x, {other}/c.png 2x'>"
            f"<div style=\"background: url('{other}/attribute.png'); height: 60px\"></div>"
            f"<iframe src={other}/frame height=90></iframe><script src={other}/run.js></script>"
            f"<img data-src={other}/late.png data-srcset='{other}/late2.png 2x' src='data:,'>"
            f"<noscript><img src={other}/late3.png></noscript><i data-bg={other}/late4.png></i>"
            f"<a href=/deeper>too deep</a><a href={other}/page>out of scope</a></body>"
        ),
        "/deeper": Reply("<p>too deep"),
    }


ELSEWHERE = {
    "/look.css": Reply(
        "@import 'more/second.css'; h1 { color: #06c } @font-face { font-family: f;"
        " src: url(f.woff2) } body { margin: 40px; font-family: f, monospace }",
        content_type="text/css",
    ),
    "/more/second.css": Reply(
        "@import url(third.css); body { background: #fe6 url(../moved.png) no-repeat right top }",
        content_type="text/css",
    ),
    "/more/third.css": Reply(
        "@import url(/4.css); h1 { border: 3px solid #0a0 }", content_type="text/css"
    ),
    **{
        f"/{hops}.css": Reply(f"@import '{hops + 1}.css';", content_type="text/css")
        for hops in range(4, 9)
    },
    "/moved.png": Reply("", 302, headers=(("Location", "/a.png"),)),
    "/a.png": picture("red"),
    "/b.png": picture("blue"),
    "/c.png": picture("blue"),
    "/inline.png": picture("#cfc"),
    "/attribute.png": picture("#fcf"),
    "/run.js": Reply(
        "document.getElementById('said').textContent = 'a script ran'",
        content_type="text/javascript",
    ),
    "/frame": Reply(
        "<body bgcolor=#cff><p>a frame<a href=/page>on</a><img src=/framed.png></body>"
    ),
    "/framed.png": picture("black"),
    "/app.json": Reply(
        '{"name": "a", "icons": [{"src": "app.png"}, {"src": 5}, "app2.png"]}',
        content_type="application/json",
    ),
    **{f"/{name}.png": picture("white") for name in ("late", "late2", "late3", "late4")},
    "/app.png": picture("blue"),
    "/preview.png": picture("red"),
    "/page": Reply("<p>out of scope"),
}
NEEDED = {
    *("/4.css", "/5.css"),  # five hops, and no more
    *("/look.css", "/more/second.css", "/more/third.css", "/moved.png", "/f.woff2", "/run.js"),
    *("/a.png", "/b.png", "/c.png", "/inline.png", "/attribute.png", "/frame", "/framed.png"),
    *("/late.png", "/late2.png", "/late3.png", "/late4.png"),
    *("/preview.png", "/app.json", "/app.png"),
}


@dataclass(frozen=True, slots=True)
class Crawled:
    url: str
    asked: Counter[str]  # of the other host
    own_asked: Counter[str]
    live: Path
    archive: Path


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    home = tmp_path_factory.mktemp("whole")
    with site(OTHER, ELSEWHERE) as other, site(PAGE, routes(other.url(""))) as served:
        live = Browser(home / "browser").screenshot(served.url("/"), home / "live.png")
        other.asked.clear()
        served.asked.clear()
        arguments = {"scope": "host", "max_depth": 0, "requisites": "yes", "seeds": served.url("/")}
        settings = {"CRAWLER_ALLOW_INSIDE": "127.0.74.0/24"}
        crawl(home / "data", settings=settings, **arguments)
    return Crawled(served.url("/"), other.hits, served.hits, live, home / "data" / "warc")


def test_what_a_page_needs_is_fetched_beyond_scope_and_depth_and_nothing_else(
    crawled: Crawled,
) -> None:
    assert set(crawled.asked) == {*NEEDED, "/robots.txt"}
    assert set(crawled.own_asked) == {"/", "/robots.txt", "/favicon.ico"}
    assert set((crawled.asked + crawled.own_asked).values()) <= {1, 2}, "robots.txt of both"


def test_the_page_looks_in_the_archive_as_it_did(crawled: Crawled, tmp_path: Path) -> None:
    (tmp_path / "pywb").mkdir()
    with pywb(tmp_path / "pywb", crawled.archive.glob("*.warc.gz")) as serving:
        shown = tmp_path / "replayed.png"
        Browser(tmp_path / "browser").screenshot(serving.url(crawled.url), shown)
    with Image.open(crawled.live) as before, Image.open(shown) as after:
        width, height = before.size
        page = before.convert("RGB").crop((0, 0, width, height - HEADER))
        framed = after.convert("RGB").crop((0, HEADER, width, height))
        differing = ImageChops.difference(page, framed).getbbox()
        assert len(page.getcolors(1 << 20) or ()) > 8
    assert differing is None


def test_a_package_lists_pages_and_not_what_they_need(crawled: Crawled, tmp_path: Path) -> None:
    package = tmp_path / "site.wacz"
    command = [sys.executable, "-m", "scrapy", "archive", "pack", str(package)]
    done = fork_server.run([*command, "-s", f"CRAWLER_DATA_DIR={crawled.archive.parent}"])
    assert "1 file, 2 pages" in done.stdout, done.stderr
    with ZipFile(package) as packed:
        _, *pages = map(json.loads, packed.read("pages/pages.jsonl").splitlines())
    assert [urlsplit(each["url"]).path for each in pages] == ["/", "/frame"]


def test_the_budget_of_a_host_counts_what_a_page_needs(tmp_path: Path) -> None:
    with site(OTHER, ELSEWHERE) as other, site(PAGE, routes(other.url(""))) as served:
        arguments = {"scope": "host", "requisites": "yes", "seeds": served.url("/")}
        settings = {"CRAWLER_ALLOW_INSIDE": "127.0.74.0/24", "CRAWLER_MAX_URLS_PER_HOST": 3}
        crawl(tmp_path / "data", settings=settings, **arguments)
    asked = set(other.hits) - {"/robots.txt"}
    assert len(asked) == 3 and asked < NEEDED


def test_a_frame_that_names_another_page_is_kept_as_what_it_is(tmp_path: Path) -> None:
    """Nothing fetches that other page, so it can be no copy of it."""
    pages = {
        "/": Reply("<meta name=robots content=nofollow><p>a page<iframe src=/frame></iframe>"),
        "/frame": Reply("<link rel=canonical href=/named><p>a frame of another name"),
        "/named": Reply("<p>named"),
    }
    with site(PAGE, pages) as served:
        arguments = {"scope": "host", "requisites": "yes", "seeds": served.url("/")}
        settings = {"CRAWLER_CANONICAL_IDENTITY": True}
        done = crawl(tmp_path / "data", settings=settings, **arguments)
    assert set(served.hits) == {"/", "/frame", "/robots.txt", "/favicon.ico"}
    (frame,) = (each for each in done.outcomes if each.url.endswith("/frame"))
    assert frame.reason != "alias" and not frame.original, frame


LACKING = {
    "/": Reply(
        "<title>A</title><link rel=stylesheet href=/look.css><link rel=icon href=data:,>"
        "<img src=/good.png><img src=/moved.png><img src=/secret.png><img src=/denied.png>"
        "<iframe src=/frame></iframe><script src=/no-more.js></script>"
        "<a href=/two>two</a><a href=/three>three</a>"
    ),
    "/two": Reply(
        "<title>B</title><link rel=icon href=data:,><link rel=stylesheet href=/old.css>b"
    ),
    "/three": Reply("<title>C</title><link rel=icon href=data:,><img src=/good.png>whole"),
    "/look.css": Reply("@import 'gone.css'; p { color: red }", content_type="text/css"),
    "/old.css": Reply("", 301, headers=(("Location", "/look.css"),)),
    "/good.png": picture("red"),
    "/moved.png": Reply("", 302, headers=(("Location", "/nothing.png"),)),
    "/secret.png": picture("blue"),
    "/denied.png": picture("blue"),
    "/frame": Reply("<link rel=icon href=data:,><p>framed<img src=/broken.png>"),
    "/broken.png": Reply("", 500),
    "/no-more.js": Reply("", 410),
    "/robots.txt": Reply("User-agent: *\nDisallow: /secret", content_type="text/plain"),
}


def test_what_pages_lack_is_listed_with_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with site(PAGE, LACKING) as served:
        arguments = {"scope": "host", "requisites": "yes", "deny": "/denied"}
        settings = {"CRAWLER_RETRIES": 1, "CRAWLER_SOFT_404": False}
        crawl(data, settings=settings, seeds=served.url("/"), **arguments)

    def missing(*words: object) -> str:
        command = [sys.executable, "-m", "scrapy", "archive", "missing", *map(str, words)]
        done = fork_server.run([*command, "-s", f"CRAWLER_DATA_DIR={data}"])
        assert done.returncode == 0, done.stderr
        return done.stdout.replace(served.root, "")

    found = json.loads(missing("--json"))
    rows = [tuple(row) for row in found["finding"]["rows"]]
    assert rows == [
        ("/", "/broken.png", "image", "500", True, "/frame"),
        ("/", "/denied.png", "image", "never fetched", False, None),
        ("/", "/gone.css", "style", "404", False, "/look.css"),
        ("/", "/moved.png", "image", "404", False, None),
        ("/", "/no-more.js", "script", "410", False, None),
        ("/", "/secret.png", "image", "robots.txt: line 2: Disallow: /secret", False, None),
        ("/two", "/gone.css", "style", "404", False, "/old.css"),
    ]
    assert (found["pages"], found["html_pages"], found["files"]) == (2, 4, 6)
    told = missing("-o", tmp_path / "missing.csv")
    assert "2 of 4 pages lack 6 files" in told
    assert "/two lacks /gone.css (style, by /old.css): 404" in told
    assert "-a only=failed fetches again what has failed, 1 file" in told
    assert (tmp_path / "missing.csv").read_text().count("\n") == len(rows) + 1
