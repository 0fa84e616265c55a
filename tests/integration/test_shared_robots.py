"""A robots.txt on the host of another worker: whose shard asks for it is told."""

from __future__ import annotations

from pathlib import Path

from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.fork_server import running
from tests.harness.workers import SETTINGS
from tests.servers.judge import ROBOTS
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.redis import RedisServer

NEIGHBOURS = {f"127.3.{n}.2": f"127.3.{n}.3" for n in range(1, 9)}
HOSTS = [*NEIGHBOURS, *NEIGHBOURS.values()]
RULES = Reply(b"User-agent: *\nDisallow: /private", content_type="text/plain")


def web(ask: Ask) -> Reply:
    """The robots.txt of each second host is on its neighbour, and each forbids a page. None has the
    other's: each of two that wait for the other rests meanwhile, twice as long each time."""
    if ask.path == ROBOTS and ask.host in NEIGHBOURS:
        target = f"http://{NEIGHBOURS[ask.host]}:{ask.port}/rules"
        return Reply(status=302, headers=(("Location", target),))
    if ask.path in (ROBOTS, "/rules"):
        return RULES
    return Reply(f"<p>{ask.host}{ask.path}<a href=/page>x</a><a href=/private>x</a>".encode())


def test_a_robots_txt_on_a_host_of_another_worker_is_known_to_the_one_that_asked(
    tmp_path: Path,
) -> None:
    with RedisServer() as server, LoopbackWeb(web, HOSTS) as web_server:
        settings = {**SETTINGS, "CRAWLER_FRONTIER_URL": server.url}
        seeds = ",".join(map(web_server.url, HOSTS))
        first, second = (
            crawl_command(tmp_path / name, settings, scope="host", seeds=seeds) for name in "ab"
        )
        with running(first, tmp_path / "log-a") as one, running(second, tmp_path / "log-b") as two:
            assert [each.wait(PATIENCE_S) for each in (one, two)] == [0, 0]
    paths = {(each.host, each.path) for each in web_server.visits}
    own = {(host, path) for host in HOSTS for path in (ROBOTS, "/", "/page")}
    assert paths == own | {(host, "/rules") for host in NEIGHBOURS.values()}
