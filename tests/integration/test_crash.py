"""kill -9 at random moments of one crawl: nothing is lost, little is done twice."""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter

from tests.harness.archive_judges import read_folder
from tests.harness.commands import crawl_command
from tests.harness.fork_server import run, running
from tests.servers.judged_web import Judge, JudgedWeb

KILLS = 30
PAGES = ("response", "revisit")
PUT_BACK = re.compile(r"put back: (\d+)")


def test_thirty_kills_lose_no_page(tmp_path):
    data, log = tmp_path / "data", tmp_path / "log"
    seeds = tmp_path / "seeds.txt"
    moments = random.Random(7)
    # 0.1 s: slow enough that it lives through its kills, quick enough for a test.
    settings = {
        "CRAWLER_MIN_DELAY_S": 0.1,
        "CRAWLER_DELAY_FACTOR": 10,
        "CRAWLER_FOLLOW_DUPLICATES": True,
    }
    with Judge(JudgedWeb(hosts=20, pages=40)) as judge:
        seeds.write_text("\n".join(judge.seeds()))
        command = crawl_command(data, settings, seeds=seeds)
        killed = 0
        for _ in range(KILLS + 5):  # a life or two may end by itself
            if killed == KILLS:
                break
            with running(command, log) as process:
                try:
                    process.wait(moments.uniform(0.1, 1.0))
                except subprocess.TimeoutExpired:
                    process.kill()
                    killed += 1
        last = run(command)
        answered, expected, visits = judge.answered(), judge.expected(), judge.visits
        violations = judge.report(0.1)
    assert killed == KILLS, "the crawl must live through its kills"
    assert last.returncode == 0, last.stderr[-2000:]
    assert answered == expected, "no page was lost"
    assert not violations.found, violations
    archived = {one.url for one in read_folder(data / "warc").values() if one.kind in PAGES}
    assert expected <= archived, sorted(expected - archived)[:5]
    put_back = sum(map(int, PUT_BACK.findall(log.read_text() + last.stderr)))
    pages = Counter(
        (visit.host, visit.path)
        for visit in visits
        if visit.status == 200 and "robots.txt" not in visit.path
    )
    assert sum(pages.values()) - len(pages) <= put_back
