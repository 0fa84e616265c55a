"""Whole crawls whose URLs are in a URL Frontier, judged by the web that they crawl and by the book
of the server; what a start and commands say."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections import Counter

import pytest

from bench.urlfrontier_dict import DictCrawls
from crawler.model.types import ConfigError
from crawler.shared.faults import Unreachable
from crawler.urlfrontier import remote_server
from crawler.urlfrontier.client import url_info
from crawler.urlfrontier.remote_server import UrlFrontierAddress, UrlFrontierServer
from crawler.urlfrontier.server import FrontierServer, ServerAccess
from tests.harness.commands import crawl_command
from tests.harness.fork_server import run, running
from tests.servers.judge import Gap, Rules, judge
from tests.servers.loopback import LoopbackWeb, Reply, page
from tests.servers.url_frontier import UrlFrontier

HOSTS = ("127.0.4.1", "127.0.4.2", "127.0.4.3")
MIN_DELAY_S = 0.05
RULES = Rules(disallow=("/private",))
INSIDE = "http://10.1.2.3/admin"


def web(ask):
    if ask.path == "/robots.txt":
        return Reply(RULES.text(), content_type="text/plain")
    if ask.path == "/":
        others = (f"http://{host}:{ask.port}/busy" for host in HOSTS)
        return page("/private", *others, text=f"start of {ask.host}")
    if ask.path == "/busy" and not ask.turn:
        return Reply("wait", 503, headers=(("Retry-After", "2"),))
    return page(text=f"{ask.path} of {ask.host}")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Two crawls at once over one URL Frontier, ours, which is killed and started again; it has two
    URLs of a third crawler. Returns what is left of all."""
    folder = tmp_path_factory.mktemp("crawls")
    seeds, log = folder / "seeds.txt", folder / "log"
    with LoopbackWeb(web, HOSTS) as served, UrlFrontier(folder / "served") as frontier:
        seeds.write_text("\n".join(served.url(host) for host in HOSTS))
        foreign = url_info(
            served.url(HOSTS[0], "/foreign#part"), key=HOSTS[0], metadata={"depth": ["2"]}
        )
        frontier.ask(lambda client: client.put_discovered([foreign, INSIDE]))
        settings = {"CRAWLER_MIN_DELAY_S": MIN_DELAY_S, "CRAWLER_FRONTIER_URL": frontier.url}
        commands = [crawl_command(folder / name, settings, seeds=seeds) for name in ("1", "2")]
        with running(commands[0], log) as first:
            while len(served.visits) < 4:
                assert first.poll() is None, log.read_text()
            frontier.kill()
            frontier.start()
            second = run(commands[1])
            assert (second.returncode, first.wait(60)) == (0, 0), second.stderr + log.read_text()
        served.settle()
        fetched = len(served.visits)
        again = run(commands[0])
        assert (again.returncode, len(served.visits)) == (0, fetched), "nothing is left"
        yield folder, list(served.visits), frontier.book(), log.read_text() + second.stderr


def test_crawlers_that_share_a_url_frontier_fetch_each_page_once_and_are_polite(shared):
    _, visits, book, _ = shared
    violations = judge(visits, dict.fromkeys(HOSTS, RULES), Gap(MIN_DELAY_S, 1.0))
    assert not violations.found, violations
    pages = Counter((each.host, each.path) for each in visits if each.status == 200)
    robots = [pages.pop((host, "/robots.txt")) for host in HOSTS]
    assert max(robots) <= 2, "once for each crawler"
    expected = {(host, path) for host in HOSTS for path in ("/", "/busy")} | {
        (HOSTS[0], "/foreign")
    }
    assert pages == dict.fromkeys(expected, 1)
    assert not any(date for date, _ in book.values()), "all is done"


def test_what_a_third_crawler_has_put_keeps_its_metadata(shared):
    _, _, book, _ = shared
    (foreign,) = [url for url in book if "/foreign" in url]
    assert book[foreign] == (0, {"depth": ["2"]})
    assert book[INSIDE][1]["refused"], "an address inside is asked for nothing"


def test_a_start_says_what_is_lost_and_the_log_has_no_noise(shared):
    *_, log = shared
    assert log.count("keeps no levels") == 2
    assert "goaway" not in log.lower(), "gRPC writes nothing of its own"


@pytest.mark.parametrize("verb", [["counts"], ["why", "http://a/"], ["drop", "a"], ["check"]])
def test_commands_that_need_the_queues_say_so(shared, verb):
    folder, *_ = shared
    command = [sys.executable, "-m", "scrapy", "frontier", *verb]
    done = run([*command, "-s", f"CRAWLER_DATA_DIR={folder / '1'}"])
    assert done.returncode == 1
    assert "are in a URL Frontier" in done.stderr


def test_rules_of_operators_apply(shared):
    folder, *_ = shared
    command = [sys.executable, "-m", "scrapy", "frontier", "pause", "example.org"]
    done = run([*command, "-s", f"CRAWLER_DATA_DIR={folder / '1'}"])
    assert done.returncode == 0, done.stderr
    assert "example.org" in (folder / "1" / "rules.toml").read_text()


def test_the_data_directory_is_of_no_other_kind_of_crawl(shared):
    folder, *_ = shared
    done = run(crawl_command(folder / "1", seeds="http://127.0.0.1/"))
    assert done.returncode == 1
    assert "whose URLs are in a URL Frontier" in done.stderr


def start(**given):
    """Return what a start says that ends at once."""
    settings = {"CRAWLER_FRONTIER_URL": "grpc://127.0.0.1:1", **given.pop("settings", {})}
    done = run(crawl_command("never-made", settings, seeds="http://127.0.0.1/", **given))
    assert done.returncode == 1
    return done.stderr


def test_what_does_not_go_together_is_refused():
    assert "CRAWLER_HOST_UNIT=address" in start(settings={"CRAWLER_HOST_UNIT": "address"})
    assert "-a only=" in start(only="failed")
    assert "rounds need" in start(round=5)
    assert "unknown option 'db'" in start(settings={"CRAWLER_FRONTIER_URL": "grpc://h:1?db=1"})
    bad = start(settings={"CRAWLER_FRONTIER_URL": "grpc://host:1/crawl"})
    assert "grpc://host:7071" in bad


def test_workers_of_one_command_share_no_url_frontier():
    command = [sys.executable, "-m", "scrapy", "share", "web", "--workers", "2"]
    done = run([*command, "-a", "seeds=a", "-s", "CRAWLER_FRONTIER_URL=grpc://127.0.0.1:1"])
    assert done.returncode == 1
    assert "start each crawler by itself" in done.stderr


def server(url, **given):
    return UrlFrontierServer(UrlFrontierAddress.parse(url), "crawl", **given)


def test_a_server_that_does_not_answer_is_an_error_after_some_tries(monkeypatch):
    monkeypatch.setattr(remote_server, "START_S", 0.3)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 does not answer"):
        server("grpc://127.0.0.1:1").check()


def test_a_token_is_sent_where_it_is_safe(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")

    async def check():
        shut = FrontierServer(DictCrawls(), ServerAccess({"crawler": "secret"}))
        url = f"grpc://127.0.0.1:{await shut.start('127.0.0.1', 0)}"
        try:
            with pytest.raises(ConfigError, match="with a token only"):
                await asyncio.to_thread(server(url).check)
            await asyncio.to_thread(server(f"{url}?token_file={token}").check)
        finally:
            await shut.stop(0)

    asyncio.run(check())
    with pytest.raises(ConfigError, match="grpcs://"):
        server(f"grpc://frontier.example?token_file={token}").check()
    assert "secret" not in str(UrlFrontierAddress.parse(f"grpc://h?token_file={token}"))


def test_without_grpc_a_start_names_what_is_missing(monkeypatch):
    monkeypatch.delitem(sys.modules, "crawler.urlfrontier.remote_server")
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConfigError, match=r"pip install 'gossamer-crawler\[urlfrontier\]'"):
        importlib.import_module("crawler.urlfrontier.remote_server")
