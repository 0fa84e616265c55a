"""A crawl that is pushed to, as a user starts it."""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from crawler.frontier.shards import shard_of
from crawler.model.url import registered_domain
from crawler.shared import keys
from crawler.shared.owned.readings import worker_of
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


def pages_of(web_server: LoopbackWeb) -> list[tuple[str, str]]:
    return [(each.host, each.path) for each in web_server.visits if each.path != ROBOTS]


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
            "CRAWLER_MAX_URLS_PER_HOST": 7,
            "MAX_IDLE_TIME_BEFORE_CLOSE": 10,
        }
        client.rpush("web:start_urls", *map(web_server.url, HOSTS[:3]))
        unsaid = crawl_command(tmp_path / "0", settings, scope="host")
        command = crawl_command(tmp_path / "1", settings, scope="host", seeds="redis")
        with running(unsaid, tmp_path / "log0") as one, running(command, tmp_path / "log1") as two:
            wait_until(lambda: len(pages_of(web_server)) == 3 * 7, PATIENCE_S)
            client.rpush("web:start_urls", json.dumps({"url": web_server.url(HOSTS[3])}), "no URL")
            client.rpush("web:start_urls", web_server.url(HOSTS[0]), web_server.url(HOSTS[1], "/8"))
            client.rpush("gossamer:urgent", web_server.url(HOSTS[4]))
            assert [each.wait(PATIENCE_S) for each in (one, two)] == [0, 0]
        logs = (tmp_path / "log0").read_text() + (tmp_path / "log1").read_text()
        assert f"not fetched, as seen before: 1: {web_server.url(HOSTS[0])}. " in logs
        assert "over a budget (CRAWLER_MAX_URLS_PER_HOST," in logs
        assert f"they wait: 1, of {HOSTS[1]}. " in logs
        (refused,) = client.lrange("{web:start_urls}:refused", 0, -1)
        assert json.loads(refused)["item"] == "no URL"
        assert client.hkeys("{web:start_urls}:taken") == [b"schema"]
    pages = Counter(pages_of(web_server))
    assert set(pages.values()) == {1}
    assert Counter(host for host, _ in pages) == dict.fromkeys(HOSTS[:5], 7)


PAGES = 400  # of a host: more than are fetched before the test is over
OVERTAKING = 8
"""Pages of a host that may be fetched between a push and the URL that was pushed: a feed is read
each second, and an inbox each half second. What was under way at a dead owner is first."""


def large(ask: Ask) -> Reply:
    if ask.path == ROBOTS:
        return Reply(status=404)
    links = "".join(f"<a href='/{n}'>x</a>" for n in range(PAGES)) if ask.path == "/" else ""
    return Reply(f"<p>{ask.host}{ask.path}{links}".encode(), wait_s=0.2)


def test_an_urgent_url_is_next_though_its_owner_is_saturated_stopped_or_killed(
    tmp_path: Path,
) -> None:
    host = HOSTS[0]
    with RedisServer() as server, LoopbackWeb(large, HOSTS) as web_server, ExitStack() as stack:
        client = stack.enter_context(server.client())
        settings = {
            "CRAWLER_FRONTIER_URL": server.url,
            "CRAWLER_FRONTIER_SHARDS": 16,
            "CRAWLER_LEASE_S": 5,
            "CRAWLER_TOTAL_TIMEOUT_S": 5,  # a dead owner's last fetch may take so long
            "CRAWLER_MIN_DELAY_S": 0.4,
            "CONCURRENT_REQUESTS": 1,  # for two hosts and more
        }
        workers = {}
        for name in ("a", "b"):
            named = {**settings, "CRAWLER_WORKER_NAME": name}
            seeds = ",".join(map(web_server.url, HOSTS[:4]))
            command = crawl_command(tmp_path / name, named, scope="host", seeds=seeds)
            workers[name] = stack.enter_context(running(command, tmp_path / f"log-{name}"))

        def visits() -> list[str]:
            return [each.path for each in web_server.visits if each.host == host]

        wait_until(lambda: len(visits()) > 3, PATIENCE_S)
        root = keys.root("gossamer", shard_of(registered_domain(host), 16))
        for number in (None, signal.SIGSTOP, signal.SIGKILL):
            owner = worker_of(wait_until(lambda: client.hget(root, "owner"), PATIENCE_S))
            if number is not None:
                workers[owner].send_signal(number)
            path, before = f"/urgent{number}", len(visits())
            client.rpush("gossamer:urgent", web_server.url(host, path))
            wait_until(lambda: path in visits(), PATIENCE_S)  # noqa: B023  # it is called here
            assert visits().index(path) - before <= OVERTAKING
            if number is signal.SIGSTOP:
                workers[owner].send_signal(signal.SIGCONT)
        assert len(visits()) < PAGES
