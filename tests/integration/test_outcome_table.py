"""The outcomes as Parquet: each line of the log is one row, through kills, deliveries, purges."""

from __future__ import annotations

import re
from collections import Counter
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from crawler.archive.delivery import OUTCOMES, bundles
from crawler.archive.delivery_stores import FolderStore, StoreAddress
from crawler.archive.outcome_table import OUTCOME_COLUMNS, OutcomeTable
from crawler.archive.purge import purge
from crawler.data.outcomes import OutcomeLog, read_outcomes
from crawler.model.types import Outcome, never_waits
from tests.harness.archive_judges import query, read_rows
from tests.harness.crawling import crawl
from tests.harness.killed_processes import preload, run_until_killed
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, site

LIVES: Final = 25
TITLE: Final = "## Outcomes of all URLs"

preload(__name__)


def table(data: Path) -> OutcomeTable:
    return OutcomeTable(data, data / "outcomes.jsonl", "h-1", "the crawl")


def outcome(number: int, **more: Any) -> Outcome:
    given = {"at": 1.5 + number, "url": f"http://h.example/{number}", "host": "h.example", **more}
    return Outcome(**{"fate": "done", **given})


def logged(data: Path, *outcomes: Outcome) -> None:
    log = OutcomeLog(data / "outcomes.jsonl", never_waits)
    log.append_all(outcomes)
    log.close()


def rows(data: Path) -> list[dict[str, Any]]:
    files = sorted((data / OUTCOMES).glob("*.parquet"), key=lambda file: file.name.split("-")[2])
    return [row for file in files for row in read_rows(file)]


def test_a_row_has_what_the_line_has(tmp_path: Path) -> None:
    full = outcome(
        1,
        fate="moved",
        status=301,
        reason="words",
        failure="timeout",
        seconds=0.25,
        size=1 << 40,
        attempts=2,
        depth=3,
        record="a.warc.gz:17",
        target="http://h.example/new",
        original="http://h.example/old",
        bits=2,
        seed="http://h.example/",
        seed_fate="redirected",
        round=4,
        price="USD 0.01",
    )
    logged(tmp_path, full, outcome(2))
    assert table(tmp_path).cut() is not None
    first, bare = rows(tmp_path)
    assert list(first) == [column.name for column in OUTCOME_COLUMNS]
    assert first.pop("at").timestamp() == 2.5
    assert first == {
        "url": "http://h.example/1",
        "host": "h.example",
        "fate": "moved",
        "status": 301,
        "reason": "words",
        "failure": "timeout",
        "seconds": 0.25,
        "bytes": 1 << 40,
        "attempts": 2,
        "depth": 3,
        "target": "http://h.example/new",
        "warc_file": "a.warc.gz",
        "warc_offset": 17,
        "original": "http://h.example/old",
        "bits": 2,
        "seed": "http://h.example/",
        "seed_fate": "redirected",
        "external": None,
        "crawl_id": "the crawl",
        "round": 4,
        "price": "USD 0.01",
    }
    assert {name for name, value in bare.items() if value is None} == {
        column.name for column in OUTCOME_COLUMNS if column.nullable
    }


def test_pieces_follow_each_other_without_lines_that_are_cut_off(tmp_path: Path) -> None:
    made = table(tmp_path)
    assert made.cut() is None
    logged(tmp_path, outcome(1), outcome(2))
    assert made.cut(1000) is None
    assert made.cut() is not None
    assert made.cut() is None
    with (tmp_path / "outcomes.jsonl").open("ab") as log:
        log.write(b'{"at":1,"url":"cut')
    assert made.cut() is None
    logged(tmp_path, outcome(3))
    made.cut()
    assert [row["url"][-1] for row in rows(tmp_path)] == ["1", "2", "3"]


def test_a_log_that_was_begun_anew_is_written_from_its_beginning(tmp_path: Path) -> None:
    logged(tmp_path, outcome(1))
    table(tmp_path).cut()
    (tmp_path / "outcomes.jsonl").unlink()
    logged(tmp_path, outcome(4), outcome(5))
    table(tmp_path).cut()
    assert sorted(row["url"][-1] for row in rows(tmp_path)) == ["1", "4", "5"]


def live(data: Path, life: int, pipe: Connection) -> None:
    """Log outcomes and write them as Parquet as fast as it can."""
    made = OutcomeTable(data, data / "outcomes.jsonl", f"h-{life}", "the crawl")
    made.recover()
    log = OutcomeLog(data / "outcomes.jsonl", never_waits)
    for number in count():
        log.append(outcome(life * 1_000_000 + number))
        if number % 7 == 0:
            made.cut()
        pipe.send_bytes(b"")


def test_after_any_kill_each_line_is_one_row(tmp_path: Path) -> None:
    """Files are removed as they are finished, as a delivery does: no row comes back."""
    random, delivered = Random(1), Counter[str]()
    for life in range(LIVES):
        run_until_killed(
            live, tmp_path, life, messages=random.randrange(60), then_s=random.random() * 0.01
        )
        for bundle in bundles(tmp_path):
            for file in bundle.files:
                delivered.update(row["url"] for row in read_rows(file))
                file.unlink()
    made = table(tmp_path)
    made.recover()
    made.cut()
    assert not list((tmp_path / OUTCOMES).glob("*.open"))
    delivered.update(row["url"] for row in rows(tmp_path))
    assert delivered == Counter(each.url for each in read_outcomes(tmp_path / "outcomes.jsonl"))
    assert delivered.total() > LIVES


def test_a_purge_leaves_no_row(tmp_path: Path) -> None:
    (tmp_path / "warc").mkdir()
    logged(tmp_path, outcome(1), outcome(2), outcome(3, target="http://h.example/2"))
    table(tmp_path).cut()
    store = FolderStore(StoreAddress(f"file://{tmp_path}"))
    done = list(purge([store], lambda url: url.endswith("/2"), tmp_path, lambda: None))
    assert [each.records for each in done] == [1]
    assert [row["url"][-1] for row in rows(tmp_path)] == ["1", "3"]
    assert not list(purge([store], lambda url: url.endswith("/2"), tmp_path, lambda: None))


def test_a_damaged_mark_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log is gone of which an unfinished file was to be made."""
    (tmp_path / OUTCOMES).mkdir()
    mark = (
        tmp_path / OUTCOMES / "outcomes-20260101000000-000000000000-000000000099-h-1.parquet.open"
    )
    mark.write_bytes(b"")
    assert table(tmp_path).recover() == 0
    assert not mark.exists() and "the log that it was to be made of is gone" in caplog.text


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pages = {
        "/": Reply("<a href=/a>a</a><a href=/gone>b</a><a href=/moved>c</a>"),
        "/a": Reply("<p>a page"),
        "/gone": Reply("", 404),
        "/moved": Reply("", 302, headers=(("Location", "/a"),)),
    }
    data = tmp_path_factory.mktemp("outcomes")
    with site("127.0.62.9", pages) as served:
        crawl(data, seeds=served.url("/"), scope="host")
    return data


def test_a_crawl_writes_its_outcomes(crawled: Path) -> None:
    found, log = rows(crawled), list(read_outcomes(crawled / "outcomes.jsonl"))
    assert [(row["url"], row["fate"], row["status"]) for row in found] == [
        (each.url, each.fate, each.status) for each in log
    ]
    assert {row["fate"] for row in found} == {"done", "moved"}
    (page,) = query(
        "SELECT count(*) FROM read_parquet($pages) p JOIN read_parquet($outcomes) o"
        " USING (url, warc_file, warc_offset, crawl_id)",
        pages=str(crawled / "warc" / "*.parquet"),
        outcomes=str(crawled / OUTCOMES / "*.parquet"),
    )
    assert page == (2,)


def test_the_page_has_the_table_of_the_outcomes(crawled: Path) -> None:
    files = str(crawled / OUTCOMES / "*.parquet")
    kinds = {name: kind for name, kind, *_ in query(f"DESCRIBE SELECT * FROM '{files}'")}
    text = (PROJECT / "docs" / "columns.md").read_text(encoding="utf-8")
    listed = re.findall(r"(?m)^\| `(\w+)` \| (.+?) \| (.+?) \|$", text.partition(TITLE)[2])
    assert listed == [
        (each.name, kinds[each.name] + ("" if each.nullable else ", never null"), each.description)
        for each in OUTCOME_COLUMNS
    ]


def test_without_the_setting_there_are_none(tmp_path: Path) -> None:
    with site("127.0.62.10", {"/": Reply("<p>a page")}) as served:
        crawl(tmp_path, settings={"CRAWLER_OUTCOME_TABLE": False}, seeds=served.url("/"))
    assert not (tmp_path / OUTCOMES).exists()
