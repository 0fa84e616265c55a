"""The conditions of alerts: the crawl and Prometheus agree about them, and the crawl sends them."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from crawler.operate.alerts import (
    AGAIN_S,
    CONDITIONS,
    LOOK_S,
    Alert,
    AlertSender,
    Condition,
    Watch,
    WorkerFigure,
)
from scripts import write_metrics
from tests.harness.commands import PATIENCE_S, crawl_command, running
from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page

HOUR: Final = 240  # looks of LOOK_S
CHANGE: Final = 80  # the look from which on a crawl is not well: after 20 minutes
SLACK: Final = 8  # looks: by so much the increase of Prometheus, which extrapolates, may differ

Series = dict[WorkerFigure, list[float]]
Change = Mapping[WorkerFigure, Callable[[int], float]]
"""The figures that differ from CHANGE on, by the number of looks since then."""

DONE, WAITING = WorkerFigure("frontier_done_urls_total"), WorkerFigure("frontier_urls", "waiting")
PAUSED = WorkerFigure("paused")
TIMEOUTS, TOO_MANY = (
    WorkerFigure("errors_total", "timeout"),
    WorkerFigure("errors_total", "status_429"),
)
FETCHES = WorkerFigure("fetch_seconds")
ROBOTS_FAILURES, ROBOTS = (
    WorkerFigure("robots_failures_total"),
    WorkerFigure("robots_fetches_total"),
)
FREE, SIZE = WorkerFigure("disk_bytes", "free"), WorkerFigure("disk_bytes", "size")
REDIS_LAG, SILENT = WorkerFigure("redis_lag_seconds"), WorkerFigure("workers", "silent")
WELL: Change = {
    DONE: lambda look: 50.0 * look,
    WAITING: lambda _: 1e6,
    PAUSED: lambda _: 0.0,
    TIMEOUTS: lambda look: 2.0 * look,
    TOO_MANY: lambda _: 0.0,
    FETCHES: lambda look: 60.0 * look,
    ROBOTS_FAILURES: lambda look: 1.0 * look,
    ROBOTS: lambda look: 5.0 * look,
    FREE: lambda _: 50e9,
    SIZE: lambda _: 100e9,
    REDIS_LAG: lambda _: 0.5,
    SILENT: lambda _: 0.0,
}


def series(change: Change) -> Series:
    """An hour of a crawl that is well at first."""
    made = {figure: [well(look) for look in range(HOUR)] for figure, well in WELL.items()}
    for figure, changed in change.items():
        made[figure][CHANGE:] = [changed(look) for look in range(HOUR - CHANGE)]
    return made


def grows(figure: WorkerFigure, by: float) -> Callable[[int], float]:
    """From CHANGE on *figure*, a counter, grows by so much a look."""
    begin = WELL[figure](CHANGE)
    return lambda look: begin + by * look


CASES = {
    "GossamerStalled": {DONE: grows(DONE, 0)},
    "GossamerErrors": {TIMEOUTS: grows(TIMEOUTS, 40)},
    "GossamerDisk": {FREE: lambda _: 4e9},
    "GossamerRobots": {ROBOTS_FAILURES: grows(ROBOTS_FAILURES, 4)},
    "GossamerTooManyRequests": {TOO_MANY: grows(TOO_MANY, 6)},
    "GossamerRedisLag": {REDIS_LAG: lambda look: LOOK_S * look},
    "GossamerWorkerSilent": {SILENT: lambda _: 1.0},
}
QUIET = {
    "well": {},
    "paused by an operator": {DONE: grows(DONE, 0), PAUSED: lambda _: 1.0},
    "nothing waits": {DONE: grows(DONE, 0), WAITING: lambda _: 0.0},
    "a few errors of a few fetches": {
        TIMEOUTS: grows(TIMEOUTS, 0.5),
        FETCHES: grows(FETCHES, 0.6),
        DONE: grows(DONE, 0.1),
    },
    "few fetches of robots.txt": {
        figure: grows(figure, 0.1) for figure in (ROBOTS, ROBOTS_FAILURES)
    },
    "some 429s": {TOO_MANY: grows(TOO_MANY, 2)},
    "no fetches at all": {figure: grows(figure, 0) for figure in (FETCHES, TIMEOUTS, ROBOTS)}
    | {ROBOTS_FAILURES: grows(ROBOTS_FAILURES, 0)},
    "a hiccup of Redis": {REDIS_LAG: lambda look: 40.0 if look < 3 else 0.5},
}


def figures(given: Series, look: int) -> Callable[[WorkerFigure], float | None]:
    """What a crawl would say at that look."""

    def figure(figure: WorkerFigure) -> float | None:
        found = [
            values[look]
            for known, values in given.items()
            if known.metric == figure.metric and figure.label in ("", known.label)
        ]
        return sum(found) if found else None

    return figure


def sent_at(given: Series) -> dict[str, int]:
    """The look at which each condition is first sent."""
    watch, found = Watch(), {}
    for look in range(HOUR):
        for condition, _, _ in watch.look(look * LOOK_S, figures(given, look)):
            found.setdefault(condition.name, look)
    return found


def test_each_condition_has_its_case() -> None:
    assert CASES.keys() == {condition.name for condition in CONDITIONS}
    used = {(figure.metric, figure.label) for each in CONDITIONS for figure in each.figures()}
    assert {metric for metric, _ in used} == {figure.metric for figure in WELL}


@pytest.mark.parametrize("change", QUIET.values(), ids=QUIET)
def test_a_crawl_that_is_well_sends_nothing(change: Change) -> None:
    assert sent_at(series(change)) == {}


_, _, _, _, _SAYS_DOWN, _DO_WHEN_DOWN = write_metrics.DOWN
DOWN: Final = {
    "name": "a process dies",
    "interval": "15s",
    "input_series": [{"series": 'up{job="gossamer"}', "values": "1x20 0x20"}],
    "alert_rule_test": [
        {"eval_time": "6m", "alertname": "GossamerDown", "exp_alerts": []},
        {
            "eval_time": "9m",
            "alertname": "GossamerDown",
            "exp_alerts": [
                {
                    "exp_labels": {"severity": "critical", "job": "gossamer"},
                    "exp_annotations": {"summary": _SAYS_DOWN, "do": _DO_WHEN_DOWN},
                }
            ],
        },
    ],
}


def test_prometheus_fires_when_the_crawl_sends(tmp_path: Path) -> None:
    """One table of conditions, two evaluations: both see the same hours of figures."""
    shutil.copy(write_metrics.RULES, tmp_path / "alerts.yml")
    groups = []
    for name, change in CASES.items():
        given = series(change)
        sent = sent_at(given)
        assert sent.keys() == {name}
        checks = [
            firing(_by_name(name), (sent[name] - SLACK) * LOOK_S, False),
            firing(_by_name(name), (sent[name] + SLACK) * LOOK_S, True),
        ]
        others = [other for other in CONDITIONS if other.name != name]
        checks += [firing(other, (HOUR - 1) * LOOK_S, False) for other in others]
        groups.append(rule_test(name, given, checks))
    for name, change in QUIET.items():
        times = (CHANGE, CHANGE + SLACK, HOUR // 2, HOUR - 1)
        checks = [firing(each, at * LOOK_S, False) for each in CONDITIONS for at in times]
        groups.append(rule_test(name, series(change), checks))
    groups.append(DOWN)
    tests = {"rule_files": ["alerts.yml"], "evaluation_interval": "15s", "tests": groups}
    (tmp_path / "tests.yml").write_text(json.dumps(tests))  # JSON is YAML, too
    run = subprocess.run(
        ["promtool", "test", "rules", "tests.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    for words in (["rules", "alerts.yml"], ["config", "prometheus.yml"]):
        run = subprocess.run(
            ["promtool", "check", *words],
            cwd=PROJECT / "monitoring",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr


def _by_name(name: str) -> Condition:
    return next(each for each in CONDITIONS if each.name == name)


def firing(condition: Condition, at_s: float, is_firing: bool) -> dict[str, Any]:
    expected = {
        "exp_labels": {"severity": condition.severity, "instance": "a", "worker": "w1"},
        "exp_annotations": {"summary": condition.summary, "do": write_metrics.to_do(condition)},
    }
    return {
        "eval_time": f"{at_s:.0f}s",
        "alertname": condition.name,
        "exp_alerts": [expected] if is_firing else [],
    }


def rule_test(name: str, given: Series, checks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "interval": f"{LOOK_S:.0f}s",
        "input_series": [
            {"series": labelled(figure), "values": " ".join(map(str, values))}
            for figure, values in given.items()
        ],
        "alert_rule_test": checks,
    }


def labelled(figure: WorkerFigure) -> str:
    name = replace(figure, label="").promql().rpartition("(")[2].rstrip(")")
    label = next(each.label for each in write_metrics.METRICS if each.name == figure.metric)
    own = f', {label}="{figure.label}"' if figure.label else ""
    return f'{name}{{instance="a", worker="w1"{own}}}'


def test_a_condition_is_sent_once_an_hour() -> None:
    watch, times = Watch(), []
    for look in range(3 * HOUR):
        now = look * LOOK_S
        times += [now for _ in watch.look(now, lambda figure: float(figure == SILENT))]
    assert len(times) == 3
    assert min(after - before for before, after in pairwise(times)) >= AGAIN_S


ALERT: Final = Alert("GossamerDisk", "critical", "summary", "do", 0.01, "2026-11-23", "", "/data")


def sending(sender: AlertSender) -> None:
    asyncio.run(sender.send(ALERT))


def test_a_command_and_an_address_get_the_alert(tmp_path: Path) -> None:
    asked: list[Ask] = []

    def receive(ask: Ask) -> Reply:
        asked.append(ask)
        return Reply(b"", 204)

    with LoopbackWeb(receive, ["127.0.0.1"]) as receiver:
        sending(AlertSender(f"sh -c 'cat > \"{tmp_path}/a b\"'", receiver.url("127.0.0.1", "/x")))

    want = {
        "alert": "GossamerDisk",
        "severity": "critical",
        "summary": "summary",
        "do": "do",
        "value": 0.01,
        "since": "2026-11-23",
        "worker": "",
        "data_dir": "/data",
    }
    assert json.loads((tmp_path / "a b").read_bytes()) == want
    assert [(ask.method, ask.path, json.loads(ask.body)) for ask in asked] == [("POST", "/x", want)]
    assert ("Content-Type", "application/json") in asked[0].headers


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        pytest.param("false", "status 1", id="it fails"),
        pytest.param("true", "", id="it does not read"),
        pytest.param("/no/such/command", "No such file", id="there is none"),
        pytest.param("sh -c 'sleep 1000; true'", "no end after 0.5 s", id="it hangs"),
    ],
)
def test_a_command_that_fails_is_a_line_of_the_log(
    command: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    sending(AlertSender(command, "", most_s=0.5))
    assert (reason in caplog.text) if reason else not caplog.text
    assert len(caplog.messages) == bool(reason)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param(Reply(b"", 500), "it answered 500", id="an error"),
        pytest.param(
            Reply(b"", 302, headers=(("Location", "http://127.0.0.1:1/"),)),
            "it answered 302",
            id="it leads elsewhere",
        ),
        pytest.param(Reply(close=True), "to 127.0.0.1", id="it closes the connection"),
        pytest.param(Reply(hang=True), "no end after 0.5 s", id="it never answers"),
    ],
)
def test_an_address_that_fails_is_a_line_of_the_log(
    reply: Reply, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with LoopbackWeb(lambda _: reply, ["127.0.0.1"]) as receiver:
        sending(AlertSender("", receiver.url("127.0.0.1", "/a-secret"), most_s=0.5))
    (message,) = caplog.messages
    assert reason in message and "a-secret" not in message


# The command `scrapy`, to which time passes faster: it looks often, and conditions hold at once.
QUICKER: Final = """
from dataclasses import replace
from crawler.operate import alerts
alerts.LOOK_S = 0.1
chosen = [each for each in alerts.CONDITIONS if each.name == "GossamerTooManyRequests"]
alerts.CONDITIONS = tuple(replace(each, for_s=0) for each in chosen)
from scrapy.cmdline import execute
execute()
"""


def test_a_crawl_sends_its_alerts_and_does_not_wait_for_them(tmp_path: Path) -> None:
    """Hosts answer with 429; the receiver gets that once. The command hangs, and ends with the
    crawl."""
    hosts = [f"127.0.0.{number}" for number in range(120, 135)]
    asked: list[Ask] = []

    def answer(ask: Ask) -> Reply:
        if ask.path == "/hook":
            asked.append(ask)
            return Reply(b"", 204)
        if ask.path == "/robots.txt":
            return not_here(ask)
        if ask.turn < 2:
            return Reply(b"", 429)
        return page(text=ask.path) if (tmp_path / "pid").exists() else Reply(b"", 429)

    with LoopbackWeb(answer, hosts) as web:
        hang = f"sh -c 'echo $$ > {tmp_path}/pid; sleep 1000; true'"
        settings = {
            "CRAWLER_ALERT_COMMAND": hang,
            "CRAWLER_ALERT_URL": web.url(hosts[0], "/hook"),
            "CRAWLER_RETRIES": 20,
            "CRAWLER_BACKOFF_BASE_S": 0.1,
        }
        seeds = ",".join(web.url(host) for host in hosts)
        command = crawl_command(tmp_path / "data", settings, seeds=seeds, scope="host")
        command[1:3] = ["-c", QUICKER]
        log = tmp_path / "log"
        with running(command, log) as process:
            wait_until(lambda: asked, PATIENCE_S, log=log.read_text)
            assert process.wait(PATIENCE_S) == 0, log.read_text()

    told = [json.loads(ask.body) for ask in asked]
    assert [each["alert"] for each in told] == ["GossamerTooManyRequests"]
    assert told[0]["data_dir"] == str(tmp_path / "data") and told[0]["value"] > 0.05
    group = int((tmp_path / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{group}").exists(), PATIENCE_S, "the command has ended")
