"""The rights of docs/sharing.md are all that a crawl needs, and none that it does not.

Rule: the line is read from the page, and given to a real server as its only user.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import redis

from tests.harness.fork_server import run
from tests.harness.sources import PROJECT
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.redis import RedisServer

HOSTS: Final = ("127.0.22.1", "127.0.22.2")
PUSHED, URGENT = "127.0.22.3", "127.0.22.4"
USER, PASSWORD = "crawler", "a-long-random-password"
LINE: Final = re.compile(rf"(?m)^ *user ({USER} on >{PASSWORD} .*)$")
# What no crawl of this test comes to: a cluster, a database, a name of the client.
ELSEWHERE: Final = {"cluster|slots", "select", "client|setname"}

# Of the words in our sources: granted to all, a server's error, and what is asked where it is
# allowed and shows passwords (min-replicas-max-lag of a server that has replicas).
OTHERWISE: Final = {"auth", "readonly", "config"}


def rights() -> str:
    (line,) = LINE.findall((PROJECT / "docs" / "sharing.md").read_text(encoding="utf-8"))
    return str(line)


def web(ask: Ask) -> Reply:
    if ask.path == "/robots.txt":
        return Reply(status=404)
    if ask.path == "/broken":
        return Reply(b"Out of order.", 500)
    links = "".join(f"<a href=/{n}>{n}</a>" for n in ("1", "2", "3", "broken"))
    prose = " ".join(f"word{ask.path[1:]}-{n}" for n in range(80))  # the same on all hosts
    return Reply(f"<title>{ask.host} {ask.path}</title><p>{prose}</p>{links}".encode())


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(users=("default off", rights())) as server:
        yield server


def settings(folder: Path, server: RedisServer) -> list[str]:
    url = folder / "url"
    url.write_text(server.url_as(USER, PASSWORD))
    url.chmod(0o600)
    given = {
        "CRAWLER_FRONTIER_URL": f"file:{url}",
        "CRAWLER_DATA_DIR": folder / "data",
        "CRAWLER_ALLOW_INSIDE": "127.0.0.0/8",  # of what is pushed
        "CRAWLER_MIN_DELAY_S": 0.05,
        "CRAWLER_DELAY_FACTOR": 1,
        "CRAWLER_RETRIES": 1,
        "CRAWLER_BACKOFF_BASE_S": 0.05,
        "CRAWLER_TOTAL_TIMEOUT_S": 10,
        "CRAWLER_CONNECT_TIMEOUT_S": 5,
        "CRAWLER_LEASE_S": 30,
        "CRAWLER_FRONTIER_SHARDS": 4,
        "CRAWLER_CHANGES": True,
    }
    return [word for name, value in given.items() for word in ("-s", f"{name}={value}")]


def scrapy(*words: str) -> str:
    output = run([sys.executable, "-m", "scrapy", *words])
    assert output.returncode == 0, output.stderr[-3000:]
    return output.stdout


def test_a_crawl_with_these_rights_lacks_none(tmp_path: Path, server: RedisServer) -> None:
    with LoopbackWeb(web, (*HOSTS, PUSHED, URGENT)) as served, server.client() as client:
        client.rpush("web:start_urls", served.url(PUSHED))
        client.zadd("web:later_urls", {served.url(PUSHED): 1})  # of another program
        client.rpush("gossamer:urgent", served.url(URGENT))
        given = settings(tmp_path, server)
        seeds = ",".join(served.url(host) for host in HOSTS)
        crawl = ["share", "web", "--workers", "2", "-a", f"seeds={seeds}", *given]
        scrapy(*crawl)
        dead = served.url(HOSTS[0], "/broken")
        commands = [["counts"], ["hosts"], ["dead"], ["workers"], ["why", seeds.split(",")[0]]]
        results = {
            command[0]: scrapy("frontier", *command, "--json", *given) for command in commands
        }
        scrapy("frontier", "why", dead, *given)
        scrapy("frontier", "changes", "--consumer", "index", *given)
        scrapy("archive", "purge", seeds.split(",")[0], *given)
        scrapy("frontier", "changes", "--forget", "index", *given)
        retried = scrapy("frontier", "retry", "--all", *given)
        assert "carried out while the crawl runs" in retried
        scrapy(*crawl)
        assert json.loads(scrapy("frontier", "audit", "--json", *given))[0]["touched"] == 4
        assert client.acl_log() == []
        assert list(client.scan_iter("gossamer:*:a:*")), "fingerprints were sent"
        used = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
        fetched = {(each.host, each.path) for each in served.visits if each.status == 200}
    assert {host for host, _ in fetched} == {*HOSTS, PUSHED, URGENT}
    assert json.loads(results["counts"])["counts"]["dead"] == 4
    assert granted() - ELSEWHERE - used <= in_sources(), "no command is granted that is not used"


def test_every_command_of_a_crawl_is_granted(server: RedisServer) -> None:
    """What is rare does not happen in a test: these are all commands that our sources name."""
    with server.client() as client:
        commands = {str(name, "ascii") for name in client.command_list()}
    asked = in_sources() & commands - OTHERWISE
    assert asked == {name.partition("|")[0] for name in granted()}


def granted() -> set[str]:
    return set(re.findall(r" \+(\S+)", rights()))


def in_sources() -> set[str]:
    """Every word in quotes that may be a command."""
    folders = [PROJECT / "crawler" / name for name in ("shared", "view", "operate")]
    files = (file for folder in folders for file in folder.rglob("*.*"))
    texts = [file.read_text() for file in files if file.suffix in {".py", ".lua"}]
    return {word.lower() for text in texts for word in re.findall(r"['\"]([A-Z_]+)['\"]", text)}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("FLUSHALL",), id="empty it"),
        pytest.param(("CONFIG", "GET", "*"), id="read its passwords"),
        pytest.param(("SHUTDOWN",), id="end it"),
        pytest.param(("KEYS", "*"), id="block all clients"),
        pytest.param(("SCRIPT", "FLUSH"), id="forget scripts"),
        pytest.param(("SET", "other", "x"), id="write elsewhere"),
        pytest.param(("GET", "other"), id="read elsewhere"),
        pytest.param(("PUBLISH", "channel", "x"), id="tell others"),
        pytest.param(("EVAL", "return redis.call('GET', 'other')", "0"), id="by a script"),
    ],
)
def test_these_rights_do_not_allow(server: RedisServer, command: tuple[str, ...]) -> None:
    with (
        server.client(USER, PASSWORD) as client,
        pytest.raises(redis.ResponseError, match=r"permission|can't access"),
    ):
        client.execute_command(*command)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("SELECT", "1"), id="another database"),
        pytest.param(("CLIENT", "SETNAME", "worker"), id="a name"),
        pytest.param(("CLUSTER", "SLOTS"), id="a cluster"),
    ],
)
def test_commands_for_some_servers_are_granted(
    server: RedisServer, command: tuple[str, ...]
) -> None:
    with server.client(USER, PASSWORD) as client:
        try:
            client.execute_command(*command)
        except redis.ResponseError as refused:
            assert "cluster support disabled" in str(refused)  # noqa: PT017  # or nothing is raised
