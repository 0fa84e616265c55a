"""Other people's software finds no fault in the archive of a whole crawl of the demo's small web.
(test_hostile_crawl asks the same of the crawl of everything hostile.)"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from demo.story import BARREN_PAGES
from demo.web import HOSTS, SQUARE, SmallWeb
from tests.harness.archive_judges import (
    answers,
    judged_archive,
    judged_by_programs,
    judged_package,
    read_folder,
)
from tests.harness.comparing import assert_same
from tests.harness.crawling import Crawled, crawl
from tests.harness.fork_server import run
from tests.servers.loopback import LoopbackWeb


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Crawled, str]:
    """The crawl, and its seed."""
    with LoopbackWeb(SmallWeb(), list(HOSTS)) as web:
        seed = web.url(SQUARE)
        settings = {"CRAWLER_PATTERN_BARREN_PAGES": BARREN_PAGES}
        return crawl(tmp_path_factory.mktemp("demo") / "data", settings=settings, seeds=seed), seed


def test_the_archive_has_records_of_all_kinds(crawled: tuple[Crawled, str]) -> None:
    records = read_folder(crawled[0].data / "warc").values()
    kinds = Counter(read.kind for read in records)
    assert kinds["warcinfo"] == 1
    assert kinds["response"] > 40 and kinds["revisit"] >= 2
    assert kinds["request"] == kinds["metadata"] == kinds["response"] + kinds["revisit"]
    assert "length" in {read.fields.get("WARC-Truncated") for read in records}
    answers = [read for read in records if read.kind in ("response", "revisit")]
    assert {read.block[9:10] for read in answers} == {b"2", b"3", b"4", b"5"}


def test_warcio_and_fastwarc_find_no_fault(crawled: tuple[Crawled, str]) -> None:
    judged_by_programs(crawled[0].data / "warc")


def test_cdxj_indexer_makes_the_same_index(crawled: tuple[Crawled, str]) -> None:
    judged_archive(crawled[0].data / "warc")


def test_wacz_finds_no_fault_in_the_package(crawled: tuple[Crawled, str], tmp_path: Path) -> None:
    place = ["-s", f"CRAWLER_DATA_DIR={crawled[0].data}"]
    scrapy = [sys.executable, "-m", "scrapy"]
    packed = run([*scrapy, "archive", "pack", str(tmp_path / "demo.wacz"), *place])
    assert packed.returncode == 0, packed.stdout + packed.stderr
    judged_package(tmp_path / "demo.wacz")


def test_a_replay_writes_the_same_archive(crawled: tuple[Crawled, str], tmp_path: Path) -> None:
    first, seed = crawled
    settings = {
        "CRAWLER_PATTERN_BARREN_PAGES": BARREN_PAGES,
        "CRAWLER_REPLAY": str(first.data),
    }
    again = crawl(tmp_path / "data", settings=settings, seeds=seed)
    assert_same(answers(again.data), answers(first.data))
