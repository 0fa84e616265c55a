"""Every page that links reach from the seeds is fetched, and nothing is made up: real web sites
(Debian's HTML documentation), compared with a walk of the same files by other software."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pytest

from crawler.data.outcomes import read_outcomes
from crawler.model.types import Outcome
from tests.harness.archive_judges import Read, read_folder
from tests.harness.commands import crawl_command, run
from tests.servers.files import has_nginx, nginx, walk

LIMIT_S: Final = 180.0  # for what takes 15 s
FEWEST_PAGES: Final = 50  # of each site; fewer, and the comparison would prove little
DOCS: Final = Path("/usr/share/doc")
SITES: Final = ("python3.*/html", "sqlite3", "debian-handbook/html/en-US")
SETTINGS: Final = {
    "CRAWLER_MIN_DELAY_S": 0,
    "CRAWLER_DELAY_FACTOR": 0,
    # The walk follows all links, wherever they stand and whatever they are said to lead to.
    "CRAWLER_FOLLOW_DUPLICATES": True,
    "CRAWLER_RESPECT_NOFOLLOW": False,
    "CRAWLER_RESPECT_NOINDEX": False,
    "CRAWLER_FOLLOW_KINDS": "a,area,frame,iframe",
    "CRAWLER_DENY_EXTENSIONS": "",
    "CRAWLER_MAX_PATH_SEGMENTS": 100,
    "CRAWLER_HTML_MAX_BYTES": 64 << 20,
    "CRAWLER_OTHER_MAX_BYTES": 64 << 20,
}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    url: str
    simhash: int | None
    original: str
    bits: int | None


@dataclass(frozen=True, slots=True)
class Compared:
    walked: list[set[str]]  # by site, what answers 200
    outcomes: list[Outcome]
    records: list[Read]  # of answers
    rows: list[Fingerprint]  # of the columns: pages that are no exact copies

    def fetched(self) -> set[str]:
        return {outcome.url for outcome in self.outcomes if outcome.status == 200}

    def pages(self) -> list[Read]:
        """The records of answers that answered 200."""
        return [read for read in self.records if read.block.split(b" ", 2)[1] == b"200"]


def sites() -> list[Path]:
    """The first folder of each pattern that begins with a page."""
    starts = [sorted(DOCS.glob(f"{site}/index.html")) for site in SITES]
    assert has_nginx() and all(starts), (
        "this test needs nginx and Debian's packages python3-doc, sqlite3-doc, debian-handbook:"
        " install them, or let scripts/system-packages.sh do it"
    )
    return [found[0].parent for found in starts]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    data = tmp_path_factory.mktemp("coverage") / "data"
    with ExitStack() as servers, ThreadPoolExecutor() as pool:
        urls = [
            servers.enter_context(nginx(root, f"127.0.8.{number}"))
            for number, root in enumerate(sites(), start=1)
        ]
        walking = pool.map(walk, urls)
        command = crawl_command(data, SETTINGS, seeds=",".join(urls), scope="host")
        done = run(command, timeout_s=LIMIT_S)
        walked = list(walking)
    assert done.returncode == 0, done.stderr[-2000:]
    records = read_folder(data / "warc").values()
    answers = [read for read in records if read.kind in ("response", "revisit")]
    outcomes = list(read_outcomes(data / "outcomes.jsonl"))
    return Compared(walked, outcomes, answers, fingerprints(data))


def fingerprints(data: Path) -> list[Fingerprint]:
    files = str(data / "warc" / "*.parquet")
    asked = "SELECT url, simhash, original, bits FROM read_parquet(?)"
    rows = duckdb.execute(f"{asked} WHERE bits IS NOT NULL OR original IS NULL", [files]).fetchall()
    return [Fingerprint(*row) for row in rows]


def test_every_page_that_links_reach_is_fetched(compared: Compared) -> None:
    assert min(len(site) for site in compared.walked) >= FEWEST_PAGES
    assert len(compared.walked) >= 3
    missed = set().union(*compared.walked) - compared.fetched()
    assert not missed, f"the walk reached {len(missed)} pages more: {sorted(missed)[:5]}"


def test_no_page_is_made_up(compared: Compared) -> None:
    made_up = compared.fetched() - set().union(*compared.walked)
    assert not made_up, f"the crawl reached {len(made_up)} pages more: {sorted(made_up)[:5]}"


def test_no_page_is_fetched_twice(compared: Compared) -> None:
    times = Counter(outcome.url for outcome in compared.outcomes)
    assert times.most_common(1)[0][1] == 1, times.most_common(3)
    assert {outcome.fate for outcome in compared.outcomes} <= {"done", "moved"}


def test_every_page_is_archived_and_each_content_once(compared: Compared) -> None:
    pages = compared.pages()
    assert {page.url for page in pages} == compared.fetched()
    assert len(pages) == len(compared.fetched())
    kept = [page for page in pages if page.kind == "response"]
    contents = {page.fields["WARC-Payload-Digest"] for page in pages}
    assert len(kept) == len(contents), "one response each; the others are revisits of it"
    duplicates = [outcome for outcome in compared.outcomes if outcome.reason == "duplicate"]
    assert len(pages) - len(kept) == len(duplicates) > 0


def test_no_bytes_are_archived_twice(compared: Compared) -> None:
    """Those of errors and redirects neither."""
    kept = [
        read.fields["WARC-Payload-Digest"] for read in compared.records if read.kind == "response"
    ]
    assert len(kept) == len(set(kept))


def test_near_duplicates_are_those_of_brute_force(compared: Compared) -> None:
    """No two pages that stand for themselves are within 3 bits, and each that does not is as far
    from its original as it says, and from no other page less."""
    rows = [row for row in compared.rows if row.simhash is not None]
    hashes = np.array([int(row.simhash, 16) for row in rows], np.uint64)
    apart = np.bitwise_count(hashes[:, None] ^ hashes[None, :])
    at = {row.url: number for number, row in enumerate(rows)}
    marked = np.array([row.bits is not None for row in rows])
    near = apart <= 3
    np.fill_diagonal(near, val=False)
    assert len(rows) > 1_000 and marked.any(), "enough to prove something"
    assert not near[~marked][:, ~marked].any(), "a pair was missed"
    for number, row in enumerate(rows):
        if row.bits is not None:
            assert row.bits == apart[number, at[row.original]] <= 3
            assert row.bits >= apart[number][near[number]].min()
