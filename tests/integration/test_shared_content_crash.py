"""kill -9 of workers of one crawl with all that content brings: together their archives hold every
page, in readable files, with its columns; and as a copy, if another of them has it."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Final

from crawler.data.data_dir import OUTCOMES, WARC
from crawler.data.outcomes import read_outcomes
from tests.harness.archive_audit import ArchiveAudit
from tests.harness.workers import Worker, Workers
from tests.servers.copied_web import CopiedServer, CopiedWeb
from tests.servers.redis import RedisServer

WORKERS: Final = 3
KILLS: Final = 8
BEGUN: Final = "Spider opened"
SETTINGS: Final = {
    "CRAWLER_COLUMNS": True,
    "CRAWLER_MIN_DELAY_S": 0.55,
    "CRAWLER_DELAY_FACTOR": 1,
    "CRAWLER_BACKOFF_BASE_S": 0.05,
    "CRAWLER_BACKOFF_MAX_S": 0.1,
    "CRAWLER_WARC_MAX_BYTES": 1 << 20,
    "CRAWLER_LEASE_S": 8,
    "CRAWLER_TOTAL_TIMEOUT_S": 3,
    "CRAWLER_CONNECT_TIMEOUT_S": 2,
}


def kill(crawl: Workers, worker: Worker, after_s: float) -> None:
    """In the middle of its work."""
    begun = worker.log_text().count(BEGUN)
    worker.start()
    crawl.wait_until(lambda: worker.log_text().count(BEGUN) > begun)
    time.sleep(after_s)
    assert worker.is_up, worker.log_text()[-2000:]
    worker.kill()


def test_kills_of_workers(tmp_path: Path) -> None:
    dice = random.Random(20260106)
    everything = tmp_path / "everything"
    everything.mkdir()
    with (
        RedisServer() as redis,
        CopiedServer(CopiedWeb()) as server,
        Workers(tmp_path, redis, server, SETTINGS) as crawl,
    ):
        workers = [crawl.new() for _ in range(WORKERS)]
        workers[0].start()  # and is never killed
        held = 0
        for number in range(KILLS):
            worker = workers[1 + number % (WORKERS - 1)]
            kill(crawl, worker, dice.uniform(0.3, 1.5))
            held += len(crawl.leases(worker.session))
        for worker in workers[1:]:
            worker.start()
        assert [worker.wait() for worker in workers] == [0] * WORKERS, crawl.logs()
    for worker in workers:
        shutil.copytree(worker.data / WARC, everything, dirs_exist_ok=True)
    outcomes = [one for worker in workers for one in read_outcomes(worker.data / OUTCOMES)]
    ArchiveAudit(everything, outcomes, server).check(held, is_shared=True)
