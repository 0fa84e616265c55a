"""A crawl whose pages a browser makes, in several lives: it is stopped and killed while pages are
made, visits them again, gets other rules, and is purged; and one that comes back for what could not
be had."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Final

import pytest

from crawler.data.changes import FeedReader
from crawler.data.outcomes import read_outcomes
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.loop import loop
from crawler.model.types import Outcome
from crawler.render.browser import process_tree
from tests.harness import fork_server
from tests.harness.archive_command import archive, packed
from tests.harness.archive_judges import judged_package, read_folder, read_rows
from tests.harness.commands import crawl_command
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
PATIENCE_S: Final = 60.0
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

    is_held: bool = False  # no data come, and nothing of this host
    held_host: str = ""
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
        if self.is_held and (ask.host == self.held_host or ask.path.startswith("/data/")):
            return Reply(lambda: self.later(body), content_type=kind, headers=fields)
        return Reply(body, content_type=kind, headers=fields)

    async def later(self, body: str) -> AsyncIterator[bytes]:
        while self.is_held:
            await asyncio.sleep(0.01)
        yield body.encode()

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

    def command(self, **settings: object) -> list[str]:
        return crawl_command(self.data, {**SETTINGS, **settings}, seeds=self.seeds, scope="host")

    def are_held(self) -> bool:
        """Whether each host has a page under way that waits for the web."""
        waiting = {each.host for each in self.app.asked if each.path.startswith("/data/")}
        waiting |= {each.host for each in self.app.asked if each.host == self.app.held_host}
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


def test_rules_and_purges_of_a_crawl_that_runs(
    lives: Lives, revisited: object, tmp_path: Path
) -> None:
    assert revisited
    first, second, marked = HOSTS
    app, rules, log = lives.app, lives.data / "rules.toml", tmp_path / "log"
    rules.write_text("".join(rendering(host, "always") for host in (first, marked)))
    pass_time(lives.data, INTERVAL_S)
    app.is_held, app.held_host = True, second
    targets = [lives.web.url(marked, path) for path in ("/page/1", "/data/1.json")]
    last = {url for url in lives.pages() if url not in targets}
    before = len(outcomes(lives.data))
    with fork_server.running(lives.command(CRAWLER_RENDER="never"), log) as process:
        wait_until(lives.are_held, PATIENCE_S, "pages of all hosts", log=log.read_text)
        rules.write_text(rendering(first, "never") + rendering(second, "always"))
        wait_until(lambda: "Rules in force: 2" in log.read_text(), PATIENCE_S, log=log.read_text)
        held = command(lives.data, "frontier", "purge", *targets).stdout
        refused = command(lives.data, "archive", "purge", *targets[:1])
        app.is_held, app.held_host = False, ""
        wait_until(
            lambda: last <= {each.url for each in outcomes(lives.data)[before:]},
            PATIENCE_S,
            "a visit of each page that is not purged",
            log=log.read_text,
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    asked = [(each.host, each.path) for each in app.taken()]
    shells = [path for host, path in asked if host == first and "/page/" in path]
    data = {host: [path for at, path in asked if at == host and "/data/" in path] for host in HOSTS}
    assert len(shells) == len(NAMES)
    assert data[first] == [f"/data/{shells[0].rpartition('/')[2]}.json"], "not after its new rule"
    assert len(data[second]) == len(NAMES), "what comes after its rule is rendered"

    assert refused.returncode and "in use by another crawl" in refused.stderr
    kinds = {json.loads(line)["type"] for line in held.splitlines() if line.startswith("{")}
    assert kinds >= {"response", "conversion"}
    assert marked_files(lives.data), "the archive, and its columns"
    for name in ("frontier", "archive"):
        for target in targets:
            done = command(lives.data, name, "purge", target)
            assert done.returncode == 0, done.stderr
    assert marked_files(lives.data) == []
    checked = archive(lives.data, "check")
    assert checked.code == 0 and "good" in checked.text, checked.text
    judged_package(packed(lives.data, tmp_path / "crawl.wacz"))


def rendering(host: str, choice: str) -> str:
    return f'[[rule]]\nfor = "{host}"\nrender = "{choice}"\n'


def outcomes(data: Path) -> list[Outcome]:
    return list(read_outcomes(data / "outcomes.jsonl"))


def command(data: Path, *words: str) -> CompletedProcess[str]:
    return fork_server.run([*fork_server.SCRAPY, *words, "-s", f"CRAWLER_DATA_DIR={data}"])


def marked_files(data: Path) -> list[str]:
    """The names of files that hold the marker, compressed or not."""
    found = []
    for path in filter(Path.is_file, data.rglob("*")):
        content = path.read_bytes()
        if path.name.endswith(".gz"):
            content = gzip.decompress(content)
        elif path.suffix == ".parquet":
            content += str(read_rows(path)).encode()
        if MARKER.encode() in content:
            found.append(path.name)
    return found


PARTS: Final = "127.0.78.4"
PICTURE: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
NEEDED: Final[Mapping[str, Reply]] = {
    "/look.css": Reply(
        "@import 'more.css'; @font-face { font-family: f; src: url(f.woff2) }"
        " p { background: url(back.png); font-family: f } .none { background: url(unused.png) }",
        content_type="text/css",
    ),
    "/more.css": Reply("h1 { color: red }", content_type="text/css"),
    "/f.woff2": Reply(b"a font", content_type="font/woff2"),
    **{
        f"/{name}.png": Reply(PICTURE, content_type="image/png")
        for name in ("back", "unused", "shown", "made", "shaky")
    },
}


class Lacking:
    """Pages of which another host has what they show: at once, at the second time, or never."""

    def __init__(self) -> None:
        self.at_parts = ""
        self.asked: list[tuple[str, str]] = []

    def __call__(self, ask: Ask) -> Reply:
        self.asked.append((ask.host, ask.path))
        name = ask.path.rpartition("/")[2].partition(".")[0]
        if ask.path == "/shaky.png" and not ask.turn:
            return Reply(status=503)
        if ask.host == PARTS and name in ("once", "always", "never"):
            is_there = name == "always" or (name == "once" and ask.turn)
            fields = (("Access-Control-Allow-Origin", "*"),)
            return Reply(name * 100, 200 if is_there else 503, headers=fields)
        if ask.path.startswith("/page/"):
            head = "<link rel=stylesheet href=/look.css>" if name == "always" else ""
            icon = "" if name == "always" else "<link rel=icon href=data:,>"
            body = f"<div id=root></div><script src=/{name}.js></script>"
            return Reply(f"<!doctype html><title>App</title>{head}{icon}{body}")
        if ask.path.endswith(".js"):
            images = f"<img src=/shown.png><img src=/gone.png><img src={self.at_parts}/shaky.png>"
            shown = f"'<p>' + text + '{images}'" if name == "always" else "'<p>' + text"
            script = (
                f"fetch('{self.at_parts}/{name}.txt').then((got) => got.ok ? got.text() : '')"
                f".then((text) => {{ if (text) root.innerHTML = {shown} }});"
                + ("new Image().src = '/made.png';" if name == "always" else "")
            )
            return Reply(script, content_type="text/javascript")
        return NEEDED.get(ask.path, Reply("not here", 404))


@dataclass(frozen=True, slots=True)
class Whole:
    crawled: Crawled
    asked: Counter[str]
    root: str


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A crawl that ends by itself."""
    host, lacking = HOSTS[0], Lacking()
    with (
        LoopbackWeb(lacking, [host, PARTS]) as web,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(loop, "_LACKING_S", 0.05)
        lacking.at_parts = web.url(PARTS, "")
        seeds = ",".join(web.url(host, f"/page/{name}") for name in ("once", "never", "always"))
        crawled = crawl(
            tmp_path_factory.mktemp("whole") / "data",
            settings={**SETTINGS, "CRAWLER_REVISIT": None, "CRAWLER_CHANGES": None},
            seeds=seeds,
            scope="host",
            requisites="yes",
        )
        asked = Counter(path for _, path in lacking.asked)
        return Whole(crawled, asked, web.url(host, ""))


def test_a_page_that_lacks_something_is_fetched_again(whole: Whole) -> None:
    ends: dict[str, list[tuple[str, str]]] = {}
    for each in whole.crawled.outcomes:
        name = each.url.removeprefix(f"{whole.root}/page/")
        ends.setdefault(name, []).append((each.fate, each.reason))
    lacks = "not whole, left out: trouble"
    assert ends["once"] == [("retry", lacks), ("done", "")]
    assert ends["never"] == [("retry", lacks), ("retry", lacks), ("done", lacks)]
    assert ends["always"] == [("done", "")]
    asked = {name: whole.asked[f"/page/{name}"] for name in ("once", "never", "always")}
    assert asked == {"once": 2, "never": 3, "always": 1}
    texts = {row["url"].rpartition("/")[2]: row["text"] for row in rows(whole.crawled.data)}
    assert (texts["once"], texts["always"]) == ("once" * 100, "always" * 100)
    assert not texts["never"]


def rows(data: Path) -> list[dict[str, Any]]:
    return [row for file in (data / "warc").glob("*.parquet") for row in read_rows(file)]


def test_what_a_page_needs_is_fetched_once(whole: Whole) -> None:
    wanted = {"/shown.png", "/made.png", "/unused.png", "/favicon.ico"}
    assert {path: whole.asked[path] for path in wanted} == dict.fromkeys(wanted, 1)
    assert whole.asked["/shaky.png"] == 2, "its host was in trouble at the first time"


def test_what_a_page_was_given_is_not_missing(whole: Whole) -> None:
    found = json.loads(archive(whole.crawled.data, "missing", "--json").text)["finding"]["rows"]
    assert [(page, missing, why) for page, missing, _, why, *_ in found] == [
        (f"{whole.root}/page/always", f"{whole.root}/gone.png", "404")
    ]


def test_what_came_for_a_page_is_in_the_archive(whole: Whole) -> None:
    records = read_folder(whole.crawled.data / "warc").values()
    kept = {each.url for each in records if each.kind in ("response", "revisit")}
    names = {f"/{name}.js" for name in ("once", "never", "always")}
    assert names | NEEDED.keys() <= {"/" + url.split("/", 3)[3] for url in kept}
