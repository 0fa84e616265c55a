"""Hosts that do not welcome us, in whole crawls: the server's books say how often they were asked.

Rule: each host is of one kind, and all are crawled at once; pauses are of tenths of a second.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from crawler.model.types import ConfigError, HostKey, Outcome
from crawler.view.hosts import HostQuery
from crawler.view.local import LocalView
from tests.harness.archive_judges import Read, answers, query, read_folder
from tests.harness.commands import PATIENCE_S, crawl_command, run
from tests.harness.crawling import Crawled, crawl
from tests.harness.fork_server import running
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page

GUARDED, OPENED, PARTLY, STORM = (f"127.0.9.{number}" for number in (21, 22, 23, 24))
HOSTS = (GUARDED, OPENED, PARTLY, STORM)
PAGES = 5
GUARD = Reply(
    page("/only-in-the-challenge", text="Just a moment").body,
    403,
    headers=(("cf-mitigated", "challenge"),),
)
ANUBIS = Reply('<html><script id="anubis_challenge">{}</script><a href="/only-in-the-challenge">x')
SETTINGS = {
    "CRAWLER_CHALLENGE_PAUSE_S": 0.1,
    "CRAWLER_CHALLENGE_PAUSE_MAX_S": 0.4,
    "CRAWLER_SOFT_404": False,
}


@dataclass
class Guarded:
    """A web of four hosts."""

    is_open: bool = False  # nothing is challenged any more
    asked: int = 0  # of OPENED

    def __call__(self, ask: Ask) -> Reply:
        if ask.path == "/robots.txt":
            return not_here(ask)
        found = page(*(f"/{number}" for number in range(PAGES)), text=f"{ask.host} {ask.path}")
        if self.is_open:
            return found
        if ask.host == GUARDED:
            return GUARD
        if ask.host == OPENED:
            self.asked += 1
            return ANUBIS if self.asked <= 4 else found
        if ask.host == PARTLY:
            return ANUBIS if ask.path == "/3" else found
        return Reply("no", 403)


@dataclass(frozen=True)
class Told:
    """A crawl of the web, and what its server says."""

    done: Crawled
    asked: dict[str, list[str]]  # pages, by host

    def outcomes(self, host: str) -> list[Outcome]:
        return [one for one in self.done.outcomes if one.host == host]

    def records(self, host: str) -> list[Read]:
        records = read_folder(self.done.data / "warc").values()
        return [one for one in records if one.kind == "response" and f"//{host}:" in one.url]


def told(data: Path, web: Guarded, served: LoopbackWeb) -> Told:
    seeds = data.parent / "seeds.txt"
    storm = [served.url(STORM, f"/{number}") for number in range(40)]
    many = [served.url(PARTLY, f"/{number}") for number in range(150)]
    named = [served.url(host, f"/{n}") for host in (GUARDED, OPENED) for n in range(PAGES)]
    seeds.write_text("\n".join(named + storm + many))
    before = len(served.visits)
    done = crawl(data, settings=SETTINGS, seeds=str(seeds))
    asked: dict[str, list[str]] = {host: [] for host in HOSTS}
    for visit in served.visits[before:]:
        if visit.path != "/robots.txt":
            asked[visit.host].append(visit.path)
    return Told(done, asked)


@pytest.fixture(scope="module")
def web() -> Guarded:
    return Guarded()


@pytest.fixture(scope="module")
def served(web: Guarded) -> Iterator[LoopbackWeb]:
    with LoopbackWeb(web, HOSTS) as served:
        yield served


@pytest.fixture(scope="module")
def first(web: Guarded, served: LoopbackWeb, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return told(tmp_path_factory.mktemp("challenges") / "data", web, served)


def test_a_host_is_asked_three_times_and_probed_five_and_then_left(first: Told) -> None:
    assert first.done.reason == "finished"
    assert len(first.asked[GUARDED]) == 3 + 5
    rests = first.done.stats
    assert rests["crawler/challenge/Cloudflare"] == 8
    # Of the guarded host and the storm five each, of the host that opens two.
    assert rests["crawler/politeness/rest/challenge"] == 12
    assert rests["crawler/politeness/left"] == 2


def test_no_url_is_given_up_while_its_host_is_paused(first: Told) -> None:
    at_host = first.outcomes(GUARDED)
    dead = [one for one in at_host if one.fate == "dead"]
    assert {one.url.rpartition("/")[2] for one in dead} == {str(n) for n in range(PAGES)}
    assert all(one.reason.startswith("its host does not welcome us") for one in dead)
    assert {one.failure for one in dead} == {"challenge"}
    tried = [one for one in at_host if one.fate == "retry"]
    assert [one.reason for one in tried] == ["challenge: Cloudflare"] * 7


def test_a_host_that_opens_loses_no_page(first: Told) -> None:
    fates = [one.fate for one in first.outcomes(OPENED)]
    assert (fates.count("retry"), fates.count("done"), fates.count("dead")) == (4, PAGES, 0)


def test_one_page_that_is_always_a_challenge_costs_its_host_nothing(first: Told) -> None:
    fates = {one.url.rpartition("/")[2]: one for one in first.outcomes(PARTLY)}
    assert [name for name, one in fates.items() if one.fate != "done"] == ["3"]
    assert len(fates) == 150
    assert fates["3"].reason == "challenge: Anubis, tried 4 times"
    assert first.asked[PARTLY].count("/3") == 4


def test_403s_to_everything_are_a_block_in_the_end(first: Told) -> None:
    assert len(first.asked[STORM]) == 20 + 5
    fates = [one.fate for one in first.outcomes(STORM)]
    assert (fates.count("done"), fates.count("retry"), fates.count("dead")) == (17, 7, 23)
    assert first.done.stats["crawler/challenge/a storm of 403s"] == 8


def test_a_challenge_is_archived_and_is_no_page(first: Told) -> None:
    for host, name, times in ((GUARDED, "403", 8), (PARTLY, "200", 4)):
        found = [
            one
            for one in first.records(host)
            if b"anubis_challenge" in one.payload or b"Just a moment" in one.payload
        ]
        assert [one.block.split(b" ", 2)[1].decode() for one in found] == [name] * times
    assert not [one for one in first.done.outcomes if "only-in-the-challenge" in one.url]
    assert not [one for one in first.done.outcomes if one.reason == "duplicate"]
    columns = str(first.done.data / "warc" / "*.parquet")
    rows = query("SELECT url FROM read_parquet($columns)", columns=columns)
    assert not [url for (url,) in rows if GUARDED in url or url.endswith(f"{PARTLY}/3")]
    summary = json.loads((first.done.data / "summary.json").read_text())
    assert summary["politeness"]["challenges"] == {
        "Anubis": 8,
        "Cloudflare": 8,
        "a storm of 403s": 8,
    }
    assert summary["politeness"]["hosts_left"] == 2


def test_an_operator_puts_a_left_host_back(web: Guarded, served: LoopbackWeb, first: Told) -> None:
    data = first.done.data

    def frontier(*words: str) -> str:
        return run(
            [sys.executable, "-m", "scrapy", "frontier", *words, "-s", f"CRAWLER_DATA_DIR={data}"]
        ).stdout

    why = frontier("why", served.url(GUARDED, "/0"))
    assert "Given up: its host does not welcome us" in why
    assert "challenge: Cloudflare" in why
    hosts = json.loads(frontier("hosts", "--json"))
    because = {row["host"]: row["because"] for row in hosts}
    assert "does not welcome us" in because[GUARDED]
    assert frontier("retry", "--all")
    web.is_open = True
    again = told(data, web, served)
    fetched = {path for path in again.asked[GUARDED] if path != "/only-in-the-challenge"}
    assert fetched == {f"/{number}" for number in range(PAGES)}
    assert len(again.asked[STORM]) >= 23
    assert answers(data)


def test_a_pause_for_challenges_survives_a_kill(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    settings = {"CRAWLER_MIN_DELAY_S": 0.1, "CRAWLER_DELAY_FACTOR": 0, "CRAWLER_SOFT_404": False}
    many = "".join(f'<a href="/{number}">{number}</a>' for number in range(500))

    def answer(ask: Ask) -> Reply:
        if ask.path == "/robots.txt":
            return not_here(ask)
        return GUARD if ask.host == GUARDED else Reply(f"<p>{ask.path}</p>{many}")

    with LoopbackWeb(answer, (GUARDED, OPENED)) as served:
        urls = [served.url(GUARDED, f"/{number}") for number in range(PAGES)]
        seeds = ",".join([*urls, served.url(OPENED, "/0")])
        command = crawl_command(data, settings, seeds=seeds, scope="host")

        def asked(host: str) -> int:
            visits = served.visits
            return sum(one.host == host and one.path != "/robots.txt" for one in visits)

        def rest_until() -> float:
            words = ["hosts", "--json", "-s", f"CRAWLER_DATA_DIR={data}"]
            shown = json.loads(run([sys.executable, "-m", "scrapy", "frontier", *words]).stdout)
            return float({row["host"]: row["next_at"] for row in shown}[GUARDED])

        def is_stored() -> bool:
            """It is logged before it is written."""
            with LocalView(data) as view:
                (host,) = view.hosts(HostQuery(host=HostKey(GUARDED)))
                return host.rest_until > time.time() + 3000

        with running(command, log) as process:
            wait_until(lambda: "does not welcome us" in log.read_text(), PATIENCE_S)
            wait_until(is_stored, PATIENCE_S, log=log.read_text)
            process.kill()
            process.wait()
        until = rest_until()
        assert until > time.time() + 3000
        for _ in range(2):
            is_further = partial(lambda before: asked(OPENED) > before + 10, asked(OPENED))
            with running(command, log) as process:
                wait_until(is_further, PATIENCE_S, log=log.read_text)
                process.kill()
                process.wait()
        assert asked(GUARDED) == 3
        assert rest_until() == until


def test_an_error_in_the_table_of_a_user_ends_the_crawl_before_it_begins(tmp_path: Path) -> None:
    table = tmp_path / "own.toml"
    table.write_text('[[signature]]\nname = "ours"\nstatus = "403"\n')
    with pytest.raises(ConfigError, match=r"own.toml line 3: status is '403'"):
        crawl(
            tmp_path / "data",
            settings={"CRAWLER_CHALLENGES": str(table)},
            seeds="http://127.0.9.25:1/",
        )
    with pytest.raises(ConfigError, match="CRAWLER_CHALLENGES: /nowhere cannot be read: No such"):
        crawl(
            tmp_path / "data",
            settings={"CRAWLER_CHALLENGES": "/nowhere"},
            seeds="http://127.0.9.25:1/",
        )
