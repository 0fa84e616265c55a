"""Feeds of the spider `web`: in every format the pages that the columns have, as docs/feeds.md
describes them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from crawler.model.types import ConfigError
from crawler.report.extensions import FeedExport
from crawler.spiders.web import WebSpider
from tests.harness import fork_server
from tests.harness.archive_judges import read_rows
from tests.harness.commands import crawl_command, run
from tests.harness.crawling import QUICK, Crawled, crawl
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, Site, page, site

WORDS = " ".join(f"word{number}" for number in range(80))
NOINDEX = '<meta name="robots" content="noindex">hidden'
ROUTES = {
    "/": page("/a", "/copy", "/near", "/empty", "/gone", "/moved", "/hidden", "/plain", text="hä"),
    "/a": page("/", text=WORDS),
    "/copy": page("/", text=WORDS),
    "/near": page("/a", text=WORDS),
    "/empty": Reply(""),
    "/gone": Reply("gone", 404),
    "/moved": Reply("", 301, headers=(("Location", "/a"),)),
    "/hidden": Reply(NOINDEX),
    "/plain": Reply(b"caf\xe9 \x0c and more", content_type="text/plain"),
}
PAGES = {"/", "/a", "/copy", "/near", "/plain"}
NO_PAGES = {"/empty", "/gone", "/hidden"}


def blocks(kind: str) -> list[str]:
    text = (PROJECT / "docs" / "feeds.md").read_text(encoding="utf-8")
    return re.findall(rf"(?s)```{kind}\n(.*?)```", text)


def feeds_of_the_page() -> Any:
    exported: dict[str, Any] = {}
    exec(blocks("python")[0], exported)  # noqa: S102  # our own page, and the point is that it works
    return exported["FEEDS"]


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    with site("127.0.0.78", ROUTES) as served:
        yield served


@pytest.fixture(scope="module")
def crawled(web: Site, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Crawled]:
    """With feeds of every format, those of the page among them; and where they are."""
    place = tmp_path_factory.mktemp("exports")
    feeds = {
        **feeds_of_the_page(),
        "pages.json": {"format": "json"},
        "pages.csv": {"format": "csv"},
        "pages.xml": {"format": "xml"},
        "pages.pickle": {"format": "pickle"},
        "bodies.jsonl": {"format": "jsonlines", "fields": ["url", "body"]},
        "%(data_dir)s/urls.csv": {"format": "csv", "fields": {"url": "where"}},
    }
    with chdir(place):
        done = crawl(place / "data", WebSpider, {"FEEDS": feeds}, seeds=web.url("/"))
    assert done.reason == "finished"
    assert not [key for key in done.stats if key.startswith("log_count/ERROR")]
    return place, done


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_feed_has_what_the_columns_have(crawled: tuple[Path, Crawled], web: Site) -> None:
    place, done = crawled
    (columns,) = done.data.glob("warc/*.parquet")
    rows = {row["url"]: row for row in read_rows(columns) if not row["noindex"]}
    pages = {page["url"]: page for page in lines(place / "pages.jsonl")}
    assert pages.keys() == rows.keys() == {web.url(path) for path in PAGES}
    same = [
        *("url", "host", "status", "media_type", "language", "title", "links", "canonical"),
        *("digest", "original", "bits", "warc_file", "warc_offset", "simhash"),
    ]
    for url, row in rows.items():
        item = pages[url]
        assert {name: item.get(name) for name in same} == {name: row[name] for name in same}
        assert row["fetched_at"].isoformat() == item["fetched_at"]
    assert pages[web.url("/copy")]["original"] == web.url("/a")
    assert pages[web.url("/near")]["bits"] <= 3


def test_every_format_has_the_same_content(crawled: tuple[Path, Crawled]) -> None:
    place, _ = crawled
    pages = lines(place / "pages.jsonl")
    assert json.loads((place / "pages.json").read_text(encoding="utf-8")) == pages
    with (place / "pages.csv").open(encoding="utf-8", newline="") as table:
        rows = [
            {key: value for key, value in row.items() if value} for row in csv.DictReader(table)
        ]
    assert rows == [{key: str(value) for key, value in page.items()} for page in pages]
    tree = ElementTree.parse(place / "pages.xml")  # noqa: S314  # ours, and can it be read?
    found = [{field.tag: field.text for field in item} for item in tree.getroot()]
    assert found == [{key: str(value) for key, value in page.items()} for page in pages]
    assert (place / "pages.pickle").stat().st_size


def test_a_filter_of_ones_own_lets_all_pass(crawled: tuple[Path, Crawled], web: Site) -> None:
    with (crawled[0] / "answers.csv").open(newline="") as table:
        answers = {row["url"]: row for row in csv.DictReader(table)}
    assert answers.keys() == {web.url(path) for path in PAGES | NO_PAGES}
    assert answers[web.url("/empty")] == {
        "url": web.url("/empty"),
        "status": "200",
        "flaw": "empty",
    }
    assert answers[web.url("/gone")]["status"] == "404"


def test_bodies_are_read_as_documented(crawled: tuple[Path, Crawled], web: Site) -> None:
    bodies = {}
    code = blocks("python")[1] + "        bodies[page['url']] = body\n"
    with chdir(crawled[0]):
        exec(code, {"bodies": bodies})  # noqa: S102  # our own page, and the point is that it works
    expected = {path: ROUTES[path].body for path in PAGES}
    assert bodies == {
        web.url(path): body.encode() if isinstance(body, str) else body
        for path, body in expected.items()
    }


def test_a_feed_may_lie_in_the_data_directory(crawled: tuple[Path, Crawled], web: Site) -> None:
    _, done = crawled
    where, *urls = (done.data / "urls.csv").read_text().split()
    assert where == "where" and set(urls) == {web.url(path) for path in PAGES}


def test_standard_output_holds_only_the_feed(tmp_path: Path, web: Site) -> None:
    command = crawl_command(tmp_path / "data", {"LOG_LEVEL": "ERROR"}, seeds=web.url("/plain"))
    done = run([*command, "-o", "-:jsonlines"])
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["url"] == web.url("/plain")
    assert "Finished: nothing is left to fetch." in done.stderr


def test_the_line_on_the_page_is_one_of_ours(crawled: tuple[Path, Crawled]) -> None:
    (line,) = (json.loads(block) for block in blocks("json"))
    (home,) = [page for page in lines(crawled[0] / "pages.jsonl") if page["depth"] == 0]
    assert line.keys() - {"language", "simhash"} == home.keys()


CHAIN = {f"/{n}": page(f"/{n + 1}", text=f"page {n}") for n in range(9)}


@pytest.fixture(scope="module")
def chain() -> Iterator[Site]:
    """A page leads to the next, so that three can be fetched in each start."""
    with site("127.0.0.79", CHAIN) as served:
        yield served


def begun_and_continued(place: Path, web: Site, **options: Any) -> list[Crawled]:
    """The same crawl, started three times; *options* are of its feed."""
    feeds = {str(place / "%(data_dir)s" / "feed"): options}
    with chdir(place):
        return [
            crawl(Path("data"), WebSpider, {"FEEDS": feeds}, seeds=web.url("/0"), max_pages=pages)
            for pages in (3, 3, 30)
        ]


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_continued_crawl_appends_to_its_json_lines(
    tmp_path: Path, chain: Site, overwrite: bool
) -> None:
    begun_and_continued(tmp_path, chain, format="jsonlines", overwrite=overwrite)
    pages = lines(tmp_path / "data" / "feed")
    assert [page["url"] for page in pages] == [chain.url(path) for path in CHAIN]


@pytest.mark.parametrize("torn", [b'{"url": "http://', b'{"text": "' + b"x" * 200_000])
@pytest.mark.parametrize("has_lines", [True, False])
def test_a_torn_last_line_is_cut_off(
    tmp_path: Path, chain: Site, torn: bytes, has_lines: bool
) -> None:
    data, feed = tmp_path / "data", tmp_path / "feed"
    settings = {"FEEDS": {str(feed): {"format": "jsonlines"}}}
    crawl(data, WebSpider, settings, seeds=chain.url("/0"), max_pages=3)
    feed.write_bytes((feed.read_bytes() if has_lines else b"") + torn)
    crawl(data, WebSpider, settings, seeds=chain.url("/0"))
    urls = [page["url"] for page in lines(feed)]
    assert urls == [chain.url(path) for path in CHAIN][0 if has_lines else 3 :]


@pytest.mark.parametrize("fields", [None, ["status", "url"]])
def test_a_table_that_goes_on_has_one_header(
    tmp_path: Path, chain: Site, fields: list[str] | None
) -> None:
    begun_and_continued(tmp_path, chain, format="csv", overwrite=True, fields=fields)
    with (tmp_path / "data" / "feed").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    assert [(row["url"], row["status"]) for row in rows] == [
        (chain.url(path), "200") for path in CHAIN
    ]


@pytest.mark.parametrize("name", ["pages.json", "pages.xml"])
@pytest.mark.parametrize("option", ["-O", "-o"])
def test_a_format_that_cannot_be_continued_is_refused(
    tmp_path: Path, chain: Site, name: str, option: str
) -> None:
    feed = tmp_path / name
    command = crawl_command(tmp_path / "data", seeds=chain.url("/0"), max_pages=3)
    first = fork_server.run([*command, option, str(feed)])
    assert first.returncode == 0, first.stderr[-2000:]
    written = feed.read_bytes()
    again = fork_server.run([*command, option, str(feed)])
    assert again.returncode == 1
    assert "cannot be appended to: give the feed another name, or a format" in again.stderr
    assert "Traceback" not in again.stderr
    assert feed.read_bytes() == written
    other = fork_server.run([*command, option, str(feed.with_suffix(".jsonl"))])
    assert other.returncode == 0, other.stderr[-2000:]
    assert len(lines(feed.with_suffix(".jsonl"))) == 3


def test_the_feed_of_another_crawl_is_overwritten(tmp_path: Path, chain: Site) -> None:
    feeds = {str(tmp_path / "pages.json"): {"format": "json", "overwrite": True}}
    for data in ("one", "two"):
        crawl(tmp_path / data, WebSpider, {"FEEDS": feeds}, seeds=chain.url("/0"), max_pages=3)
    assert len(json.loads((tmp_path / "pages.json").read_text())) == 3


@pytest.mark.parametrize(
    ("uri", "is_refused"),
    [("s3://bucket/pages.jsonl", True), ("s3://bucket/pages-%(time)s.jsonl", False)],
)
def test_an_object_that_would_be_replaced_is_refused(
    tmp_path: Path, uri: str, is_refused: bool
) -> None:
    (tmp_path / "outcomes.jsonl").write_text("{}\n")
    feeds = {uri: {"format": "jsonlines", "overwrite": True}}
    settings = Settings({**QUICK, "CRAWLER_DATA_DIR": str(tmp_path), "FEEDS": feeds})
    crawler = Crawler(Spider, settings)
    crawler.spider = Spider.from_crawler(crawler, name="any")
    with pytest.raises(ConfigError, match=r"put %\(time\)s into") if is_refused else nullcontext():
        FeedExport(crawler)
