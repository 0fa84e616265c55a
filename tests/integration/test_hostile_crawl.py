"""Any response, however broken, at most costs its own page: one crawl over a server whose every
answer is wrong in its own way, and over the pages that stand between them.

Rule: one run of the real command; the tests read what it left behind, and the servers' books.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from crawler.archive.wacz import Labels
from crawler.data.outcomes import read_outcomes
from crawler.model.page import Flaw
from crawler.model.types import Outcome
from crawler.operate.archive import pack
from crawler.view.archive import ArchivePlace
from tests.harness.archive_judges import (
    Read,
    answers,
    judged_archive,
    judged_by_programs,
    judged_package,
    read_folder,
)
from tests.harness.commands import crawl_command, running
from tests.harness.comparing import assert_same
from tests.harness.crawling import crawl
from tests.harness.measuring import peak_memory
from tests.servers.hostile import TABLE, HostileServer
from tests.servers.hostile_bodies import SHORT
from tests.servers.hostile_kit import Hostile, answer, once, page
from tests.servers.loopback import page as plain_page
from tests.servers.loopback import site

LIMIT_S: Final = 600.0  # for what takes 30 s, most of it waiting for time-outs
TIMEOUT_S: Final = 3.0  # a machine with much else to do is not a server that is late
MOST_MEMORY_BYTES: Final = 500 << 20  # measured: 330 MB, 415 where it compiles; the bombs are 23 GB
EVERY: Final = 5  # among so many hostile rows stands a good one
DEEP: Final = 10_000  # the links of one row, which robots.txt forbids

SETTINGS: Final = {
    "CRAWLER_TOTAL_TIMEOUT_S": TIMEOUT_S,
    "CRAWLER_CONNECT_TIMEOUT_S": TIMEOUT_S,
    "CRAWLER_DELAY_FACTOR": 0,
    "CRAWLER_MIN_DELAY_S": 0.0001,  # each failure doubles the rest
    "CRAWLER_RETRIES": 1,
    "CRAWLER_BACKOFF_BASE_S": 0.01,
    "CRAWLER_BACKOFF_MAX_S": 0.1,
    # Else the last of them, which all fail, would be taken for a host that is down.
    "CRAWLER_PAUSE_AFTER_FAILURES": 50,
}

REFUSED: Final = "its Location is not followed: "
REDIRECTS: Final = {
    "redirect-nowhere": (["done"], "a redirect without a Location"),
    "redirect-to-nothing": (["done"], "a redirect without a Location"),
    "redirect-to-javascript": (["done"], REFUSED + "only http and https are fetched"),
    "redirect-to-file": (["done"], REFUSED + "only http and https are fetched"),
    "redirect-to-bad-host": (["done"], REFUSED + "it cannot be read as a URL"),
    "redirect-to-bad-port": (["done"], REFUSED + "it cannot be read as a URL"),
    "redirect-100k": (["done"], REFUSED + "longer URLs are taken for a trap"),
    "redirect-to-itself": (["moved", "moved", "dead"], "a redirect loop"),
    "redirect-with-spaces": (["moved"], ""),
    "redirect-not-ascii": (["moved"], ""),
    "redirect-twice": (["moved"], ""),
}
LONG_HEADS: Final = ("redirect-100k",)  # archived as far as readers of archives read one
FOUND_BESIDE: Final = (
    "/pl%20ain%20here",  # redirect-with-spaces
    "/caf%E9/%FF",  # redirect-not-ascii
    "/%C3%BF%C5%9F",  # links-invalid: two bytes that are no UTF-8, and guessed as Windows-1254
    "/h%EF%BF%BDttp://a/",  # links-invalid: a NUL in the scheme, so it is no scheme
    "/y",  # base-is-javascript: a base that cannot be one does not count
)


def good(number: int) -> Hostile:
    body = b"<title>good %d</title><p>a page like any other" % number
    return Hostile(f"good-{number}", once(answer(body=body)), page(body=body))


def among(rows: tuple[Hostile, ...]) -> Iterator[Hostile]:
    for number, row in enumerate(rows):
        yield row
        if number % EVERY == 0:
            yield good(number // EVERY)


ROWS: Final = tuple(among(TABLE))
GOOD: Final = tuple(row for row in ROWS if row.name.startswith("good-"))
ELSEWHERE: Final = {f"/{n}": plain_page(f"/{n + 1}", text=f"elsewhere {n}") for n in range(30)}


@dataclass(frozen=True, slots=True)
class Crawled:
    status: int
    log: str
    most_memory_bytes: int
    outcomes: dict[str, list[Outcome]]  # by path, try by try
    records: dict[tuple[str, int], Read]
    visits: Counter[str]
    warc: Path
    seeds: str

    def record(self, outcome: Outcome) -> Read:
        file, _, offset = outcome.record.rpartition(":")
        return self.records[file, int(offset)]


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    home = tmp_path_factory.mktemp("hostile")
    with HostileServer(ROWS, "127.0.7.1") as server, site("127.0.7.2", ELSEWHERE) as other:
        seeds = f"{server.url}/,{other.url('/0')}"
        # Within a scope there is no budget of URLs, which ten thousand links would use up.
        command = crawl_command(home / "data", SETTINGS, seeds=seeds, scope="host")
        with running(command, home / "log") as process:
            most_memory_bytes = peak_memory(process, LIMIT_S).own
            status = process.wait(1)
    outcomes = defaultdict(list)
    for outcome in read_outcomes(home / "data" / "outcomes.jsonl"):
        outcomes["/" + outcome.url.split("/", 3)[3]].append(outcome)
    return Crawled(
        status,
        (home / "log").read_text(),
        most_memory_bytes,
        dict(outcomes),
        read_folder(home / "data" / "warc"),
        server.visits,
        home / "data" / "warc",
        seeds,
    )


def expected(row: Hostile) -> tuple[list[str], str]:
    """Its fates, try by try, and how the reason of the last begins."""
    if row.name in REDIRECTS:
        return REDIRECTS[row.name]
    if row.expect.outcome != "page":
        return ["retry", "dead"], f"{row.expect.outcome}, tried 2 times"
    if row.expect.status >= 500:  # 899, too: beyond 599 as 5xx (RFC 9110, 15)
        return ["retry", "dead"], f"status {row.expect.status}, tried 2 times"
    return (["retry", "done"], "") if broke_off(row) else (["done"], "")


def broke_off(row: Hostile) -> str:
    """Its mark in the archive, where the server did not send all of it."""
    mark = "disconnect" if row.expect.flags == SHORT else row.expect.truncated
    return mark if mark in ("disconnect", "unspecified") else ""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_answer_costs_at_most_its_page(crawled: Crawled, row: Hostile) -> None:
    outcomes, (fates, reason) = crawled.outcomes[row.path], expected(row)
    last = outcomes[-1]
    assert [outcome.fate for outcome in outcomes] == fates
    assert last.reason.startswith(reason)
    errors = ("disconnect", "protocol") if broke_off(row) else ("",)
    assert reason or last.reason in (*errors, "duplicate", "near-duplicate", *filter(None, Flaw))
    assert crawled.visits[row.path] == len(fates), "one visit each time"
    for outcome in outcomes:
        is_page = row.expect.outcome == "page"
        assert outcome.status == (row.expect.status if is_page else None)
        is_last = outcome is last or fates[0] == "moved"
        assert bool(outcome.record) == (is_page and is_last), "what came is archived, and once"


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.expect.outcome == "page"], ids=lambda row: row.name
)
def test_partial_answers_are_archived_with_the_reason(crawled: Crawled, row: Hostile) -> None:
    for outcome in crawled.outcomes[row.path]:
        if outcome.fate == "retry":
            continue  # it broke off: there at the last try only
        record = crawled.record(outcome)
        truncated = record.fields.get("WARC-Truncated", "")
        assert record.url == outcome.url
        assert record.block.split(b" ")[1][:3] == b"%d" % row.expect.status
        if record.kind == "revisit":
            assert truncated == "length", "its body is elsewhere"
            assert row.expect.truncated == ""
            continue
        expected_mark = broke_off(row) or row.expect.truncated
        assert truncated == ("length" if row.name in LONG_HEADS else expected_mark)
        coded = any(name.lower() == b"content-encoding" for name, _ in record.headers)
        if row.expect.body is not None and not coded:
            assert record.payload == row.expect.body


def test_the_archive_is_sound_and_indexed_as_others_would(crawled: Crawled) -> None:
    judged_archive(crawled.warc)
    judged_by_programs(crawled.warc)


def test_the_archive_can_be_packed(crawled: Crawled, tmp_path: Path) -> None:
    place = ArchivePlace(crawled.warc.parent, (crawled.warc,), store="", is_shared=False)
    *_, packed = pack(place, tmp_path / "hostile.wacz", time.time(), Labels())
    assert packed.file == "hostile.wacz"
    judged_package(tmp_path / "hostile.wacz")


def test_a_replay_is_the_same_archive(crawled: Crawled, tmp_path: Path) -> None:
    """Broken heads, codings and bodies come out of it as they went in."""
    settings = {**SETTINGS, "CRAWLER_REPLAY": str(crawled.warc)}
    # What robots.txt forbade was not fetched, and is not to be missed ten thousand times.
    again = crawl(
        tmp_path / "data", settings=settings, seeds=crawled.seeds, scope="host", deny="/deep/"
    )
    assert_same(answers(again.data), answers(crawled.warc.parent))
    unanswered = [row for row in ROWS if row.expect.outcome != "page"]
    assert again.stats["crawler/replay/missing"] == len(unanswered)


def test_the_crawl_ends_by_itself(crawled: Crawled) -> None:
    assert crawled.status == 0, crawled.log[-2000:]
    assert "Traceback" not in crawled.log
    assert "broken" not in crawled.log, "no page broke a pipeline"
    assert crawled.most_memory_bytes < MOST_MEMORY_BYTES


def test_well_behaved_pages_are_all_fetched(crawled: Crawled) -> None:
    paths = [*ELSEWHERE, *(row.path for row in GOOD)]
    assert len(GOOD) > 20
    for path in paths:
        (outcome,) = crawled.outcomes[path]
        assert (outcome.fate, outcome.status, outcome.reason) == ("done", 200, "")
        assert crawled.record(outcome).kind == "response"


def test_the_links_of_broken_pages_lead_on(crawled: Crawled) -> None:
    deep = [path for path in crawled.outcomes if path.startswith("/deep/")]
    assert len(deep) == DEEP, "each of ten thousand links had its turn"
    assert not any(path.startswith("/deep/") for path in crawled.visits), "which robots forbids"
    others = set(crawled.outcomes) - {row.path for row in ROWS} - set(ELSEWHERE) - set(deep)
    assert others == {"/", "/30", *FOUND_BESIDE}, "and no link was made up"
    assert all(crawled.outcomes[path][0].fate == "done" for path in others)
