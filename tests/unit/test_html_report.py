"""The report as a browser's parser reads it: no script, no request, and all figures are there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.data.history import COLUMNS, HistoryFile
from crawler.data.runs import CountedRuns, RunFigures, open_runs, read_runs, write_runs
from crawler.model.counts import Figures, OverBudget
from crawler.model.types import Outcome, encode_outcome
from crawler.report.html_report import crawl_facts, html_report
from crawler.report.summary import FrontierCounts, iso_time
from tests.harness.html_pages import requests_and_scripts

BEGAN: Final = 1_800_000_000.0
EVIL: Final = "\"'><script>alert(1)</script><img src=//evil.example/x onerror=alert(2)>\u202e"
COUNTS: Final = FrontierCounts(5, 1, 0, 99, 40, 3, 0, left=7)


def crawl(folder: Path, *outcomes: Outcome, counters: dict[str, int] | None = None) -> Path:
    """The data directory of a crawl of two runs, of which the first was killed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "warc").mkdir()
    lines = b"".join(encode_outcome(one) + b"\n" for one in outcomes)
    (folder / "outcomes.jsonl").write_bytes(lines)
    for run, began in ((1, BEGAN), (2, BEGAN + 3600)):
        counted = open_runs(folder / "runs.json", iso_time(began))
        reason = "finished" if run == 2 else ""
        figures = RunFigures(iso_time(began), 60, reason, run * 10, run * 1000, run, 0)
        counted = counted.counted(
            figures, Figures(counters or {"pages": run * 10, "error/dns": run})
        )
        write_runs(folder / "runs.json", counted)
        history = HistoryFile(folder / "history.bin", began)
        for second in range(0, 60, 5):
            history.add(began + second, {**dict.fromkeys(COLUMNS, float(second)), "run": run})
        history.close()
    return folder


def outcome(url: str = "http://a/", fate: str = "done", **given: Any) -> Outcome:
    return Outcome(**{"at": BEGAN, "url": url, "host": "a", "fate": fate, **given})


def report(*folders: Path, **given: Any) -> str:
    given = {"is_running": False, **given}
    return html_report(crawl_facts(folders[0].parent, folders, COUNTS, **given))


def text(page: str) -> str:
    body = LexborHTMLParser(page).body
    assert body is not None
    return " ".join(body.text(separator=" ").split())


def test_whatever_servers_chose_is_text(tmp_path: Path) -> None:
    page = report(
        crawl(
            tmp_path / EVIL.replace("/", "_"),
            outcome(host=EVIL, url=f"http://a/{EVIL}", status=200),
            outcome(f"http://a/{EVIL}", "dead", reason=f"error: {EVIL}"),
            outcome(reason=f"pattern /{EVIL}: 5 of its pages were fetched, no more are"),
            outcome(fate="refused", reason=EVIL),
            outcome(fate=EVIL, status=999),
            counters={f"{name}/{EVIL}": 7 for name in ("type", "language", "error", "refused")},
        )
    )
    assert requests_and_scripts(page) == []
    assert text(page).count("<script>alert(1)</script>") >= 8
    assert "\u202e" not in page  # it would turn the text around


def test_the_figures_are_there(tmp_path: Path) -> None:
    counters = {
        "pages": 1_234,
        "bytes": 5_000_000,
        "error/timeout": 7,
        "type/text/html": 30,
        "language/de": 20,
        "gap_over_due/0.1": 11,
        "gap_over_due/early": 0,
        "politeness/rest/retry-after": 2,
        "refused/calendar": 4,
        "robots/disallowed": 3,
        "render/pages": 8,
        "render/paid": 5,
        "render/requests": 9,
        "render/ms": 6_000,
        "render/left_out/kind": 3,
    }
    folder = crawl(
        tmp_path / "data",
        outcome(status=404, size=2_000, seconds=0.3),
        outcome("http://a/2", status=200, reason="near-duplicate"),
        outcome("http://a/5", status=200, reason="noindex"),
        outcome("http://a/3", "dead", reason="no connection, tried 4 times"),
        outcome("http://a/4", reason="pattern /day/#: nothing new in its last 100 pages"),
        counters=counters,
    )
    shown = text(report(folder))
    for expected in (
        "Finished: nothing is left to fetch.",
        "pages 2,468",
        "runs 2",
        "left to fetch 7",
        "404 1 33.3%",
        "marked noindex: only its links are 1",
        "text/html 60",
        "de 40",
        "up to 0.1 s 22 100.0%",
        "retry-after 4",
        "calendar without an end (calendar) 8",
        "URLs that robots.txt forbids 6",
        "Rendered by a browser pages 16 with more text or links than sent 10 with less",
        "requests for what they need 18 work of the browser 12 s What rendered pages were not",
        "nearly the same text as an earlier page 1",
        "a /day/# 1",
        "http://a/3 no connection, tried 4 times",
        "killed 10 1.0 kB",
        str(folder / "warc"),
    ):
        assert expected in shown


def test_what_waits_for_budgets_is_there(tmp_path: Path) -> None:
    folder = crawl(tmp_path / "data")
    counts = FrontierCounts(
        *(5, 1, 0, 99, 40, 3, 0), spilled=900, capped=7, spilled_domains=3, sampled_out=12
    )
    over = [OverBudget("CRAWLER_DOMAIN_BUDGET", 10, EVIL, 70, 45_012)]
    facts = crawl_facts(folder.parent, [folder], counts, is_running=False)
    page = html_report(replace(facts, over_budget=over))
    assert requests_and_scripts(page) == []
    shown = text(page)
    for expected in (
        "over budget 900 sampled out 12",
        "900 URLs of 3 domains spilled, 7 of them over a budget in all; 12 sampled out.",
        "10 a round CRAWLER_DOMAIN_BUDGET 45,012 70",
    ):
        assert expected in shown


def test_plots_are_broken_between_runs(tmp_path: Path) -> None:
    page = report(crawl(tmp_path / "data"))
    [pages, *_] = re.findall(r'<path class="line" d="([^"]*)"', page)
    assert pages.count("M") == 2
    assert pages.count("L") == 2 * 10  # of 12 samples a run there are 11 rates


def test_a_long_log_is_read_at_its_end_with_a_note(tmp_path: Path) -> None:
    folder = crawl(tmp_path / "data", *(outcome(f"http://a/{n}", status=200) for n in range(500)))
    page = report(folder, most_bytes=2_000)
    assert "scrapy frontier report" in text(page)
    assert "<code>" not in report(folder)


def test_the_workers_of_a_shared_crawl_are_one_crawl(tmp_path: Path) -> None:
    folders = [
        crawl(tmp_path / name, outcome(f"http://{name}/", host=name, status=200)) for name in "abc"
    ]
    shown = text(report(*folders))
    assert "pages 90" in shown
    assert "hosts 3" in shown
    assert "runs 6" in shown


def test_an_empty_directory_has_a_report_too(tmp_path: Path) -> None:
    page = report(tmp_path)
    assert requests_and_scripts(page) == []
    assert "Too short to plot" in text(page)


def test_what_would_run_or_ask_is_found() -> None:
    """The judge itself: each of these has to be found."""
    for found in (
        "<script>1</script>",
        "<img src=x>",
        "<p onclick=x>",
        "<a href=x>x</a>",
        "<p style='background: url(x)'>",
        "<style>@import 'x'</style>",
        "<style>p { background: url(x) }</style>",
        "<meta http-equiv=refresh content='0;url=x'>",
        "<svg><use xlink:href=x></use></svg>",
        "<iframe srcdoc=x></iframe>",
        "<form action=x></form>",
    ):
        assert requests_and_scripts(f"<!doctype html>{found}"), found


# The runs, which are added up in the file that the report reads.


def test_runs_are_added_up(tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    for number in range(150):
        started_at = iso_time(BEGAN + 100 * number)
        counted = open_runs(file, started_at)
        run = RunFigures(started_at, 10.0, "finished", pages=1)
        write_runs(file, counted.counted(run, Figures({"pages": 1, f"type/{number % 3}": 2})))
    found = read_runs(file)
    assert (found.number, len(found.runs), found.total_s) == (150, 100, 1500.0)
    assert found.figures.counters == {"pages": 150, "type/0": 100, "type/1": 100, "type/2": 100}
    both = sum([found, found], CountedRuns())
    assert (both.number, len(both.runs), both.total_s) == (300, 100, 3000.0)
    assert both.figures.pages == 300


@pytest.mark.parametrize("content", [b"", b"{", b'{"runs":7}'])
def test_damaged_runs_are_set_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "runs.json"
    file.write_bytes(content)
    assert open_runs(file, iso_time(BEGAN)).number == 1
    assert (tmp_path / "runs.damaged").read_bytes() == content
    assert "cannot be read" in caplog.text
    assert msgspec.json.encode(read_runs(file)) == msgspec.json.encode(CountedRuns())
