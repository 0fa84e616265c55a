"""The columns of a whole crawl: what was written while it ran, and what its records give again."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from crawler.archive.columns import COLUMNS
from crawler.archive.columns_companion import SUFFIX, ColumnsCompanion
from crawler.archive.lookup import entries
from crawler.archive.warc_file import companion_path
from crawler.config.settings import read_config
from crawler.content.parsing import rebuild_settings
from crawler.model.choices import ColumnGroup
from crawler.model.page import (
    Link,
    LinkKind,
    Parsed,
    Source,
)
from crawler.model.types import CrawlerError
from tests.harness.archive_judges import query, read_rows
from tests.harness.crawling import Crawled, crawl
from tests.harness.fork_server import SCRAPY, run
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, Site, site

DOCS: Final = PROJECT / "docs" / "columns.md"
WORDS: Final = [f"w{number}" for number in range(3_000)]
TEXT: Final = "text/plain; charset=iso-8859-1"
SETTINGS: Final = {
    "CRAWLER_CANONICAL_IDENTITY": True,
    "CRAWLER_HTML_MAX_BYTES": 40_000,
    "CRAWLER_COLUMN_GROUPS": ",".join(ColumnGroup),
}


def prose(seed: int, words: int = 300) -> list[str]:
    return random.Random(seed).choices(WORDS, k=words)


def story(words: list[str], head: str = "", foot: str = "", **more: Any) -> Reply:
    html = f"<html lang=de><head><title>On {words[0]}</title>{head}</head><body><p>"
    return Reply(f"{html}{' '.join(words)}</p>{foot}</body></html>", **more)


def routes() -> dict[str, Reply]:
    one, two = prose(1, 1_000), prose(2)
    edited = [*one[:100], "other", *one[101:]]
    plain = story(two, foot='<a href="/from/two" rel="NoFollow UGC">x</a><img src=/i.gif>')
    assert isinstance(plain.body, str)
    packed = gzip.compress(plain.body.encode(), mtime=1)
    coded = partial(Reply, content_type="text/html", headers=(("Content-Encoding", "gzip"),))
    about = (
        '<base href="/deep/er/">'
        '<meta property="article:published_time" content="2024-05-06T07:08:09Z">'
        "<meta name=author content='A. Author'><meta name=robots content=max-snippet:5>"
    )
    said = (("ETag", '"1"'), ("X-Robots-Tag", "all"), ("Last-Modified", "lately"))
    paths = "/copy /near /packed /coded /again /text /feed /cut /bomb /broken /gone /quiet /named"
    paths += " /untold /empty /lies /linked /moved /broken.pdf /bytes /short /hushed"
    anchors = "".join(f'<a href="{path}">{path}</a> ' for path in paths.split())
    return {
        "/": story(prose(0), foot=anchors),
        "/one": story(one, about, '<a href="../x#y">x</a> <a href="mailto:a@b.c">m</a>'),
        "/copy": story(one, about, '<a href="../x#y">x</a> <a href="mailto:a@b.c">m</a>'),
        "/near": story(
            edited, about, '<a href="http://www.example.com/">x</a> <b>m</b>', headers=said
        ),
        "/packed": plain,
        "/coded": coded(packed),
        "/again": coded(gzip.compress(plain.body.encode(), 1, mtime=2)),
        "/text": Reply(" ".join(prose(3)).encode() + b" M\xfcnchen", content_type=TEXT),
        "/feed": Reply(
            "<?xml version='1.0'?><rss version='2.0'><channel><title>News</title><item>"
            "<title>One</title><link>/of-the-feed</link></item></channel></rss>",
            content_type="application/xml",
        ),
        "/of-the-feed": story(prose(5)),
        "/cut": story(prose(6, 20_000)),
        "/bomb": coded(gzip.compress(b"<p>bomb " * 1_000_000)),
        "/broken": coded(gzip.compress(" ".join(prose(12)).encode())[:-400]),
        "/gone": story(prose(7), status=410),
        "/quiet": story(prose(8), "<meta name=robots content=noindex>", '<a href="/one">x</a>'),
        "/hushed": story(prose(13), headers=(("X-Robots-Tag", "noindex"),)),
        "/named": story(prose(9), '<link rel=canonical href="/its-name">'),
        "/its-name": story(prose(9), '<link rel=canonical href="/its-name">'),
        "/untold": story(prose(10), content_type=""),
        "/empty": Reply(""),
        "/lies": Reply(b"\x89PNG\r\n\x1a\n" + bytes(2_000)),
        "/linked": story(prose(11), headers=(("Link", '</linked>; rel="canonical"'),)),
        "/moved": Reply("", 302, headers=(("Location", "/one"),)),
        "/broken.pdf": Reply(b"%PDF-1.7 nothing", content_type="application/pdf"),
        "/bytes": Reply(bytes(range(256)), content_type="image/x-any"),
        "/short": Reply("<title>&#0;&#xD800;</title>few \x00 words"),
    }


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Crawled, Site]:
    with site("127.0.62.1", routes()) as served:
        data = tmp_path_factory.mktemp("columns")
        return crawl(data, settings=SETTINGS, seeds=served.url("/"), scope="host"), served


@pytest.fixture(scope="module")
def rows(crawled: tuple[Crawled, Site]) -> dict[str, dict[str, Any]]:
    files = sorted((crawled[0].data / "warc").glob(f"*{SUFFIX}"))
    return {
        row["url"].removeprefix(crawled[1].root): row for file in files for row in read_rows(file)
    }


def test_the_pages_are_there_and_nothing_else(rows: dict[str, dict[str, Any]]) -> None:
    no_pages = {"/gone", "/empty", "/lies", "/moved"}
    assert set(rows) >= routes().keys() - no_pages
    assert not set(rows) & no_pages


def test_the_columns_of_a_page(
    rows: dict[str, dict[str, Any]], crawled: tuple[Crawled, Site]
) -> None:
    root = crawled[1].root
    first, other = sorted([rows["/one"], rows["/copy"]], key=lambda row: row["original"] or "")
    assert (first["title"], first["language"]) == (f"On {prose(1)[0]}", "de")
    assert " ".join(prose(1, 1_000)) in first["text"]
    link = {"url": f"{root}/deep/x", "kind": "a", "rel": "", "text": "x", "language": ""}
    assert link in first["outlinks"]
    assert rows["/its-name"]["canonical"] == f"{root}/its-name"
    assert first["published"].isoformat() == "2024-05-06T07:08:09+00:00"
    assert (other["original"], other["bits"], other["text"]) == (first["url"], None, None)
    assert (other["outlinks"], other["links"], other["simhash"]) == ([], 0, None)
    assert other["digest"] == first["digest"]


def test_a_page_marked_noindex_keeps_its_links_without_its_text(
    rows: dict[str, dict[str, Any]], crawled: tuple[Crawled, Site]
) -> None:
    root, quiet, hushed = crawled[1].root, rows["/quiet"], rows["/hushed"]
    for row in (quiet, hushed):
        assert (row["noindex"], row["title"], row["text"], row["simhash"]) == (True, *[None] * 3)
    assert quiet["outlinks"] == [
        {"url": f"{root}/one", "kind": "a", "rel": "", "text": "", "language": ""}
    ]
    assert (quiet["robots"], quiet["words"], quiet["detected_language"]) == ("noindex", None, None)
    assert (hushed["robots_header"], hushed["depth"]) == ("noindex", 1)
    assert rows["/one"]["noindex"] is None
    outcomes = [o for o in crawled[0].outcomes if o.url in (quiet["url"], hushed["url"])]
    assert [(o.fate, o.reason, o.record) for o in outcomes] == [("done", "noindex", "")] * 2
    data = crawled[0].data
    why = [*SCRAPY, "frontier", "why", quiet["url"], "-s", f"CRAWLER_DATA_DIR={data}"]
    assert "its author marked it noindex" in run(why).stdout
    assert json.loads((data / "summary.json").read_bytes())["noindex"] == 2


def test_the_columns_of_groups(rows: dict[str, dict[str, Any]]) -> None:
    near, text, cut = rows["/near"], rows["/text"], rows["/cut"]
    assert (near["author"], near["robots"], near["h1"]) == ("A. Author", "max-snippet:5", None)
    said = near["etag"], near["robots_header"], near["last_modified"], near["truncated"]
    assert said == ('"1"', "all", "lately", None)
    assert (text["declared_type"], text["declared_charset"]) == ("text/plain", "iso-8859-1")
    assert text["charset"] == "windows-1252"
    assert cut["truncated"] == "length"
    assert (rows["/"]["depth"], near["depth"], rows["/of-the-feed"]["depth"]) == (0, 1, 2)
    assert len({row["crawl_id"] for row in rows.values()} - {None}) == 1
    assert {row["seed"] for row in rows.values()} == {rows["/"]["host"]}
    for row in rows.values():
        if row["text"] is not None:
            assert row["words"] == len(row["text"].split()), row["url"]
            assert row["characters"] == len(row["text"])


def test_copies_in_other_codings(rows: dict[str, dict[str, Any]]) -> None:
    """The same page, once plain and twice packed: three records, one original."""
    group = [rows[path] for path in ("/packed", "/coded", "/again")]
    assert len({row["digest"] for row in group}) == 1
    assert sorted(row["original"] is None for row in group) == [False, False, True]


def parsed_again(warc: Path, **settings: Any) -> None:
    ColumnsCompanion(rebuild_settings(read_config(SETTINGS | settings))).rebuild(warc, warc)


def test_rebuilt_columns_are_the_same(crawled: tuple[Crawled, Site], tmp_path: Path) -> None:
    files = sorted((crawled[0].data / "warc").glob("*.warc.gz"))
    copies = [Path(shutil.copy(warc, tmp_path)) for warc in files]
    for warc, copy in zip(files, copies, strict=True):
        parsed_again(copy)
        for row, made in zip(
            read_rows(companion_path(warc, SUFFIX)),
            read_rows(companion_path(copy, SUFFIX)),
            strict=True,
        ):
            assert row == made
    assert not list(tmp_path.glob("*.open"))


class Mended:
    """A parser that reads HTML otherwise."""

    name = "mended"
    types = frozenset({"text/html"})
    inline_max_bytes = 1 << 30

    def parse(self, source: Source) -> Parsed:
        links = (Link("/new", LinkKind.A, "next"),)
        return Parsed(title="mended", text=" ".join(prose(77)), links=links)


def test_a_mended_parser(
    crawled: tuple[Crawled, Site], rows: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    (warc,) = (crawled[0].data / "warc").glob("*.warc.gz")
    copy = Path(shutil.copy(warc, tmp_path))
    parser = {"CRAWLER_PARSERS": f"{__name__}.{Mended.__name__}"}
    parsed_again(copy, **parser)
    made = {
        row["url"].removeprefix(crawled[1].root): row
        for row in read_rows(companion_path(copy, SUFFIX))
    }
    near, text, same = made["/near"], made["/text"], ("original", "bits", "digest", "warc_offset")
    assert (near["title"], near["text"]) == ("mended", " ".join(prose(77)))
    assert [link["url"] for link in near["outlinks"]] == [crawled[1].url("/new")]
    assert near["simhash"] not in (None, rows["/near"]["simhash"])
    assert [near[name] for name in same] == [rows["/near"][name] for name in same]
    assert text == rows["/text"]
    copies = {path: row for path, row in made.items() if row["original"] and row["bits"] is None}
    alias = copies.pop("/named")
    assert (alias["text"], alias["original"]) == (near["text"], crawled[1].url("/its-name"))
    assert [row["text"] for row in copies.values()] == [None] * 3


def test_a_damaged_file_keeps_the_columns_it_had(
    crawled: tuple[Crawled, Site], tmp_path: Path
) -> None:
    (warc,) = (crawled[0].data / "warc").glob("*.warc.gz")
    copy = Path(shutil.copy(warc, tmp_path))
    before = Path(shutil.copy(companion_path(warc, SUFFIX), tmp_path)).read_bytes()
    data = bytearray(copy.read_bytes())
    longest = max((entry.place for entry in entries(warc)), key=lambda place: place.length)
    data[longest.offset + longest.length // 2] ^= 0xFF  # in a head it may say nothing
    copy.write_bytes(data)
    with pytest.raises(CrawlerError):
        parsed_again(copy)
    assert companion_path(copy, SUFFIX).read_bytes() == before
    assert not list(tmp_path.glob("*.open"))


def table(path: Path) -> dict[str, tuple[str, str]]:
    """Name, type and meaning in docs/columns.md."""
    page = path.read_text(encoding="utf-8").partition("## Outcomes of all URLs")[0]
    rows = re.findall(r"(?m)^\| `(\w+)` \| (.+?) \| (.+?) \|$", page)
    return {name: (kind, meaning) for name, kind, meaning in rows}


def test_the_page_has_the_table_of_the_code(crawled: tuple[Crawled, Site]) -> None:
    files = str(crawled[0].data / "warc" / f"*{SUFFIX}")
    kinds = {name: kind for name, kind, *_ in query(f"DESCRIBE SELECT * FROM '{files}'")}
    assert table(DOCS) == {
        column.name: (
            kinds[column.name] + ("" if column.nullable else ", never null"),
            column.description,
        )
        for column in COLUMNS
    }


def answers(crawled: tuple[Crawled, Site]) -> dict[str, list[tuple[Any, ...]]]:
    """What the questions of docs/columns.md are answered of this crawl."""
    page = DOCS.read_text(encoding="utf-8")
    found = re.findall(r"(?s)\n([^\n]+\?)\n\n```sql\n(.*?)```", page)
    data = str(crawled[0].data)
    return {title: query(sql.replace("crawl-data", data)) for title, sql in found}


def test_the_questions_of_the_page_are_answered(
    crawled: tuple[Crawled, Site], rows: dict[str, dict[str, Any]]
) -> None:
    root = crawled[1].root
    copied, languages, linked, hosts = answers(crawled).values()
    (host,) = hosts
    assert host[1] == len(crawled[0].outcomes)
    assert {(count, exact) for _, count, exact, _ in copied} == {(1, 1), (2, 2), (2, 1)}
    assert {name for name, *_ in languages} == {"de", "not declared"}
    assert sum(count for _, count, _ in languages) == sum(
        row["text"] is not None for row in rows.values()
    )
    assert linked == [(root.split("/")[2].split(":")[0], "www.example.com", 1)]
