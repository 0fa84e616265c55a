"""The metrics of crawls that run, as a real Prometheus sees them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from crawler.operate.alerts import CONDITIONS
from crawler.operate.metrics import METRICS, MetricType
from scripts import write_metrics
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.crawling import crawl, pass_time
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page
from tests.servers.prometheus import Prometheus, scraping
from tests.servers.redis import RedisServer

HOSTS: Final = tuple(f"127.0.0.{number}" for number in range(136, 142))
PAGES: Final = 2_000
SETTINGS: Final = {
    "CRAWLER_MIN_DELAY_S": 0.1,
    "CRAWLER_DELAY_FACTOR": 0,
    "CRAWLER_SOFT_404": False,
    "CRAWLER_HTTP": "127.0.0.1:6940",
    "CRAWLER_CHANGES": True,
}
# What only a shared crawl has, and what only one with an object store.
SHARED: Final = {"redis_lag_seconds", "outbox_links", "workers"}
UNSENT: Final = {"changes_unsent"}  # of a shared change feed; no query of the board has it
NEITHER: Final = {"undelivered_bytes"}
AGAIN: Final = {"CRAWLER_REVISIT": "adaptive", "CRAWLER_REVISITS_PER_DAY": 1e6}
VISITS: Final = {"revisit_worth_seconds", "fresh_share", "copy_age_seconds"}
"""Of a crawl that visits pages again."""
EMBEDDED: Final = {"merge_lag_seconds", "front_hosts"}


def answer(ask: Ask) -> Reply:
    """Pages without an end; every hundredth fails once."""
    if ask.path == "/robots.txt":
        return not_here(ask)
    number = int(ask.path[1:] or 0)
    if number % 100 == 7 and not ask.turn:
        return Reply(b"", 503)
    links = (f"/{(number * 7 + step) % PAGES}" for step in range(1, 30))
    return page(*links, text=f"{ask.host} {number} {hash(ask.path)}")


@pytest.fixture(scope="module")
def web() -> Iterator[LoopbackWeb]:
    with LoopbackWeb(answer, HOSTS) as served:
        yield served


def command(data: Path, web: LoopbackWeb, **settings: object) -> list[str]:
    seeds = ",".join(web.url(host, "/0") for host in HOSTS)
    return crawl_command(data, {**SETTINGS, **settings}, seeds=seeds, scope="host")


def address(data: Path) -> str:
    """Where the crawl in *data* listens."""
    file = data / "control.address"
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), PATIENCE_S)
    return file.read_text().strip()


def get(where: str, path: str, **headers: str) -> tuple[int, str]:
    try:
        with urlopen(Request(f"http://{where}{path}", headers=headers), timeout=30) as answered:
            return answered.status, answered.read().decode()
    except HTTPError as refused:
        return refused.code, refused.read().decode()


def queries() -> dict[str, str]:
    """Each query of the board, as Grafana sends it, by panel and legend."""
    board = json.loads(write_metrics.BOARD.read_text())
    return {
        f"{panel['title']}: {target['legendFormat']}": target["expr"]
        .replace("$job", "gossamer")
        .replace("$__rate_interval", "1m")
        for panel in board["panels"]
        for target in panel["targets"]
    }


def empty_queries(prometheus: Prometheus) -> set[str]:
    """The metrics of those queries that have no value now."""
    return {
        metric.name
        for query in queries().values()
        if not prometheus.values(query)
        for metric in METRICS
        if re.search(rf"\b{metric.full_name}(_bucket|_count)?\b", query)
    }


def assert_rules_are_evaluated(prometheus: Prometheus) -> None:
    def evaluated() -> list[dict[str, object]]:
        (group,) = prometheus.ask("rules")["groups"]
        rules: list[dict[str, object]] = group["rules"]
        return rules if all(rule["health"] != "unknown" for rule in rules) else []

    rules = wait_until(evaluated, PATIENCE_S)
    assert {rule["name"] for rule in rules} == {each.name for each in CONDITIONS} | {"GossamerDown"}
    assert {rule["health"] for rule in rules} == {"ok"}


def test_prometheus_sees_a_crawl_and_answers_every_query(tmp_path: Path, web: LoopbackWeb) -> None:
    """It goes on 40 days later: known pages are visited again."""
    data, log = tmp_path / "data", tmp_path / "log"
    seeds = ",".join(web.url(host, "/0") for host in HOSTS)
    crawl(data, settings=AGAIN, seeds=seeds, scope="host", max_pages="30")
    pass_time(data, 40 * 86_400.0)
    with fork_server.running(command(data, web, **AGAIN), log):
        where = address(data)
        with scraping([where], tmp_path / "prometheus") as prometheus:
            wait_until(
                lambda: (
                    prometheus.values("increase(gossamer_errors_total[1m]) > 0")
                    and prometheus.values("increase(gossamer_pages_total[1m]) > 5")
                    and prometheus.values("increase(gossamer_revisits_total[1m]) > 5")
                ),
                PATIENCE_S,
                log=log.read_text,
            )
            assert empty_queries(prometheus) == SHARED | NEITHER
            assert_rules_are_evaluated(prometheus)
            shown = set(prometheus.ask("label/__name__/values"))
        status, text = get(where, "/metrics")
        assert get(where, "/healthz") == (200, '{"status":"ok"}')
        assert get(where, "/metrics", Host="evil.example")[0] == 403
        assert get(where, "/healthz", Host="evil.example")[0] == 403

    assert status == 200
    lint = ["promtool", "check", "metrics"]
    checked = subprocess.run(lint, input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    expected = {
        metric.full_name + ("_count" if metric.type is MetricType.HISTOGRAM else "")
        for metric in METRICS
        if metric.name not in SHARED | NEITHER | UNSENT
    }
    assert {name for name in shown if name.startswith("gossamer_")} >= expected
    assert not any(host in text for host in HOSTS), "no host is named"


def test_the_figures_of_a_crawl_are_those_of_its_summary(tmp_path: Path) -> None:
    """Scraped when nothing is left but a page that is not answered."""

    def small(ask: Ask) -> Reply:
        if ask.path in ("/robots.txt", "/gone"):
            return not_here(ask)
        if ask.path == "/last":
            return Reply(hang=True)
        return page("/a", "/b", "/gone", "/last", text=ask.path)

    data = tmp_path / "data"
    settings = {**SETTINGS, "CRAWLER_TOTAL_TIMEOUT_S": PATIENCE_S}
    with LoopbackWeb(small, HOSTS[:1]) as web:
        run = crawl_command(data, settings, seeds=web.url(HOSTS[0], "/a"), scope="host")
        with fork_server.running(run, tmp_path / "log") as process:
            where = address(data)

            def figures() -> dict[str, float]:
                lines = re.findall(r"(?m)^gossamer_(\S+) (\S+)$", get(where, "/metrics")[1])
                return {name.replace('worker=""', ""): float(value) for name, value in lines}

            def is_last_under_way() -> dict[str, float]:
                found = figures()
                is_so = found["frontier_done_urls_total{}"] == 3 and found["fetches{}"] == 1
                return found if is_so else {}

            found = wait_until(is_last_under_way, PATIENCE_S)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
    summary = json.loads((data / "summary.json").read_text())
    assert found["pages_total{}"] == summary["pages"] == 3
    assert found["body_bytes_total{}"] == summary["bytes"]
    assert found['answers_total{class="2xx",}'] == 2
    assert found['answers_total{class="4xx",}'] == 1
    assert found["fetch_seconds_count{}"] == 4, "with robots.txt"
    assert found["verdict_seconds_count{}"] == 3
    assert found['gap_over_due_seconds_bucket{le="0.0",}'] == 0, "none was too early"
    assert found["gap_over_due_seconds_count{}"] == 4, "before the first request was no rest"


def test_workers_are_told_apart_and_a_dead_one_is_silent(tmp_path: Path, web: LoopbackWeb) -> None:
    with RedisServer(tmp_path / "redis") as server, ExitStack() as running:
        settings = {"CRAWLER_FRONTIER_URL": server.url, "CRAWLER_FRONTIER_SHARDS": 4}
        folders = [tmp_path / name for name in ("one", "two")]
        log = tmp_path / "log"
        processes = [
            running.enter_context(
                fork_server.running(
                    command(data, web, **settings, CRAWLER_WORKER_NAME=data.name), log
                )
            )
            for data in folders
        ]
        targets = [address(data) for data in folders]
        assert len(set(targets)) == 2
        prometheus = running.enter_context(scraping(targets, tmp_path / "prometheus"))

        def workers(state: str) -> list[float]:
            found = prometheus.values(f'gossamer_workers{{state="{state}"}}')
            return [value for _, value in found]

        wait_until(lambda: workers("live") == [2, 2], PATIENCE_S, log=log.read_text)
        per_worker = "increase(gossamer_pages_total[1m]) > 0"
        found = wait_until(
            lambda: len(some := prometheus.values(per_worker)) == 2 and some,
            PATIENCE_S,
            log=log.read_text,
        )
        assert {labels["worker"] for labels, _ in found} == {"one", "two"}
        wait_until(lambda: empty_queries(prometheus) <= EMBEDDED | NEITHER | VISITS, PATIENCE_S)
        assert_rules_are_evaluated(prometheus)
        server.pause()
        wait_until(lambda: prometheus.values("min(gossamer_redis_lag_seconds) > 3"), PATIENCE_S)
        server.resume()
        wait_until(lambda: prometheus.values("max(gossamer_redis_lag_seconds) < 3"), PATIENCE_S)
        processes[0].kill()
        processes[0].wait()
        silent = 'max(gossamer_workers{state="silent"}) == 1'
        wait_until(lambda: prometheus.values(silent), PATIENCE_S, log=log.read_text)
        wait_until(lambda: prometheus.values('up{job="gossamer"} == 0'), PATIENCE_S)


def test_prometheus_sends_the_token_that_a_crawl_wants(tmp_path: Path, web: LoopbackWeb) -> None:
    tokens, data = tmp_path / "tokens", tmp_path / "data"
    tokens.write_text(f"prometheus:{'t' * 20}\n")
    tokens.chmod(0o600)
    run = command(data, web, CRAWLER_HTTP_TOKENS=tokens)
    with fork_server.running(run, tmp_path / "log"):
        where = address(data)
        assert get(where, "/metrics")[0] == get(where, "/healthz")[0] == 401
        with scraping([where], tmp_path / "prometheus", "t" * 20) as prometheus:
            wait_until(lambda: prometheus.values("gossamer_pages_total"), PATIENCE_S)
