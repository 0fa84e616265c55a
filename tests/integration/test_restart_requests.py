"""A spider's own requests outlive `kill -9`: those that waited are delivered whole after the
restart; those that cannot be stored are refused with the reason, and counted."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import FormRequest, JsonRequest, Response
from twisted.python.failure import Failure

from crawler.data.outcomes import read_outcomes
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.fork_server import run, running
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, Reply, Site, site

SETTINGS = {
    "SPIDER_MODULES": __name__,
    "CRAWLER_DELAY_FACTOR": 0,
    "STATS_DUMP": True,
}


HOLD = "/hold"

SENT: dict[str, dict[str, Any]] = {
    "plain": {},
    "post": {"method": "POST", "body": b"\x00\xffbody"},
    "put": {"method": "PUT", "body": "caf\xe9", "encoding": "latin-1"},
    "headers": {"headers": {"X-One": "1", "X-Many": ["a", "b"]}},
    "meta": {"meta": {"mine": {"list": [1, None, 2.5, True], "bytes": "\U0001f41b"}}},
    "cb_kwargs": {"cb_kwargs": {"n": 1, "names": ["a", "b"]}},
    "high": {"priority": 7},
    "low": {"priority": -7},
    "flagged": {"flags": ["urgent"]},
    "missing": {"cb_kwargs": {"n": 4}},
    "form": {"class": FormRequest, "formdata": {"who": "me"}},
    "json": {"class": JsonRequest, "data": {"a": [1]}},
    "twice": {"dont_filter": True},
}


class Thing:
    """A class of the user's own."""


class OwnRequest(Request):
    """A request of the user's own."""


class RestartSpider(Spider):
    name = "restart"
    root: str
    diary: str

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.root + "/fork", callback=self.fork)

    def fork(self, response: Response) -> Iterator[Request]:
        yield Request(self.root + HOLD, callback=self.held, priority=1)
        for name, given in SENT.items():
            kind = given.get("class", Request)
            settings = {key: value for key, value in given.items() if key != "class"}
            url = f"{self.root}/{name}"
            yield kind(url, callback=self.delivered, errback=self.failed, **settings)
        yield Request(self.root + "/twice", callback=self.delivered, dont_filter=True)
        yield from self.unstorable()

    def held(self, response: Response) -> Iterator[Request]:
        yield from self.unstorable()
        yield Request(self.root + "/after", callback=self.delivered)

    def unstorable(self) -> Iterator[Request]:
        """Each refused, and none in the way of the next."""
        url = self.root + "/unstorable"
        yield Request(url, callback=lambda _: None)
        with Path(__file__).open() as file:
            yield Request(url, callback=self.delivered, meta={"file": file})
        yield Request(url, callback=self.delivered, cb_kwargs={"thing": Thing()})
        yield OwnRequest(url, callback=self.delivered)

    def delivered(self, response: Response, **given: Any) -> None:
        self.note("delivered", response.request, given, json.loads(response.body))

    def failed(self, failure: Failure) -> None:
        request: Request = failure.request  # type: ignore[attr-defined]  # Scrapy adds it
        self.note("failed", request, request.cb_kwargs, {})

    def note(
        self, where: str, request: Any, given: dict[str, Any], arrived: dict[str, Any]
    ) -> None:
        line = {
            "name": request.url.rpartition("/")[2],
            "where": where,
            "class": type(request).__name__,
            "cb_kwargs": given,
            "mine": request.meta.get("mine"),
            "priority": request.priority,
            "dont_filter": request.dont_filter,
            "flags": request.flags,
            "callback": request.callback.__name__,
            "errback": request.errback and request.errback.__name__,
            "arrived": arrived,
        }
        with Path(self.diary).open("a") as diary:
            diary.write(json.dumps(line) + "\n")


def echo(ask: Ask) -> Reply:
    """The answer is the request."""
    echoed = {
        "method": ask.method,
        "headers": ask.headers,
        "body": ask.body.decode("latin-1"),
    }
    is_page = not ask.path.startswith(("/missing", "/robots.txt"))
    status = 200 if is_page else 404
    return Reply(json.dumps(echoed), status, content_type="application/json")


def held_once(hit: int) -> Reply | None:
    return Reply(hang=True) if hit == 1 else None


@dataclass(frozen=True, slots=True)
class Lives:
    """Of one crawl: killed in the first, ended by itself in the second."""

    before: str  # what it wrote into its diary before it was killed
    first_log: str
    second_log: str
    diary: list[dict[str, Any]]
    fates: dict[str, list[str]]  # by path
    web: Site

    def note(self, name: str) -> dict[str, Any]:
        (found,) = [line for line in self.diary if line["name"] == name]
        return found


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    home: Path = tmp_path_factory.mktemp("restart")
    data, log, diary = home / "data", home / "log", home / "diary"
    outcomes = data / "outcomes.jsonl"
    diary.touch()
    with site("127.0.10.1", {HOLD: held_once}, echo) as web:
        command = crawl_command(data, SETTINGS, "restart", root=web.root, diary=diary)
        with running(command, log) as process:
            wait_until(
                lambda: HOLD in web.asked, PATIENCE_S, f"{HOLD} is asked for", log=log.read_text
            )
            # Its callback is done, and so all that it asked for is in the frontier.
            wait_until(
                lambda: any(one.url.endswith("/fork") for one in read_outcomes(outcomes)),
                30,
                "/fork is finished",
                log=log.read_text,
            )
            process.kill()
        before = diary.read_text()
        done = run(command)
    assert done.returncode == 0, done.stderr[-2000:]
    fates: dict[str, list[str]] = {}
    for outcome in read_outcomes(data / "outcomes.jsonl"):
        fates.setdefault(outcome.url.removeprefix(web.root), []).append(outcome.fate)
    notes = [json.loads(line) for line in diary.read_text().splitlines()]
    return Lives(before, log.read_text(), done.stderr, notes, fates, web)


def test_the_kill_precedes_every_answer(lives: Lives) -> None:
    assert lives.before == ""
    assert "put back: 1" in lives.second_log, "the one that was in flight"


def test_requests_are_fetched_once_and_those_in_flight_again(lives: Lives) -> None:
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


def test_the_headers_of_a_stored_request_are_sent(lives: Lives) -> None:
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
def test_requests_that_cannot_be_stored_are_refused_with_the_reason(
    lives: Lives, reason: str
) -> None:
    for log in (lives.first_log, lives.second_log):
        assert len(re.findall(r"Refused: <GET \S+/unstorable>: " + reason, log)) == 1


def test_refusals_are_counted_and_block_no_other_request(lives: Lives) -> None:
    assert "'crawler/refused/unstorable': 4" in lives.second_log
    assert lives.note("after")["where"] == "delivered"
    assert "/unstorable" not in lives.web.asked
