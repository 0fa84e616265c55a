"""Our archives replayed by pywb, and seen in a browser: a page, a revisit, one of an earlier crawl,
a truncated page, a redirect, an error; of a page that a browser has made what the server sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops

from tests.harness.archive_judges import archived
from tests.harness.crawling import crawl
from tests.harness.fake_browser import PLACE, FakeBrowser
from tests.servers.loopback import Reply, Site, site
from tests.servers.pywb import Browser, Pywb, pywb

CSS = "body{background:#fe6;margin:40px} h1{color:#06c;font:60px monospace} b{background:#0f0}"
START = (
    "<!doctype html><html><head><title>Silk</title><link rel=stylesheet href=/look.css></head>"
    "<body><h1>Fine silk</h1><p id=said>no script ran</p><b>wide and light</b>"
    "<script>document.getElementById('said').textContent = 'a script ran';</script>"
    "<a href=/first></a><a href=/second></a><a href=/moved></a><a href=/long></a><a href=/none></a>"
    "</body></html>"
)
HEADER = 90  # rows of pixels: pywb says above a page what it is
LONG = "<p>" + "silk " * 10_000
ROUTES = {
    "/": Reply(START),
    "/look.css": Reply(CSS, content_type="text/css"),
    "/first": Reply("<p>the same words</p>"),
    "/second": Reply("<p>the same words</p>"),
    "/moved": Reply("moved", 302, headers=(("Location", "/first"),)),
    "/long": Reply(LONG),
    "/again": Reply("<p>the same words</p>"),
    "/start": Reply(START),
}
SETTINGS: dict[str, Any] = {
    "CRAWLER_HTML_MAX_BYTES": 20_000,
    "DOWNLOADER_MIDDLEWARES": {FakeBrowser: PLACE},
    "TEST_DOMS": {
        "/": START.replace("no script ran", "a script ran").encode(),
        "/start": START.replace("no script ran", "a browser has made it").encode(),
    },
}


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Pywb, Path]]:
    home = tmp_path_factory.mktemp("pywb")
    with site("127.0.73.2", ROUTES) as served:
        seeds = ",".join(map(served.url, ("/", "/look.css")))
        crawl(home / "data", settings=SETTINGS, seeds=seeds)
        # These bodies are in the archive of the earlier crawl only.
        later = ",".join(map(served.url, ("/again", "/start")))
        known = {"max_depth": "0", "known": str(home / "data")}
        crawl(home / "later", settings=SETTINGS, seeds=later, **known)
        live = Browser(home / "browser").screenshot(served.url("/"), home / "live.png")
    (home / "pywb").mkdir()
    with pywb(home / "pywb", home.glob("*/warc/*.warc.gz")) as serving:
        yield served, serving, live


def test_a_page(replay: tuple[Site, Pywb, Path]) -> None:
    served, serving, live = replay
    answer = serving.ask(served.url("/"))
    assert answer.status == 200 and b"Fine silk" in answer.body
    assert b"no script ran" in answer.body, "it is as it was sent, and not its DOM"
    dom = archived(live.parent / "data")["conversion", f"urn:dom:{served.url('/')}"]
    assert dom[1] == SETTINGS["TEST_DOMS"]["/"]


@pytest.mark.parametrize("path", ["/first", "/second"])
def test_a_page_and_its_revisit(replay: tuple[Site, Pywb, Path], path: str) -> None:
    served, serving, _ = replay
    answer = serving.ask(served.url(path))
    assert answer.status == 200 and b"<p>the same words</p>" in answer.body


@pytest.mark.parametrize(
    ("path", "words"), [("/again", b"<p>the same words</p>"), ("/start", b"Fine silk")]
)
def test_a_page_whose_bytes_an_earlier_crawl_has(
    replay: tuple[Site, Pywb, Path], path: str, words: bytes
) -> None:
    served, serving, live = replay
    found = archived(live.parent / "later")
    assert ("revisit", served.url(path)) in found and ("response", served.url(path)) not in found
    answer = serving.ask(served.url(path))
    assert answer.status == 200 and words in answer.body


def test_a_truncated_page_comes_as_far_as_it_was_kept(replay: tuple[Site, Pywb, Path]) -> None:
    served, serving, _ = replay
    answer = serving.ask(served.url("/long"))
    assert answer.status == 200 and 1_000 < answer.body.count(b"silk") < LONG.count("silk")


def test_a_redirect_leads_into_the_archive(replay: tuple[Site, Pywb, Path]) -> None:
    served, serving, _ = replay
    answer = serving.ask(served.url("/moved"))
    assert answer.status == 302 and answer.headers["Location"].endswith(served.url("/first"))
    assert "gossamer" in answer.headers["Location"]


def test_an_error_page_is_one(replay: tuple[Site, Pywb, Path]) -> None:
    served, serving, _ = replay
    answer = serving.ask(served.url("/none"))
    assert answer.status == 404 and b"not here" in answer.body


def test_the_replayed_page_equals_the_original(
    replay: tuple[Site, Pywb, Path], tmp_path: Path
) -> None:
    served, serving, live = replay
    browser = Browser(tmp_path / "browser")
    replayed = browser.screenshot(serving.url(served.url("/")), tmp_path / "replayed.png")
    with Image.open(live) as before, Image.open(replayed) as after:
        assert before.size == after.size and len(before.getcolors(1 << 20) or ()) > 3
        width, height = before.size
        page = before.convert("RGB").crop((0, 0, width, height - HEADER))
        framed = after.convert("RGB").crop((0, HEADER, width, height))
        assert ImageChops.difference(page, framed).getbbox() is None
