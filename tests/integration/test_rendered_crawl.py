"""`CRAWLER_RENDER`: one crawl over sites that are made by scripts and ordinary ones, judged by the
servers' books, by what it has kept, and by what the pages were given."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

import pyarrow.parquet as pq
import pytest
from scrapy import Request, Spider
from scrapy.http import HtmlResponse, Response

from tests.harness.crawling import Crawled, crawl
from tests.servers.judge import ROBOTS, Gap, Rules, judge
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Visit

APP, PARTS, BUSY, DOCS, INSIDE = (f"127.0.75.{n}" for n in range(2, 7))
DELAYED: Final = "127.0.75.7"
RULES: Final = {
    APP: Rules(disallow=("/secret",)),
    PARTS: Rules(disallow=("/forbidden",)),
    DELAYED: Rules(crawl_delay_s=0.4, disallow=("/secret",)),
}
PAGES: Final = 8
GAP: Final = Gap(min_delay_s=0.1, delay_factor=1.0)
GONE: Final = 404  # a page that is none
WAIT_S: Final = 3  # that BUSY asks for
CORS: Final = ("Access-Control-Allow-Origin", "*")
WORDS: Final = ("fine", "silk", "from", "spiders", "that", "nobody", "has", "seen", "here", "yet")

SHELL: Final = """<!doctype html><html><head><title>An app</title>
<link rel=stylesheet href=//{parts}/look.css><link rel=icon href=/icon.png></head>
<body><div id=root></div><script src=//{parts}/app.js></script></body></html>"""

FAILING: Final = """
fetch("/graphql", {method: "POST", body: "{}"}).catch(() => {
  document.body.innerHTML = "<h2>Application error</h2>";
});
"""
SCRIPT: Final = """
const page = new URL(location).pathname.split("/").pop();
const key = location.hostname.split(".").pop() + "-" + page, of = "?page=" + key;
const given = [];
const ask = (name, url, options) => fetch(url, options).then(
  (got) => got.ok ? given.push(name) : given.push(name + ":" + got.status), () => {});
const parts = "http://" + PARTS, busy = "http://" + BUSY;
const asked = [
  ask("own", "/data/" + page + ".json" + of),
  ask("again", "/data/" + page + ".json" + of),
  ask("part", parts + "/part/" + page + ".json" + of),
  ask("moved", parts + "/moved/" + page + of),
  ask("missing", parts + "/missing/" + page + of),
  ask("secret", "/secret/" + page),
  ask("forbidden", parts + "/forbidden/" + page),
  ask("loop", parts + "/loop" + of),
  ask("long", parts + "/long" + of),
  ask("inside", "http://" + INSIDE + "/inside"),
  ask("posted", "/data/" + page, {method: "POST", body: "a=b"}),
  ask("file", "file:///etc/passwd"),
];
if (key === "2-3") asked.push(ask("first", busy + "/1" + of), ask("second", busy + "/2" + of));
if (page === "6") asked.push(ask("late", busy + "/third" + of));
new Image().src = "/picture.png";
new WebSocket("ws://" + location.host + "/socket");
Promise.all(asked).then(() => fetch("/data/" + page + ".json" + of))
  .then((got) => got.json()).then((found) => {
    document.title = found.title;
    document.getElementById("root").innerHTML = "<h1>" + found.title + "</h1>"
      + `<p>${found.text} given: ${given.sort().join(" ")} ${navigator.webdriver}</p>`
      + found.links.map((link) => `<a href="${link}">${link}</a>`).join(" ");
  });
"""


class Web:
    """What the hosts answer."""

    def __init__(self) -> None:
        self.port = 0
        self.asks: list[Ask] = []

    def __call__(self, ask: Ask) -> Reply:
        self.asks.append(ask)
        if ask.path == ROBOTS:
            return Reply(RULES.get(ask.host, Rules()).text(), content_type="text/plain")
        path = urlsplit(ask.path).path
        if path == "/loop":
            return Reply("", 302, headers=(CORS, ("Location", ask.path)))
        if path.startswith("/moved/"):
            to = ask.path.replace("/moved/", "/part/").replace("?", ".json?")
            return Reply("", 302, headers=(CORS, ("Location", to)))
        by_host = {APP: self._app, PARTS: self._part, BUSY: self._busy, DELAYED: self._app}
        if path.startswith("/data/"):
            return Reply(_data(ask.host, path[6:-5]), content_type="application/json")
        return by_host.get(ask.host, self._document)(path)

    def _at(self, host: str) -> str:
        return f"{host}:{self.port}"

    def _app(self, path: str) -> Reply:
        if path.startswith("/page"):
            return Reply(SHELL.format(parts=self._at(PARTS)))
        return Reply("not here", 404)

    def _part(self, path: str) -> Reply:
        if path == "/app.js":
            places = {"PARTS": PARTS, "BUSY": BUSY, "INSIDE": INSIDE}
            names = "".join(f"const {name} = '{self._at(at)}';" for name, at in places.items())
            return Reply(names + SCRIPT, content_type="text/javascript")
        if path == "/look.css":
            return Reply("h1 { color: red; background: url(/back.png) }", content_type="text/css")
        if path == "/long":
            return Reply(b"x" * (3 << 20), headers=(CORS,))
        if path.startswith("/part/"):
            return Reply("{}", content_type="application/json", headers=(CORS,))
        return Reply("not here", 404, headers=(CORS,))

    def _busy(self, path: str) -> Reply:
        if path == "/third":
            return Reply("{}", headers=(CORS,))
        return Reply("not now", 429, headers=(CORS, ("Retry-After", str(WAIT_S))))

    def _document(self, path: str) -> Reply:
        number = int(path[5:] or 0) if path.startswith("/doc/") else 0
        text = " ".join(f"{word}{number}" for word in WORDS * 40)
        links = "".join(f"<a href=/doc/{(number + n) % 40}>{n}</a> " for n in (1, 2, 7, 9))
        script = "document.title += ' - search'" if number else FAILING
        page = f"<title>Doc {number}</title><p>{text}</p>{links}<script>{script}</script>"
        return Reply(page)


def _data(host: str, name: str) -> str:
    if not name.isdecimal() or int(name) >= PAGES:
        text = "Sorry, the page that you are looking for does not exist. It may have been moved."
        return json.dumps({"title": "Page not found", "text": text, "links": ["/page/0"]})
    number = int(name)
    links = [f"/page/{(2 * number + step) % PAGES}" for step in (1, 2)]
    drawn = Random(f"{host} {number}")
    text = " ".join(f"word{drawn.randrange(10**6)}" for _ in range(200))
    if host == APP and number == 1:
        links.append(f"/page/{GONE}")
    return json.dumps({"title": f"Page {number}", "text": f"silk{number} {text}", "links": links})


@dataclass(frozen=True, slots=True)
class Life:
    crawled: Crawled
    visits: list[Visit]
    asks: list[Ask]
    port: int

    def asked(self, host: str) -> Counter[str]:
        return Counter(urlsplit(each.path).path for each in self.asks if each.host == host)


def turns(visits: list[Visit]) -> dict[int, str]:
    """The page that each request is for, by its id: all of one, to one host, are of one turn. What
    pages share, and the robots.txt of hosts without pages, are asked for before the rest of a
    turn."""
    found: dict[int, str] = {}
    later: dict[str, str] = {}
    for visit in sorted(visits, key=lambda visit: -visit.arrival_s):
        parts = urlsplit(visit.path)
        page = parse_qs(parts.query).get("page", [""])[0]
        if parts.path.startswith("/page/"):
            page = f"{visit.host.rpartition('.')[2]}-{parts.path[6:]}"
        elif not page and visit.host in (PARTS, BUSY):
            page = later.get(visit.host, "")
        found[id(visit)] = later[visit.host] = page
    return found


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    folder, web = tmp_path_factory.mktemp("rendered"), Web()
    with LoopbackWeb(web, [APP, PARTS, BUSY, DOCS, INSIDE, DELAYED]) as served:
        web.port = served.port
        seeds = folder / "seeds.txt"
        urls = [
            served.url(APP, "/page/0"),
            served.url(DOCS, "/doc/0"),
            served.url(DELAYED, "/page/5"),
        ]
        seeds.write_text("\n".join(urls))
        (folder / "data").mkdir()
        (folder / "data" / "rules.toml").write_text(f'[[rule]]\nfor = "{INSIDE}"\nrefuse = true\n')
        crawled = crawl(
            folder / "data",
            settings={
                "CRAWLER_RENDER": "auto",
                "CRAWLER_MIN_DELAY_S": GAP.min_delay_s,
                "CRAWLER_DELAY_FACTOR": GAP.delay_factor,
                "CRAWLER_RENDER_TIMEOUT_S": 60,
                "CRAWLER_RENDER_QUIET_S": 0.2,
            },
            seeds=str(seeds),
            scope="host",
        )
        served.settle()
        yield Life(crawled, list(served.visits), list(web.asks), served.port)


def rows(life: Life) -> dict[str, dict[str, Any]]:
    """The columns of each page, by host and path."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted((life.crawled.data / "warc").glob("*.parquet")):
        for row in pq.read_table(file).to_pylist():
            parts = urlsplit(row["url"])
            found[f"{parts.hostname}{parts.path}"] = row
    return found


def test_what_scripts_bring_is_text_and_links(life):
    outcomes = [each for each in life.crawled.outcomes if each.host == APP]
    ends = {urlsplit(each.url).path: (each.fate, each.reason) for each in outcomes}
    kept = {f"/page/{number}": ("done", "") for number in range(PAGES)}
    assert ends == {**kept, f"/page/{GONE}": ("done", "soft_404")}
    found = rows(life)
    for number in range(PAGES):
        row = found[f"{APP}/page/{number}"]
        assert row["title"] == f"Page {number}"
        assert f"silk{number} word" in row["text"]


def test_a_page_that_says_that_it_is_none_is_known_by_its_dom(life):
    """Its outcome is above; and its host was asked how it answers for what cannot exist."""
    assert life.crawled.stats["crawler/soft_404/asked"] == 1


def test_ordinary_pages_are_rendered_as_a_sample_only(life):
    assert life.asked(DOCS).total() == 41  # all of them, once, and robots.txt
    assert life.crawled.stats["crawler/render/because/sample"] <= 5


def test_a_page_that_its_scripts_have_spoilt_stays_as_it_was_sent(life):
    """Its links lead to all others of its host."""
    row = rows(life)[f"{DOCS}/doc/0"]
    assert row["text"].startswith("fine0 silk0")
    assert not row["rendered"]
    assert life.crawled.stats["crawler/render/less"] == 1
    first = next(each for each in life.crawled.outcomes if each.url.endswith("/doc/0"))
    assert first.fate == "done"
    assert first.reason.startswith("rendered to less than was sent")


def test_the_books_of_all_servers_show_no_violation(life):
    of = turns(life.visits)
    found = judge(life.visits, RULES, GAP, lambda visit: of[id(visit)])
    assert not found.found, str(found)


def test_each_thing_is_asked_for_once_and_only_where_it_may_be(life):
    app, parts = life.asked(APP), life.asked(PARTS)
    assert {f"/data/{number}.json" for number in range(PAGES)} <= app.keys()
    twice = {path for path, times in app.items() if times > 1}
    assert twice == {f"/page/{GONE}", f"/data/{GONE}.json"}  # before its host was probed, and after
    assert not any(path.startswith("/secret") for path in app)
    assert parts["/app.js"] == parts["/look.css"] == 1  # of all pages of two hosts
    assert not life.asked(INSIDE)
    assert all(each.method == "GET" for each in life.asks)
    left_out = {name.rpartition("/")[2] for name in life.crawled.stats if "left_out" in name}
    assert left_out >= {"kind", "method", "robots", "bytes", "redirects", "url", "trouble"}


def test_a_page_gets_whole_answers_and_errors_as_a_browser_does(life):
    text = rows(life)[f"{APP}/page/5"]["text"]
    for name in ("own", "again", "part", "moved", "missing:404"):
        assert f" {name}" in text, text[-300:]
    for name in ("secret", "forbidden", "loop", "long", "inside", "posted", "file"):
        assert f" {name}" not in text, text[-300:]
    assert " true" in text  # navigator.webdriver


def test_who_asks_to_wait_is_not_asked_again_before(life):
    assert life.asked(BUSY)["/1"] + life.asked(BUSY)["/2"] == 1
    busy = sorted(each.arrival_s for each in life.visits if each.host == BUSY)
    ends = [each.end_s for each in life.visits if each.status == 429]
    assert all(at >= ends[0] + WAIT_S for at in busy if at > ends[0])


def test_all_requests_are_by_one_name_and_without_cookies(life):
    assert len({each.agent for each in life.visits}) == 1
    assert not any(name.lower() == "cookie" for each in life.asks for name, _ in each.headers)


def test_a_crawl_delay_holds_for_all_requests_of_a_turn(life):
    """Judged with the others; here that there were such turns."""
    delayed = [each for each in life.visits if each.host == DELAYED]
    assert len(delayed) > 2 * PAGES


class Asking(Spider):
    """Says of its own requests which are rendered, and of two nothing."""

    name = "asking"
    titles: ClassVar[dict[str, str]] = {}

    async def start(self) -> AsyncIterator[Request]:
        for number, meta in enumerate(({"playwright": True}, {}, {}, {"playwright": False})):
            yield Request(f"{self.root}/page/{number}", meta=dict(meta))

    def parse(self, response: Response) -> None:
        assert isinstance(response, HtmlResponse)
        self.titles[response.url.rpartition("/")[2]] = response.css("title::text").get("")


def test_a_request_a_rule_and_the_settings_say_which_pages_are_rendered(tmp_path):
    web = Web()
    with LoopbackWeb(web, [APP, PARTS, BUSY, INSIDE]) as served:
        web.port = served.port
        root = served.url(APP, "")
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "rules.toml").write_text(
            f'[[rule]]\nfor = ["{root}/page/2", "{root}/page/3"]\nrender = "always"\n'
        )
        crawl(
            tmp_path / "data",
            Asking,
            {"CRAWLER_RENDER": "never", "CRAWLER_RENDER_QUIET_S": 0.2},
            root=root,
        )
    assert Asking.titles == {"0": "Page 0", "1": "An app", "2": "Page 2", "3": "An app"}
