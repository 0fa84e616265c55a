"""Power cuts at random moments of a crawl: every page that is done is in the archive."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from tests.harness.archive_judges import read_folder
from tests.harness.budget import examples
from tests.harness.commands import crawl_command
from tests.harness.fork_server import run, running
from tests.harness.power_cut import PowerCut
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.redis import RedisServer

CUTS = examples(5)
MOST_VISITS = 150  # of one life
PAGES = ("response", "revisit")
SETTINGS = {
    "CRAWLER_MIN_DELAY_S": 0.02,
    "CRAWLER_FSYNC_EVERY_S": 0.1,
    # Small files: some cuts come while one is finished and the next begun.
    "CRAWLER_WARC_MAX_BYTES": 1 << 20,
}


@pytest.mark.parametrize("is_shared", [False, True], ids=["embedded", "shared"])
def test_no_page_that_is_done_is_lost(tmp_path: Path, is_shared: bool) -> None:
    data, log, seeds = tmp_path / "data", tmp_path / "log", tmp_path / "seeds.txt"
    moments = Random(11)
    power = PowerCut(tmp_path, moments)
    with Judge(JudgedWeb(hosts=16, pages=40, crawl_delay_s=0.1)) as judge, RedisServer() as redis:
        seeds.write_text("\n".join(judge.seeds()))
        frontier = {"CRAWLER_FRONTIER_URL": redis.url} if is_shared else {}
        command = crawl_command(data, {**SETTINGS, **frontier}, seeds=seeds)
        cuts = 0
        with power.watching():
            while cuts < CUTS:
                # Counted in answers: a busy machine must not end each life before it did anything.
                last_visit = len(judge.visits) + moments.randint(1, MOST_VISITS)
                with running(command, log) as process:
                    while len(judge.visits) < last_visit and process.poll() is None:
                        time.sleep(0.005)
                    if process.poll() is not None:
                        break  # the crawl is over
                    process.kill()
                    process.wait()
                power.cut(data)
                cuts += 1
            last = run(command)
        expected, answered = judge.expected(), judge.answered()
    assert last.returncode == 0, last.stderr[-2000:]
    assert cuts == CUTS, "the crawl must live through its power cuts"
    assert power.lost_bytes, "the cuts took something"
    assert answered == expected
    records = read_folder(data / "warc").values()
    archived = {one.url for one in records if one.kind in PAGES}
    assert expected <= archived, sorted(expected - archived)[:5]
    bodies = {one.fields["WARC-Payload-Digest"] for one in records if one.kind == "response"}
    copies = {one.fields["WARC-Payload-Digest"] for one in records if one.kind == "revisit"}
    assert copies <= bodies, "a revisit stands for a body that is here"
