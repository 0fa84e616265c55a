"""A crawl that is pushed to, as a user starts it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.fork_server import run, running
from tests.harness.waiting import wait_until
from tests.servers.judge import ROBOTS
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.redis import RedisServer

HOSTS = [f"127.3.{n}.1" for n in range(1, 7)]


def web(ask: Ask) -> Reply:
    """Each host has six pages more than its home page, which links to those of all hosts."""
    if ask.path == ROBOTS:
        return Reply(status=404)
    if ask.path != "/":
        return Reply(f"<p>{ask.host}{ask.path}".encode())
    links = [f"/{n}" for n in range(6)]
    links += [f"http://{host}:{ask.port}/0" for host in HOSTS]
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    return Reply(f"<p>{ask.host}{anchors}".encode())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(
            {"seeds": "redis"},
            "seeds=redis takes what is pushed into a Redis that workers share: say which, with"
            " CRAWLER_FRONTIER_URL",
            id="nothing is shared",
        ),
        pytest.param({}, "no seeds: say where to start", id="nothing is set"),
    ],
)
def test_seeds_from_redis_need_a_redis(
    tmp_path: Path, arguments: dict[str, str], text: str
) -> None:
    done = run(crawl_command(tmp_path / "data", **arguments))
    assert done.returncode == 1
    assert f"error: {text}" in done.stderr
    assert not (tmp_path / "data").exists()


def test_two_workers_crawl_what_is_pushed_and_end_when_nothing_is(tmp_path: Path) -> None:
    """The scope is the host: links to hosts that were not pushed are followed by neither worker."""
    with RedisServer() as server, LoopbackWeb(web, HOSTS) as web_server, server.client() as client:
        settings = {
            "CRAWLER_FRONTIER_URL": server.url,
            "CRAWLER_FRONTIER_SHARDS": 16,
            "MAX_IDLE_TIME_BEFORE_CLOSE": 10,
        }
        client.rpush("web:start_urls", *map(web_server.url, HOSTS[:3]))
        unsaid = crawl_command(tmp_path / "0", settings, scope="host")
        command = crawl_command(tmp_path / "1", settings, scope="host", seeds="redis")
        with running(unsaid, tmp_path / "log0") as one, running(command, tmp_path / "log1") as two:
            wait_until(lambda: len(web_server.visits) >= 18, PATIENCE_S)
            client.rpush("web:start_urls", json.dumps({"url": web_server.url(HOSTS[3])}), "no URL")
            client.rpush("web:start_urls", web_server.url(HOSTS[0]))
            client.rpush("gossamer:urgent", web_server.url(HOSTS[4]))
            assert [each.wait(PATIENCE_S) for each in (one, two)] == [0, 0]
        logs = (tmp_path / "log0").read_text() + (tmp_path / "log1").read_text()
        assert f"not fetched, as seen before: 1: {web_server.url(HOSTS[0])}. " in logs
        (refused,) = client.lrange("{web:start_urls}:refused", 0, -1)
        assert json.loads(refused)["item"] == "no URL"
        assert client.hkeys("{web:start_urls}:taken") == [b"schema"]
    pages = Counter((each.host, each.path) for each in web_server.visits if each.path != ROBOTS)
    assert set(pages.values()) == {1}
    assert Counter(host for host, _ in pages) == dict.fromkeys(HOSTS[:5], 7)
