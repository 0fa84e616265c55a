"""A body that breaks off is no answer: it is fetched again, and kept, marked, at the last try only.

Rule: each case is a host of its own, which breaks off once or always; one crawl visits them all.
The tests read its log, its archive and what the servers have counted.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from crawler.data.outcomes import read_outcomes
from crawler.model.types import Outcome
from tests.harness.archive_judges import Read, read_folder
from tests.harness.commands import crawl_command
from tests.harness.fork_server import run
from tests.servers.hostile import HostileServer
from tests.servers.hostile_kit import (
    HTML_TYPE,
    OK,
    Expectation,
    Hostile,
    Piece,
    Pieces,
    Reset,
    Wait,
    answer,
    chunked,
    for_ever,
    gzipped,
    head,
    once,
)

RETRIES: Final = 2
SETTINGS: Final = {
    "CRAWLER_RETRIES": RETRIES,
    "CRAWLER_ROBOTS_TRIES": RETRIES,
    "CRAWLER_BACKOFF_BASE_S": 0.01,
    "CRAWLER_BACKOFF_MAX_S": 0.01,
    "CRAWLER_TOTAL_TIMEOUT_S": 15.0,  # of the robots.txt that drips
    "CRAWLER_DELAY_FACTOR": 0,
}
CHUNKED: Final = b"Transfer-Encoding: chunked"
GZIP: Final = b"Content-Encoding: gzip"
TEXT: Final = b"Content-Type: text/plain"
FOUND: Final = b"HTTP/1.1 302 Found"


def page_of(site: str) -> bytes:
    """Check the result in any case: no two pages alike, for links of a copy are not followed."""
    return b"<title>%s</title><p>here is one link: <a href='/next'>on</a>" % site.encode()


def whole_of(site: str) -> bytes:
    return page_of(site) + b"<p>this part may be missing: <a href='/last'>last</a>" + b"." * 5000


def too_long(*lines: bytes, body: bytes, status: bytes = OK) -> bytes:
    """An answer that declares a thousand bytes more than it has."""
    return head(*lines, b"Content-Length: %d" % (len(body) + 1000), status=status) + body


@dataclass(frozen=True, slots=True)
class Case:
    """How a page breaks off, its whole form, and how it is logged."""

    name: str
    broken: tuple[Piece, ...]
    whole: bytes
    body: bytes  # what comes of a broken one, as sent
    error: str = "disconnect"


def cases(which: str) -> tuple[Case, ...]:
    """*which*: first or always, as part of the names of sites and so of their pages."""

    def made(
        name: str, break_off: Callable[[bytes], bytes], whole: Callable[[bytes], bytes], **more: Any
    ) -> Case:
        site = f"{name}-{which}"
        ending = (Wait(0.1), Reset()) if name.startswith("reset") else ()
        body = page_of(site)
        return Case(
            name, (break_off(body), *ending), whole(whole_of(site)), **{"body": body, **more}
        )

    in_chunks, moved = head(HTML_TYPE, CHUNKED), b"Location: /next"
    missing = b"HTTP/1.1 404 Not Found"
    return (
        made("length", lambda body: too_long(HTML_TYPE, body=body), plain),
        made(
            "chunks",
            lambda body: in_chunks + chunked(body, end=b""),
            lambda body: in_chunks + chunked(body),
        ),
        made(
            "bad-chunks",
            lambda body: in_chunks + chunked(body, end=b"oops\r\n"),
            lambda body: in_chunks + chunked(body),
            error="protocol",
        ),
        made(
            "no-trailer",
            lambda body: head(HTML_TYPE, GZIP) + gzipped(body)[:-8],
            lambda body: head(HTML_TYPE, GZIP) + gzipped(body),
            body=gzipped(page_of(f"no-trailer-{which}"))[:-8],
        ),
        made("reset", lambda body: too_long(HTML_TYPE, body=body), plain),
        made("reset-without-length", lambda body: head(HTML_TYPE) + body, plain),
        made(
            "redirect",
            lambda body: too_long(moved, body=body, status=FOUND),
            lambda body: answer(moved, body=body, status=FOUND),
        ),
        made(
            "missing",
            lambda body: too_long(HTML_TYPE, body=body, status=missing),
            lambda body: answer(body=body, status=missing),
        ),
    )


def plain(body: bytes) -> bytes:
    return answer(body=body)


FIRST: Final = cases("first")
ALWAYS: Final = cases("always")
GOOD: Final = tuple(
    Hostile(name, once(answer(body=b"<title>%s</title>" % name.encode())), Expectation())
    for name in ("next", "last", "listed")
)


def first(broken: Iterable[Piece], whole: bytes) -> Pieces:
    """*broken* at the first visit, *whole* at each later one."""
    visits = count()
    return lambda: (whole,) if next(visits) else broken


def page(send: Pieces) -> Hostile:
    return Hostile("page", send, Expectation())


def robots(site: str, send: Pieces) -> tuple[Hostile, ...]:
    whole = page(once(answer(body=whole_of(site))))
    return (Hostile("robots.txt", send, Expectation()), whole)


def sites() -> dict[str, tuple[Hostile, ...]]:
    rules = answer(kind=TEXT, body=b"User-agent: *\nAllow: /\nDisallow: /next")
    half = too_long(TEXT, body=b"User-agent: *\nAllow: /\n")
    named = answer(kind=TEXT, body=b"Sitemap: /sitemap.xml\n")
    urls = b"<urlset><url><loc>/listed</loc></url></urlset>"
    short = too_long(b"Content-Type: application/xml", body=urls[:9])
    listing = answer(kind=b"Content-Type: application/xml", body=urls)
    broken = {f"{case.name}-always": (page(once(*case.broken)),) for case in ALWAYS}
    mended = {f"{case.name}-first": (page(first(case.broken, case.whole)),) for case in FIRST}
    return {
        **broken,
        **mended,
        "busy": (page(once(too_long(body=b"busy", status=b"HTTP/1.1 503 Busy"))),),
        "head": (page(once(head(HTML_TYPE)[:-6])),),
        "robots-first": robots("robots-first", first((half,), rules)),
        "robots-always": robots("robots-always", once(half)),
        "robots-drips": robots("robots-drips", for_ever(head(TEXT), b"#", pause_s=0.1)),
        "sitemap": (
            *robots("sitemap", once(named)),
            Hostile("sitemap.xml", first((short,), listing), Expectation()),
        ),
    }


@dataclass(frozen=True, slots=True)
class Crawled:
    outcomes: dict[str, dict[str, list[Outcome]]]  # by site and path, try by try
    visits: dict[str, Counter[str]]
    records: dict[tuple[str, int], Read]
    summary: dict[str, dict[str, int]]

    def fates(self, site: str, path: str = "/page") -> list[str]:
        return [outcome.fate for outcome in self.outcomes[site][path]]

    def record(self, outcome: Outcome) -> Read:
        file, _, offset = outcome.record.rpartition(":")
        return self.records[file, int(offset)]


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    home = tmp_path_factory.mktemp("broken")
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(HostileServer((*rows, *GOOD), f"127.0.9.{number}"))
            for number, (name, rows) in enumerate(sites().items(), 1)
        }
        seeds = ",".join(f"{server.url}/page" for server in servers.values())
        done = run(crawl_command(home, SETTINGS, seeds=seeds, scope="host"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    by_site: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    names = {server.url: name for name, server in servers.items()}
    for outcome in read_outcomes(home / "outcomes.jsonl"):
        url = outcome.url.split("/", 3)
        by_site[names["/".join(url[:3])]]["/" + url[3]].append(outcome)
    return Crawled(
        by_site,
        {name: server.visits for name, server in servers.items()},
        read_folder(home / "warc"),
        json.loads((home / "summary.json").read_bytes()),
    )


@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_a_body_broken_once_is_archived_whole_and_once(crawled: Crawled, case: Case) -> None:
    site = f"{case.name}-first"
    broken, whole = crawled.outcomes[site]["/page"]
    assert (broken.fate, broken.reason, broken.record) == ("retry", case.error, "")
    assert whole.fate == ("moved" if case.name == "redirect" else "done")
    record = crawled.record(whole)
    assert (record.kind, "WARC-Truncated" in record.fields) == ("response", False)
    assert case.whole.endswith(record.payload) or case.name.endswith("chunks")
    assert len(record.payload) > len(case.body)
    assert crawled.visits[site]["/page"] == 2
    assert crawled.visits[site]["/next"] == (case.name != "missing"), "an error leads nowhere"


@pytest.mark.parametrize("case", ALWAYS, ids=lambda case: case.name)
def test_a_body_that_is_always_broken_is_archived_as_truncated(
    crawled: Crawled, case: Case
) -> None:
    site = f"{case.name}-always"
    *tries, last = crawled.outcomes[site]["/page"]
    assert [(each.fate, each.reason, each.record) for each in tries] == [
        ("retry", case.error, "")
    ] * RETRIES
    assert last.fate == ("moved" if case.name == "redirect" else "done")
    record = crawled.record(last)
    mark = "unspecified" if case.error == "protocol" else "disconnect"
    assert record.fields["WARC-Truncated"] == mark
    assert record.payload == case.body
    assert crawled.visits[site]["/page"] == RETRIES + 1
    assert crawled.visits[site]["/next"] == (case.name != "missing"), "its links are followed"


def test_broken_bodies_are_counted(crawled: Crawled) -> None:
    broken = sum(case.error == "disconnect" for case in ALWAYS)
    assert crawled.summary["truncated"] == {"disconnect": broken, "unspecified": 1}
    assert crawled.summary["errors"]["disconnect"] >= broken * (RETRIES + 1)


def test_a_broken_error_page_is_logged_with_its_status(crawled: Crawled) -> None:
    assert crawled.fates("busy") == ["retry"] * RETRIES + ["dead"]
    assert crawled.outcomes["busy"]["/page"][-1].reason == "status 503, tried 3 times"


def test_a_connection_closed_inside_a_head_is_named(crawled: Crawled) -> None:
    assert crawled.fates("head") == ["retry"] * RETRIES + ["dead"]
    assert crawled.outcomes["head"]["/page"][-1].reason == "disconnect, tried 3 times"


def test_a_robots_txt_that_broke_off_is_asked_for_again(crawled: Crawled) -> None:
    assert crawled.visits["robots-first"]["/robots.txt"] == 2
    assert crawled.fates("robots-first") == ["done"]
    assert crawled.visits["robots-first"]["/next"] == 0, "which the missing line forbids"
    assert crawled.visits["robots-first"]["/last"] == 1


@pytest.mark.parametrize(
    ("site", "reason"),
    [
        pytest.param("robots-always", "disconnect", id="broken off"),
        pytest.param("robots-drips", "timeout", id="too slow"),
    ],
)
def test_a_robots_txt_that_never_comes_whole_forbids_all(
    crawled: Crawled, site: str, reason: str
) -> None:
    assert crawled.visits[site]["/robots.txt"] == RETRIES
    assert crawled.visits[site]["/page"] == 0
    assert crawled.outcomes[site]["/page"][-1].reason.startswith(
        f"robots.txt unreachable: {reason}"
    )


def test_a_sitemap_that_broke_off_is_asked_for_again(crawled: Crawled) -> None:
    assert crawled.fates("sitemap", "/sitemap.xml") == ["retry", "done"]
    assert crawled.visits["sitemap"]["/listed"] == 1


def test_without_fail_on_dataloss_a_broken_body_is_kept_at_once(tmp_path: Path) -> None:
    """Scrapy's own setting, for sites that declare wrong lengths."""
    with HostileServer(
        (page(once(too_long(HTML_TYPE, body=b"<p>some of it"))), *GOOD), "127.0.9.90"
    ) as server:
        settings = {**SETTINGS, "DOWNLOAD_FAIL_ON_DATALOSS": False}
        done = run(crawl_command(tmp_path, settings, seeds=f"{server.url}/page", max_depth=0))
    assert done.returncode == 0, done.stderr[-2000:]
    (outcome,) = read_outcomes(tmp_path / "outcomes.jsonl")
    assert (outcome.fate, outcome.reason) == ("done", "")
    (record,) = [
        each for each in read_folder(tmp_path / "warc").values() if each.kind == "response"
    ]
    assert record.fields["WARC-Truncated"] == "disconnect"
