"""What an operator does to a crawl by commands, judged by the web that it asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.data.operator_files import Act, Audit, Touched
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page

HOSTS = tuple(f"127.0.0.{110 + number}" for number in range(3))
PAGES = 40
SETTINGS = {"CRAWLER_MIN_DELAY_S": 0.05, "CRAWLER_DELAY_FACTOR": 0, "CRAWLER_SOFT_404": False}


def answer(ask: Ask) -> Reply:
    """Each page of a host links to all others, but to none of those under /hidden/."""
    if ask.path == "/robots.txt":
        return not_here(ask)
    return page(*(f"/{number}" for number in range(PAGES)), text=f"{ask.host} {ask.path}")


@pytest.fixture
def web() -> Iterator[LoopbackWeb]:
    with LoopbackWeb(answer, HOSTS) as served:
        yield served


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def asked(web: LoopbackWeb, host: str) -> int:
    return sum(visit.host == host and visit.path != "/robots.txt" for visit in web.visits)


def frontier(data: Path, *words: str) -> Any:
    command = [*fork_server.SCRAPY, "frontier", *words, "-s", f"CRAWLER_DATA_DIR={data}"]
    done = fork_server.run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def running(data: Path, web: LoopbackWeb) -> Any:
    seeds = ",".join(web.url(host, "/0") for host in HOSTS)
    return fork_server.running(crawl_command(data, SETTINGS, seeds=seeds), data.parent / "log")


def touched(data: Path, number: int) -> int:
    """How many URLs the act of that number has touched, as soon as the audit says so."""

    def found() -> list[Touched]:
        lines = Audit(data / "audit.jsonl").read()
        return [line for line in lines if isinstance(line, Touched) and line.of == number]

    return wait_until(found, PATIENCE_S)[0].touched


def acts(data: Path) -> list[Act]:
    return [line for line in Audit(data / "audit.jsonl").read() if isinstance(line, Act)]


def test_the_complaint_of_a_webmaster(data: Path, web: LoopbackWeb) -> None:
    refused, other = HOSTS[0], HOSTS[1]
    with running(data, web) as process:
        wait_until(lambda: asked(web, refused) > 3, PATIENCE_S)
        counted = json.loads(frontier(data, "refuse", refused, "--dry-run", "--json"))["waiting"]
        assert 0 < counted < PAGES
        frontier(data, "refuse", refused)
        before = asked(web, refused)
        process.kill()
        process.wait()
    with running(data, web) as process:
        assert touched(data, 1) in range(1, counted + 1)
        assert process.wait(PATIENCE_S) == 0
    assert asked(web, refused) <= before + 1, "one may have been under way"
    assert asked(web, other) >= PAGES
    frontier(data, "undo")
    assert not (data / "rules.toml").read_text().count("[[rule]]")
    with running(data, web) as process:
        assert process.wait(PATIENCE_S) == 0
    paths = {visit.path for visit in web.visits if visit.host == refused}
    assert paths >= {f"/{number}" for number in range(PAGES)}, "undo brings all back"
    assert [(act.verb, act.undoes) for act in acts(data)] == [("refuse", 0), ("undo", 1)]


def test_acts_on_a_crawl_that_runs(data: Path, web: LoopbackWeb) -> None:
    dropped, paused, other = HOSTS
    with running(data, web) as process:
        wait_until(lambda: min(asked(web, host) for host in HOSTS) > 3, PATIENCE_S)
        frontier(data, "pause", paused)
        frontier(data, "drop", dropped)
        count = touched(data, 2)
        assert count > 0
        frontier(data, "add", web.url(other, "/hidden/1"), "--level", "0")
        assert touched(data, 3) == 1
        wait_until(lambda: "/hidden/1" in {visit.path for visit in web.visits}, PATIENCE_S)
        wait_until(lambda: asked(web, other) > PAGES, PATIENCE_S)
        assert asked(web, dropped) < PAGES and asked(web, paused) < PAGES
        assert "dropped by root (act 2)" in frontier(data, "dead", "--limit", "100")
        frontier(data, "undo", "2")
        assert touched(data, 4) == count
        frontier(data, "resume", paused)
        frontier(data, "concurrency", "2")
        assert process.wait(PATIENCE_S) == 0
    assert min(asked(web, host) for host in HOSTS) >= PAGES
    assert frontier(data, "check").count("all are right")


def test_a_crawl_is_stopped_and_goes_on(data: Path, web: LoopbackWeb) -> None:
    with running(data, web) as process:
        wait_until(lambda: len(web.visits) > 10, PATIENCE_S)
        frontier(data, "stop")
        assert process.wait(PATIENCE_S) == 0
        assert "Closing spider (operator)" in (data.parent / "log").read_text()
    assert len(web.visits) < len(HOSTS) * PAGES
    frontier(data, "drop", f"{HOSTS[0]}/1*")
    with running(data, web) as process:
        assert process.wait(PATIENCE_S) == 0
    asked_for = {visit.path for visit in web.visits if visit.host == HOSTS[1]}
    assert asked_for >= {f"/{number}" for number in range(PAGES)}
    assert touched(data, 2) > 0, "what was asked for between two runs is done by the next"


def test_what_is_wrong_is_said_and_changes_nothing(data: Path, web: LoopbackWeb) -> None:
    with running(data, web) as process:
        wait_until(lambda: (data / "control.sock").exists(), PATIENCE_S)
        for words, why in [
            (("level", "example.org", "7"), "level is 7; this crawl has 0 to 2"),
            (("delay", "example.org", "soon"), "is no time"),
            (("refuse", "two words"), "is no target"),
            (("undo", "9"), "there is no act 9"),
            (("pause", "example.org", "2026-12-01T08:00:00"), "is no target"),
        ]:
            done = fork_server.run(
                [*fork_server.SCRAPY, "frontier", *words, "-s", f"CRAWLER_DATA_DIR={data}"]
            )
            assert done.returncode == 1 and why in done.stderr, done.stderr
        assert not acts(data)
        process.kill()
