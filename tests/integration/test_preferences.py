"""What publishers ask: read from all sources for each page, in columns, archive and outcomes; and
the pages that `CRAWLER_REQUIRE_PREFERENCE` keeps out of them. Judged by the servers' books, too."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawler.archive.columns_companion import SUFFIX, ColumnsCompanion
from crawler.archive.warc_file import companion_path
from crawler.config.settings import read_config
from crawler.content.parsing import rebuild_settings
from tests.harness.archive_judges import read_rows
from tests.harness.crawling import Crawled, crawl
from tests.harness.fork_server import SCRAPY, run
from tests.servers.judge import ROBOTS, Gap, Rules, judge
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Visit

SAYS, LICENSED, OTHER, TDM, SLOW = (f"127.0.81.{n}" for n in range(2, 7))
GAP: Final = Gap(min_delay_s=0.05, delay_factor=1.0)
TDMREP: Final = "/.well-known/tdmrep.json"
MARKER: Final = "arachnid0815"
RSL: Final = """<?xml version="1.0"?><rsl xmlns="https://rslstandard.org/rsl">
<content url="/"><license><permits type="usage">search</permits>
<prohibits type="usage">ai-train</prohibits></license></content>
<content url="/free/"><license><permits type="usage">all</permits></license></content></rsl>"""
ROBOTS_TXT: Final = {
    SAYS: """User-agent: *
Content-Usage: train-ai=y
Content-Usage: /no/ train-ai=n
Content-Signal: search=yes, ai-train=yes
Disallow: /secret
""",
    LICENSED: "User-agent: *\nAllow: /\nLicense: http://{other}/licence.xml\n",
    OTHER: "User-agent: *\nDisallow: /forbidden.xml\n",
}
PAGES: Final = {
    SAYS: (
        *("/yes/1", "/no/1", "/header", "/signal", "/robots-tag", "/meta", "/other-bot", "/tdm"),
        *("/tdm-meta", "/broken", "/gone", "/paid", "/paid-402", "/copy"),
        *("/no/moved", "/no/challenge", "/meta-copy"),
    ),
    LICENSED: ("/terms", "/free/1", "/linked", "/in-page", "/forbidden"),
    TDM: ("/open", "/kept/1", "/noai", "/noai-copy"),
    SLOW: ("/late",),
}
HEADERS: Final = {
    "/header": ("Content-Usage", "search=n, train-ai=y"),
    "/signal": ("Content-Signal", "ai-train=no"),
    "/robots-tag": ("X-Robots-Tag", "noai, noimageai"),
    "/other-bot": ("X-Robots-Tag", "otherbot: noai"),
    "/tdm": ("TDM-Reservation", "1"),
    "/broken": ("Content-Usage", "Train-ai=n"),
    "/paid": ("Crawler-Price", "USD 0.01"),
    "/no/moved": ("Location", "/yes/1"),
    "/no/challenge": ("Cf-Mitigated", "challenge"),
    "/linked": ("Link", '<http://{other}/closed.xml>; rel="license"; type="application/rsl+xml"'),
}
STATUS: Final = {
    "/gone": 410,
    "/paid": 402,
    "/paid-402": 402,
    "/no/moved": 301,
    "/no/challenge": 403,
}
IN_HEAD: Final = {
    "/meta": "<meta name=robots content=noai>",
    "/noai": "<meta name=robots content=noai>",
    "/tdm-meta": '<meta name="tdm-reservation" content="1">',
    "/in-page": '<link rel=license type="application/rsl+xml" href="/own.xml">',
    "/forbidden": '<link rel=license type="application/rsl+xml" href="//{other}/forbidden.xml">',
    "/late": '<link rel=license type="application/rsl+xml" href="//{other}/busy.xml">',
}


class Publishers:
    """What the hosts answer."""

    def __init__(self) -> None:
        self.port = 0

    def __call__(self, ask: Ask) -> Reply:
        other = f"{OTHER}:{self.port}"
        if ask.path == ROBOTS:
            text = ROBOTS_TXT.get(ask.host, "").replace("{other}", other)
            return Reply(text, content_type="text/plain", status=200 if text else 404)
        if ask.path == TDMREP and ask.host == TDM:
            said = [{"location": "/kept/", "tdm-reservation": 1}]
            return Reply(json.dumps(said), content_type="application/json")
        if ask.path == "/busy.xml" and ask.turn == 0:
            return Reply("later", 503, headers=(("Retry-After", "2"),))
        if ask.path in ("/licence.xml", "/own.xml", "/busy.xml"):
            return Reply(RSL, content_type="application/rsl+xml")
        if ask.path == "/closed.xml":
            return Reply(RSL.replace("search", "none"), content_type="application/rsl+xml")
        if ask.path == "/":
            anchors = "".join(f"<a href={each}>x</a>" for each in PAGES[ask.host])
            return Reply(f"<title>{ask.host}</title>{anchors}")
        if ask.path not in PAGES.get(ask.host, ()):
            return Reply("not here", 404)
        status = STATUS.get(ask.path, 200)
        named = HEADERS.get(ask.path)
        headers = ((named[0], named[1].format(other=other)),) if named else ()
        path = {"/copy": "/yes/1", "/meta-copy": "/meta", "/noai-copy": "/noai"}.get(
            ask.path, ask.path
        )
        head = IN_HEAD.get(path, "").format(other=other)
        words = " ".join(f"{MARKER}{path.replace('/', '')}{number}" for number in range(80))
        return Reply(f"<title>On {path}</title>{head}<p>{words}", status, headers=headers)


@dataclass(frozen=True)
class Life:
    crawled: Crawled
    visits: list[Visit]
    port: int

    def rows(self) -> dict[str, dict[str, Any]]:
        files = sorted((self.crawled.data / "warc").glob(f"*{SUFFIX}"))
        return {path_of(row["url"]): row for file in files for row in read_rows(file)}

    def asked(self, host: str) -> Counter[str]:
        return Counter(each.path for each in self.visits if each.host == host)


def path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}{parts.path}"


def lived(folder: Path, **settings: Any) -> Life:
    web = Publishers()
    hosts = [SAYS, LICENSED, OTHER, TDM, SLOW]
    with LoopbackWeb(web, hosts) as served:
        web.port = served.port
        seeds = folder / "seeds.txt"
        seeds.write_text("\n".join(served.url(host) for host in PAGES))
        crawled = crawl(
            folder / "data",
            settings={
                "CRAWLER_MIN_DELAY_S": GAP.min_delay_s,
                "CRAWLER_DELAY_FACTOR": GAP.delay_factor,
                "CRAWLER_SUMMARY": True,
                **settings,
            },
            seeds=str(seeds),
            scope="host",
        )
        served.settle()
        return Life(crawled, list(served.visits), served.port)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return lived(tmp_path_factory.mktemp("preferences"), CRAWLER_PREFERENCE_FILES="all")


ROBOTS_SAYS: Final = ("robots.txt content-usage", "robots.txt content-signal")
EXPECTED: Final[dict[str, tuple[str | None, ...]]] = {
    f"{SAYS}/yes/1": ("allow", "allow", *ROBOTS_SAYS),
    f"{SAYS}/no/1": ("disallow", "allow", *ROBOTS_SAYS),
    f"{SAYS}/header": ("allow", "disallow", *ROBOTS_SAYS, "content-usage"),
    f"{SAYS}/meta": ("disallow", "allow", *ROBOTS_SAYS, "meta robots"),
    f"{SAYS}/robots-tag": ("disallow", "allow", *ROBOTS_SAYS, "x-robots-tag"),
    f"{SAYS}/other-bot": ("allow", "allow", *ROBOTS_SAYS),
    f"{SAYS}/broken": ("allow", "allow", *ROBOTS_SAYS),
    f"{SAYS}/tdm": ("disallow", "allow", *ROBOTS_SAYS, "tdm-reservation"),
    f"{SAYS}/tdm-meta": ("disallow", "allow", *ROBOTS_SAYS, "meta tdm-reservation"),
    f"{SAYS}/copy": ("allow", "allow", *ROBOTS_SAYS),
    f"{SAYS}/meta-copy": ("disallow", "allow", *ROBOTS_SAYS, "meta robots"),
    f"{LICENSED}/terms": ("disallow", "allow", "rsl"),
    f"{LICENSED}/free/1": ("allow", "allow", "rsl"),
    f"{TDM}/open": (None, None),
    f"{TDM}/kept/1": ("disallow", "unknown", "tdmrep.json"),
    f"{TDM}/noai": ("disallow", "unknown", "meta robots"),
    f"{TDM}/noai-copy": ("disallow", "unknown", "meta robots"),
    f"{SLOW}/late": (None, None),
}


def of_row(row: dict[str, Any]) -> tuple[str | None, ...]:
    sources = row["pref_sources"].split(", ") if row["pref_sources"] else ()
    return row["pref_train_ai"], row["pref_search"], *sources


@pytest.mark.parametrize("page", EXPECTED)
def test_what_is_said_of_a_page_is_in_its_columns(life: Life, page: str) -> None:
    assert of_row(life.rows()[page]) == EXPECTED[page]


def test_columns_made_again_say_the_same(life: Life, tmp_path: Path) -> None:
    for warc in sorted((life.crawled.data / "warc").glob("*.warc.gz")):
        copy = Path(shutil.copy(warc, tmp_path))
        ColumnsCompanion(rebuild_settings(read_config({}))).rebuild(copy, copy)
        before, made = (
            read_rows(companion_path(warc, SUFFIX)),
            read_rows(companion_path(copy, SUFFIX)),
        )
        assert [*map(of_row, made)] == [*map(of_row, before)]


def noted(data: Path) -> Iterator[tuple[str, str]]:
    """The page and the field of each metadata record that has one."""
    for file in sorted((data / "warc").glob("*.warc.gz")):
        with file.open("rb") as opened:
            for record in ArchiveIterator(opened):
                if record.rec_type == "metadata":
                    lines = record.content_stream().read().decode().splitlines()
                    url = record.rec_headers.get_header("WARC-Target-URI")
                    yield from (
                        (path_of(url), line.partition(": ")[2])
                        for line in lines
                        if line.startswith("preferences: ")
                    )


def test_a_metadata_record_says_it_only_where_something_was_said(life: Life) -> None:
    found = dict(noted(life.crawled.data))
    assert found[f"{SAYS}/no/1"] == (
        "train-ai=disallow search=allow (robots.txt content-usage, robots.txt content-signal)"
    )
    assert f"{SAYS}/gone" in found  # an error has it, too
    assert not {f"{TDM}/open", f"{SLOW}/late", f"{TDM}/"} & found.keys()


def test_licences_are_fetched_once_by_robots_txt_and_in_turn(life: Life) -> None:
    asked = life.asked(OTHER)
    assert (asked["/licence.xml"], asked["/closed.xml"], asked["/busy.xml"]) == (1, 1, 1)
    assert asked["/forbidden.xml"] == 0
    assert life.asked(LICENSED)["/own.xml"] == 1
    assert {host: life.asked(host)[TDMREP] for host in PAGES} == dict.fromkeys(PAGES, 1)
    rules = {SAYS: Rules(disallow=("/secret",)), OTHER: Rules(disallow=("/forbidden.xml",))}
    of = turns(life.visits)
    found = judge(life.visits, rules, GAP, lambda visit: of[id(visit)])
    assert not found.found, str(found)


def turns(visits: list[Visit]) -> dict[int, str]:
    """The turn of each request, by its id: a file on a page's own host is of the page's turn, and
    the first one on another host is of that in which its robots.txt is fetched."""
    found: dict[int, str] = {}
    last: dict[str, str] = {}
    for number, visit in enumerate(sorted(visits, key=lambda visit: visit.arrival_s)):
        is_more = visit.path in ("/own.xml", "/licence.xml", TDMREP)
        last[visit.host] = last[visit.host] if is_more else str(number)
        found[id(visit)] = last[visit.host]
    return found


def test_a_402_is_final_and_its_price_is_known(life: Life) -> None:
    ends = {path_of(each.url): each for each in life.crawled.outcomes if each.status == 402}
    paid, unsaid = ends[f"{SAYS}/paid"], ends[f"{SAYS}/paid-402"]
    assert (paid.fate, paid.reason, paid.price) == ("done", "payment (USD 0.01)", "USD 0.01")
    assert (unsaid.fate, unsaid.reason, unsaid.price) == ("done", "payment", "")
    assert life.asked(SAYS)["/paid"] == 1
    challenged = f"{SAYS}/no/challenge"
    assert {path_of(o.url) for o in life.crawled.outcomes if o.failure} == {challenged}


def test_why_says_what_is_asked(life: Life) -> None:
    url = f"http://{SAYS}:{life.port}/no/1"
    why = [*SCRAPY, "frontier", "why", url, "-s", f"CRAWLER_DATA_DIR={life.crawled.data}"]
    assert "its publisher says of its use: train-ai=disallow search=allow" in run(why).stdout


def test_what_is_disallowed_is_not_stored_and_all_else_is(tmp_path: Path) -> None:
    life = lived(
        tmp_path,
        CRAWLER_REQUIRE_PREFERENCE="train-ai",
        FEEDS={str(tmp_path / "feed.jsonl"): {"format": "jsonlines", "fields": ["url", "text"]}},
    )
    disallowed = {page for page, (train, *_) in EXPECTED.items() if train == "disallow"}
    disallowed |= {f"{LICENSED}/linked", f"{SAYS}/signal", f"{LICENSED}/in-page"}
    disallowed |= {f"{LICENSED}/", f"{LICENSED}/forbidden", f"{SLOW}/late"}
    rows = life.rows()
    assert not disallowed & rows.keys()
    assert EXPECTED.keys() - disallowed <= rows.keys()
    kept = b"".join(everything(life.crawled.data))
    assert f"{MARKER}yes10 ".encode() in kept
    no_pages = {f"{SAYS}/no/moved", f"{SAYS}/no/challenge"}
    for page in disallowed - {f"{LICENSED}/"} | no_pages:
        word = f"{MARKER}{page.partition('/')[2].replace('/', '')}0 "
        assert word.encode() not in kept, page
    reasons = {path_of(each.url): each.reason for each in life.crawled.outcomes}
    assert {reasons[page] for page in disallowed} == {"disallowed: train-ai"}
    # Its licence could not be had at first, so it came again.
    assert life.crawled.fates()["/late"] == ["retry", "done"]
    fetched = {path_of(each.url) for each in life.crawled.outcomes}
    assert f"{LICENSED}/terms" in fetched  # its links are followed, so it was found
    feed = [json.loads(line) for line in (tmp_path / "feed.jsonl").read_text().splitlines()]
    assert not disallowed & {path_of(each["url"]) for each in feed}
    summary = json.loads((life.crawled.data / "summary.json").read_bytes())
    assert summary["disallowed"] == {"train-ai": len(disallowed) + 1}  # the last challenge


def everything(data: Path) -> Iterator[bytes]:
    """All that the archive has, unpacked."""
    for file in sorted((data / "warc").glob("*.warc.gz")):
        with file.open("rb") as opened:
            for record in ArchiveIterator(opened):
                yield record.raw_stream.read()
    for file in sorted((data / "warc").glob(f"*{SUFFIX}")):
        yield json.dumps(read_rows(file), default=str).encode()


def test_licences_of_many_publishers_on_one_host_are_waited_for(tmp_path: Path) -> None:
    publishers = [f"127.0.81.{number}" for number in range(20, 30)]
    allows = RSL.replace("prohibits", "permits")

    def answer(ask: Ask) -> Reply:
        if ask.path == ROBOTS and ask.host != OTHER:
            name = f"http://{OTHER}:{ask.port}/{ask.host}.xml"
            return Reply(f"License: {name}", content_type="text/plain")
        if ask.path.endswith(".xml"):
            return Reply(allows, content_type="application/rsl+xml")
        return Reply(f"<title>{ask.host}") if ask.path == "/" else Reply("not here", 404)

    with LoopbackWeb(answer, [OTHER, *publishers]) as served:
        seeds = tmp_path / "seeds.txt"
        seeds.write_text("\n".join(map(served.url, publishers)))
        settings = {"CRAWLER_MIN_DELAY_S": 1.0}
        crawled = crawl(tmp_path / "data", settings=settings, seeds=str(seeds), scope="host")
        served.settle()
        life = Life(crawled, list(served.visits), served.port)
    assert {of_row(row) for row in life.rows().values()} == {("allow", "allow", "rsl")}
    assert set(life.asked(OTHER).values()) == {1}
