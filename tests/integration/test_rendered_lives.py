"""A crawl whose pages a browser makes, in several lives: it is stopped and killed while pages are
made, comes back for what could not be had, and visits its pages again."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from crawler.data.changes import FeedReader
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.render.browser import process_tree
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.crawling import Crawled, crawl, pass_time
from tests.harness.rendering import is_alive
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply

HOSTS: Final = ("127.0.78.1", "127.0.78.2", "127.0.78.3")
NAMES: Final = ("0", "1")
CHANGED: Final = HOSTS[1], "/page/1"
MARKED: Final = HOSTS[2], "/page/1"
MARKER: Final = "marker-39e1"
INTERVAL_S: Final = 601.0
MOST_STOP_S: Final = 3.0
SHELL: Final = "<title>App</title><div id=root></div><script src=/app.js></script>"
SCRIPT: Final = """
const page = location.pathname.split("/").pop();
fetch("/data/" + page + ".json").then((got) => got.json()).then((found) => {
  document.title = found.title;
  document.getElementById("root").innerHTML =
    `<p>${found.text}</p>` + found.links.map((link) => `<a href="${link}">on</a>`).join(" ");
});
"""
SETTINGS: Final = {
    "CRAWLER_RENDER": "always",
    "CRAWLER_RENDER_TABS": len(HOSTS),
    "CRAWLER_RENDER_TIMEOUT_S": 60,
    "CRAWLER_RENDER_QUIET_S": 0.2,
    "CRAWLER_REVISIT": "10m",
    "CRAWLER_CHANGES": "true",
    "CRAWLER_SOFT_404": "false",
    "CRAWLER_DELAY_FACTOR": 0,
}


@dataclass
class App:
    """The same application on three hosts. All that it sends has an ETag and a date."""

    is_held: bool = False  # data are not answered
    asked: list[Ask] = field(default_factory=list)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)

    def __call__(self, ask: Ask) -> Reply:
        if ask.path == "/robots.txt":
            return Reply(status=404)
        self.asked.append(ask)
        if ask.path == "/app.js":
            return self.dated(SCRIPT, "text/javascript", ask)
        if ask.path.startswith("/page/"):
            return self.dated(SHELL, "text/html", ask)
        if self.is_held:
            return Reply(hang=True)
        name = ask.path.removeprefix("/data/").removesuffix(".json")
        text = self.texts.get((ask.host, f"/page/{name}"), f"silk{name}")
        text = f"{text} of {ask.host} " + " ".join(f"{text}{n}" for n in range(60))
        links = [f"/page/{each}" for each in NAMES]
        found = json.dumps({"title": f"Page {name}", "text": text, "links": links})
        return self.dated(found, "application/json", ask)

    def dated(self, body: str, kind: str, ask: Ask) -> Reply:
        etag = f'"{hash(body) & 0xFFFF:x}"'
        fields = (("ETag", etag), ("Last-Modified", "Thu, 26 Nov 2026 10:00:00 GMT"))
        if dict(ask.headers).get("If-None-Match") == etag:
            return Reply(status=304, headers=fields)
        return Reply(body, content_type=kind, headers=fields)

    def taken(self) -> list[Ask]:
        """What was asked for since the last call."""
        asked, self.asked = self.asked, []
        return asked


@dataclass
class Lives:
    """The crawl, and what its first lives have shown."""

    data: Path
    log: Path
    web: LoopbackWeb
    app: App

    @property
    def seeds(self) -> str:
        return ",".join(self.web.url(host, "/page/0") for host in HOSTS)

    def command(self) -> list[str]:
        return crawl_command(self.data, SETTINGS, seeds=self.seeds, scope="host")

    def are_held(self) -> bool:
        """Whether a page of each host waits for its data."""
        waiting = {each.host for each in self.app.asked if each.path.startswith("/data/")}
        return waiting == set(HOSTS)

    def visit(self) -> Crawled:
        """Crawl in this process until each page was visited."""
        count = len(HOSTS) * len(NAMES)
        return crawl(self.data, settings=SETTINGS, outcomes=count, seeds=self.seeds, scope="host")

    def pages(self, of: str = "/page/") -> set[str]:
        return {self.web.url(host, f"{of}{name}") for host in HOSTS for name in NAMES}


@dataclass(frozen=True, slots=True)
class End:
    """How a life ended while pages were made."""

    status: int
    start_s: float  # to the moment when a page of each host was made
    took_s: float  # from the signal to the end
    processes: list[int]  # that belonged to it
    waiting: int
    leased: int
    not_put_back: int
    asked: Counter[str]

    def none_is_left(self) -> bool:
        return not any(map(is_alive, self.processes))


def ended_by(lives: Lives, number: int) -> End:
    """Send the signal *number* while a page of each host is made."""
    lives.app.is_held = True
    began_at = time.monotonic()
    with fork_server.running(lives.command(), lives.log) as process:
        wait_until(lives.are_held, PATIENCE_S, "pages of all hosts", log=lives.log.read_text)
        start_s = time.monotonic() - began_at
        processes = process_tree(process.pid)
        process.send_signal(number)
        signalled_at = time.monotonic()
        status = process.wait(PATIENCE_S)
        took_s = time.monotonic() - signalled_at
    lives.app.is_held = False
    frontier = open_frontier(lives.data, FrontierLimits(), time.time())
    counts, not_put_back = frontier.counts(), frontier.put_back_at_open
    frontier.close()
    asked = Counter(each.path for each in lives.app.taken())
    return End(
        *(status, start_s, took_s, processes),
        *(counts.waiting, counts.leased, not_put_back, asked),
    )


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    home, app = tmp_path_factory.mktemp("lives"), App()
    app.texts[MARKED] = MARKER
    with LoopbackWeb(app, HOSTS) as web:
        yield Lives(home / "data", home / "log", web, app)


@pytest.fixture(scope="module")
def stopped(lives: Lives) -> End:
    return ended_by(lives, signal.SIGTERM)


@pytest.fixture(scope="module")
def killed(lives: Lives, stopped: End) -> End:
    assert stopped
    return ended_by(lives, signal.SIGKILL)


@pytest.fixture(scope="module")
def finished(lives: Lives, killed: End) -> tuple[Crawled, list[Ask]]:
    assert killed
    return lives.visit(), lives.app.taken()


@pytest.fixture(scope="module")
def revisited(lives: Lives, finished: object) -> tuple[Crawled, list[Ask]]:
    assert finished
    pass_time(lives.data, INTERVAL_S)
    lives.app.texts[CHANGED] = "wool"
    return lives.visit(), lives.app.taken()


def test_a_stop_cancels_what_is_made(lives: Lives, stopped: End) -> None:
    assert stopped.status == 0, lives.log.read_text()[-3000:]
    assert stopped.took_s < max(MOST_STOP_S, stopped.start_s), stopped
    assert len(stopped.processes) > 3, "the browser, its driver and the crawl"
    assert stopped.none_is_left()
    assert (stopped.waiting, stopped.leased, stopped.not_put_back) == (len(HOSTS), 0, 0)
    assert " ERROR: " not in lives.log.read_text()


def test_a_kill_leaves_nothing_that_runs(killed: End) -> None:
    assert killed.status == -signal.SIGKILL
    assert len(killed.processes) > 3, "the browser, its driver and the crawl"
    wait_until(killed.none_is_left, PATIENCE_S)
    assert (killed.waiting, killed.leased, killed.not_put_back) == (len(HOSTS), 0, len(HOSTS))
    assert killed.asked["/page/0"] == len(HOSTS), "what was put back is asked for at once"


def test_the_next_life_makes_them(lives: Lives, finished: tuple[Crawled, list[Ask]]) -> None:
    done, asked = finished
    found = {each.url: (each.fate, each.reason, each.attempts) for each in done.outcomes}
    assert found == dict.fromkeys(lives.pages(), ("done", "", 0))
    assert len(done.outcomes) == len(found), "the lives before have ended none"
    assert done.stats["crawler/render/pages"] == len(found)
    assert Counter(lives.web.url(each.host, each.path) for each in asked) == Counter(
        [*lives.pages(), *(f"{url}.json" for url in lives.pages("/data/")), *scripts(lives)]
    )


def scripts(lives: Lives) -> list[str]:
    return [lives.web.url(host, "/app.js") for host in HOSTS]


def changes(data: Path) -> list[tuple[str, str]]:
    entries = [json.loads(each.line) for each in FeedReader(data / "changes", 0).read()]
    return [(each["kind"], each["url"]) for each in entries]


def test_a_later_visit_is_whole_and_compares_what_is_seen(
    lives: Lives, revisited: tuple[Crawled, list[Ask]]
) -> None:
    done, asked = revisited
    again = done.outcomes[len(lives.pages()) :]
    assert {(each.url, each.fate, each.status) for each in again} == {
        (url, "done", 200) for url in lives.pages()
    }
    assert {each.path for each in asked} >= {"/app.js", "/data/0.json", "/page/0"}
    named = {name.lower() for each in asked for name, _ in each.headers}
    assert not named & {"if-none-match", "if-modified-since"}
    found = changes(lives.data)
    assert sorted(found[: len(lives.pages())]) == sorted(("new", url) for url in lives.pages())
    assert found[len(lives.pages()) :] == [("changed", lives.web.url(*CHANGED))]
