"""What an operator does to a crawl by commands, judged by the web that it asks.

The console is off: what acts needs no page. `test_console_page.py` acts on a crawl that has one.
"""

from __future__ import annotations

import asyncio
import getpass
import gzip
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from crawler.data.operator_files import Act, ActResult, Audit
from crawler.frontier.staging import records_between
from crawler.view.local import open_read_only
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.power_cut import PowerCut
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page
from tests.servers.redis import RedisServer

HOSTS = tuple(f"127.0.0.{110 + number}" for number in range(3))
PAGES = 40
SETTINGS = {
    "CRAWLER_MIN_DELAY_S": 0.15,
    "CRAWLER_DELAY_FACTOR": 0,
    "CRAWLER_SOFT_404": False,
    "EXTENSIONS": '{"crawler.console.extension.Console": null}',
}


LINKS = str(page(*(f"/{number}" for number in range(PAGES))).body).encode()


def answer(ask: Ask) -> Reply:
    """Each page of a host links to all others, but to none of those under /hidden/."""
    if ask.path == "/robots.txt":
        return not_here(ask)
    return page(*(f"/{number}" for number in range(PAGES)), text=f"{ask.host} {ask.path}")


@pytest.fixture
def web() -> Iterator[LoopbackWeb]:
    with LoopbackWeb(answer, HOSTS) as served:
        yield served


class Operated:
    """A crawl, and the commands of its operator."""

    def __init__(self, folder: Path, web: LoopbackWeb, server: RedisServer | None) -> None:
        self.data, self.web, self._server = folder / "data", web, server
        self.log = folder / "log"
        self.is_shared = server is not None
        self._settings: dict[str, object] = dict(SETTINGS)
        if server is not None:
            self._settings |= {"CRAWLER_FRONTIER_URL": server.url, "CRAWLER_FRONTIER_SHARDS": 4}

    def running(self, hosts: Sequence[str] = HOSTS) -> Any:
        """The crawl, in the scope of *hosts*."""
        seeds = ",".join(self.web.url(host, "/0") for host in hosts)
        command = crawl_command(self.data, self._settings, seeds=seeds, scope="host")
        return fork_server.running(command, self.log)

    def write_changes(self) -> None:
        """Let it write a change feed from now on."""
        self._settings["CRAWLER_CHANGES"] = True

    def limit_hosts(self, urls: int) -> None:
        """Let it spill what it finds of a host beyond so many *urls*, from now on."""
        self._settings["CRAWLER_MAX_URLS_PER_HOST"] = urls

    def purge_archive(self, target: str) -> None:
        done = self._run("archive", "purge", target)
        assert done.returncode == 0, done.stdout + done.stderr

    def rules(self, *words: str) -> str:
        return str(self._run("rules", *words).stdout)

    def ask(self, *words: str) -> Any:
        return self._run("frontier", *words)

    def _run(self, *words: str) -> Any:
        command = [*fork_server.SCRAPY, *words, "-s", f"CRAWLER_DATA_DIR={self.data}"]
        for name, value in self._settings.items():
            command += ["-s", f"{name}={value}"]
        return fork_server.run(command)

    def act(self, *words: str) -> str:
        done = self.ask(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def lines(self) -> list[Act | ActResult]:
        if self._server is None:
            return list(Audit(self.data / "audit.jsonl").read())
        with self._server.client() as client:
            found = client.lrange("{gossamer:rules}:audit", 0, -1)
        kinds = [Act if b'"verb"' in line else ActResult for line in found]
        return [
            msgspec.json.decode(each, type=kind) for each, kind in zip(found, kinds, strict=True)
        ]

    def keys(self) -> dict[str, bytes]:
        """Return what each key of Redis has, as it is dumped."""
        if self._server is None:
            return {}
        with self._server.client() as client:
            return {repr(key): client.dump(key) or b"" for key in client.scan_iter("*")}

    def claims(self) -> list[bytes]:
        """What Redis knows of which page had a content first."""
        if self._server is None:
            return []
        with self._server.client() as client:
            keys = [key for key in client.scan_iter("*") if b":g:" in key]
            return [claim for key in keys for claim in client.lrange(key, 0, -1)]

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.act("counts", "--json"))["counts"]
        return found

    def touched(self, number: int) -> int:
        """How many URLs the act of that number has touched, as soon as the audit says so."""

        def found() -> list[ActResult]:
            return [
                each for each in self.lines() if isinstance(each, ActResult) and each.of == number
            ]

        return wait_until(found, PATIENCE_S, log=self.log.read_text)[0].touched

    def asked(self, host: str) -> int:
        visits = self.web.visits
        return sum(visit.host == host and visit.path != "/robots.txt" for visit in visits)

    def paths(self, host: str) -> set[str]:
        return {visit.path for visit in self.web.visits if visit.host == host}


@pytest.fixture(params=["embedded", "shared"])
def crawl(request: pytest.FixtureRequest, tmp_path: Path, web: LoopbackWeb) -> Iterator[Operated]:
    if request.param == "embedded":
        yield Operated(tmp_path, web, None)
        return
    with RedisServer(tmp_path / "redis", rdbcompression="no") as server:
        yield Operated(tmp_path, web, server)


ALL = {f"/{number}" for number in range(PAGES)}


def test_the_complaint_of_a_webmaster(crawl: Operated) -> None:
    refused, other = HOSTS[0], HOSTS[1]
    with crawl.running() as process:
        wait_until(lambda: crawl.asked(refused) > 3, PATIENCE_S)
        counted = json.loads(crawl.act("refuse", refused, "--dry-run", "--json"))["waiting"]
        assert 0 < counted < PAGES
        crawl.act("refuse", refused)
        wait_until(lambda: "Rules in force: 1" in crawl.log.read_text(), PATIENCE_S)
        before = crawl.asked(refused)
        process.kill()
        process.wait()
    with crawl.running() as process:
        assert crawl.touched(1) in range(counted + 1)
        assert process.wait(PATIENCE_S) == 0
    assert crawl.asked(refused) <= before + 1, "one may have been under way"
    assert crawl.paths(other) >= ALL
    crawl.act("undo")
    with crawl.running() as process:
        assert process.wait(PATIENCE_S) == 0
    assert crawl.paths(refused) >= ALL, "undo brings all back"
    acts = [line for line in crawl.lines() if isinstance(line, Act)]
    assert [(act.verb, act.undoes) for act in acts] == [("refuse", 0), ("undo", 1)]


def test_acts_on_a_crawl_that_runs(crawl: Operated) -> None:
    dropped, paused, other = HOSTS
    with crawl.running() as process:
        wait_until(lambda: min(map(crawl.asked, HOSTS)) > 3, PATIENCE_S)
        crawl.act("pause", paused)
        crawl.act("drop", dropped)
        assert "when it is resumed" in crawl.act("hosts", "--host", paused)
        count = crawl.touched(2)
        assert count > 0
        crawl.act("add", crawl.web.url(other, "/hidden/1"), "--level", "0")
        assert crawl.touched(3) == 1
        wait_until(lambda: "/hidden/1" in crawl.paths(other), PATIENCE_S)
        wait_until(lambda: crawl.paths(other) >= ALL, PATIENCE_S)
        assert not crawl.paths(dropped) >= ALL and not crawl.paths(paused) >= ALL
        by = getpass.getuser()
        assert f"dropped by {by} (act 2)" in crawl.act("dead", "--limit", "100")
        assert f"act 4: act 2 is undone (drop {dropped})" in crawl.act("undo", "2")
        assert crawl.touched(4) == count
        known, new = crawl.web.url(other, "/0"), crawl.web.url(other, "/new/1")
        assert "; it is known already, and" in crawl.act("add", known)
        assert f"; 1 are known already ({known}), and" in crawl.act("add", known, new)
        assert "known" not in crawl.act("add", known, "--again")
        crawl.act("level", other, "0")
        assert "0 URLs put back" in crawl.act("retry", "--all"), "each is back already"
        crawl.act("resume", paused)
        crawl.act("concurrency", "2")
        assert process.wait(PATIENCE_S) == 0
    assert all(crawl.paths(host) >= ALL for host in HOSTS)
    assert "all are right" in crawl.act("check")


def test_a_crawl_is_stopped_and_goes_on(crawl: Operated) -> None:
    with crawl.running() as process:
        wait_until(lambda: crawl.asked(HOSTS[0]) > 2, PATIENCE_S)
        crawl.act("stop")
        assert process.wait(PATIENCE_S) == 0
        assert "Closing spider (operator)" in crawl.log.read_text()
    assert not crawl.paths(HOSTS[0]) >= ALL
    crawl.act("drop", f"{HOSTS[0]}/3*")
    with crawl.running() as process:
        assert process.wait(PATIENCE_S) == 0
    assert crawl.paths(HOSTS[1]) >= ALL
    assert crawl.touched(2) > 0, "what was asked for between two runs is done by the next"


def test_a_crawl_killed_while_only_undecided_urls_are_left_goes_on_and_says_so(
    tmp_path: Path,
) -> None:
    """Its first page comes during a pause: nothing is leased, so its links are not looked up."""
    is_paused = threading.Event()

    async def body() -> AsyncIterator[bytes]:
        while not is_paused.is_set():
            await asyncio.sleep(0.01)
        yield LINKS

    def first_waits(ask: Ask) -> Reply:
        return Reply(body) if (ask.path, ask.turn) == ("/0", 0) else answer(ask)

    with LoopbackWeb(first_waits, HOSTS[:1]) as web:
        crawl = Operated(tmp_path, web, None)

        def counts() -> dict[str, int]:
            return dict(json.loads(crawl.act("counts", "--json"))["counts"])

        with crawl.running(HOSTS[:1]) as process:
            wait_until(lambda: web.requests[HOSTS[0], "/0"], PATIENCE_S, log=crawl.log.read_text)
            crawl.act("pause")
            wait_until(lambda: "Rules in force" in crawl.log.read_text(), PATIENCE_S)
            is_paused.set()
            wait_until(lambda: counts()["done"], PATIENCE_S, log=crawl.log.read_text)
            process.kill()
            process.wait()
        assert counts()["undecided"] == PAGES - 1
        assert not any(counts()[state] for state in ("waiting", "later", "leased"))
        crawl.act("resume")
        before = len(crawl.log.read_text())
        with crawl.running(HOSTS[:1]) as process:
            assert process.wait(PATIENCE_S) == 0
        log = crawl.log.read_text()[before:]
        assert crawl.paths(HOSTS[0]) >= ALL
        assert f"The crawl goes on. URLs left to do: {PAGES - 1}" in log
        assert "was finished" not in log


class LosesAll(Random):
    """Of a power cut that takes all that was not synced."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


def test_what_is_said_to_be_dropped_stays_so_after_a_power_cut(
    tmp_path: Path, web: LoopbackWeb
) -> None:
    """While the crawl is paused no page is archived, so nothing else syncs."""
    power = PowerCut(tmp_path, LosesAll())
    crawl, (host, *_) = Operated(tmp_path, web, None), HOSTS
    with power.watching():
        with crawl.running([host]) as process:
            wait_until(lambda: crawl.asked(host) > 2, PATIENCE_S)
            crawl.act("pause")
            wait_until(
                lambda: not json.loads(crawl.act("counts", "--json"))["counts"]["leased"],
                PATIENCE_S,
            )
            crawl.act("drop", f"{host}/3*")
            assert crawl.touched(2) > 0
            dropped = {path for path in ALL if path.startswith("/3")} - crawl.paths(host)
            process.kill()
            process.wait()
        power.cut(crawl.data)
    crawl.act("resume")
    with crawl.running([host]) as process:
        assert process.wait(PATIENCE_S) == 0
    assert dropped and not dropped & crawl.paths(host)
    assert crawl.paths(host) >= ALL - dropped


def test_a_url_that_is_added_is_fetched_whatever_dies(crawl: Operated) -> None:
    mine, other = HOSTS[:2]
    with crawl.running([mine]) as process:
        wait_until(lambda: crawl.asked(mine) > 3, PATIENCE_S)
        crawl.act("add", crawl.web.url(other, "/hidden/1"), crawl.web.url(mine, "/0"), "--again")
        process.kill()
        process.wait()
    with crawl.running([mine]) as process:
        assert process.wait(PATIENCE_S) == 0
    assert "/hidden/1" in crawl.paths(other), "beyond the scope, for a person has typed it"
    assert crawl.paths(other) >= ALL, "and now its links are in the scope"
    first = [visit for visit in crawl.web.visits if (visit.host, visit.path) == (mine, "/0")]
    assert len(first) >= 2, "once more, and again if the kill came between"


def test_two_operators_at_once_lose_nothing(crawl: Operated) -> None:
    with crawl.running() as process:
        wait_until(lambda: (crawl.data / "control.sock").exists(), PATIENCE_S)
        with ThreadPoolExecutor(4) as operators:
            hosts = [f"h{number}.example.org" for number in range(8)]
            said = list(operators.map(lambda host: crawl.act("delay", host, "5s"), hosts))
        assert len(set(said)) == len(hosts)
        process.kill()
        process.wait()
    acts = [line for line in crawl.lines() if isinstance(line, Act)]
    assert [act.number for act in acts] == list(range(1, 9))
    shown = crawl.rules("show")
    for host in hosts:
        assert f'for = "{host}"' in shown
    assert "delay_s (line" in crawl.act("why", f"https://{hosts[0]}/", "-a", "scope=any")
    assert "delay_s = 5.0: line" in crawl.rules("why", f"https://{hosts[0]}/")


def test_a_deletion_request(crawl: Operated) -> None:
    purged, other = HOSTS[0], HOSTS[1]
    with crawl.running() as process:
        wait_until(lambda: crawl.asked(purged) > 3, PATIENCE_S)
        crawl.act("drop", f"{purged}/39")
        crawl.act("purge", purged)
        assert crawl.touched(2) > 0
        before = crawl.paths(purged)
        wait_until(lambda: crawl.paths(other) >= ALL, PATIENCE_S)
        assert process.wait(PATIENCE_S) == 0
    fetched = crawl.paths(purged)
    assert len(fetched - before) <= 1, "one may have been under way"
    assert purged not in crawl.act("dead", "--limit", "100")
    counts = json.loads(crawl.act("counts", "--json"))["counts"]
    assert counts["dead"] == 0 and counts["refused"] <= 1 and counts["waiting"] == 0
    claims = crawl.claims()
    left = sum(purged.encode() in claim for claim in claims)
    assert left <= 1, "of one whose verdict was under way"
    assert not crawl.is_shared or any(other.encode() in claim for claim in claims)
    listed = [json.loads(line) for line in crawl.act("purge", purged).splitlines()]
    paths = {"/" + each["url"].split("/", 3)[3] for each in listed if each["deleted"]}
    assert paths == fetched - {"/robots.txt"}
    for each in listed:
        with (crawl.data / "warc" / each["file"]).open("rb") as file:
            file.seek(each["offset"])
            record = gzip.decompress(file.read(each["length"]))
        assert f"WARC-Target-URI: {each['url']}\r\n".encode() in record
    assert f"{sum(each['deleted'] for each in listed)} records deleted" in crawl.act(
        "purge", purged, "--archive"
    )
    assert not crawl.act("purge", purged), "nothing is left"
    for _ in range(3):
        crawl.act("undo")
        assert "refuse" in crawl.rules("show"), "as the first purge said"
    crawl.act("undo")
    assert "refuse" not in crawl.rules("show")
    assert crawl.ask("undo", "1").returncode == 0, "of the drop"
    assert "all are right" in crawl.act("check")


MARKER = "confidential"
NAMING = {"outcomes.jsonl", "seeds.json", "summary.json", "report.html", "deletions.jsonl"}
"""Files that name URLs, of which docs/operating.md and docs/archive.md say so."""
ELSEWHERE = {"warc", "frontier", "worker"}
"""The archive is purged by itself; of databases the records are read, not the files."""


def answer_marked(ask: Ask) -> Reply:
    """Serve pages that link to all others of their host, under a path that names it."""
    if ask.path == "/robots.txt":
        return not_here(ask)
    name = MARKER if ask.host == HOSTS[0] else "other"
    return page(*(f"/{name}/{number}" for number in range(PAGES)), text=f"{ask.host} {ask.path}")


def test_of_what_is_purged_nothing_is_left(crawl: Operated) -> None:
    """Neither in files nor in Redis."""
    purged = HOSTS[0]

    def marked() -> set[str]:
        """Return the files, the records and the keys of Redis with the marker."""
        found = crawl.keys()
        for folder in ("frontier", "shards/frontier", "worker"):
            if (crawl.data / folder).is_dir():
                with closing(open_read_only(crawl.data / folder)) as store:
                    found |= {
                        f"{folder}: {key!r}": key + value
                        for key, value in records_between(store, b"", b"\xff")
                    }
        found |= {
            str(file): file.read_bytes()
            for file in crawl.data.rglob("*")
            if file.is_file() and file.name not in NAMING and file.parent.name not in ELSEWHERE
        }
        return {name for name, value in found.items() if MARKER.encode() in value}

    crawl.write_changes()
    crawl.limit_hosts(PAGES - 5)
    with LoopbackWeb(answer_marked, HOSTS[:2]) as web:
        crawl.web = web
        with crawl.running(HOSTS[:2]) as process:
            wait_until(lambda: crawl.asked(purged) > 3, PATIENCE_S)
            crawl.act("drop", f"{purged}/*9")
            assert crawl.touched(1) > 0
            crawl.act("stop")
            assert process.wait(PATIENCE_S) == 0
        kinds = {name.split(":")[-1] for name in marked() if "gossamer" in name}
        shared = {"b'", "d'", "0'", "y'", "O'", "changes'"}
        assert marked() and kinds == (shared if crawl.is_shared else set())
        assert crawl.counts()["spilled"] > 0
        crawl.act("purge", purged)
        with crawl.running(HOSTS[:2]) as process:
            assert crawl.touched(3) > 0
            assert process.wait(PATIENCE_S) == 0
    crawl.purge_archive(purged)
    assert not marked()
    assert '"kind":"purged"' in crawl.act("changes")


def test_a_budget_is_changed_while_the_crawl_runs(crawl: Operated, tmp_path: Path) -> None:
    limited, other = HOSTS[:2]
    rules = tmp_path / "rules"
    rules.write_text(f'[[rule]]\nfor = "{limited}"\nmax_urls = 10\n')
    with crawl.running() as process:
        wait_until(lambda: crawl.asked(limited) > 3, PATIENCE_S)
        crawl.act("rules", str(rules))
        wait_until(lambda: "Rules in force" in crawl.log.read_text(), PATIENCE_S)
        before = len(crawl.paths(limited) - {"/robots.txt"})
        assert process.wait(PATIENCE_S) == 0
    assert crawl.paths(other) >= ALL
    fetched = crawl.paths(limited) - {"/robots.txt"}
    # A fetch may be under way, and a worker that shares the frontier takes one URL ahead.
    assert len(fetched) <= max(10, before + 2)
    left = next(iter(ALL - fetched))
    assert "max_urls (line 1" in crawl.act("why", crawl.web.url(limited, left))
    crawl.act("undo")
    with crawl.running() as process:
        assert process.wait(PATIENCE_S) == 0
    assert crawl.paths(limited) >= ALL
    assert "all are right" in crawl.act("check")


def test_urls_that_were_added_by_mistake_are_forgotten(crawl: Operated) -> None:
    mine, other = HOSTS[:2]
    with crawl.running([mine]) as process:
        wait_until(lambda: crawl.asked(mine) > 3, PATIENCE_S)
        crawl.act("pause")
        wait_until(lambda: "Rules in force" in crawl.log.read_text(), PATIENCE_S)
        urls = [crawl.web.url(other, f"/hidden/{number}") for number in range(2)]
        crawl.act("add", *urls, crawl.web.url(mine, "/39"))
        # The crawl had found the third itself, which workers that share it are told later.
        assert crawl.touched(2) == (3 if crawl.is_shared else 2)
        crawl.act("undo")
        forgotten = crawl.touched(3)
        # A worker that shares the frontier takes one URL of each host ahead.
        assert forgotten == 2 or (crawl.is_shared and forgotten == 1)
        crawl.act("resume")
        assert process.wait(PATIENCE_S) == 0
    if forgotten == 2:
        assert crawl.paths(other) <= {"/robots.txt"}
    assert crawl.paths(mine) >= ALL
    assert "all are right" in crawl.act("check")


def test_what_is_wrong_is_said_and_changes_nothing(crawl: Operated) -> None:
    with crawl.running() as process:
        wait_until(lambda: (crawl.data / "control.sock").exists(), PATIENCE_S)
        for words, why in [
            (("level", "example.org", "7"), "level is 7; this crawl has 0 to 2"),
            (("delay", "example.org", "soon"), "is no time"),
            (("refuse", "two words"), "is no target"),
            (("undo", "9"), "there is no act 9"),
            (("pause", "example.org", "2026-12-01T08:00:00"), "is no target"),
        ]:
            done = crawl.ask(*words)
            assert done.returncode == 1 and why in done.stderr, done.stderr
        assert not crawl.lines()
        process.kill()
