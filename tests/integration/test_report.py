"""The report of a crawl that was killed and went on, as a browser shows it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.data.history import HistorySpan, read_history
from crawler.data.outcomes import read_outcomes
from crawler.data.runs import read_runs
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.html_pages import requests_and_scripts
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here
from tests.servers.pywb import Browser

HOSTS: Final = tuple(f"127.0.34.{number}" for number in range(1, 4))
BROWSERS_OWN: Final = "127.0.34.9"
PAGES: Final = 150
SETTINGS: Final = {
    "CRAWLER_MIN_DELAY_S": 0.1,
    "CRAWLER_DELAY_FACTOR": 0,
    "CRAWLER_RETRIES": 0,
    "CRAWLER_SOFT_404": False,
}
EVIL: Final = "<script>document.title='run'</script>"


class HostileWeb:
    """Each page links to all others of its host, and to what tries to run in a report."""

    def __init__(self) -> None:
        self.asked_by_report = ""

    def __call__(self, ask: Ask) -> Reply:
        if ask.path == "/robots.txt":
            return not_here(ask)
        if ask.path == "/type":
            return Reply(EVIL, content_type=f"text/html{EVIL}; x={EVIL}")
        if ask.path.startswith("/dead"):
            return Reply(close=True)
        dead = f"/dead?{EVIL}&quot;&gt;<img src={self.asked_by_report}>"
        links = [*(f"/{number}" for number in range(PAGES)), "/type", dead]
        body = "".join(f'<a href="{link}">x</a>' for link in links)
        return Reply(f'<html lang="de{EVIL}"><title>{EVIL}</title>{body}{ask.path}</html>')


@pytest.fixture
def web() -> Iterator[tuple[HostileWeb, LoopbackWeb]]:
    answer = HostileWeb()
    with LoopbackWeb(answer, [*HOSTS, BROWSERS_OWN]) as served:
        answer.asked_by_report = served.url(BROWSERS_OWN, "/asked")
        yield answer, served


def is_recorded(data: Path) -> bool:
    """Whether a killed crawl would leave figures of its pages."""
    runs = read_runs(data / "runs.json").runs
    return bool(runs) and runs[-1].pages > 5


def test_a_crawl_over_two_runs(tmp_path: Path, web: tuple[HostileWeb, LoopbackWeb]) -> None:
    data, log, served = tmp_path / "data", tmp_path / "log", web[1]
    seeds = ",".join(served.url(host, "/0") for host in HOSTS)
    command = crawl_command(data, SETTINGS, seeds=seeds, scope="host")
    with fork_server.running(command, log) as first:
        wait_until(lambda: is_recorded(data), PATIENCE_S, log=log.read_text)
        first.kill()
        first.wait()
    before = len(served.visits)
    assert not (data / "report.html").exists()
    with fork_server.running(command, log) as second:
        assert second.wait() == 0, log.read_text()[-3000:]

    outcomes = list(read_outcomes(data / "outcomes.jsonl"))
    written = (data / "report.html").read_text()
    judge(written, outcomes)
    whole = json.loads((data / "summary.json").read_text())
    assert whole["whole"]["runs"] == 2
    assert [run["reason"] for run in whole["runs"]] == ["", "finished"]
    assert whole["runs"][1]["pages"] == whole["pages"] > 0
    assert whole["whole"]["pages"] == sum(run["pages"] for run in whole["runs"])
    assert whole["whole"]["counters"]["type/other"] > 0
    check_gaps(whole["whole"]["counters"], len(served.visits) - before, len(served.visits))
    check_history(data, len([one for one in outcomes if one.status and one.fate == "done"]))

    elsewhere = tmp_path / "elsewhere.html"
    asked = report(data, "-o", str(elsewhere))
    assert asked.returncode == 0, asked.stderr
    judge(elsewhere.read_text(), outcomes)
    check_in_browser(elsewhere, tmp_path / "home", served)
    refused = report(data, "-o", str(tmp_path / "none" / "x.html"))
    assert (refused.returncode, "cannot be written" in refused.stderr) == (1, True)


def test_without_a_crawl_there_is_no_report(tmp_path: Path) -> None:
    refused = report(tmp_path / "none")
    assert refused.returncode == 1
    assert "none" in refused.stderr
    assert not (tmp_path / "none").exists()


def report(data: Path, *more: str) -> Any:
    command = [*fork_server.SCRAPY, "frontier", "report", "-s", f"CRAWLER_DATA_DIR={data}", *more]
    return fork_server.run(command)


def judge(written: str, outcomes: list[Any]) -> None:
    """Nothing runs or asks, and the figures are those of the outcome log."""
    assert requests_and_scripts(written) == []
    body = LexborHTMLParser(written).body
    assert body is not None
    shown = " ".join(body.text(separator=" ").split())
    statuses = Counter(one.status for one in outcomes if one.status is not None)
    for status, number in statuses.items():
        assert f"{status} {number} " in shown
    for host in HOSTS:
        pages = sum(one.host == host and one.status == 200 for one in outcomes)
        assert f"{host} {pages} " in shown
    assert "killed" in shown
    assert "Finished: nothing is left to fetch" in shown
    assert "/dead?%3Cscript%3E" in shown  # as its URL is fetched


def check_gaps(counters: dict[str, int], least: int, most: int) -> None:
    """All requests but the first to a host in each run, of which the last of the first are missing,
    were to a host that had rested; none was early."""
    gaps = {name: n for name, n in counters.items() if name.startswith("gap_over_due/")}
    assert "gap_over_due/early" not in gaps
    assert least - len(HOSTS) < sum(gaps.values()) < most


def check_history(data: Path, pages: int) -> None:
    """The totals go on over both runs; of the first at most the last seconds are missing."""
    found = read_history(data / "history.bin", HistorySpan.ALL)
    assert found.columns["run"] == sorted(found.columns["run"])
    assert set(found.columns["run"]) == {1, 2}
    assert found.columns["pages"] == sorted(found.columns["pages"])
    assert pages * 0.5 < found.columns["pages"][-1] <= pages
    assert read_runs(data / "runs.json").number == 2


def check_in_browser(file: Path, home: Path, served: LoopbackWeb) -> None:
    dom = Browser(home).dom(file.as_uri())
    assert "Politeness" in dom
    assert "<title>Crawl in " in dom
    assert [visit for visit in served.visits if visit.host == BROWSERS_OWN] == []


def test_figures_that_cannot_be_written_cost_no_page(
    tmp_path: Path, web: tuple[HostileWeb, LoopbackWeb]
) -> None:
    for name in ("history.bin", "runs.json", "report.html"):
        (tmp_path / "data" / name / "in the way").mkdir(parents=True)
    log = tmp_path / "log"
    seeds = web[1].url(HOSTS[0], "/0")
    command = crawl_command(tmp_path / "data", SETTINGS, seeds=seeds, scope="host", max_pages=5)
    with fork_server.running(command, log) as process:
        assert process.wait() == 0, log.read_text()[-3000:]
    assert json.loads((tmp_path / "data" / "summary.json").read_text())["pages"] == 5
    assert log.read_text().count("The figures over time cannot be written") == 1
    assert log.read_text().count("The report cannot be written") == 1
