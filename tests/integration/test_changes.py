"""The change feed of real crawls: killed, held up by a consumer, by two workers, purged."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.recovery import recover
from crawler.data.changes import ChangeFeed, last_number
from crawler.data.outcomes import read_outcomes
from crawler.model.types import Change, ChangeKind, change_key
from tests.harness.archive_judges import read_folder
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.fork_server import run, running
from tests.harness.waiting import wait_until
from tests.harness.workers import judged_workers
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.loopback import Reply, Routes, page, site
from tests.servers.redis import RedisServer

CHANGES = {"CRAWLER_CHANGES": "true", "CRAWLER_COLUMNS": "false"}
KILLS = 10


def frontier(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(command(data, "frontier", *words))


def command(data: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "scrapy", *words, "-s", f"CRAWLER_DATA_DIR={data}"]


def entries(data: Path, *words: str) -> list[dict[str, Any]]:
    done = frontier(data, "changes", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def over(server: RedisServer) -> tuple[str, str]:
    """The option of a command on a crawl that is shared over *server*."""
    return "-s", f"CRAWLER_FRONTIER_URL={server.url}"


def assert_true(data: Path, found: list[dict[str, Any]]) -> None:
    """Each entry names a record of its URL; each page that is done has an entry; numbers rise."""
    records = read_folder(data / "warc")
    for each in found:
        file, _, offset = each["record"].rpartition(":")
        assert records[file, int(offset)].url == each["url"]
        assert each["key"] == change_key(each["url"])
    done = {
        each.url
        for each in read_outcomes(data / "outcomes.jsonl")
        if each.fate == "done" and each.status == 200 and each.record
    }
    assert done <= {each["url"] for each in found}
    assert [each["number"] for each in found] == list(range(1, len(found) + 1))


def test_no_kill_loses_an_entry(tmp_path: Path) -> None:
    data, log, seeds = tmp_path / "data", tmp_path / "log", tmp_path / "seeds.txt"
    moments = random.Random(7)
    settings = {**CHANGES, "CRAWLER_FSYNC_EVERY_S": 0.05}
    with Judge(JudgedWeb(hosts=10, pages=15, crawl_delay_s=0.2)) as judge:
        seeds.write_text("\n".join(judge.seeds()))
        crawl = crawl_command(data, settings, seeds=seeds)
        for _ in range(KILLS):
            with running(crawl, log) as process:
                try:
                    process.wait(moments.uniform(0.2, 1.0))
                except subprocess.TimeoutExpired:
                    process.kill()
        last = run(crawl)
        expected = judge.expected()
    assert last.returncode == 0, last.stderr[-2000:]
    found = entries(data)
    assert_true(data, found)
    assert expected <= {each["url"] for each in found}
    twice = Counter(each["url"] for each in found) - Counter({each["url"] for each in found})
    assert twice.total() < len(found) / 2


def tree(pages: int) -> Routes:
    paths = [f"/{n}" for n in range(pages)]
    return {
        path: page(*paths[3 * n + 1 : 3 * n + 4], text=f"page {n} of {pages}")
        for n, path in enumerate(paths)
    }


PAGES, MAX_LAG, UNDER_WAY = 60, 10, 16
BEHIND = "Waiting: the consumer index has not taken"
GOES_ON = "Going on: a consumer of the change feed has taken more of it"


@pytest.mark.parametrize("is_shared", [False, True], ids=["embedded", "shared"])
def test_a_crawl_waits_for_a_consumer_that_is_killed_and_comes_back(
    tmp_path: Path, is_shared: bool
) -> None:
    with ExitStack() as stack:
        redis = over(stack.enter_context(RedisServer())) if is_shared else ()
        crawl_that_waits(tmp_path, redis)


def crawl_that_waits(tmp_path: Path, redis: tuple[str, ...]) -> None:
    data, log, taken = tmp_path / "data", tmp_path / "log", tmp_path / "taken"
    settings = {
        **CHANGES,
        "CRAWLER_CHANGES_MAX_LAG": MAX_LAG,
        "CRAWLER_MIN_DELAY_S": 0,
        "CRAWLER_DELAY_FACTOR": 0,
        "CRAWLER_FSYNC_EVERY_S": 0.01,
        "CONCURRENT_REQUESTS": UNDER_WAY,
    }
    feed = data / "changes"

    async def last() -> AsyncIterator[bytes]:
        while GOES_ON not in log.read_text():  # else the crawl may be over before it says so
            await asyncio.sleep(0.05)
        yield b"the last page"

    with site("127.0.0.78", tree(PAGES) | {f"/{PAGES - 1}": Reply(last)}) as web:
        crawl = [*crawl_command(data, settings, seeds=web.url("/0")), *redis]
        assert run([*crawl, "-a", "max_pages=1"]).returncode == 0
        index = "--consumer", "index", *redis
        assert [each["url"] for each in entries(data, *index)] == [web.url("/0")]
        with running(crawl, log) as process:
            wait_until(lambda: BEHIND in log.read_text(), PATIENCE_S, log=log.read_text)
            assert process.poll() is None
            follow = command(data, "frontier", "changes", *index, "--follow")
            with running(follow, taken) as consumer:
                wait_until(lambda: taken.read_text().count("\n") > MAX_LAG, PATIENCE_S)
                consumer.send_signal(signal.SIGKILL)
                consumer.wait()
            first = [json.loads(line) for line in taken.read_text().splitlines()]
            assert len(first) < PAGES - UNDER_WAY, "the crawl has waited"
            again = entries(data, *index)
            assert again[: len(first)] == first, "what was not said to be taken comes again"
            ahead = frontier(data, "changes", *index, "--taken", "999")
            assert ahead.returncode == 1 and "ends at entry" in ahead.stderr
            done = frontier(data, "changes", *index, "--taken", str(MAX_LAG))
            assert done.returncode == 0, done.stderr
            wait_until(lambda: last_number(feed) > 2 * MAX_LAG, PATIENCE_S, log=log.read_text)
            assert last_number(feed) < PAGES - UNDER_WAY, "it waits again"
            listed = frontier(data, "changes", "--consumers", *redis).stdout
            assert "index" in listed and "1 consumer" in listed
            assert frontier(data, "changes", "--forget", "index", *redis).returncode == 0
            assert process.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
    assert log.read_text().count(GOES_ON) >= 1
    assert "Traceback" not in log.read_text()
    if redis:  # what was taken is there no more
        early = frontier(data, "changes", *redis)
        assert early.returncode == 1 and f"begins at entry {MAX_LAG + 1}:" in early.stderr
    found = [*first[:MAX_LAG], *entries(data, "--from", str(MAX_LAG + 1), *redis)]
    assert len(found) == PAGES
    assert_true(data, found)


def test_two_workers_have_a_feed_each_and_one_of_all_in_their_order(tmp_path: Path) -> None:
    web = JudgedWeb(hosts=10, pages=15, crawl_delay_s=0.2)
    with RedisServer() as server, judged_workers(tmp_path, server, web, CHANGES) as crawl:
        workers = crawl.start_together(2)
        crawl.wait_for_pages(30)
        workers[0].kill()
        workers[0].start()
        crawl.finish()
        expected = crawl.judge.expected()
        of_all = entries(tmp_path / "elsewhere", *over(server))
    found = [entries(worker.data) for worker in workers]
    for worker, own in zip(workers, found, strict=True):
        recover(worker.data / "warc")
        assert own
        assert_true(worker.data, own)
    assert expected <= {each["url"] for own in found for each in own}
    assert [each["number"] for each in of_all] == list(range(1, sum(map(len, found)) + 1))
    for own in found:
        known = {json.dumps({**each, "number": 0}) for each in own}
        numbered = [{**each, "number": 0} for each in of_all]
        sent = [each for each in numbered if json.dumps(each) in known]
        assert sent == [{**each, "number": 0} for each in own]


def test_what_a_killed_worker_has_not_sent_is_sent_by_the_command(tmp_path: Path) -> None:
    data, log, taken = tmp_path / "data", tmp_path / "log", tmp_path / "taken"
    with RedisServer() as server, site("127.0.0.81", tree(30)) as web:
        redis = over(server)
        settings = {**CHANGES, "CRAWLER_MIN_DELAY_S": 0.01, "CRAWLER_DELAY_FACTOR": 0}
        crawl = [*crawl_command(data, settings, seeds=web.url("/0")), *redis]
        with running(crawl, log) as process:
            wait_until(lambda: last_number(data / "changes") > 2, PATIENCE_S, log=log.read_text)
            process.kill()
            process.wait()
        with closing(ChangeFeed(data / "changes")) as written:  # killed right after this
            written.write([Change(ChangeKind.NEW, 1.0, change_key("left"), url=web.url("/0"))])
        own = entries(data)
        assert entries(data, *redis) == own, "one worker: the numbers are the same"
        begin = "--from", str(len(own))
        follow = command(tmp_path / "elsewhere", "frontier", "changes", "--follow", *begin, *redis)
        with running(follow, taken) as consumer:
            wait_until(
                lambda: change_key("left") in taken.read_text(), PATIENCE_S, log=taken.read_text
            )
            server.stop()
            wait_until(lambda: "Waiting: Redis" in taken.read_text(), PATIENCE_S)
            server.start()
            with closing(ChangeFeed(data / "changes")) as written:
                written.write([Change(ChangeKind.GONE, 1.0, change_key("late"), url=web.url("/1"))])
            again = entries(data, *redis)
            assert again[:-1] == own and again[-1]["number"] > 1_000_000, "Redis was restarted"
            wait_until(lambda: '"gone"' in taken.read_text(), PATIENCE_S, log=taken.read_text)
            consumer.kill()
            consumer.wait()
        assert run(crawl).returncode == 0
        of_all = entries(data, *redis)
        assert of_all[: len(again)] == again
        assert [each["key"] for each in of_all] == [each["key"] for each in entries(data)]
        assert {each["url"] for each in of_all} == {web.url(f"/{n}") for n in range(30)}


def test_a_purge_of_the_archive_purges_the_feed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with site("127.0.0.79", tree(5)) as web:
        crawl = crawl_command(data, {**CHANGES, "CRAWLER_MIN_DELAY_S": 0}, seeds=web.url("/0"))
        assert run(crawl).returncode == 0
        purged = web.url("/3")
    done = run(command(data, "archive", "purge", purged))
    assert done.returncode == 0, done.stderr
    assert "1 URL announced as purged" in done.stdout
    found = entries(data)
    assert purged not in {each.get("url") for each in found}
    assert (found[-1]["kind"], found[-1]["key"]) == ("purged", change_key(purged))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "7"), "ends at entry"),
        (("--from", "x"), "number of an entry"),
        (("--limit", "0"), "from 1"),
        (("--taken", "1"), "--taken needs --consumer"),
        (("--consumer", "a/b"), "no name of a consumer"),
        (("--forget", "x"), "there are: none"),
        (("--json",), "leave out --json"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, words: tuple[str, ...], said: str
) -> None:
    data = tmp_path_factory.getbasetemp() / "refused"
    if not data.exists():
        with site("127.0.0.80", tree(2)) as web:
            assert run(crawl_command(data, CHANGES, seeds=web.url("/0"))).returncode == 0
    done = frontier(data, "changes", *words)
    assert done.returncode and said in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
