"""Content of many types in one crawl: pages, copies, and the reasons of the rest."""

from __future__ import annotations

import gzip
import random
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from crawler.archive.columns_companion import ColumnsCompanion
from crawler.config.settings import read_config
from crawler.content.parsing import rebuild_settings
from tests.harness.archive_judges import Read, read_folder
from tests.harness.crawling import Crawled, crawl
from tests.servers.loopback import Reply, Site, page, site

WORDS = [f"w{number}" for number in range(3_000)]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(2_000)
XML = "application/xml"


def prose(seed: int, words: int = 400) -> list[str]:
    return random.Random(seed).choices(WORDS, k=words)


def story(seed: int, *links: str, edited: int = 0, title: str = "") -> Reply:
    """A page of prose, of which *edited* words were changed."""
    words = prose(seed)
    for position in range(edited):
        words[position * 97 % len(words)] = f"changed{position}"
    anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    return Reply(
        f"<html lang=en><title>{title or f'Story {seed}'}</title><body>{anchors}"
        f"<p>{' '.join(words)}</p></body></html>"
    )


def sitemap(root: str, *paths: str) -> bytes:
    listed = "".join(
        f"<url><loc>{root}{path}</loc><lastmod>2024-05-06</lastmod><priority>0.9</priority></url>"
        for path in paths
    )
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    return f'<?xml version="1.0"?><urlset xmlns="{space}">{listed}</urlset>'.encode()


def feed(root: str) -> str:
    return (
        "<?xml version='1.0'?><rss version='2.0'><channel><title>News</title><item>"
        f"<title>One</title><link>{root}/of-the-feed</link></item></channel></rss>"
    )


def index(root: str, *paths: str) -> str:
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    listed = "".join(f"<sitemap><loc>{root}{path}</loc></sitemap>" for path in paths)
    return f'<sitemapindex xmlns="{space}">{listed}</sitemapindex>'


FOUND = ("list", "packed-list", "packed-feed", "copy", "empty")
LOST = " ".join(prose(99, 120))


def not_found(path: str) -> Reply:
    """Status 200, and the name that was asked for in its text."""
    return Reply(f"<title>Page not found</title><p>{path} is gone. {LOST}</p>")


class Forgetful(dict[str, object]):
    """Answer 200 to any name under /lost/."""

    def get(self, path: str, otherwise: object = None) -> object:  # type: ignore[override]  # a table that never ends
        if path not in self and path.startswith("/lost/"):
            return not_found(path)
        return super().get(path, otherwise)


def routes() -> Forgetful:
    web = Forgetful()
    named = "Sitemap: /index.xml\nSitemap: /list\nSitemap: /moved-list\n"
    robots = Reply(f"User-agent: *\n{named}", content_type="text/plain")
    web.update(
        {
            "/robots.txt": robots,
            "/": page(
                "/a",
                "/copy",
                "/near",
                "/empty",
                "/lies",
                "/lost/one.html",
                "/text.txt",
                "/feed.xml",
                "/named",
                "/gone",
                "/gone-too",
                text="start",
            ),
            "/a": story(1, "/from-a"),
            "/from-a": story(2, "/hushed"),
            "/hushed": replace(story(1, "/from-a"), headers=(("X-Robots-Tag", "noindex"),)),
            "/copy": replace(story(1, "/from-a"), headers=(("Refresh", "9; /of-the-copy"),)),
            "/near": story(1, "/from-near", edited=1),
            "/from-near": story(3),
            "/empty": Reply("", headers=(("Refresh", "0; url='/of-the-empty'"),)),
            "/lies": Reply(PNG),
            "/lost/one.html": not_found("/lost/one.html"),
            "/text.txt": Reply(" ".join(prose(4)), content_type="text/plain"),
            "/feed.xml": Reply("", content_type=XML),
            "/of-the-feed": story(5),
            "/named": Reply('<link rel=canonical href="/its-name">' + " ".join(prose(6))),
            "/its-name": Reply('<link rel=canonical href="/its-name">' + " ".join(prose(6))),
            "/moved-list": Reply("moved", 301, headers=(("Location", "/packed-list"),)),
            **{f"/of-the-{kind}": story(20 + n) for n, kind in enumerate(FOUND)},
            "/of-the-map": story(7, "/under-the-map"),
            "/under-the-map": story(8),
            "/gone": Reply("There is nothing here.", 404),
            "/gone-too": Reply("There is nothing here.", 404),
        }
    )
    return web


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Crawled, Site]:
    web = routes()
    with site("127.0.61.1", web) as served:
        web["/feed.xml"] = Reply(feed(served.root), content_type=XML)
        listed = ("/index.xml", "/map.xml.gz", "/packed-feed")
        web["/index.xml"] = Reply(index(served.root, *listed), content_type=XML)
        # The declared types are wrong: what is named as a sitemap is what is in it.
        web["/list"] = Reply(f"\ufeff{served.root}/of-the-list\n", content_type="text/html")
        for path, text in (
            ("/packed-list", f"{served.root}/of-the-packed-list\r\n"),
            ("/packed-feed", feed(served.root).replace("of-the", "of-the-packed")),
        ):
            web[path] = Reply(gzip.compress(text.encode()), content_type="text/plain")
        packed = gzip.compress(sitemap(served.root, "/of-the-map"))
        web["/map.xml.gz"] = Reply(packed, content_type="application/x-gzip")
        data = tmp_path_factory.mktemp("content")
        settings = {"CRAWLER_CANONICAL_IDENTITY": True}
        return crawl(data, settings=settings, seeds=served.url("/")), served


def reasons(crawled: tuple[Crawled, Site]) -> dict[str, str]:
    return {one.url.removeprefix(crawled[1].root): one.reason for one in crawled[0].outcomes}


def records(crawled: tuple[Crawled, Site], kind: str) -> dict[str, Read]:
    read = read_folder(crawled[0].data / "warc").values()
    return {one.url.removeprefix(crawled[1].root): one for one in read if one.kind == kind}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        pytest.param("/a", "", id="a page"),
        pytest.param("/copy", "duplicate", id="the very bytes of another"),
        pytest.param("/hushed", "noindex", id="and its author wants no copy kept"),
        pytest.param("/near", "near-duplicate", id="one word is another"),
        pytest.param("/empty", "empty", id="no body"),
        pytest.param("/lies", "lying_type", id="a picture that says it is HTML"),
        pytest.param("/lost/one.html", "soft_404", id="what its host says of any name"),
        pytest.param("/text.txt", "", id="plain text"),
        pytest.param("/of-the-feed", "", id="found in a feed"),
        pytest.param("/named", "alias", id="it names another as its own"),
        pytest.param("/its-name", "", id="it names itself"),
        pytest.param("/of-the-map", "", id="found in a sitemap, zipped, behind an index"),
        pytest.param("/under-the-map", "", id="found behind that"),
        pytest.param("/of-the-empty", "", id="where a page without a body is refreshed"),
        pytest.param("/of-the-copy", "", id="where a copy is, and its original is not"),
        pytest.param("/of-the-list", "", id="found in a text that robots.txt names"),
        pytest.param("/of-the-packed-list", "", id="and in one zipped, behind a redirect"),
        pytest.param("/of-the-packed-feed", "", id="found in a feed, zipped, behind an index"),
        pytest.param("/from-near", "", id="links of a near-duplicate are followed"),
    ],
)
def test_the_fate_of_each_url(crawled: tuple[Crawled, Site], path: str, reason: str) -> None:
    assert reasons(crawled)[path] == reason


def test_each_url_was_requested_once_but_the_doubtful_one(crawled: tuple[Crawled, Site]) -> None:
    hits = dict(crawled[1].hits)
    probes = [path for path in hits if path.startswith("/lost/gossamer")]
    assert len(probes) == 1 and probes[0].startswith("/lost/") and probes[0].endswith(".html")
    assert hits.pop("/lost/one.html") == 2
    assert {path for path, count in hits.items() if count > 1} == set()


def test_an_index_that_lists_itself_ends(crawled: tuple[Crawled, Site]) -> None:
    assert crawled[0].reason == "finished" and crawled[1].hits["/index.xml"] == 1


def test_indexes_of_sitemaps_are_no_hops_but_have_an_end(tmp_path: Path) -> None:
    web: dict[str, object] = {
        "/robots.txt": Reply("Sitemap: /1.xml\n", content_type="text/plain"),
        "/": page(),
        "/4.html": page("/deeper"),
        "/5.html": page(),
    }
    with site("127.0.61.2", web) as served:
        for hop in (1, 2, 3):
            web[f"/{hop}.xml"] = Reply(index(served.root, f"/{hop + 1}.xml"), content_type=XML)
        # The fourth is both: what it lists is fetched, but the sitemap that it names is not.
        both = sitemap(served.root, "/4.html").decode().replace("</urlset>", "")
        both += f"<sitemap><loc>{served.root}/5.xml</loc></sitemap></urlset>"
        web["/4.xml"] = Reply(both, content_type=XML)
        web["/5.xml"] = Reply(sitemap(served.root, "/5.html").decode(), content_type=XML)
        crawl(tmp_path, seeds=served.url("/"), max_depth="1")
        assert served.hits["/4.html"] == 1
        assert not {"/deeper", "/5.xml", "/5.html"} & served.hits.keys()


@pytest.mark.parametrize("bound", [{"scope": "page"}, {"max_depth": "0"}], ids=str)
def test_where_no_link_is_followed_no_list_of_them_is_asked_for(
    tmp_path: Path, bound: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    web = {
        "/robots.txt": Reply("Sitemap: /1.xml\n", content_type="text/plain"),
        "/a": page("/b", "/c"),
        "/moved": Reply(status=301, headers=(("Location", "/b"),)),
        "/b": page("/c"),
    }
    with site("127.0.61.3", web) as served:
        done = crawl(tmp_path, seeds=f"{served.url('/a')},{served.url('/moved')}", **bound)
    assert done.reason == "finished"
    assert served.hits == dict.fromkeys(web, 1), "and what a seed redirects to"
    assert "leads" not in caplog.text, "it was asked for so"


def test_no_bytes_are_archived_twice(crawled: tuple[Crawled, Site]) -> None:
    responses = records(crawled, "response")
    responses.pop("/its-name")  # a page of its own, with the bytes of an alias
    digests = [read.fields["WARC-Payload-Digest"] for read in responses.values()]
    assert len(set(digests)) == len(digests)
    revisits = set(records(crawled, "revisit"))
    assert revisits == {"/copy", "/gone-too"}


def test_columns_hold_the_pages_and_nothing_else(crawled: tuple[Crawled, Site]) -> None:
    pages = str(crawled[0].data / "warc" / "*.parquet")
    rows = duckdb.sql(f"SELECT url, title, text, original, bits FROM '{pages}'").fetchall()
    found = {url.removeprefix(crawled[1].root): rest for url, *rest in rows}
    assert not {"/empty", "/lies", "/lost/one.html", "/gone", "/robots.txt"} & set(found)
    assert found["/a"][0] == "Story 1" and found["/a"][1].endswith(prose(1)[-1])
    assert found["/near"][2] == crawled[1].url("/a") and found["/near"][3] <= 3
    assert found["/named"][1] and found["/named"][2] == crawled[1].url("/its-name")
    for path in ("/copy", "/hushed"):
        assert found[path][1:] == [None, crawled[1].url("/a"), None]


def test_sitemaps_are_read_again_as_they_were(
    crawled: tuple[Crawled, Site], tmp_path: Path
) -> None:
    for warc in (crawled[0].data / "warc").glob("*.warc.gz"):
        copy = Path(shutil.copy(warc, tmp_path))
        ColumnsCompanion(rebuild_settings(read_config({}))).rebuild(copy, copy)
    kinds = "SELECT url, media_type, unnest(outlinks) AS link FROM '{}/*.parquet' ORDER BY ALL"
    was, is_now = (
        [row for row in duckdb.sql(kinds.format(folder)).fetchall() if "ed-" in row[0]]
        for folder in (crawled[0].data / "warc", tmp_path)
    )
    assert was == is_now and {row[2]["kind"] for row in was} == {"listed", "entry"}


def test_the_summary_counts_them(crawled: tuple[Crawled, Site]) -> None:
    stats = crawled[0].stats
    assert [stats.get(f"crawler/flaw/{key}") for key in ("empty", "lying_type")] == [1, 1]
    assert stats["crawler/aliases"] == 1
    assert stats["crawler/near_duplicates"] == 1


def test_no_files_are_left_over(crawled: tuple[Crawled, Site], tmp_path: Path) -> None:
    assert not list(crawled[0].data.rglob("*.open"))
