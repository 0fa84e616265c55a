"""A crawl again, from its own WARC files: the web is gone, and all is as it was."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from msgspec.structs import replace
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import Settings

from crawler.addon import FETCH_HANDLER, Addon
from crawler.archive.capture import Capture
from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.replay import Replay
from crawler.archive.writer import Archive, WarcSettings, WarcWriter
from crawler.assembly.build import Assembly
from crawler.config.settings import effective_settings, read_config
from crawler.content import to_capture
from crawler.data.outcomes import read_outcomes
from crawler.model.page import Exchange
from crawler.model.types import (
    Answer,
    Claim,
    ConfigError,
    DataDirError,
    Pace,
    never_waits,
)
from crawler.policy.politeness import next_rest
from tests.harness import pdf_files
from tests.harness.archive_judges import answers, archived, read_folder
from tests.harness.commands import crawl_command, run
from tests.harness.comparing import assert_same
from tests.harness.crawling import QUICK, Crawled, crawl
from tests.servers.loopback import Ask, LoopbackWeb, Reply

HOME: Final = "127.0.75.1"
AWAY: Final = "127.0.75.2"
WORDS: Final = "the same words at two addresses"
SETTINGS: Final = {
    "CRAWLER_HTML_MAX_BYTES": 10_000,
    "CRAWLER_TOTAL_TIMEOUT_S": 3,
    "CRAWLER_CONNECT_TIMEOUT_S": 3,
    "CRAWLER_RETRIES": 1,
}
AT: Final = 1767323045.5


def page(*links: str, text: str = "", **more: Any) -> Reply:
    anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    return Reply(f"<title>{text}</title><p>{text} {anchors}".encode(), **more)


async def in_chunks() -> AsyncIterator[bytes]:
    for number in range(5):
        yield b"<p>chunk %d" % number


async def without_end() -> AsyncIterator[bytes]:
    yield b"<title>slow</title>"
    while True:
        await asyncio.sleep(0.01)
        yield b"<p>more"


def web(ask: Ask) -> Reply:
    xml = "application/xml"
    listed = f"<url><loc>http://{HOME}:{ask.port}/of-the-map</loc></url>"
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    away = f"http://{AWAY}:{ask.port}/"
    routes: Mapping[str, Reply] = {
        "/": page("/a", "/b", "/packed", "/moved", "/none", "/busy", "/down", "/long",
                  "/slow", "/chunks", "/paper.pdf", "/map.xml", "/ring", text="Start"),
        "/a": page("/of-a", text=WORDS),
        "/b": page("/of-a", text=WORDS),
        "/of-a": page(text="of a"),
        "/packed": Reply(gzip.compress(b"<title>packed</title><a href=/of-the-packed>"),
                         headers=(("Content-Encoding", "gzip"),)),
        "/of-the-packed": page(text="of the packed"),
        "/moved": Reply(b"moved", 302, headers=(("Location", "/further"),)),
        "/further": Reply(b"", 301, headers=(("Location", away),)),
        "/ring": Reply(b"round", 302, headers=(("Location", "/ring"),)),
        "/busy": page(text="not busy any more") if ask.turn else Reply(b"", 503),
        "/down": Reply(b"down", 500),
        "/long": page("/of-the-long", text="silk " * 5_000),
        "/slow": Reply(without_end),
        "/chunks": Reply(in_chunks),
        "/paper.pdf": Reply(pdf_files.story("on paper", away + "of-the-paper"),
                            content_type="application/pdf"),
        "/map.xml": Reply(f'<urlset xmlns="{space}">{listed}</urlset>'.encode(), content_type=xml),
        "/of-the-map": page(text="of the map"),
    }  # fmt: skip
    if ask.host == AWAY and ask.path != "/robots.txt":
        return page(text=f"away {ask.path}")
    return routes.get(ask.path, Reply(b"not here", 404))


@dataclass(frozen=True, slots=True)
class Recorded:
    seed: str
    crawled: Crawled


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    with LoopbackWeb(web, [HOME, AWAY]) as serving:
        seed = serving.url(HOME)
        data = tmp_path_factory.mktemp("recorded") / "data"
        return Recorded(seed, crawl(data, settings=SETTINGS, seeds=seed))


@pytest.fixture(scope="module")
def again(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    data = tmp_path_factory.mktemp("again") / "data"
    settings = {**SETTINGS, "CRAWLER_REPLAY": str(recorded.crawled.data)}
    return crawl(data, settings=settings, seeds=recorded.seed)


def last_outcomes(crawled: Crawled) -> dict[str, dict[str, Any]]:
    """What became of each URL in the end."""
    found = {}
    for one in crawled.outcomes:
        about = ("fate", "status", "reason", "size", "depth", "target", "original", "bits")
        found[one.url] = {name: getattr(one, name) for name in about}
    return found


def test_every_url_ends_as_in_the_recorded_crawl(recorded: Recorded, again: Crawled) -> None:
    assert_same(last_outcomes(again), last_outcomes(recorded.crawled))
    assert (again.reason, again.stats["crawler/pages"]) == ("finished", 18)
    assert "crawler/replay/missing" not in again.stats


def test_the_archive_of_a_replay_is_the_same(recorded: Recorded, again: Crawled) -> None:
    """Times, addresses, requests, what was cut, in chunks or packed, and what was a copy."""
    first, second = archived(recorded.crawled.data), archived(again.data)
    assert_same(second, first)
    fields = {url.rpartition("/")[2]: kept for (kind, url), (kept, _) in first.items()
              if kind in ("response", "revisit")}  # fmt: skip
    assert fields["long"]["WARC-Truncated"] == "length"
    assert fields["slow"]["WARC-Truncated"] == "time"
    assert [one["WARC-Type"] for one in (fields["a"], fields["b"])] == ["response", "revisit"]
    assert b"X-Crawler-Transfer-Encoding" in first["response", recorded.seed + "chunks"][1]


def calendar(ask: Ask) -> Reply:
    """Days without an end in both directions: a few are new, all others have the same text."""
    last = ask.path.rpartition("/")[2]
    if ask.path != "/" and not last.removeprefix("-").isdecimal():
        return Reply(b"not here", 404)
    day = int(last or 0)
    event = f"the market of {day}" if abs(day) <= 2 else ""
    text = "another quiet day in a small town far from the sea where nobody comes by " * 9
    around = f"<a href=/day/{day - 1}>before</a> <a href=/day/{day + 1}>after</a>"
    return Reply(f"<title>Calendar</title><p>{event * 9} {text} {around}".encode())


@pytest.mark.parametrize(
    "stricter",
    [
        {"CRAWLER_PATTERN_BARREN_PAGES": 2},
        {"CRAWLER_PATTERN_MAX_PAGES": 4},
        {"CRAWLER_MAX_URLS_PER_HOST": 4},
        {"CRAWLER_MAX_URLS_PER_DOMAIN": 4},
    ],
    ids=lambda setting: min(setting),
)
def test_recorded_pages_are_replayed_despite_budgets(
    tmp_path: Path, stricter: dict[str, Any]
) -> None:
    """What a budget lets pass depends on the order of arrival, which is another in a replay."""
    with LoopbackWeb(calendar, [HOME]) as serving:
        seed = serving.url(HOME)
        settings = {"CRAWLER_PATTERN_BARREN_PAGES": 6}
        first = crawl(tmp_path / "first", settings=settings, seeds=seed)
    replayed = {**stricter, "CRAWLER_REPLAY": str(first.data)}
    again = crawl(tmp_path / "again", settings=replayed, seeds=seed)
    assert_same(answers(again.data), answers(first.data))
    assert again.stats["crawler/replay/missing"] == 2, (
        "the day before the first, and after the last"
    )


def test_no_host_rests(again: Crawled) -> None:
    politeness = effective_settings(read_config({"CRAWLER_REPLAY": "x"})).politeness
    for answer in (
        Answer(9.0, status=200),
        Answer(9.0, status=429, retry_after_s=9.0),
        Answer(9.0, error="timeout"),
    ):
        pace = Pace(crawl_delay_s=9.0, failures=99, gap_s=9.0)
        assert next_rest(pace, answer, politeness, Random(1)).pace.pauses == 0
    for answer in (Answer(9.0, status=200), Answer(9.0, status=429, retry_after_s=9.0)):
        assert next_rest(Pace(crawl_delay_s=9.0), answer, politeness, Random(1)).seconds == 0
    assert effective_settings(read_config({})) == read_config({})


@pytest.mark.parametrize("change", ["no index", "one file", "left by a crash"])
def test_a_replay_needs_no_index(
    recorded: Recorded, again: Crawled, tmp_path: Path, change: str
) -> None:
    (warc,) = (recorded.crawled.data / "warc").glob("*.warc.gz")
    kept = tmp_path / "kept" / warc.name
    kept.parent.mkdir()
    if change == "left by a crash":
        kept = kept.with_name(f"{warc.name}.open")
        kept.write_bytes(warc.read_bytes() + warc.read_bytes()[:50])
    else:
        shutil.copy(warc, kept)
    settings = {"CRAWLER_REPLAY": str(kept if change == "one file" else kept.parent)}
    done = crawl(tmp_path / "data", settings={**SETTINGS, **settings}, seeds=recorded.seed)
    assert_same(last_outcomes(done), last_outcomes(again))


def test_no_network_is_needed(recorded: Recorded, tmp_path: Path) -> None:
    """The real command, where the machine allows it in a network of its own with nothing in it."""
    settings = {**SETTINGS, "CRAWLER_REPLAY": recorded.crawled.data}
    command = crawl_command(tmp_path / "data", settings, seeds=recorded.seed)
    alone = ["unshare", "-rn"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        alone = []
    done = run([*alone, *command])
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = list(read_outcomes(tmp_path / "data" / "outcomes.jsonl"))
    assert {one.url for one in outcomes} == set(last_outcomes(recorded.crawled))


def kept_of(url: str, **changes: Any) -> Capture:
    host, _, path = url.partition("://")[2].partition("/")
    asked = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    return replace(
        Capture(
            url=url,
            fetched_at=AT,
            request=asked,
            head=b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
            body=f"<title>{url}</title>".encode(),
        ),
        **changes,
    )


def written(folder: Path, *captures: Capture) -> Path:
    writer = WarcWriter(WarcSettings(folder=folder, origin="h-1"), [CdxjCompanion()])
    for capture in captures:
        writer.append(capture)
    writer.close()
    return folder


PUBLIC: Final = "https://www.example.com/"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The archive of a host that is nowhere near."""
    return written(
        tmp_path / "small",
        kept_of(PUBLIC, body=b"<a href=/known>known</a> <a href=/unknown>unknown</a>"),
        kept_of(PUBLIC + "known", body=b"old"),
        kept_of(PUBLIC + "known", body=b"new", fetched_at=AT + 60),
        kept_of(PUBLIC + "form", body=b"for a", request=b"POST /form HTTP/1.1\r\n\r\na"),
        kept_of(PUBLIC + "form", body=b"for b", request=b"POST /form HTTP/1.1\r\n\r\nb"),
    )


def test_a_public_host_needs_no_contact_and_what_is_missing_is_logged(
    small: Path, tmp_path: Path
) -> None:
    done = crawl(tmp_path / "data", settings={"CRAWLER_REPLAY": str(small)}, seeds=PUBLIC)
    assert {url: (one["fate"], one["status"]) for url, one in last_outcomes(done).items()} == {
        PUBLIC: ("done", 200),
        PUBLIC + "known": ("done", 200),
        PUBLIC + "unknown": ("done", None),
    }
    reason = "ignored: CRAWLER_REPLAY has no answer of GET https://www.example.com/unknown"
    assert last_outcomes(done)[PUBLIC + "unknown"]["reason"] == reason
    assert done.stats["crawler/replay/missing"] == 1
    assert done.stats["crawler/replay/answered"] == 2
    blocks = [read.block for read in read_folder(done.data / "warc").values()]
    assert any(b"new" in block for block in blocks), "the latest counts"
    assert not any(b"unknown HTTP" in block for block in blocks), "nothing is made up"


class Network:
    """A download handler of the project, or a plain one that is set too late to be warned about."""

    lazy = False

    def __init__(self, crawler: Crawler) -> None:
        raise AssertionError("the network would be asked")


def test_no_other_handler_is_named(small: Path) -> None:
    settings = Settings({"DOWNLOAD_HANDLERS": {"http": Network, "https": Network}})
    settings.set("CRAWLER_REPLAY", str(small))
    Addon.update_pre_crawler_settings(settings)
    Addon().update_settings(settings)
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    assert {name for name in handlers.values() if name} == {FETCH_HANDLER}


def test_no_other_handler_is_asked(small: Path, tmp_path: Path) -> None:
    settings = {"CRAWLER_REPLAY": str(small), "DOWNLOAD_HANDLERS": {"https": Network}}
    done = crawl(tmp_path / "data", settings=settings, seeds=PUBLIC)
    assert done.stats["crawler/replay/answered"] == 2


def test_an_archived_robots_txt_is_obeyed(small: Path, tmp_path: Path) -> None:
    robots = b"User-agent: *\nDisallow: /known\nCrawl-delay: 3600"
    written(small, kept_of(PUBLIC + "robots.txt", body=robots))
    done = crawl(tmp_path / "data", settings={"CRAWLER_REPLAY": str(small)}, seeds=PUBLIC)
    assert last_outcomes(done)[PUBLIC + "known"]["reason"] == "robots.txt: line 2: Disallow: /known"


class Asking(Spider):
    """A spider of a user's: its requests have callbacks, bodies and errbacks."""

    name = "asking"

    async def start(self) -> AsyncIterator[Any]:
        for body in ("a", "b", "c"):
            yield Request(PUBLIC + "form", method="POST", body=body, callback=self.answered,
                          errback=self.failed)  # fmt: skip
        yield Request(PUBLIC + "known", callback=self.answered)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.received: list[bytes] = []

    def answered(self, response: Response) -> Iterator[Any]:
        self.received.append(response.body)
        yield from ()

    def failed(self, failure: Any) -> None:
        self.received.append(type(failure.value).__name__.encode())


def test_a_users_spider_gets_the_recorded_answer_to_its_exact_request(
    small: Path, tmp_path: Path
) -> None:
    done = crawl(tmp_path / "data", Asking, {"CRAWLER_REPLAY": str(small)})
    assert sorted(done.spider.received) == [b"NotArchived", b"for a", b"for b", b"new"]


def test_an_original_in_another_file_is_missed(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    claim = Claim(b"\0" * 20, PUBLIC + "first", "other.warc.gz:1", AT - 9)
    written(folder, kept_of(PUBLIC, duplicate_of=claim, body_sha1=b"\0" * 20))
    assert Replay(folder).find(PUBLIC) is None


@pytest.mark.parametrize(
    "status",
    [b"HTTP/1.1 200 OK", b"HTTP/1.1\t200\tOK", b"HTTP/1.2 200 100%", b"HTTP/0.9  200 \xf6"],
    ids=["plain", "tabs", "another version", "not ASCII"],
)
def test_a_status_line_is_as_it_was_sent(tmp_path: Path, status: bytes) -> None:
    sent = Exchange(
        url=PUBLIC,
        at=1.0,
        duration_s=0.0,
        request_head=b"GET / HTTP/1.1\r\n\r\n",
        head=status + b"\r\nX: 1\r\n\r\n",
        body=b"a page",
        ip="192.0.2.1",
    )
    asyncio.run(kept_in(tmp_path, sent))
    found = Replay(tmp_path).find(PUBLIC)
    assert found is not None and found.head == sent.head
    (record,) = [one for one in read_folder(tmp_path).values() if one.kind == "response"]
    assert record.block.startswith(b"HTTP/1.1 200 "), "which every reader understands"


async def kept_in(folder: Path, exchange: Exchange) -> None:
    archive = Archive(WarcWriter(WarcSettings(folder=folder, origin="h-1")), never_waits)
    await to_capture.archive_exchange(exchange, archive)
    await archive.close()


def test_a_visit_that_found_nothing_changed_is_answered_by_the_page(tmp_path: Path) -> None:
    page = kept_of(PUBLIC, fetched_at=AT - 9)
    unchanged = kept_of(PUBLIC, not_modified_of=Claim(b"", PUBLIC, at=AT - 9), body=b"")
    found = Replay(written(tmp_path / "kept", page, unchanged)).find(PUBLIC)
    assert found is not None and (found.body, found.truncated) == (page.body, "")
    assert Replay(written(tmp_path / "alone", unchanged)).find(PUBLIC) is None


def test_a_damaged_archive_ends_the_crawl(small: Path, tmp_path: Path) -> None:
    (warc,) = small.glob("*.warc.gz")
    warc.write_bytes(warc.read_bytes()[:1_000])
    with pytest.raises(DataDirError, match="cannot be read at"):
        Replay(small).find(PUBLIC + "known")
    done = crawl(tmp_path / "data", settings={"CRAWLER_REPLAY": str(small)}, seeds=PUBLIC + "known")
    assert done.reason == "store_failed"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("nowhere", "which is not there", id="no such path"),
        pytest.param("empty", "which holds no .warc.gz file", id="nothing in it"),
        pytest.param("text.warc.gz", "where no answer can be read", id="no WARC file"),
        pytest.param("data", "in the data directory of this crawl", id="where it would write"),
    ],
)
def test_a_path_without_an_archive_is_refused(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.warc.gz").write_text("hello")
    written(tmp_path / "data" / "warc", kept_of(PUBLIC))
    named = {"CRAWLER_REPLAY": str(tmp_path / path), "CRAWLER_DATA_DIR": str(tmp_path / "data")}
    with pytest.raises(ConfigError, match=f"CRAWLER_REPLAY is .*{path}.*{message}"):
        Assembly.from_crawler(Crawler(Spider, {**QUICK, **named}))
    assert [one.name for one in (tmp_path / "data").iterdir()] == ["warc"], "nothing was begun"
