"""Runs over a web that was crawled before, which fetch what is new, or what has changed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.archive_judges import read_folder
from tests.harness.crawling import crawl, pass_time
from tests.servers.loopback import Ask, LoopbackWeb, Reply

HOST = "127.0.74.8"
SETTINGS = {
    "CRAWLER_SOFT_404": "false",
    "CRAWLER_MIN_DELAY_S": 0,
    "CRAWLER_DELAY_FACTOR": 0,
    "CRAWLER_FSYNC_EVERY_S": 0.01,
}
AGAIN = SETTINGS | {"CRAWLER_REVISIT": "adaptive"}
SITEMAPS = "http://www.sitemaps.org/schemas/sitemap/0.9"
KNOWN = 40
NEW = 15


@dataclass
class Site:
    """A start page, and pages that a sitemap lists with dates; every other one has an ETag."""

    texts: dict[str, str] = field(default_factory=lambda: {f"/{n}": f"{n}" for n in range(KNOWN)})
    dates: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    home: str = "the start"
    edition: int = 1  # which all ETags name, and in the footer of half of the pages
    unmodified: list[str] = field(default_factory=list)

    def __call__(self, ask: Ask) -> Reply:
        self.asked.append(ask.path)
        if ask.path == "/robots.txt":
            return Reply(f"Sitemap: http://{dict(ask.headers)['Host']}/sitemap.xml")
        if ask.path == "/sitemap.xml":
            url = f"http://{dict(ask.headers)['Host']}"
            rows = [
                f"<url><loc>{url}{path}</loc>"
                f"<lastmod>{self.dates.get(path, '2020-01-01')}</lastmod></url>"
                for path in self.texts
            ]
            body = f'<urlset xmlns="{SITEMAPS}">{"".join(rows)}</urlset>'
            return Reply(body, headers=(("Content-Type", "text/xml"),))
        text = self.home if ask.path == "/" else self.texts[ask.path]
        etag = f'"{self.edition}-{len(text)}-{text}"'.replace(" ", "_")
        has_etag = ask.path == "/" or int(ask.path[1:]) % 2 == 1
        if has_etag and dict(ask.headers).get("If-None-Match") == etag:
            self.unmodified.append(ask.path)
            return Reply(status=304, headers=(("ETag", etag),))
        is_dated = ask.path != "/" and int(ask.path[1:]) % 4 == 1
        comment = f"<!-- edition {self.edition} -->" if is_dated else ""
        return Reply(
            f"<title>{text}</title><p>{text * 40}{comment}",
            headers=(("ETag", etag),) if has_etag else (),
        )

    def taken(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked

    def add(self, number: int, date: str = "2020-01-01") -> list[str]:
        first = len(self.texts)
        paths = [f"/{n}" for n in range(first, first + number)]
        for path in paths:
            self.texts[path], self.dates[path] = path[1:], date
        return paths


def listed(asked: list[str]) -> set[str]:
    return set(asked) - {"/robots.txt", "/sitemap.xml", "/"}


def test_where_pages_were_visited_once_only_new_asks_the_lists_and_what_they_name_since(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, site = tmp_path / "data", Site()
    with LoopbackWeb(site, [HOST]) as web:
        seeds = web.url(HOST)
        crawl(data, settings=SETTINGS, seeds=seeds)
        assert listed(site.taken()) == set(site.texts)
        new, old = site.add(NEW, "2026-10-01"), site.add(5, "2026-08-31")
        settings = SETTINGS | {"CRAWLER_SUMMARY": True}
        crawl(data, settings=settings, seeds=seeds, only="new", since="2026-09-01")
    asked = site.taken()
    assert listed(asked) == set(new)
    assert len(asked) <= 1.3 * NEW, sorted(asked)
    left_out, said = KNOWN + len(old), capsys.readouterr().out
    assert f"{left_out}: its sitemap says that it has not changed since then" in said


def test_a_seed_that_is_new_where_pages_were_visited_once_is_fetched_once(tmp_path: Path) -> None:
    """Its sitemap names it too."""
    data, site = tmp_path / "data", Site()
    with LoopbackWeb(site, [HOST]) as web:
        crawl(data, settings=SETTINGS, seeds=web.url(HOST))
        site.taken()
        (new,) = site.add(1)
        crawl(data, settings=SETTINGS, seeds=f"{web.url(HOST)},{web.url(HOST, new)}", only="new")
        assert site.taken().count(new) == 1


def test_only_changed_asks_each_known_page_once_and_keeps_what_has_changed(tmp_path: Path) -> None:
    data, site = tmp_path / "data", Site()
    with LoopbackWeb(site, [HOST]) as web:
        seeds = web.url(HOST)
        crawl(data, settings=AGAIN, seeds=seeds, max_pages=str(KNOWN + 2))
        site.taken()
        before = read_folder(data / "warc").keys()
        site.texts |= {"/3": "three", "/6": "six"}
        new = site.add(NEW)
        crawl(data, settings=AGAIN, seeds=seeds, only="changed")
        asked = site.taken()
        assert len(asked) - asked.count("/robots.txt") == KNOWN + 2
        assert listed(asked) == {f"/{n}" for n in range(KNOWN)}
        names = {
            record.url.rpartition("/")[2]
            for place, record in read_folder(data / "warc").items()
            if place not in before and record.kind in ("response", "revisit")
        }
        assert names - {"sitemap.xml"} == {"3", "6"}
        crawl(data, settings=AGAIN, seeds=seeds, only="new")
        asked = site.taken()
        assert listed(asked) == set(new), "they waited"
        assert len(asked) <= 1.3 * NEW, sorted(asked)


def test_a_site_that_was_published_anew_is_asked_by_its_new_etags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Also if its texts are as they were, so that nothing was archived."""
    data, site = tmp_path / "data", Site()
    summed = AGAIN | {"CRAWLER_SUMMARY": True}
    with LoopbackWeb(site, [HOST]) as web, caplog.at_level(logging.INFO):
        seeds = web.url(HOST)
        crawl(data, settings=AGAIN, seeds=seeds, only="new")
        assert site.taken().count("/") == 1
        site.edition = 2
        for is_new_edition in (True, False):
            pass_time(data, 60.0)
            crawl(data, settings=summed, seeds=seeds, only="changed")
            assert site.taken().count("/") == 1, "it is known since the first run"
            assert f"{KNOWN + 2} visits: 0 changed" in capsys.readouterr().out
            unmodified, site.unmodified = site.unmodified, []
            # Each eighth is asked for itself.
            assert len(unmodified) >= (not is_new_edition) * KNOWN / 2 * 0.6, unmodified
            assert "whatever" not in caplog.text, "the server is right to send what is new"
    rows = [each for each in read_folder(data / "warc").values() if each.kind == "revisit"]
    assert not rows
