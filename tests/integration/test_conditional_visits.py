"""Later visits of pages by ETag and date: what is asked, what a 304 leaves in the archive, and that
a host whose 304s are false is not asked any more."""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from scrapy import Request, Spider
from scrapy.http import Response

from crawler.archive.record_bytes import NOT_MODIFIED
from crawler.data.changes import FeedReader
from crawler.data.outcomes import read_outcomes
from crawler.frontier import records as keys
from crawler.frontier.port import FRONTIER
from crawler.frontier.records import decode_candidate
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.staging import all_records
from crawler.loop.outcome import UNMODIFIED
from crawler.model.types import Candidate, Change, ConditionalVisits, Outcome
from crawler.policy.validators import AUDIT_EVERY, ConditionFault, validators_to_send
from tests.harness.archive_judges import judged_archive, read_folder, read_rows
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.crawling import Crawled, crawl, pass_time
from tests.harness.fork_server import run, running
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, Headers, LoopbackWeb, Reply
from tests.servers.pywb import pywb

HOST = "127.0.74.3"
SETTINGS = {
    "CRAWLER_REVISIT": "10m",
    "CRAWLER_CHANGES": "true",
    "CRAWLER_SOFT_404": "false",
    # So the verdicts of some pages are there before others are asked for, and the dates of a page's
    # records, which are of whole seconds, differ.
    "CRAWLER_MIN_DELAY_S": 0.1,
    "CRAWLER_DELAY_FACTOR": 0,
    "CRAWLER_FSYNC_EVERY_S": 0.01,
}
INTERVAL_S = 601.0
ANSWERS = ("response", "revisit")


@dataclass
class Pages:
    """A web whose pages have ETags, as a server of files has them."""

    texts: dict[str, str]
    asked: list[Ask] = field(default_factory=list)
    denies: bool = False  # every question whether a page has changed
    only_304: bool = False  # whatever is asked
    said: Headers = ()  # in each answer

    def __call__(self, ask: Ask) -> Reply:
        if ask.path in ("/robots.txt", "/.well-known/tdmrep.json"):
            return Reply(status=404)
        self.asked.append(ask)
        text = self.texts[ask.path]
        etag = f'"{hash(text) & 0xFFFF:x}"'
        named = dict(ask.headers).get("If-None-Match")
        if self.only_304 or (named and (self.denies or named == etag)):
            return Reply(status=304, headers=(("ETag", etag), ("Server", "files"), *self.said))
        headers = (("ETag", etag),) if ask.path != "/undated" else ()
        links = "".join(f"<a href={path}>{path}</a>" for path in self.texts)
        body = f"<title>{text}</title><p>{text} {links if ask.path == '/' else ''}"
        return Reply(body, headers=(*headers, *self.said))

    def conditions(self) -> dict[str, str | None]:
        """What was asked since the last call, by path."""
        asked, self.asked = self.asked, []
        return {each.path: dict(each.headers).get("If-None-Match") for each in asked}


def visit(data: Path, seeds: str, count: int) -> Crawled:
    """Crawl until *count* pages were visited."""
    done = crawl(data, settings=SETTINGS, outcomes=count, seeds=seeds)
    assert done.reason == "outcomes"
    return done


def visit_and_kill(data: Path, seeds: str, count: int) -> None:
    """Crawl until there are *count* outcomes more; none: until a 304 has come."""
    before = len(list(read_outcomes(data / "outcomes.jsonl")))
    log = data.with_suffix(".log")
    size = log.stat().st_size if log.exists() else 0
    settings = SETTINGS | {"LOG_LEVEL": "DEBUG"}

    def is_done() -> bool:
        if not count:
            return b"Not modified" in log.read_bytes()[size:]
        return len(list(read_outcomes(data / "outcomes.jsonl"))) >= before + count

    with running(crawl_command(data, settings, seeds=seeds), log) as process:
        wait_until(is_done, PATIENCE_S, log=log.read_text)
        process.kill()
        assert process.wait(PATIENCE_S) == -signal.SIGKILL, log.read_text()[-3000:]


def command(data: Path, *words: str) -> str:
    """Return what a command about the crawl prints."""
    done = run([sys.executable, "-m", "scrapy", *words, "-s", f"CRAWLER_DATA_DIR={data}"])
    assert done.returncode == 0, done.stderr
    return done.stdout


def changes(data: Path) -> list[tuple[str, str]]:
    lines = [each.line for each in FeedReader(data / "changes", 0).read()]
    entries = [msgspec.json.decode(line, type=Change) for line in lines]
    return [(each.kind, each.url.rpartition("/")[2]) for each in entries]


def later_pages(data: Path) -> dict[str, Candidate]:
    """The pages that are visited again, by path."""
    store = RocksStore(data / FRONTIER)
    found = [decode_candidate(packed) for _, packed in all_records(store, keys.LATER)]
    store.close()
    return {"/" + each.url.rpartition("/")[2]: each for each in found}


def is_asked_by_etag(page: Candidate, visits: int) -> bool:
    """Whether the visit after so many is no audit."""
    assert page.history is not None
    history = replace(page.history, visits=visits)
    return validators_to_send(history, page.key, ConditionalVisits()) is not None


def test_a_page_is_asked_for_by_its_etag_until_it_has_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, pages = tmp_path / "data", Pages({"/": "start", **{f"/{n}": f"{n}" for n in range(9)}})
    count = len(pages.texts)
    with LoopbackWeb(pages, [HOST]) as web:
        seeds = web.url(HOST)
        visit(data, seeds, count)
        assert set(pages.conditions().values()) == {None}
        known = later_pages(data)
        path = next(
            p
            for p, page in known.items()
            if p != "/" and all(is_asked_by_etag(page, visits) for visits in (1, 2))
        )
        url, etag = web.url(HOST, path), known[path].history.validators.strip()
        pass_time(data, INTERVAL_S)
        with caplog.at_level(logging.DEBUG, "crawler.middlewares.outcome"):
            second = visit(data, seeds, count)
        expected = {p: is_asked_by_etag(page, 1) for p, page in known.items()}
        asked = pages.conditions()
        assert {p: named is not None for p, named in asked.items()} == expected
        assert asked[path] == etag
        assert f"Not modified (304): <GET {url}>" in caplog.text
        unchanged = [each for each in second.outcomes if each.url == url][-1]
        assert (unchanged.fate, unchanged.status, unchanged.reason) == ("done", 304, UNMODIFIED)
        summary = json.loads((data / "summary.json").read_text())
        assert summary["revisits"]["not_modified"] == sum(expected.values())
        assert summary["pages"] == count - sum(expected.values())
        pages.texts[path] = "another"
        pass_time(data, INTERVAL_S)
        visit(data, seeds, count)
        assert pages.conditions()[path] == etag
    history = later_pages(data)[path].history
    assert (history.visits, history.changes, history.gone) == (3, 1, 0)
    assert history.validators.strip() not in (etag, "")
    assert changes(data) == [*(("new", p[1:]) for p in pages.texts), ("changed", path[1:])]
    judged_archive(data / "warc")
    check_records(data, url)
    check_replay(tmp_path, data, url, unchanged)


def check_records(data: Path, url: str) -> None:
    """Of the three visits: the page, a revisit of it, the page as it is now; and two rows."""
    read = [each for each in read_folder(data / "warc").values() if each.kind != "warcinfo"]
    answers = [each for each in read if each.kind in ANSWERS and each.url == url]
    assert [each.kind for each in answers] == ["response", "revisit", "response"]
    first, unchanged, _ = answers
    assert unchanged.fields["WARC-Profile"] == NOT_MODIFIED
    assert unchanged.fields["WARC-Refers-To-Target-URI"] == url
    assert unchanged.fields["WARC-Refers-To-Date"] == first.fields["WARC-Date"][:19] + "Z"
    name = unchanged.fields["WARC-Record-ID"]
    beside = {each.kind: each for each in read if each.fields.get("WARC-Concurrent-To") == name}
    assert b"\r\nIf-None-Match: " in beside["request"].block
    assert b"not-modified-head: HTTP/1.1 304" in beside["metadata"].block
    check_rows(data, url)
    for file in (data / "warc").glob("*.parquet"):
        file.unlink()
    command(data, "archive", "parse")
    check_rows(data, url)


def check_rows(data: Path, url: str) -> None:
    rows = [row for file in sorted((data / "warc").glob("*.parquet")) for row in read_rows(file)]
    assert [row["status"] for row in rows if row["url"] == url] == [200, 200]


def check_replay(tmp_path: Path, data: Path, url: str, unchanged: Outcome) -> None:
    """At the time of the 304 pywb shows the stored page, and so does our own command."""
    place = unchanged.record.partition(":")[0]
    index = (data / "warc" / place).with_name(place.removesuffix(".warc.gz") + ".cdxj")
    lines = [line.split(" ", 2) for line in index.read_text().splitlines()]
    at = next(when for _, when, facts in lines if f'"{url}"' in facts)
    (tmp_path / "pywb").mkdir()
    with pywb(tmp_path / "pywb", (data / "warc").glob("*.warc.gz")) as serving:
        replayed = serving.ask(url, at)
    text = url.rpartition("/")[2]
    assert replayed.status == 200 and f"<title>{text}</title>".encode() in replayed.body
    got = command(data, "archive", "get", url, "--at", at)
    assert f"<title>{text}</title>" in got


def test_a_304_that_was_not_asked_for_says_nothing_of_a_page(tmp_path: Path) -> None:
    data, pages = tmp_path / "data", Pages({"/": "start", "/a": "first", "/undated": "second"})
    with LoopbackWeb(pages, [HOST]) as web:
        seeds = web.url(HOST)
        visit(data, seeds, 3)
        before = later_pages(data)
        pages.only_304 = True
        pass_time(data, INTERVAL_S)
        visit(data, seeds, 3)
    after = later_pages(data)
    assert after.keys() == before.keys()
    are_asked = {path: is_asked_by_etag(page, 1) for path, page in before.items()}
    assert not are_asked["/undated"]
    kinds = {
        each.url: each.kind for each in read_folder(data / "warc").values() if each.kind in ANSWERS
    }
    for path, page in after.items():
        history, kept = page.history, before[path].history
        if are_asked[path]:
            assert (history.visits, history.gone, kinds[page.url]) == (2, 0, "revisit")
        else:
            assert history == replace(kept, validators=None), "nothing is known but that"
            assert kinds[page.url] == "response"


def set_audits(data: Path, *, are_next: bool) -> None:
    """Let all pages have had as many visits as make the next one an audit, or the one after."""
    store = RocksStore(data / FRONTIER)
    for key, packed in all_records(store, keys.LATER):
        page = decode_candidate(packed)
        assert page.history is not None
        visits = 2 * AUDIT_EVERY - page.key % AUDIT_EVERY - (not are_next)
        history = replace(page.history, visits=visits)
        store.write({key: keys.encode(replace(page, history=history))})
    store.close()


def test_a_host_that_denies_changes_is_not_asked_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, pages = tmp_path / "data", Pages({"/": "start", **{f"/{n}": f"{n}" for n in range(12)}})
    pages.denies, count = True, len(pages.texts)
    with LoopbackWeb(pages, [HOST]) as web, caplog.at_level(logging.INFO):
        seeds = web.url(HOST)
        visit(data, seeds, count)
        for turn in range(3):
            pages.texts = {path: f"{path} in turn {turn}" for path in pages.texts}
            pages.asked.clear()
            set_audits(data, are_next=turn == 1)
            pass_time(data, INTERVAL_S)
            visit(data, seeds, count)
            assert caplog.text.count(ConditionFault.DENIES.words) == turn, "once in a run"
        assert set(pages.conditions().values()) == {None}
    assert ConditionFault.DENIES.words in command(data, "frontier", "why", seeds)
    summary = json.loads((data / "summary.json").read_text())
    assert summary["whole"]["counters"]["revisits/denies"] == 2


class Reader(Spider):
    """A spider of a user's own, whose callback reads pages and archives none."""

    name = "reader"

    def __init__(self, url: str, is_first: bool, **given: Any) -> None:
        super().__init__(**given)
        self.url, self.is_first = url, is_first
        self.read: list[str] = []

    async def start(self) -> AsyncIterator[Request]:
        if self.is_first:
            yield Request(self.url)
            yield Request(f"{self.url}moved")
            yield Request(f"{self.url}own", headers={"If-None-Match": '"mine"'})

    def parse(self, response: Response) -> None:
        self.read.append(response.url.removeprefix(self.url))


def test_a_callback_is_called_for_pages_that_have_changed(tmp_path: Path) -> None:
    data, pages = tmp_path / "data", Pages({"/": "start", "/b": "b", "/own": "own"})
    moved = Reply(status=302, headers=(("Location", "/b"),))
    settings = {"CRAWLER_REVISIT": "10m", "HTTPERROR_ALLOWED_CODES": [304]}
    with LoopbackWeb(lambda ask: moved if ask.path == "/moved" else pages(ask), [HOST]) as web:
        seeds = web.url(HOST)
        first = crawl(data, Reader, settings, outcomes=4, url=seeds, is_first=True)
        assert sorted(first.spider.read) == ["", "b", "own"]
        assert pages.conditions() == {"/": None, "/b": None, "/own": '"mine"'}
        known = later_pages(data)
        assert known.keys() == pages.texts.keys()
        set_audits(data, are_next=False)
        pass_time(data, INTERVAL_S)
        pages.texts["/b"] = "another"
        second = crawl(data, Reader, settings, outcomes=3, url=seeds, is_first=False)
    assert second.spider.read == ["b", "own"]
    etags = {path: page.history.validators.strip() for path, page in known.items()}
    assert pages.conditions() == {**etags, "/own": '"mine"'}
    assert not list((data / "warc").glob("*.warc.gz")), "there is nothing that it could refer to"


def test_no_kill_loses_a_page_or_leaves_a_revisit_of_nothing(tmp_path: Path) -> None:
    data, pages = tmp_path / "data", Pages({"/": "start", **{f"/{n}": f"{n}" for n in range(12)}})
    count = len(pages.texts)
    with LoopbackWeb(pages, [HOST]) as web:
        seeds = web.url(HOST)
        visit(data, seeds, count)
        for finished in (0, 1, 4, 7):
            pass_time(data, INTERVAL_S)
            visit_and_kill(data, seeds, finished)
        pages.asked.clear()
        pass_time(data, INTERVAL_S)
        visit(data, seeds, count)
        assert set(pages.conditions()) == set(pages.texts), "each is visited on"
    judged_archive(data / "warc")
    histories = [page.history for page in later_pages(data).values()]
    assert len(histories) == count and not any(each.changes for each in histories)


def test_a_page_that_is_disallowed_since_it_was_stored_is_gone_and_comes_back(
    tmp_path: Path,
) -> None:
    data, pages = tmp_path / "data", Pages({"/": "start", **{f"/{n}": f"{n}" for n in range(4)}})
    count = len(pages.texts)

    def visited() -> list[tuple[str, str]]:
        known = len(changes(data)) if (data / "changes").exists() else 0
        crawl(
            data,
            settings=SETTINGS | {"CRAWLER_REQUIRE_PREFERENCE": "train-ai"},
            outcomes=count,
            seeds=seeds,
        )
        return sorted(changes(data)[known:])

    def answers() -> list[str]:
        found = (each for each in read_folder(data / "warc").values() if each.kind in ANSWERS)
        return [each.url for each in found if each.url.startswith(web.url(HOST, "/"))]

    with LoopbackWeb(pages, [HOST]) as web:
        seeds = web.url(HOST)
        visited()
        records = answers()
        pages.said = (("Content-Usage", "train-ai=n"),)
        gone = sorted(("gone", path[1:]) for path in pages.texts)
        for expected in (gone, []):
            pass_time(data, INTERVAL_S)
            assert visited() == expected
        assert answers() == records
        pages.said = ()
        pass_time(data, INTERVAL_S)
        assert visited() == sorted(("came_back", path) for _, path in gone)
