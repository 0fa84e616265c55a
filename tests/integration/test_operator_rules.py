"""The operator's rules in a crawl that runs, judged by the web that it asks."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from crawler.data.outcomes import read_outcomes
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.waiting import wait_until
from tests.servers.judge import TOLERANCE_S
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page

HOSTS = tuple(f"127.0.0.{100 + number}" for number in range(4))
PAGES = 60
SETTINGS = {"CRAWLER_MIN_DELAY_S": 0.05, "CRAWLER_DELAY_FACTOR": 0, "CRAWLER_SOFT_404": False}


def answer(ask: Ask) -> Reply:
    """Each page of a host links to all others."""
    if ask.path == "/robots.txt":
        return not_here(ask)
    return page(*(f"/{number}" for number in range(PAGES)), text=f"{ask.host} {ask.path}")


@pytest.fixture
def web() -> Iterator[LoopbackWeb]:
    with LoopbackWeb(answer, HOSTS) as served:
        yield served


def asked(web: LoopbackWeb, host: str) -> int:
    return sum(visit.host == host for visit in web.visits)


def authorization(ask: Ask) -> str | None:
    return {name.lower(): value for name, value in ask.headers}.get("authorization")


def seeds(web: LoopbackWeb) -> str:
    return ",".join(web.url(host, "/0") for host in HOSTS)


def test_a_rule_that_is_written_is_in_force_and_its_removal_brings_all_back(
    tmp_path: Path, web: LoopbackWeb
) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    rules = data / "rules.toml"
    refused, other = HOSTS[0], HOSTS[1]
    with fork_server.running(crawl_command(data, SETTINGS, seeds=seeds(web)), log) as process:
        wait_until(lambda: asked(web, refused) > 5, PATIENCE_S)
        rules.write_text(f'[[rule]]\nfor = "{refused}"\nrefuse = true\n')
        wait_until(lambda: "Rules in force: 1" in log.read_text(), PATIENCE_S)
        before = asked(web, refused)
        rules.write_text("[[rule]]\nfor = 3\n")
        wait_until(
            lambda: "rules.toml line 1: the rule does not say" in log.read_text(), PATIENCE_S
        )
        wait_until(lambda: asked(web, other) >= PAGES, PATIENCE_S)
        assert asked(web, refused) <= before + 1, "one may have been under way"
        process.kill()
        process.wait()
    rules.write_text(f'[[rule]]\nfor = "{refused}"\nrefuse = true\n')
    web.visits.clear()
    with fork_server.running(crawl_command(data, SETTINGS, seeds=seeds(web)), log) as process:
        assert process.wait(PATIENCE_S) == 0
    assert asked(web, refused) == 0, "the rule outlives the process"
    rules.unlink()
    with fork_server.running(crawl_command(data, SETTINGS, seeds=seeds(web)), log) as process:
        assert process.wait(PATIENCE_S) == 0
    assert asked(web, refused) >= PAGES - before - 2, "what waited was kept"


def test_a_host_that_is_paused_is_asked_again_when_the_pause_ends(
    tmp_path: Path, web: LoopbackWeb
) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    rules = data / "rules.toml"
    paused, other = HOSTS[0], HOSTS[1]
    with fork_server.running(crawl_command(data, SETTINGS, seeds=seeds(web)), log) as process:
        wait_until(lambda: asked(web, paused) > 5, PATIENCE_S)
        rules.write_text(f'[[rule]]\nfor = "{paused}"\npaused = true\n')
        wait_until(lambda: "Rules in force: 1" in log.read_text(), PATIENCE_S)
        before = asked(web, paused)
        wait_until(lambda: asked(web, other) >= PAGES, PATIENCE_S)
        assert asked(web, paused) <= before + 1
        rules.write_text("")
        assert process.wait(PATIENCE_S) == 0, "no rest for the pause is left"
    assert asked(web, paused) >= PAGES


def test_what_else_rules_say(tmp_path: Path) -> None:
    """A delay, a byte cap, kinds of links and credentials, each of one host."""
    slow, capped, narrow, secret = HOSTS
    asks: list[Ask] = []

    def answer(ask: Ask) -> Reply:
        asks.append(ask)
        if ask.path == "/robots.txt":
            return not_here(ask)
        links = (f'<a href="/{n}">{n}</a><iframe src="/frame/{n}"></iframe>' for n in range(6))
        return Reply(f"<html>{ask.host}{ask.path}{''.join(links)}{'x' * 20_000}</html>")

    secrets = tmp_path / "secrets"
    secrets.write_text("# of the archive\nlogin=anna:pass:word\n")
    secrets.chmod(0o600)
    rules = tmp_path / "rules.toml"
    rules.write_text(
        f'[[rule]]\nfor = "{slow}"\ndelay_s = 0.5\n'
        f'[[rule]]\nfor = "{capped}"\nmax_bytes = 5000\n'
        f'[[rule]]\nfor = "{narrow}"\nfollow_kinds = ["iframe"]\n'
        f'[[rule]]\nfor = "{secret}/[2-9]"\nrefuse = true\n'
        f'[[rule]]\nfor = "{secret}"\ncredentials = "login"\n'
    )
    settings = {**SETTINGS, "CRAWLER_RULES": rules, "CRAWLER_CREDENTIALS": secrets}
    data, log = tmp_path / "data", tmp_path / "log"
    with (
        LoopbackWeb(answer, HOSTS) as web,
        fork_server.running(crawl_command(data, settings, seeds=seeds(web)), log) as process,
    ):
        assert process.wait(PATIENCE_S) == 0
        visits = sorted((v for v in web.visits if v.host == slow), key=lambda v: v.arrival_s)
    gaps = [after.arrival_s - before.end_s for before, after in pairwise(visits)]
    assert min(gaps) >= 0.5 - TOLERANCE_S
    sizes = {outcome.host: outcome.size for outcome in read_outcomes(data / "outcomes.jsonl")}
    assert sizes[capped] <= 5000 < sizes[slow]
    paths = {ask.path for ask in asks if ask.host == narrow}
    assert "/frame/1" in paths and "/1" not in paths
    sent = {ask.path: authorization(ask) for ask in asks if ask.host == secret}
    assert sent.pop("/robots.txt") is None
    assert set(sent.values()) == {"Basic " + b64encode(b"anna:pass:word").decode()}
    others = {authorization(ask) for ask in asks if ask.host != secret}
    assert others == {None}
    kept = b"".join(gzip.decompress(file.read_bytes()) for file in data.glob("warc/*.warc.gz"))
    assert b"Authorization: ..." in kept and b64encode(b"anna:pass:word") not in kept
    assert "pass:word" not in log.read_text()


def test_a_paused_crawl_asks_for_nothing(tmp_path: Path, web: LoopbackWeb) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    with fork_server.running(crawl_command(data, SETTINGS, seeds=seeds(web)), log) as process:
        wait_until(lambda: len(web.visits) > 20, PATIENCE_S)
        (data / "rules.toml").write_text("paused = true\n")
        wait_until(lambda: "Rules in force" in log.read_text(), PATIENCE_S)
        web.settle()
        before = len(web.visits)
        web.settle()
        assert len(web.visits) == before
        (data / "rules.toml").write_text("concurrency = 2\n")
        assert process.wait(PATIENCE_S) == 0
    assert min(asked(web, host) for host in HOSTS) >= PAGES
