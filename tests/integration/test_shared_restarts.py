"""Redis is killed and restarts during a crawl: nothing is lost, and politeness holds.

Rule: losses and early requests are found in the request log of the web alone. A power failure takes
from the append-only file what was written in its last moments; a kill takes nothing of it.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from crawler.shared import keys
from crawler.shared.crawl_format import encode_format, read_format
from tests.harness.workers import judged_workers
from tests.servers.judged_web import JudgedWeb
from tests.servers.redis import RedisServer

WEB: Final = JudgedWeb(hosts=20, pages=12, crawl_delay_s=0.2)
SOON: Final = "?socket_timeout=2&socket_connect_timeout=2"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


def test_power_failures_lose_no_page(tmp_path: Path) -> None:
    """And politeness holds: for pages fetched under a lease that Redis lost, and for a worker that
    was killed in the same moment."""
    moments = random.Random(11)
    with (
        RedisServer(tmp_path / "redis", appendfsync="everysec") as server,
        judged_workers(tmp_path, server, WEB) as crawl,
    ):
        one, _ = crawl.start(2)
        for dies_with_it in (False, True, False):
            crawl.wait_for_visits(80)
            server.lose_power()
            if dies_with_it:
                one.kill()
            time.sleep(moments.uniform(0.0, 1.0))
            server.start()
            if dies_with_it:
                one.start()
        crawl.finish()
        again = crawl.repeats()
    assert again, "what was finished in the last moments was forgotten, or this tests nothing"


@pytest.mark.parametrize(
    ("downs", "url"),
    [
        pytest.param((RedisServer.kill, RedisServer.stop), "", id="killed, and stopped"),
        # Longer than any time-out: it is not known which calls were executed.
        pytest.param((RedisServer.pause,) * 3, SOON, id="paused"),
    ],
)
def test_a_server_that_keeps_what_it_acknowledged_has_no_page_fetched_twice(
    tmp_path: Path, downs: Sequence[Callable[[RedisServer], None]], url: str
) -> None:
    moments = random.Random(5)
    settings = {"CRAWLER_REDIS_FSYNC": "always"}
    with (
        RedisServer(tmp_path / "redis", appendfsync="always") as server,
        judged_workers(
            tmp_path, server, WEB, settings | {"CRAWLER_FRONTIER_URL": server.url + url}
        ) as crawl,
    ):
        crawl.start(2)
        for down in downs:
            crawl.wait_for_visits(60)
            down(server)
            time.sleep(moments.uniform(2.5, 3.5) if server.is_up else moments.uniform(0.0, 1.5))
            if server.is_up:
                server.resume()
            else:
                server.start()
        crawl.finish()
        assert crawl.repeats() == {}
    for worker in crawl.all:
        assert 1 <= worker.log_text().count("Waiting: Redis at") <= len(downs), (
            "logged once each time"
        )


def test_a_crawl_that_is_forgotten_whole_as_it_begins_keeps_its_identity(
    tmp_path: Path, server: RedisServer
) -> None:
    """Its URLs are known by a key that it was begun with: another would count all as new."""
    client, key = server.client(), keys.format_key("gossamer")
    with judged_workers(tmp_path, server, WEB) as crawl:
        crawl.start(1)
        crawl.wait_for_visits(1)
        before = read_format(client.get(key), key)
        server.kill()
        server.cut_aof(server.aof_bytes())
        server.start()
        crawl.wait_until(lambda: client.get(key) is not None)
        after = read_format(client.get(key), key)
        assert replace(after, begun=before.begun) == before


def test_a_crawl_that_another_began_anew_is_not_mixed_with_it(
    tmp_path: Path, server: RedisServer
) -> None:
    client, key = server.client(), keys.format_key("gossamer")
    with judged_workers(tmp_path, server, WEB) as crawl:
        (worker,) = crawl.start(1)
        crawl.wait_for_visits(1)
        begun = read_format(client.get(key), key)
        worker.send(signal.SIGSTOP)
        server.kill()
        server.cut_aof(server.aof_bytes())
        server.start()
        client.set(key, encode_format(replace(begun, key_seed=begun.key_seed + 1)))
        worker.send(signal.SIGCONT)
        assert worker.wait() == 1
        assert "has another crawl by now" in worker.log_text().splitlines()[-1]
