"""The table of seeds: bounded, continued after a kill, and summed over workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crawler.data.seed_fates import LOGGED, ROWS, SeedFates, SeedRow, SeedTable
from crawler.model.types import Outcome, encode_outcome

SEED = "http://a/"


def outcome(seed: str = SEED, url: str = "", **given: Any) -> Outcome:
    what = {"at": 1.0, "url": url or seed, "host": "a", "fate": "done", "status": 404}
    return Outcome(**{**what, "seed": seed, "seed_fate": "status_404", **given})


def moved(url: str = SEED, to: str = "http://a/b") -> Outcome:
    return outcome(url=url, fate="moved", status=301, seed_fate="redirected", target=to)


def counted(*outcomes: Outcome) -> SeedTable:
    fates = SeedFates()
    for each in outcomes:
        fates.count(each)
    return fates.table


def test_a_redirected_seed_counts_as_where_it_ends() -> None:
    assert counted(moved()).counts == {"redirected": 1}
    last = outcome(url="http://a/c", status=200, seed_fate="page")
    assert counted(moved(), moved("http://a/b", "http://a/c"), last).counts == {"page": 1}
    table = counted(moved(), outcome(url="http://a/b"))
    assert table.counts == {"status_404": 1}
    assert table.failed[SEED].url == "http://a/b"


def test_a_seed_that_is_fetched_again_counts_once() -> None:
    table = counted(outcome(fate="dead", seed_fate="dns"), outcome(status=200, seed_fate="page"))
    assert (table.counts, table.failed) == ({"page": 1}, {})


def test_a_try_that_decides_nothing_is_not_counted() -> None:
    assert counted(outcome(fate="retry", status=503, seed_fate="")).counts == {}


def test_a_million_seeds_make_no_million_rows_or_lines(caplog: Any) -> None:
    fates = SeedFates()
    for number in range(ROWS * 5):
        fates.count(outcome(f"http://a/{number}"))
    assert fates.table.counts == {"status_404": ROWS * 5}
    assert len(fates.table.failed) == ROWS
    assert len(caplog.records) == LOGGED


def test_a_table_is_continued_from_the_log(tmp_path: Path) -> None:
    file, log = tmp_path / "seeds.json", tmp_path / "outcomes.jsonl"
    fates = SeedFates()
    fates.open(file, log, is_new=True)
    log.write_bytes(encode_outcome(outcome()) + b"\n")
    fates.count(outcome())
    fates.write(file, log)
    with log.open("ab") as lines:  # what a kill left unwritten in the table
        lines.write(encode_outcome(outcome("http://a/2", seed_fate="dns")) + b"\n{cut off")
    again = SeedFates()
    again.open(file, log, is_new=False)
    assert again.table.counts == {"status_404": 1, "dns": 1}
    assert again.table.is_whole
    before = SeedFates()
    before.open(tmp_path / "none", log, is_new=False)
    assert not before.table.is_whole, "nothing is known of what earlier runs fetched"


def test_workers_are_summed() -> None:
    """One follows the redirect that another got, and each of them refuses the same seeds."""
    row = SeedRow("x", "refused", "no")
    first = counted(moved())
    first.count("x", "refused", "x", "no")
    second = counted(outcome(url="http://a/b"))
    second.count("x", "refused", "x", "no")
    total = first + second
    assert total.counts == {"status_404": 1, "refused": 1}
    assert total.failed == {"x": row, SEED: second.failed[SEED]}
    assert total.is_whole and not total.brought_pages
    assert not (first + SeedTable(is_whole=False)).is_whole
    found = counted(outcome("", "http://a/c", status=200, seed_fate=""))
    assert (first + found).brought_pages
