"""kill -9 of whole crawls with all that content brings: WARC files that are full after a second,
their indexes and columns, their way to a store. At the end every page is in one readable file."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest.mock import patch

from crawler.archive.warc_file import companion_path
from crawler.data.data_dir import (
    OUTCOMES,
    WARC,
)
from crawler.data.outcomes import read_outcomes
from crawler.frontier import records as keys
from crawler.frontier.port import FRONTIER
from crawler.frontier.rocks_store import RocksStore
from tests.harness.archive_audit import ArchiveAudit
from tests.harness.commands import crawl_command
from tests.harness.fork_server import run, running
from tests.harness.killed_processes import Aim, kill_on
from tests.servers.copied_web import CopiedServer, CopiedWeb
from tests.servers.s3 import BUCKET, S3Server, environment

SETTINGS: Final = {
    # Slow enough that it lives through its kills, quick enough for a test.
    "CRAWLER_MIN_DELAY_S": 0.9,
    "CRAWLER_BACKOFF_BASE_S": 0.05,
    "CRAWLER_BACKOFF_MAX_S": 0.1,
    "CRAWLER_WARC_MAX_BYTES": 1 << 20,  # as small as they may be: full after seven pages
}
AIMS: Final = (
    Aim("a file is begun", "here", ".warc.gz.open"),
    Aim("full: its index is there, its columns are being flushed", "here", ".cdxj"),
    Aim("full: its columns are there, it is still open", "here", ".parquet"),
    Aim("full: it has its name", "here", ".warc.gz"),
    Aim("recovery has made an index, the file is still open", "here", ".cdxj", of_the_dead=True),
    Aim("recovery has made it whole", "here", ".warc.gz", of_the_dead=True),
    Aim("its columns were made beside the crawl", "here", ".parquet", of_the_dead=True),
    Aim("a file has left", "here", ".warc.gz", comes=False, of_a_delivery=True),
    Aim("its columns have left too", "here", ".parquet", comes=False, of_a_delivery=True),
)
OF_A_FOLDER: Final = (
    Aim("a file is on its way", "there", ".warc.gz.open", of_a_delivery=True),
    Aim("a file has arrived without its columns", "there", ".warc.gz", of_a_delivery=True),
    Aim("a file has arrived with all that is its", "there", ".cdxj", of_a_delivery=True),
)
OF_A_STORE: Final = tuple(aim for aim in AIMS if aim.of_a_delivery)
"""The others are the same whatever the store is."""
BEGUN: Final = AIMS[0]
AT_RANDOM: Final = 8
TRIES: Final = 6  # a moment may pass unseen
PATIENCE_S: Final = 12.0  # the next look of a delivery is 5 s away


@dataclass(slots=True)
class Lives:
    """Of one crawl, one after the other."""

    command: list[str]
    data: Path
    store: Path  # a folder that is empty where the store is elsewhere
    log: Path
    dice: random.Random = field(default_factory=lambda: random.Random(20260104))
    deaths: int = 0
    has_ended: bool = False  # by itself
    leases_of_the_dead: int = 0
    reached: set[str] = field(default_factory=set)

    def end_at_random(self) -> None:
        """While it works; or, now and then, while it starts."""
        if self.dice.random() < 0.2:
            with running(self.command, self.log) as process:
                time.sleep(self.dice.uniform(0.0, 0.6))
                process.kill()
            self._died()
        else:
            self._end(BEGUN, self.dice.uniform(0.0, 1.2))

    def end_on(self, aim: Aim) -> None:
        needs_one = aim.of_the_dead or aim.of_a_delivery
        while needs_one and not self.has_ended and not self._has_left(aim):
            self._end(BEGUN, self.dice.uniform(0.0, 1.2))
        if not self.has_ended and self._end(
            aim, self.dice.choice((0.0, self.dice.uniform(0.0, 0.01)))
        ):
            self.reached.add(aim.name)

    def _end(self, aim: Aim, then_s: float) -> bool:
        folders = {"here": self.data / WARC, "there": self.store / WARC}
        with running(self.command, self.log) as process:
            is_reached = kill_on(process, aim, folders, then_s, PATIENCE_S)
            status = process.wait(10)
        assert status in (0, -9), self.log.read_text()[-2000:]
        self.has_ended = status == 0
        self._died()
        return is_reached

    def _has_left(self, aim: Aim) -> bool:
        """Return whether the last life left what this death needs."""
        here = self.data / WARC
        if aim.of_a_delivery:
            return any(here.glob("*.warc.gz*"))
        unfinished = [path.with_suffix("") for path in here.glob("*.warc.gz.open")]
        return any(not companion_path(warc, aim.suffix).exists() for warc in unfinished)

    def _died(self) -> None:
        self.deaths += not self.has_ended
        if (self.data / FRONTIER / "CURRENT").exists():
            frontier = RocksStore(self.data / FRONTIER, read_only=True)
            left = frontier.scan(keys.OPEN, keys.prefix_end(keys.OPEN), 10_000)
            self.leases_of_the_dead += len(left)
            frontier.close()


def lives(home: Path, server: CopiedServer, url: str) -> Lives:
    (home / "seeds.txt").write_text("\n".join(server.seeds()))
    settings = SETTINGS | {"CRAWLER_ARCHIVE_URL": url}
    command = crawl_command(home / "data", settings, seeds=home / "seeds.txt")
    return Lives(command, home / "data", home / "store", home / "log")


def all_die(living: Lives, aims: Sequence[Aim], at_random: int) -> None:
    """Of each of *aims*, and then some *at_random*."""
    for aim in living.dice.sample(aims, len(aims)):
        for _ in range(TRIES):
            if aim.name not in living.reached and not living.has_ended:
                living.end_on(aim)
    assert living.reached == {aim.name for aim in aims}
    for _ in range(at_random):
        if not living.has_ended:
            living.end_at_random()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


def test_kills_of_a_crawl_that_delivers_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with CopiedServer(CopiedWeb()) as server:
        living = lives(tmp_path, server, (tmp_path / "store").as_uri())
        aims = (*AIMS, *OF_A_FOLDER)
        all_die(living, aims, AT_RANDOM)
        last = run(living.command)
    assert last.returncode == 0, last.stderr[-2000:]
    assert living.deaths >= len(aims)
    assert files(living.data / WARC) == []
    outcomes = list(read_outcomes(living.data / OUTCOMES))
    ArchiveAudit(living.store / WARC, outcomes, server).check(living.leases_of_the_dead)


def test_kills_of_a_crawl_that_delivers_to_s3(tmp_path: Path) -> None:
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    web = CopiedServer(CopiedWeb(hosts=8))
    with S3Server() as s3, web as server, patch.dict(os.environ, environment(s3.port)):
        living = lives(tmp_path, server, f"s3://{BUCKET}/crawl")
        all_die(living, OF_A_STORE, at_random=4)
        last = run(living.command)
        assert last.returncode == 0, last.stderr[-2000:]
        assert files(living.data / WARC) == [] and s3.unfinished() == []
        for name in s3.names():
            if "/outcomes/" in name:  # judged in test_outcome_table.py
                continue
            (fetched / name.rpartition("/")[2]).write_bytes(s3.content(name))
    outcomes = list(read_outcomes(living.data / OUTCOMES))
    ArchiveAudit(fetched, outcomes, server).check(living.leases_of_the_dead)
