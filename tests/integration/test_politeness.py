"""Politeness measured by the server: the real command crawls a web that tests it.

Rule: the judge reads only what the server has counted, nothing of ours (tests/servers/judge.py).
"""

from __future__ import annotations

from pathlib import Path

from tests.harness.commands import crawl_command
from tests.harness.fork_server import run
from tests.servers.judged_web import Judge, JudgedWeb

# Below ten times most answers of that web, so that the factor decides as often as the minimum.
MIN_DELAY_S = 0.05
FACTOR = 10.0
TRIALS = {301, 302, 303, 307, 308, 404, 429, 500, 503}
PAGES = 2310  # of its 55 hosts


def test_no_host_has_anything_to_complain_of(tmp_path: Path) -> None:
    web, seeds = JudgedWeb(), tmp_path / "seeds.txt"
    settings = {
        "CRAWLER_MIN_DELAY_S": MIN_DELAY_S,
        "CRAWLER_DELAY_FACTOR": FACTOR,
        # The rest after a failure that names no Retry-After is ours to choose: not too long here.
        "CRAWLER_BACKOFF_BASE_S": 0.1,
    }
    with Judge(web) as judge:
        seeds.write_text("\n".join(judge.seeds()))
        done = run(crawl_command(tmp_path / "data", settings, seeds=seeds))
        report = judge.report(MIN_DELAY_S, FACTOR)
        answered, expected = judge.answered(), judge.expected()
    assert done.returncode == 0, done.stderr[-2000:]
    assert not report.found, report
    assert report.hosts == web.hosts
    assert set(report.statuses) >= TRIALS
    assert answered == expected, "every page, and none that robots.txt forbids"
    assert len(answered) == PAGES
