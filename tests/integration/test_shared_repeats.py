"""kill -9 of workers of one crawl, most of them between the archive and the frontier: all their
archives together hold every answer once in full, and each further record of it is a revisit or is
marked.

Rule: some come back over their data directories, and while their leases last. Some never do, and
theirs are read as they were left. Who dies when is counted in answers, so that it holds on any
machine.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Final

import pytest

from crawler.archive.columns_companion import SUFFIX
from crawler.archive.recovery import recover
from crawler.archive.warc_file import missing_companions
from crawler.config.settings import read_config
from crawler.content.crawl_archive import companions
from tests.harness.killed_crawl import LAST, crawl_until_killed
from tests.harness.killed_processes import SPAWN, preload
from tests.harness.repeats import RepeatsAudit, pages, routes
from tests.servers.loopback import site
from tests.servers.redis import RedisServer

KILLS: Final = 24
WORKERS: Final = 3
MOST_ANSWERS: Final = 4  # of one life
ARRIVED: Final = 0.2  # of all deaths: when an answer arrives, and is not archived
HOSTS: Final = 8
NEVER_BACK: Final = 0.7  # of the first half: what they had reserved is free after half a minute
SETTINGS: Final = {
    "CRAWLER_FRONTIER_SHARDS": 8,
    "CRAWLER_TOTAL_TIMEOUT_S": 1,
    "CRAWLER_CONNECT_TIMEOUT_S": 0.5,
}
LEASE_S: Final = 3  # of a worker that does not restart: the others wait for it
LONG_LEASE_S: Final = 300  # of a worker that restarts: longer than any start takes
SHARED: Final = ("/copy", "/moved", "/changes")  # another URL may own their content, or none
preload("tests.harness.killed_crawl")


class Crew:
    """The workers of one crawl. A killed worker is started again, or replaced by one with an empty
    data directory."""

    def __init__(self, folder: Path, seeds: Path, redis: RedisServer) -> None:
        self.folder = folder
        self.kills = 0
        self.fallen: list[str] = []  # who never came back
        self._seeds = seeds
        self._settings = {**SETTINGS, "CRAWLER_FRONTIER_URL": redis.url}
        self._dice = Random(20260121)
        self._lives: dict[str, BaseProcess] = {}

    def run(self) -> None:
        """To the end of the crawl."""
        for number in range(WORKERS):
            self._live(f"w{number}")
        try:
            while self._lives:
                wait([process.sentinel for process in self._lives.values()], timeout=60)
                for name, process in list(self._lives.items()):
                    if not process.is_alive():
                        self._next(name, process)
        finally:
            for process in self._lives.values():
                process.kill()

    def _next(self, name: str, ended: BaseProcess) -> None:
        ended.join()
        assert ended.exitcode in (0, -9), f"{name} has failed"
        del self._lives[name]
        if ended.exitcode:
            self.kills += 1
            never = name in self.fallen
            self._live(f"{name.partition('-')[0]}-{self.kills}" if never else name)

    def _live(self, name: str) -> None:
        counts, lease_s = (0, 0), LONG_LEASE_S
        if self.kills < KILLS:
            count = self._dice.randint(1, MOST_ANSWERS)
            counts = (0, count) if self._dice.random() < ARRIVED else (count, 0)
        if self.kills < KILLS / 2 and self._dice.random() < NEVER_BACK:
            self.fallen.append(name)
            lease_s = LEASE_S
        settings = {**self._settings, "CRAWLER_LEASE_S": lease_s}
        args = (self.folder / name, str(self._seeds), *counts, settings)
        process = self._lives[name] = SPAWN.Process(target=crawl_until_killed, args=args)
        process.start()


@dataclass(frozen=True)
class Ended:
    audit: RepeatsAudit
    back: list[str]  # URLs over which workers died that came back


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("shared-repeats")
    with ExitStack() as opened:
        redis = opened.enter_context(RedisServer())
        sites = [
            opened.enter_context(site(f"127.0.65.{n}", routes(n))) for n in range(1, HOSTS + 1)
        ]
        seeds = folder / "seeds"
        seeds.write_text("\n".join(each.url("/") for each in sites))
        crew = Crew(folder, seeds, redis)
        crew.run()
        assert crew.kills >= KILLS
    never = [url for name in crew.fallen for url in last_urls(folder / name)[-1:]]
    every = [url for data in folder.glob("w*") for url in last_urls(data)]
    return Ended(RepeatsAudit(gathered(folder)), list((Counter(every) - Counter(never)).elements()))


@pytest.fixture(scope="module")
def audit(ended: Ended) -> RepeatsAudit:
    return ended.audit


def last_urls(data: Path) -> list[str]:
    """Over which the lives of one worker ended, oldest first; empty: over none."""
    last = data / LAST
    return last.read_text().splitlines() if last.exists() else []


def gathered(folder: Path) -> Path:
    everything = folder / "everything"
    everything.mkdir()
    kept = companions(read_config({}))
    for warc in folder.glob("w*/warc"):
        recover(warc, kept)
        for file in missing_companions(warc, SUFFIX):
            kept[1].rebuild(file, file)
        shutil.copytree(warc, everything, dirs_exist_ok=True)
    return everything


def test_each_answer_is_archived_once_or_marked(audit: RepeatsAudit) -> None:
    audit.check()
    assert len({one.url for one in audit.answers}) == HOSTS * len(routes(1))
    assert len({row["url"] for row in audit.rows}) == HOSTS * (len(pages(1)) + 1)


def test_a_restarted_worker_knows_its_archived_answers(ended: Ended) -> None:
    revisits = ended.audit.revisits
    again = {one.url for one in revisits if one.fields["WARC-Refers-To-Target-URI"] == one.url}
    bare = {one.url for one in ended.audit.full if not one.payload}
    had = {url for url in ended.back if url and not url.endswith(SHARED)} - bare
    assert had and had <= again


def test_answers_of_a_lost_worker_are_marked_as_possible_repeats(ended: Ended) -> None:
    audit = ended.audit
    times = Counter(one.url for one in audit.full)
    marked = [one.url for one in audit.full if audit.is_marked(one)]
    assert times.total() - len(times) <= len(marked) <= KILLS * HOSTS
    assert marked
