"""What a crawl counts adds field by field, and whatever shows what is left shows the same."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.cli.frontier_text import FrontierOverview, overview_text
from crawler.data.runs import RUNS_KEPT, CountedRuns, RunFigures
from crawler.data.seed_fates import SeedTable
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.reader import FrontierReader
from crawler.frontier.run_files import RunFolder
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.counts import Counts, DeadUrl, Figures, HostPages, OverBudget, Sums
from crawler.model.types import Dead, RetryAt
from crawler.operate.metrics import METRICS
from crawler.report.html_report import crawl_facts, html_report
from crawler.report.screen import ProgressFigures, progress_line, progress_sentence
from crawler.report.summary import ArchiveFiles, EndedRun, frontier_counts, summary_of, text
from crawler.workers.workforce_figures import workers_line, workers_sentence
from tests.harness.frontiers import candidate, rest

WIDE: Final = 500  # columns
numbers = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))
figures = st.builds(Figures, counters=numbers)
counts = st.builds(
    Counts,
    *[st.integers(0, 9)] * 9,
    levels=st.lists(st.integers(0, 9), max_size=3).map(tuple),
)


@given(st.lists(counts, min_size=1), st.lists(figures, min_size=1))
def test_sums_are_those_of_each_field(some: list[Counts], others: list[Figures]) -> None:
    total = sum(some, Counts())
    for name in ("to_fetch", "left", *Counts.__struct_fields__[:9]):
        assert getattr(total, name) == sum(getattr(each, name) for each in some)
    assert sum(total.levels) == sum(sum(each.levels) for each in some)
    fetched = sum(others, Figures())
    assert all(fetched[name] == sum(each[name] for each in others) for name in "abc")


def test_named_rows_of_workers_become_one_list() -> None:
    some = Figures(
        {"pages": 5},
        [HostPages("a", 3), HostPages("b", 2)],
        [OverBudget("S", 9, "a", 1)],
        [DeadUrl(str(number), "") for number in range(4)],
    )
    more = Figures(
        {"pages": 9},
        [HostPages(str(number), number) for number in range(9, 1, -1)] + [HostPages("b", 2)],
        [OverBudget("S", 9, "a", 2), OverBudget("T", 9, "a", 1)],
        some.dead,
    )
    total = some + more
    assert total.pages == 14 and len(total.top_hosts) == 10
    assert total.top_hosts[5:] == [
        *(HostPages("b", 4), HostPages("4", 4)),
        *(HostPages("a", 3), HostPages("3", 3), HostPages("2", 2)),
    ]
    assert total.over_budget == [OverBudget("S", 9, "a", 3), OverBudget("T", 9, "a", 1)]
    assert [each.url for each in total.dead] == [*"0123", "0"]


def test_runs_of_workers_are_those_of_the_crawl() -> None:
    def counted(began: int) -> CountedRuns:
        runs = [RunFigures(f"{began}", 1.0)]
        return CountedRuns(runs * 60, 60, 59.0, {"pages": 59}, {"pages": 1}, 1.0)

    total = counted(2) + counted(1)
    assert (total.number, total.total_s, total.figures.pages) == (120, 120.0, 120)
    assert [run.started_at for run in total.runs] == ["1"] * 40 + ["2"] * 60
    assert len(total.runs) == RUNS_KEPT


class Undeclared(Sums, msgspec.Struct):
    names: list[str] = []


class Declared(Sums, msgspec.Struct):
    names: Annotated[list[str], operator.add] = []
    most: Annotated[int, max] = 0
    inner: Figures = Figures()


def test_each_field_says_how_it_is_added() -> None:
    for kind in (Counts, Figures, CountedRuns, SeedTable):
        assert kind() + kind() == kind()
    total = Declared(["a"], 3, Figures({"x": 1})) + Declared(["b"], 2, Figures({"x": 2}))
    assert total == Declared(["a", "b"], 3, Figures({"x": 3}))
    with pytest.raises(TypeError, match=r"Undeclared.names does not say how it is added"):
        Undeclared() + Undeclared()


def frontier_of_all_states(store: MemoryStore, folder: Path) -> TwoTierFrontier:
    """One URL is leased, one has a date, one is dead, three wait, and two were just found."""
    turns, rules, runs = FrontierTurns(), FrontierLimits(), RunFolder(folder)
    frontier = open_frontier(folder, rules, 0.0, background=turns, store=store, runs=runs)
    frontier.add([candidate("", host=host) for host in "abcdef"], 0.0)
    _, later, dead = frontier.lease(0.0, 3)
    for lease, verdict in ((later, RetryAt(99.0)), (dead, Dead("no"))):
        frontier.release(lease, rest(0.0), 0.0)
        frontier.finish(lease, verdict, 0.0)
    frontier.add([candidate("", host=host) for host in "gh"], 0.0)
    frontier.commit()
    return frontier


MIXED: Final = Counts(
    waiting=3,
    later=1,
    leased=1,
    hosts_active=1,
    seen=6,
    dead=1,
    undecided=2,
    levels=(3,),
)
PROGRESS: Final = ProgressFigures(Figures(), MIXED, 0.0)


def test_a_frontier_counts_as_its_reader_does(tmp_path: Path) -> None:
    store = MemoryStore()
    found = frontier_of_all_states(store, tmp_path).counts()
    read = FrontierReader(store, RunFolder(tmp_path)).counts()
    for each in (found, read):
        assert (each.left, each.to_fetch) == (7, 6)
        assert each.levels[0] == each.waiting
    hosts = {"hosts_active": 0, "levels": ()}
    assert msgspec.structs.replace(found, **hosts) == msgspec.structs.replace(read, **hosts)


def summary(counts: Counts) -> Any:
    return summary_of(
        EndedRun(
            spider="web",
            reason="shutdown",
            ended="",
            began_at=0.0,
            ended_at=1.0,
            compiling_s=0.0,
            figures=Figures(),
            counts=counts,
            counted=CountedRuns(),
            seeds=SeedTable(),
            data_dir=Path("data"),
            archive=ArchiveFiles("", 0, 0),
        )
    )


def report(counts: Counts, folder: Path) -> str:
    facts = crawl_facts(folder, [folder], frontier_counts(counts), is_running=False)
    return re.sub(r"<[^>]*>", " ", html_report(facts))


def scraped(counts: Counts) -> dict[str, float]:
    (urls,) = (metric for metric in METRICS if metric.name == "frontier_urls")
    frontier = SimpleNamespace(counts=lambda: counts)
    crawl: Any = SimpleNamespace(leases=SimpleNamespace(frontier=frontier, shared=None))
    return dict(urls.read(crawl))  # type: ignore[arg-type]  # a figure for each state


LEFT: Final = {
    "the summary": lambda counts, _: summary(counts).frontier.left,
    "its text": lambda counts, _: _number(r"Still to do: (\d+) URL", text(summary(counts))),
    "the report": lambda counts, folder: _number(r"left to fetch\s+(\d+)", report(counts, folder)),
    "scrapy frontier counts": lambda counts, _: _number(
        r"left +(\d+)", "\n".join(overview_text(FrontierOverview(counts, None, "")))
    ),
    "the line": lambda counts, _: (
        counts.leased
        + _number(r"(\d+) waiting", progress_line(replace(PROGRESS, counts=counts), WIDE))
    ),
    "the log": lambda counts, _: (
        counts.leased
        + _number(r"(\d+) URLs? waiting", progress_sentence(replace(PROGRESS, counts=counts)))
    ),
    "the line of workers": lambda counts, _: (
        counts.leased
        + _number(r"(\d+) waiting", workers_line(replace(PROGRESS, counts=counts), WIDE))
    ),
    "the log of workers": lambda counts, _: (
        counts.leased
        + _number(r"(\d+) URLs? waiting", workers_sentence(replace(PROGRESS, counts=counts)))
    ),
    "metrics": lambda counts, _: (
        sum(scraped(counts).values()) - counts.dead - counts.refused - counts.capped
    ),
}


def _number(pattern: str, shown: str) -> int:
    found = re.search(pattern, shown)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("shows", LEFT.values(), ids=LEFT)
def test_what_waits_for_a_larger_budget_is_not_left(
    shows: Callable[[Counts, Path], int], tmp_path: Path
) -> None:
    full = MIXED + Counts(spilled=5, capped=5, spilled_domains=1, sampled_out=7)
    assert full.left == MIXED.left == shows(full, tmp_path)


@pytest.mark.parametrize("shows", LEFT.values(), ids=LEFT)
@pytest.mark.parametrize(
    "state", ["waiting", "later", "leased", "undecided", "dead", "refused", "spilled"]
)
def test_whatever_shows_what_is_left_agrees(
    state: str, shows: Callable[[Counts, Path], int], tmp_path: Path
) -> None:
    for shown in (MIXED + Counts(**{state: 3}), Counts(**{state: 3})):
        assert shows(shown, tmp_path) == shown.left
        assert summary(shown).unfinished == (shown.left > 0)
