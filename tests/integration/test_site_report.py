"""`gossamer report site`, of a site with one fault of each kind, by one worker and by two: exactly
these are found. Its queries, as docs/queries.md has them, find the same."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types
import pytest

from crawler.archive.site_queries import FINDINGS
from crawler.model.url import CanonicalRules, canonical
from tests.harness import fork_server
from tests.harness.crawling import crawl
from tests.harness.sources import PROJECT
from tests.harness.workers import Workers
from tests.servers.faulty_site import ABSENT, EVIL, OTHER, SITE, faulty_site
from tests.servers.loopback import Ask, LoopbackWeb, Reply, page, site
from tests.servers.redis import RedisServer

Rows = list[tuple[Any, ...]]
FAR: Final = "http://elsewhere.example/"
SETTINGS: Final = {
    "CRAWLER_RETRIES": 1,
    "CRAWLER_DELAY_FACTOR": 0.1,
    "CRAWLER_SOFT_404": False,
    "CRAWLER_BACKOFF_BASE_S": 0.05,
    "CRAWLER_PAUSE_S": 0.2,
    "CRAWLER_PAUSE_MAX_S": 0.4,
    "CRAWLER_COLUMNS": True,
    "CRAWLER_FRONTIER_SHARDS": 16,
}
PLAIN: Final = [f"127.0.75.{number}" for number in range(1, 13)]
"""Hosts of a text each, which no question is about: so each worker has some."""

EXPECTED: Final[Mapping[str, Rows]] = {
    "broken-links": [
        ("/broken", "500", "/", "500", "a", "false", ""),
        ("/gone", "404", "/", "to nothing", "a", "true", ""),
        ("/gone", "404", "/sitemap.xml", "", "listed", "false", ""),
        ("/gone", "404", "/three", "", "canonical", "false", ""),
        ("/gone?utm_source=mail", "404", "/", "by mail", "a", "false", ""),
        ("/lost", "404", "/", "lost", "a", "false", "/gone"),
        ("/round", "redirect loop", "/", "round", "a", "false", ""),
        ("other/none", "404", "other/", "none", "a", "false", ""),
    ],
    "redirects": [
        ("/old", "2", "/two", "200", "/old -> /older -> /two", "/", "old"),
        ("/round", "2", "/round", "redirect loop", "/round -> /and-round -> /round", "/", "round"),
    ],
    "titles": [
        ("missing", "", "1", "/bare"),
        ("duplicate", f"'{EVIL}", "2", "/evil"),
        ("duplicate", f"'{EVIL}", "2", "/evil2"),
        ("duplicate", "Start", "2", "/"),
        ("duplicate", "Start", "2", "/two"),
    ],
    "descriptions": [
        ("missing", "", "1", "/bare"),
        ("duplicate", "All of it", "2", "/"),
        ("duplicate", "All of it", "2", "/two"),
    ],
    "copies": [("/copy", "/two", "exact")],
    "canonicals": [
        ("/far", f"{FAR}far", "other host", ""),
        ("/names", "/several", "names another", "/two"),
        ("/several", "/names /two", "several", ""),
        ("/three", "/gone", "broken", "404"),
        ("/to-hidden", "/hidden", "noindex", ""),
        ("/to-moved", "/once", "redirect", "/two"),
    ],
    "orphans": [("/alone", "200"), ("/evil2", "200")],
    "unlisted": [
        ("/bare", "1"),
        ("/evil", "1"),
        ("/slow", "1"),
        ("other/", "1"),
        ("other/lone", "1"),
    ],
    "noindex": [("/hidden", "noindex", "")],
    "forbidden": [("/secret", "robots.txt: line 2: Disallow: /secret", "1", "/")],
    "slow": [("/slow",)],
    "depth": [
        ("0", "2", "/"),
        ("1", "11", "/bare"),
        ("2", "2", "/listed"),
        ("3", "1", "/copy"),
        ("", "2", "/alone"),
    ],
    "external": [
        (ABSENT, "not checked", "", "1", "/", "a"),
        (FAR, "not checked", "", "1", "/", "a"),
        (f"{FAR}far", "not checked", "", "1", "/far", "canonical"),
    ],
}


def plain_page(ask: Ask) -> Reply:
    return Reply(f"words of {ask.host}", content_type="text/plain")


@dataclass(frozen=True, slots=True)
class SeedList:
    """What the workers ask of a judge."""

    urls: Sequence[str]

    def seeds(self) -> Sequence[str]:
        return self.urls


@dataclass(frozen=True, slots=True)
class Crawled:
    """The same site, crawled by one worker and by two."""

    roots: Mapping[str, str]  # of URLs, and what is written for them here
    alone: Sequence[Path]
    shared: Sequence[Path]

    def short(self, value: object) -> object:
        """Return a value with each URL of the site as its path."""
        if isinstance(value, str):
            for root, name in self.roots.items():
                value = value.replace(root, name)
        return value


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    home = tmp_path_factory.mktemp("site")
    with (
        faulty_site() as (web, other),
        LoopbackWeb(plain_page, PLAIN) as plain,
        RedisServer() as server,
    ):
        seeds = SeedList([web.url("/"), other.url("/"), *(plain.url(host) for host in PLAIN)])
        crawl(home / "alone", seeds=",".join(seeds.urls), scope="host", settings=dict(SETTINGS))
        (home / "workers").mkdir()
        workers = Workers(home / "workers", server, seeds, SETTINGS, scope="host")
        with workers:
            assert [each.wait() for each in workers.start_together(2)] == [0, 0], workers.logs()
        roots = {web.root: "", other.root: "other"}
        shared = [each.data for each in workers.all]
    return Crawled(roots, [home / "alone"], shared)


def report(*words: object) -> Any:
    """Run `scrapy report site`."""
    command = [sys.executable, "-m", "scrapy", "report", "site", *map(str, words)]
    return fork_server.run(command)


def rows_of(crawled: Crawled, folder: Path) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for file in sorted(folder.iterdir()):
        with file.open(encoding="utf-8-sig", newline="") as lines:
            _, *rows = csv.reader(lines)
        found[file.stem] = [tuple(map(crawled.short, row)) for row in rows]
    found["slow"] = [row[:1] for row in found["slow"]]
    return found


@pytest.mark.parametrize("workers", ["alone", "shared"])
def test_each_fault_is_found_and_nothing_else(
    crawled: Crawled, workers: str, tmp_path: Path
) -> None:
    folders = getattr(crawled, workers)
    assert all(any((each / "warc").glob("*.parquet")) for each in folders)
    done = report(*folders, "--csv", tmp_path / "csv")
    assert done.returncode == 0, done.stderr
    found = rows_of(crawled, tmp_path / "csv")
    assert found.keys() == EXPECTED.keys()
    for name, expected in EXPECTED.items():
        assert found[name] == expected, name
    assert re.search(r"Broken links +8\n", done.stdout)
    assert "-a check_external=yes" in done.stderr
    shown = (folders[0] / "site.html").read_text()
    assert "<script" not in shown and "&lt;script&gt;" in shown and "to nothing" in shown


def test_the_queries_of_the_page_find_the_same(crawled: Crawled) -> None:
    text = (PROJECT / "docs" / "queries.md").read_text(encoding="utf-8")
    tables, _, questions = text.partition("## The questions")
    asked = re.findall(r"(?s)### ([^\n]+\?)\n\n```sql\n(.*?)```", questions)
    assert [question for question, _ in asked] == [each.question for each in FINDINGS]
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as base:
        rules = CanonicalRules()
        base.create_function("same_form", lambda url: canonical(url, rules), ["VARCHAR"], "VARCHAR")
        sources, macro, *made = re.findall(r"(?s)```sql\n(.*?)```", tables)
        assert macro == "CREATE MACRO same_form(url) AS url;\n"
        for sql in [sources, *made]:
            base.execute(sql.replace("crawl-data", str(crawled.alone[0])))
        for (_, sql), finding in zip(asked, FINDINGS, strict=True):
            rows = [tuple(map(crawled.short, row)) for row in base.execute(sql).fetchall()]
            told = [tuple(map(as_told, row)) for row in EXPECTED[finding.name]]
            if finding.name == "slow":
                rows = [row[:1] for row in rows]
            assert [tuple(map(as_given, row)) for row in rows] == told, finding.name


def as_told(value: str) -> str:
    return value.removeprefix("'")


def as_given(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def test_nothing_that_is_there_is_overwritten(crawled: Crawled, tmp_path: Path) -> None:
    written, folder = tmp_path / "page.html", tmp_path / "csv"
    assert report(*crawled.alone, "-o", written, "--csv", folder).returncode == 0
    before = written.read_bytes()
    assert b"Broken links" in before
    again = report(*crawled.alone, "-o", written)
    assert again.returncode == 1 and f"{written} exists" in again.stderr
    again = report(*crawled.alone, "--csv", folder)
    assert again.returncode == 1 and "broken-links.csv exists" in again.stderr
    assert written.read_bytes() == before


def test_what_a_crawl_lacks_is_said(crawled: Crawled, tmp_path: Path) -> None:
    """Columns of an old version, without groups, and no outcomes."""
    old = tmp_path / "it's [old]" / "warc"
    old.mkdir(parents=True)
    dropped = ["description", "robots", "robots_header", "depth", "noindex", "truncated"]
    for file in (crawled.alone[0] / "warc").glob("*.parquet"):
        table = pq.read_table(file)
        pq.write_table(table.drop_columns(dropped), old / file.name)
    done = report(old.parent, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    untold = {each["name"]: each["untold"] for each in told["findings"] if each["untold"]}
    assert set(untold) == {"broken-links", "redirects", "descriptions", "forbidden", "slow"}
    assert "CRAWLER_COLUMN_GROUPS" in untold["descriptions"]
    (titles,) = [each for each in told["findings"] if each["name"] == "titles"]
    assert titles["total"] >= 5
    empty = tmp_path / "empty"
    (empty / "warc").mkdir(parents=True)
    done = report(empty)
    assert done.returncode == 1 and "has no columns to ask" in done.stderr
    (empty / "warc" / "torn.parquet").write_bytes(b"PAR1 and no more")
    done = report(empty)
    assert done.returncode == 1 and "cannot be looked through" in done.stderr
    assert "Traceback" not in done.stderr


def test_external_links_are_told_as_they_were_checked(tmp_path: Path) -> None:
    there = {
        "/fine": Reply("here"),
        "/closed": Reply("", 403),
        "/moved": Reply("", 301, headers=(("Location", "/none"),)),
    }
    own: dict[str, Reply] = {}
    with site(OTHER, there) as other, site(SITE, own) as web:
        links = [other.url(path) for path in ("/fine", "/closed", "/moved", "/gone")]
        own["/"] = page(*links, "/leaves")
        own["/leaves"] = Reply("", 302, headers=(("Location", other.url("/gone")),))
        arguments = {"seeds": web.url("/"), "scope": "host", "check_external": "yes"}
        crawl(tmp_path / "data", settings=dict(SETTINGS), **arguments)
    done = report(tmp_path / "data", "--json")
    assert done.returncode == 0, done.stderr
    text = done.stdout.replace(other.root, "other").replace(web.root, "")
    found = {each["name"]: each["rows"] for each in json.loads(text)["findings"]}
    assert [row[:3] for row in found["external"]] == [
        ["other/gone", "broken", "404"],
        ["other/moved", "broken", "404"],
        ["other/closed", "unknown", "403"],
        ["other/fine", "ok", "200"],
    ]
    broken = [(row[0], row[1], row[6]) for row in found["broken-links"]]
    assert broken == [
        ("/leaves", "404", "other/gone"),
        ("other/gone", "404", None),
        ("other/moved", "404", "other/none"),
    ]
    assert not json.loads(text)["notes"]
