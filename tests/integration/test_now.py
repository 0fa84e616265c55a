"""What is fetched now, of a crawl in its data directory and of one that two workers share: hosts
answer the first bytes of a page, and no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from crawler.operate.client import NoCrawl, look
from crawler.view.rows import FetchRow, is_hung_fetch
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here
from tests.servers.redis import RedisServer

# Hosts in different shards, so that each worker has one.
HOSTS = tuple(f"127.0.0.{number}" for number in range(130, 138))
BEGUN = b"<p>" * 33 + b"!"
SETTINGS: dict[str, object] = {"CRAWLER_SOFT_404": False, "CRAWLER_TOTAL_TIMEOUT_S": 300}


@pytest.mark.parametrize(
    ("seconds", "received", "usual_s", "is_hung"),
    [
        (2.9, 0, 0.0, False),
        (3.0, 0, 0.0, True),
        (3.0, 3000, 0.0, False),  # it brings 1 kB a second
        (5.0, 0, 2.0, False),  # its host is slow
        (6.0, 0, 2.0, True),
    ],
)
def test_when_a_fetch_hangs(seconds: float, received: int, usual_s: float, is_hung: bool) -> None:
    assert is_hung_fetch(seconds, received, usual_s) is is_hung


def answer(ask: Ask) -> Reply:
    async def body() -> AsyncIterator[bytes]:
        yield BEGUN
        await asyncio.Event().wait()

    return not_here(ask) if ask.path == "/robots.txt" else Reply(body)


def shown(data: Path) -> list[FetchRow]:
    """Return what the console of the process in *data* shows."""
    try:
        rows = look(data, "/api/now", {"top": "100"})
    except NoCrawl:
        return []
    return msgspec.json.decode(rows, type=list[FetchRow])


def printed(data: Path, settings: dict[str, object]) -> list[FetchRow]:
    """Return what the command shows."""
    command = [*fork_server.SCRAPY, "frontier", "now", "--json"]
    for name, value in {**settings, "CRAWLER_DATA_DIR": data}.items():
        command += ["-s", f"{name}={value}"]
    return msgspec.convert(json.loads(fork_server.run(command).stdout), type=list[FetchRow])


def said(rows: list[FetchRow]) -> set[tuple[str, str, int | None, str, bool, str]]:
    return {(row.host, row.url, row.bytes, row.stage, row.is_hung, row.worker) for row in rows}


@pytest.mark.parametrize("workers", [0, 2], ids=["embedded", "shared"])
def test_what_is_fetched_now_is_the_same_for_all_who_look(tmp_path: Path, workers: int) -> None:
    with ExitStack() as ends:
        web = ends.enter_context(LoopbackWeb(answer, HOSTS))
        settings = dict(SETTINGS)
        if workers:
            server = ends.enter_context(RedisServer())
            settings |= {"CRAWLER_FRONTIER_URL": server.url, "CRAWLER_FRONTIER_SHARDS": 8}
            settings |= {"CRAWLER_LEASE_S": 700}
        folders = [tmp_path / f"data{number}" for number in range(workers or 1)]
        seeds = ",".join(web.url(host, "/") for host in HOSTS)
        processes = [
            ends.enter_context(
                fork_server.running(
                    crawl_command(data, settings, seeds=seeds), data.with_suffix(".log")
                )
            )
            for data in folders
        ]
        log: Callable[[], str] = folders[0].with_suffix(".log").read_text

        def all_hang(rows: list[FetchRow]) -> bool:
            return len(rows) == len(HOSTS) and all(row.is_hung for row in rows)

        wait_until(lambda: all(all_hang(shown(data)) for data in folders), PATIENCE_S, log=log)
        rows = shown(folders[0])
        assert {(row.url, row.bytes, row.stage) for row in rows} == {
            (web.url(host, "/"), len(BEGUN), "fetching") for host in HOSTS
        }
        assert all(3 <= row.seconds < PATIENCE_S for row in rows)
        assert len({row.worker for row in rows}) == max(workers, 1)
        for found in [*map(shown, folders), printed(tmp_path / "data0", settings)]:
            assert said(found) == said(rows)
        for process in processes:
            process.kill()
            process.wait()
        if not workers:
            left = printed(folders[0], settings)
            assert {(row.bytes, row.stage, row.is_hung) for row in left} == {
                (None, "cut off", False)
            }
            assert {row.host for row in left} == set(HOSTS)
