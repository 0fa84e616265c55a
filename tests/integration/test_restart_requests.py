"""A spider's own requests outlive `kill -9`: those that waited are delivered whole after the
restart; those that cannot be stored are refused with the reason, and counted."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from crawler.data.outcomes import read_outcomes
from tests.command import PATIENCE_S, crawl_command
from tests.integration.restart_spider import HOLD, SENT
from tests.ready import run, running
from tests.servers.echo import Echo, echo

SETTINGS = {
    "SPIDER_MODULES": "tests.integration.restart_spider",
    "CRAWLER_DELAY_FACTOR": 0,
    "STATS_DUMP": True,
}


@dataclass(frozen=True, slots=True)
class Lives:
    """Of one crawl: killed in the first, ended by itself in the second."""

    before: str  # what it wrote into its diary before it was killed
    first_log: str
    second_log: str
    diary: list[dict[str, Any]]
    fates: dict[str, list[str]]  # by path
    web: Echo

    def note(self, name: str) -> dict[str, Any]:
        (found,) = [line for line in self.diary if line["name"] == name]
        return found


def finished(data: Path, path: str) -> bool:
    """Wait for the line in the log of outcomes."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if any(one.url.endswith(path) for one in read_outcomes(data / "outcomes.jsonl")):
            return True
        time.sleep(0.01)
    return False


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    home: Path = tmp_path_factory.mktemp("restart")
    data, log, diary = home / "data", home / "log", home / "diary"
    diary.touch()
    with echo("127.0.10.1", HOLD) as web:
        command = crawl_command(data, SETTINGS, "restart", root=web.root, diary=diary)
        with running(command, log) as process:
            assert web.held.wait(PATIENCE_S), log.read_text()
            # Its callback is done, and so all that it asked for is in the frontier.
            assert finished(data, "/fork"), log.read_text()
            process.kill()
        before = diary.read_text()
        done = run(command)
    assert done.returncode == 0, done.stderr[-2000:]
    fates: dict[str, list[str]] = {}
    for outcome in read_outcomes(data / "outcomes.jsonl"):
        fates.setdefault(outcome.url.removeprefix(web.root), []).append(outcome.fate)
    notes = [json.loads(line) for line in diary.read_text().splitlines()]
    return Lives(before, log.read_text(), done.stderr, notes, fates, web)


def test_the_kill_came_before_any_was_delivered(lives: Lives) -> None:
    assert lives.before == ""
    assert "put back: 1" in lives.second_log, "the one that was in flight"


def test_each_is_fetched_once_and_what_was_in_flight_again(lives: Lives) -> None:
    asked = Counter(lives.web.asked)
    once = {"/fork", "/after", *(f"/{name}" for name in SENT)} - {"/twice"}
    assert {path: asked[path] for path in once} == dict.fromkeys(once, 1)
    assert (asked[HOLD], asked["/twice"]) == (2, 2), "dont_filter means twice"
    assert asked.keys() == once | {HOLD, "/twice", "/robots.txt"}
    assert lives.fates == {
        **{path: ["done"] for path in once | {HOLD}},
        "/twice": ["done", "done"],
    }


@pytest.mark.parametrize("name", [name for name in SENT if name != "twice"])
def test_a_request_is_delivered_whole(lives: Lives, name: str) -> None:
    sent, note = SENT[name], lives.note(name)
    assert note["where"] == ("failed" if name == "missing" else "delivered")
    assert (note["callback"], note["errback"]) == ("delivered", "failed")
    assert note["class"] == sent.get("class", Request).__name__
    assert note["cb_kwargs"] == sent.get("cb_kwargs", {})
    assert note["mine"] == sent.get("meta", {}).get("mine")
    assert note["priority"] == sent.get("priority", 0)
    assert note["flags"] == sent.get("flags", [])
    assert note["dont_filter"] is False


@pytest.mark.parametrize(
    ("name", "method", "body"),
    [
        ("plain", "GET", ""),
        ("post", "POST", "\x00\xffbody"),
        ("put", "PUT", "caf\xe9"),
        ("form", "POST", "who=me"),
        ("json", "POST", '{"a": [1]}'),
    ],
)
def test_a_request_arrives_whole(lives: Lives, name: str, method: str, body: str) -> None:
    arrived = lives.note(name)["arrived"]
    assert (arrived["method"], arrived["body"]) == (method, body)


def test_its_headers_arrive(lives: Lives) -> None:
    headers = [(key.lower(), value) for key, value in lives.note("headers")["arrived"]["headers"]]
    assert [pair for pair in headers if pair[0].startswith("x-")] == [
        ("x-one", "1"), ("x-many", "a"), ("x-many", "b"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "reason",
    [
        pytest.param(r"Function <function .*<lambda>.*> is not an instance method", id="a lambda"),
        pytest.param(r"meta\['file'\] is a TextIOWrapper", id="an open file"),
        pytest.param(r"cb_kwargs\['thing'\] is a Thing", id="an object"),
        pytest.param(r"its class .*OwnRequest is not one that can be stored", id="its own class"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_the_reason(lives: Lives, reason: str) -> None:
    for log in (lives.first_log, lives.second_log):
        assert len(re.findall(r"Refused: <GET \S+/unstorable>: " + reason, log)) == 1


def test_refusals_are_counted_and_hinder_nobody(lives: Lives) -> None:
    assert "'crawler/refused/unstorable': 4" in lives.second_log
    assert lives.note("after")["where"] == "delivered"
    assert "/unstorable" not in lives.web.asked
