"""kill -9 between the archive and the frontier, again and again: what is fetched once more for that
is marked as what it is, and is nowhere twice."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from crawler.archive.columns_companion import SUFFIX
from crawler.archive.warc_file import companion_path
from crawler.config.settings import read_config
from crawler.content.crawl_archive import companions
from crawler.view.archive import ArchivePlace, check
from tests.harness.commands import PATIENCE_S
from tests.harness.killed_crawl import crawl_until_killed
from tests.harness.killed_processes import SPAWN, preload
from tests.harness.repeats import RepeatsAudit, pages, routes
from tests.servers.loopback import site

LIVES: Final = 14
MOST_ANSWERS: Final = 6  # of one life
MAX_BITS: Final = 3  # of near-duplicates, as is the default
HOSTS: Final = 4
preload("tests.harness.killed_crawl", "tests.harness.imported")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of a crawl that finished after all kills."""
    data = tmp_path_factory.mktemp("repeats") / "data"
    random = Random(20260104)
    with ExitStack() as opened:
        sites = [
            opened.enter_context(site(f"127.0.63.{n}", routes(n))) for n in range(1, HOSTS + 1)
        ]
        seeds = data.with_name("seeds")
        seeds.write_text("\n".join(each.url("/") for each in sites))
        for life in range(LIVES + 1):
            answers = random.randint(1, MOST_ANSWERS) if life < LIVES else 0
            process = SPAWN.Process(target=crawl_until_killed, args=(data, str(seeds), answers))
            process.start()
            process.join(PATIENCE_S)
            assert process.exitcode == (-9 if answers else 0), life
    return data


@pytest.fixture(scope="module")
def audit(data: Path) -> RepeatsAudit:
    return RepeatsAudit(data / "warc")


def test_each_answer_is_archived_once_or_marked(audit: RepeatsAudit) -> None:
    audit.check()
    assert len({one.url for one in audit.answers}) == HOSTS * len(routes(1))
    full = {one.url for one in audit.full}
    again = [one for one in audit.revisits if one.url in full]
    assert again
    assert all(one.fields["WARC-Refers-To-Target-URI"] == one.url for one in again)


def test_marked_answers_are_archived_twice(audit: RepeatsAudit) -> None:
    """What cannot be a revisit: it has no body, or another."""
    times = Counter(one.url for one in audit.full)
    marked = [one.url for one in audit.full if audit.is_marked(one)]
    assert len(marked) == times.total() - len(times)
    kinds = ("/changes", "/empty", "/nothing", "/missing", "/away", "/same")
    assert all(url.endswith(kinds) for url in marked)


def test_each_page_has_a_row(audit: RepeatsAudit) -> None:
    rows = audit.rows
    assert any(row["original"] == row["url"] for row in rows)
    assert len({row["url"] for row in rows}) == HOSTS * (len(pages(1)) + 1)


def apart(one: dict[str, Any], other: dict[str, Any]) -> int:
    return (int(one["simhash"], 16) ^ int(other["simhash"], 16)).bit_count()


def test_a_page_near_to_one_that_was_there_is_marked(audit: RepeatsAudit) -> None:
    """By brute force. Each life wrote a file: what earlier ones hold was archived, finished or
    not, before a page was looked up; what its own holds was in flight beside it."""
    rows = [row for row in audit.rows if row["simhash"] is not None]
    # In which lives pages come, and in which what is none, is a matter of turns.
    assert len({row["warc_file"] for row in rows}) > 2
    for at, row in enumerate(rows):
        before = {each["url"]: each for each in rows[:at]}
        earlier = [each for each in before.values() if each["warc_file"] != row["warc_file"]]
        nearest = min((apart(row, each) for each in earlier), default=64)
        if row["bits"] is None:
            assert nearest > MAX_BITS, row["url"]
            near = [each for each in rows if each is not row and apart(row, each) <= MAX_BITS]
            assert all(each["bits"] is not None for each in near), row["url"]
        else:
            assert row["bits"] == apart(row, before[row["original"]]) <= min(MAX_BITS, nearest)
    assert sum(row["bits"] is not None for row in rows) > HOSTS


def test_the_archive_is_whole(data: Path) -> None:
    place = ArchivePlace(data, (data / "warc",), "", is_shared=False)
    assert [fault for done in check(place) for fault in done.faults] == []


def test_made_again_the_rows_are_the_same(data: Path, audit: RepeatsAudit) -> None:
    before = audit.rows
    _, columns = companions(read_config({}))
    for warc in (data / "warc").glob("*.warc.gz"):
        columns.rebuild(warc, warc)
        assert companion_path(warc, SUFFIX).exists()
    assert audit.rows == before
